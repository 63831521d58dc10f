"""Publishing dead letters to a topic: within the limits, retried with backoff, nothing lost for its size.

The service's client is called with a whole request, never with attributes as keyword arguments, so that no
attribute's name can collide with a parameter's.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import HeadraceError
from pipeline.core.messages import spill_id
from pipeline.core.names import spill_name
from pipeline.core.pubsub import OutgoingMessage, fits, message_of, plan_requests, spilled_letter
from pipeline.core.text import printable
from pipeline.transforms import files

_SHOWN_CHARACTERS = 500
_REMEMBERED = 100_000

_Key = tuple[str, str]
"""What a letter is known by on a topic: ``dlq_id`` and ``dlq_attempt``."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to go on, in seconds.

    A request may take ``request``; waits double from ``first_wait`` to ``longest_wait`` (a random part of each is
    left out, so that workers do not come back all at once); after ``total`` the fault is raised.
    """

    request: float = 30.0
    total: float = 120.0
    first_wait: float = 0.2
    longest_wait: float = 10.0


class TopicPublisher:
    """Publishes dead letters to ``topic``. Can be pickled, shared by threads, and closed; connects when first used.

    ``spill`` is the folder for payloads that are too large to travel: their messages point there. Honours
    PUBSUB_EMULATOR_HOST. Delivery is at least once: a call that fails may have published some letters. An
    instance remembers which, and leaves them out when the bundle is tried again; where another process tries,
    or where the service took a request whose answer was lost, a letter comes twice, with the same ``dlq_id``.
    """

    def __init__(
        self, topic: str, *, spill: str, keep_ordering_key: bool = False, retry: RetryPolicy | None = None
    ) -> None:
        self._topic, self._spill, self._keep_key = topic, spill, keep_ordering_key
        self._policy = retry or RetryPolicy()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._published: dict[_Key, None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_topic": self._topic, "_spill": self._spill, "_keep_key": self._keep_key, "_policy": self._policy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def publish(self, letters: Sequence[DeadLetter]) -> int:
        """Publish all of them, each id and attempt once; returns how many letters that were.

        Raises OSError where a payload cannot be spilled, and HeadraceError where the topic cannot be published to.
        Never for what is in a letter.
        """
        wanted = {_key_of(letter): letter for letter in letters}
        done: list[_Key] = []
        try:
            for request in plan_requests(self._messages(wanted)):
                self._send(request, wanted)
                done += map(_key_on, request)
        except BaseException:
            self._remember(done)
            raise
        self._forget(wanted)
        return len(letters)

    def close(self) -> None:
        """Close the connection, if there is one. Publishing again opens another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def _messages(self, wanted: dict[_Key, DeadLetter]) -> Iterator[OutgoingMessage]:
        """One at a time, so that not all payloads are held twice."""
        for key, letter in wanted.items():
            if key in self._published:
                continue
            message = message_of(letter, keep_ordering_key=self._keep_key)
            yield message if fits(message) else self._pointing_to(self._spilled(letter))

    def _pointing_to(self, letter: DeadLetter) -> OutgoingMessage:
        return message_of(letter, keep_ordering_key=self._keep_key)

    def _spilled(self, letter: DeadLetter) -> DeadLetter:
        """Write the payload into the folder for it, under a name that follows from its content."""
        payload = letter.payload
        if payload is None:
            return letter
        uri = files.join(self._spill, spill_name(spill_id(letter)))
        if files.size_of(uri) != len(payload):  # else an earlier attempt wrote just this
            files.write_bytes(uri, payload)
        return spilled_letter(letter, uri)

    def _send(self, request: list[OutgoingMessage], wanted: dict[_Key, DeadLetter]) -> None:
        """Publish a request; narrow it down to the messages that the service finds invalid, if there are any."""
        from google.api_core.exceptions import InvalidArgument

        try:
            self._call(request)
        except InvalidArgument as error:
            if len(request) > 1:
                middle = len(request) // 2
                self._send(request[:middle], wanted)
                self._send(request[middle:], wanted)
                return
            self._send_bare(wanted[_key_on(request[0])], error)

    def _send_bare(self, letter: DeadLetter, refused: Exception) -> None:
        """Publish a letter that the service refuses for a rule that we do not know: ours alone, all else spilled."""
        from google.api_core.exceptions import InvalidArgument

        uri = files.join(self._spill, f"attributes-{spill_id(letter)}.json")
        files.write_bytes(uri, json.dumps(dict(letter.attributes), sort_keys=True).encode())
        bare = replace(self._spilled(letter), attributes=(), ordering_key="")
        try:
            self._call([message_of(bare)])
        except InvalidArgument:
            raise HeadraceError(
                f"{self._topic} refuses every form of a dead letter: {_shown(refused)}. Has the topic a schema, or "
                "other rules for messages? Give a topic without them"
            ) from refused

    def _call(self, request: list[OutgoingMessage]) -> None:
        """One request, retried while the fault may pass. Raises InvalidArgument, or HeadraceError for all else."""
        from google.api_core import exceptions

        client = self._connected()
        try:
            client.publish(request=_request(self._topic, request), retry=self._retry(), timeout=self._policy.request)
        except exceptions.InvalidArgument:
            raise
        except exceptions.RetryError as error:
            cause = _shown(error.cause or error)
            raise HeadraceError(
                f"{self._topic} could not be published to for {self._policy.total:g} s: {cause}"
            ) from error
        except exceptions.GoogleAPICallError as error:
            raise HeadraceError(
                f"cannot publish to {self._topic}: {_shown(error)}. Does the topic exist, and may this account "
                "publish to it (roles/pubsub.publisher)?"
            ) from error

    def _retry(self) -> Any:
        from google.api_core import exceptions
        from google.api_core.retry import Retry, if_exception_type

        passing = (
            exceptions.ServiceUnavailable,
            exceptions.DeadlineExceeded,
            exceptions.ResourceExhausted,
            exceptions.TooManyRequests,
            exceptions.Aborted,
            exceptions.InternalServerError,
            exceptions.Unknown,
            exceptions.Cancelled,
            exceptions.GatewayTimeout,
        )
        return Retry(
            predicate=if_exception_type(*passing),
            initial=self._policy.first_wait,
            maximum=self._policy.longest_wait,
            multiplier=2.0,
            timeout=self._policy.total,
        )

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = connect()
            return self._client

    def _remember(self, keys: list[_Key]) -> None:
        with self._lock:
            self._published.update(dict.fromkeys(keys))
            while len(self._published) > _REMEMBERED:
                del self._published[next(iter(self._published))]

    def _forget(self, keys: dict[_Key, DeadLetter]) -> None:
        with self._lock:
            for key in keys:
                self._published.pop(key, None)


def _key_of(letter: DeadLetter) -> _Key:
    return letter.dlq_id, str(letter.attempt)


def _key_on(message: OutgoingMessage) -> _Key:
    attributes = dict(message.attributes)
    return attributes["dlq_id"], attributes["dlq_attempt"]


def _request(topic: str, messages: Sequence[OutgoingMessage]) -> Any:
    """The request, made as a plain protocol buffer: making it through its wrapper takes several times as long."""
    from google.pubsub_v1.types import PublishRequest

    request = PublishRequest.pb(PublishRequest(topic=topic))
    for message in messages:
        request.messages.add(data=message.data, attributes=dict(message.attributes), ordering_key=message.ordering_key)
    return PublishRequest.wrap(request)


def connect() -> Any:
    """A client for whole requests; honours PUBSUB_EMULATOR_HOST. Raises HeadraceError without credentials."""
    import grpc  # type: ignore[import-untyped]
    from google.auth.exceptions import DefaultCredentialsError
    from google.pubsub_v1 import PublisherClient

    emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
    if not emulator:
        try:
            return PublisherClient()
        except DefaultCredentialsError as error:
            raise HeadraceError(f"cannot publish dead letters without credentials: {_shown(error)}") from error
    transport = PublisherClient.get_transport_class("grpc")
    return PublisherClient(transport=transport(channel=grpc.insecure_channel(emulator)))


def _shown(error: Any) -> str:
    return printable(f"{type(error).__name__}: {error}", _SHOWN_CHARACTERS)
