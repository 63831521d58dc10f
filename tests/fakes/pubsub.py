"""The Pub/Sub emulator of the Google Cloud SDK, started for the tests of this process, and helpers to talk to it.

A test takes the fixture ``pubsub`` (the emulator, with PUBSUB_EMULATOR_HOST set while the test runs) or
``pubsub_emulator`` (the same one, without touching the environment; ``.env`` is for processes of its own). There is
one emulator a process, so tests that run side by side under pytest-xdist share nothing; within a process tests
share it and keep apart by names, which ``topic()`` and ``subscription()`` make fresh. Where Java or the SDK is
missing the tests are skipped with the reason, and fail where CI=true.

The emulator is not the service. It does NOT: enforce limits on attributes (100, key 256 bytes, value 1,024), refuse
names beginning with ``goog``, apply filters, know IAM (testIamPermissions is UNIMPLEMENTED), refuse project ids, or
keep anything when it ends. A publish over about 11 MB never answers: every call here has a timeout. It does know
ordering, native dead-letter policies, seek, snapshots, nack and redelivery.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from emulation.sdk import Missing, came_up, java_options, pubsub_command

PROJECT = "test-proj"  # Beam takes no id of less than 6 characters
SECONDS = 30.0  # for one call
_PULL = 1000  # messages a pull brings at most
_REQUEST_BYTES, _REQUEST_MESSAGES = 5_000_000, 1000


@dataclass(frozen=True)
class Received:
    """A message as it came out of a subscription."""

    data: bytes
    attributes: dict[str, str]
    message_id: str
    publish_time: float
    """Seconds since 1970."""
    ordering_key: str = ""


@dataclass
class Emulator:
    """A running emulator at ``host`` (``127.0.0.1:port``)."""

    host: str
    project: str = PROJECT
    _count: Iterator[int] = field(default_factory=itertools.count, repr=False)
    _clients: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to use it."""
        return {"PUBSUB_EMULATOR_HOST": self.host, "GOOGLE_CLOUD_PROJECT": self.project}

    @property
    def publisher(self) -> Any:
        """A plain (GAPIC) publisher client; every call needs ``timeout=``."""
        return self._client("Publisher")

    @property
    def subscriber(self) -> Any:
        """A plain (GAPIC) subscriber client; every call needs ``timeout=``."""
        return self._client("Subscriber")

    def topic(self, name: str | None = None) -> str:
        """Make a topic and return its path; a fresh name unless one is given."""
        path = f"projects/{self.project}/topics/{name or self._fresh('topic')}"
        self.publisher.create_topic(request={"name": path}, timeout=SECONDS)
        return path

    def subscription(self, topic: str, name: str | None = None, **settings: Any) -> str:
        """Make a subscription to ``topic`` and return its path; ``settings`` are fields of the API's Subscription."""
        path = f"projects/{self.project}/subscriptions/{name or self._fresh('subscription')}"
        request = {"name": path, "topic": topic, "ack_deadline_seconds": 60, **settings}
        self.subscriber.create_subscription(request=request, timeout=SECONDS)
        return path

    def publish(
        self, topic: str, *messages: bytes | tuple[bytes, Mapping[str, str]], ordering_key: str = ""
    ) -> list[str]:
        """Publish messages (data, or data and attributes) in as many requests as it takes; returns their ids."""
        ids: list[str] = []
        pairs = [message if isinstance(message, tuple) else (message, {}) for message in messages]
        for part in _requests(pairs):
            wire = [
                {"data": data, "attributes": dict(attributes), "ordering_key": ordering_key}
                for data, attributes in part
            ]
            ids += self.publisher.publish(request={"topic": topic, "messages": wire}, timeout=SECONDS).message_ids
        return ids

    def pull(self, subscription: str, *, ack: bool = True) -> list[Received]:
        """What is there now, at most 1,000 messages; empty where nothing is."""
        request = {"subscription": subscription, "max_messages": _PULL, "return_immediately": True}
        found = self.subscriber.pull(request=request, timeout=SECONDS).received_messages
        if found and ack:
            request = {"subscription": subscription, "ack_ids": [one.ack_id for one in found]}
            self.subscriber.acknowledge(request=request, timeout=SECONDS)
        return [_received(one.message) for one in found]

    def pull_all(self, subscription: str, count: int = 0, *, seconds: float = SECONDS) -> list[Received]:
        """Pull and acknowledge until at least ``count`` came and no more come; AssertionError after ``seconds``."""
        found: list[Received] = []
        limit = time.monotonic() + seconds
        while True:
            more = self.pull(subscription)
            found += more
            if not more and len(found) >= count:
                return found
            if not more:
                assert time.monotonic() < limit, f"{len(found)} of {count} messages came in {seconds} s"
                time.sleep(0.05)

    def _fresh(self, kind: str) -> str:
        return f"{kind}-{next(self._count)}"

    def _client(self, kind: str) -> Any:
        """A client whose channel leads here whatever the environment says."""
        if kind not in self._clients:
            import grpc
            from google import pubsub_v1

            channel = grpc.insecure_channel(self.host, options=[("grpc.max_receive_message_length", -1)])
            client = getattr(pubsub_v1, f"{kind}Client")
            self._clients[kind] = client(transport=client.get_transport_class("grpc")(channel=channel))
        return self._clients[kind]


def _requests(
    pairs: Sequence[tuple[bytes, Mapping[str, str]]],
) -> Iterator[list[tuple[bytes, Mapping[str, str]]]]:
    part: list[tuple[bytes, Mapping[str, str]]] = []
    size = 0
    for data, attributes in pairs:
        added = len(data) + sum(len(key) + len(value) for key, value in attributes.items()) + 100
        if part and (size + added > _REQUEST_BYTES or len(part) == _REQUEST_MESSAGES):
            yield part
            part, size = [], 0
        part.append((data, attributes))
        size += added
    if part:
        yield part


def _received(message: Any) -> Received:
    return Received(
        bytes(message.data),
        dict(message.attributes),
        message.message_id,
        message.publish_time.timestamp(),
        message.ordering_key,
    )


@contextlib.contextmanager
def running_emulator() -> Iterator[Emulator]:
    """An emulator on a free port while the body runs. Raises ``emulation.sdk.Missing`` where it cannot be had."""
    with tempfile.TemporaryFile() as said:
        process, host = _start(said)
        try:
            yield Emulator(host)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(said: BinaryIO, attempts: int = 3) -> tuple[subprocess.Popen[bytes], str]:
    """The process and its address. Another process may take the port that was free: then another is tried."""
    for _ in range(attempts):
        said.truncate(0)
        port = _free_port()
        command = pubsub_command("127.0.0.1", port)
        environment = {**os.environ, "JAVA_OPTS": java_options()}
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        if _ready(process, said, port):
            return process, f"127.0.0.1:{port}"
        process.kill()
        process.wait()
    raise RuntimeError(f"the Pub/Sub emulator does not start: {_text(said)[-2000:]}")


def _ready(process: subprocess.Popen[bytes], said: BinaryIO, port: int, seconds: float = 60) -> bool:
    limit = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < limit:
        up = came_up(_text(said), port)
        if up is False:
            return False
        if up:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                return True
        time.sleep(0.05)
    return False


def _text(said: BinaryIO) -> str:
    return os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need_emulator() -> None:
    """Skip the test with the reason where the emulator cannot be had; fail it where CI=true."""
    try:
        pubsub_command("127.0.0.1", 1)
    except Missing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must test with the Pub/Sub emulator, but {missing}")
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def pubsub_emulator() -> Iterator[Emulator]:
    """The emulator of this process."""
    need_emulator()
    with running_emulator() as emulator:
        yield emulator


@pytest.fixture
def pubsub(pubsub_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator, with the environment of this process leading to it."""
    for name, value in pubsub_emulator.env.items():
        monkeypatch.setenv(name, value)
    return pubsub_emulator
