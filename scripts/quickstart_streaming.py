"""The streaming quickstart: flights published at a steady rate, some of them broken, and the job that takes them.

Everything runs on this machine: the emulators of Pub/Sub and Cloud Storage are started for it and stopped in the end,
also at Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from emulation.sdk import Missing
from emulators import PROJECT, State, exports, start, stop
from quickstart import SCRIPTS, edit_schema, headrace, step, write_flights

TOPIC = f"projects/{PROJECT}/topics/flights"
SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/flights-headrace"
DEAD_TOPIC = f"projects/{PROJECT}/topics/flights-dead"
LEARN_ROWS = 20_000
BATCHES_A_SECOND = 10
BREAK_ONE_IN = 100


def main() -> int:
    """Run all steps; stops at the first that fails, with its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("quickstart-data"), help="where everything is written")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long flights are published")
    parser.add_argument("--rate", type=int, default=500, help="flights a second")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = State(arguments.work / "emulators")
    try:
        with emulators(state):
            return play(arguments.work, seconds=arguments.seconds, rate=arguments.rate)
    except Missing as missing:
        print(f"quickstart: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("quickstart: interrupted; the job and the emulators are stopped", file=sys.stderr)
        return 130


@contextlib.contextmanager
def emulators(state: State) -> Iterator[None]:
    """The emulators, with the environment leading to them. Raises Missing where they cannot be had."""
    step("1. Stand-ins for Pub/Sub and Cloud Storage on this machine")
    try:
        with state.alone(), contextlib.redirect_stdout(io.StringIO()):  # what it prints is for shells
            start(state, ["pubsub", "storage"])
        for line in [*exports("pubsub", state), *exports("storage", state)]:
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value.strip("'")
        yield
    finally:
        with uninterrupted(), state.alone():
            stop(state, ["pubsub", "storage"])


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """What is cleaned up is cleaned up to the end, however often Ctrl-C is pressed."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def play(work: Path, *, seconds: float, rate: int) -> int:
    """Everything between the start and the end of the emulators."""
    folder = work / "streaming"
    for name in ("out", "dead"):
        shutil.rmtree(folder / name, ignore_errors=True)
    flights, schema, transform = learn(work, folder)
    flags = [
        *("--input_subscription", SUBSCRIPTION, "--dead_letter_topic", DEAD_TOPIC),
        *("--schema", str(schema), "--transform", str(transform)),
        *("--output", str(folder / "out"), "--dead_letters", str(folder / "dead")),
    ]
    step("3. Is everything there? What is missing is made")
    headrace("preflight", *flags, "--create", "--input_topic", TOPIC)
    step(f"4. The job, and {rate:,} flights a second for {seconds:g} s, one in {BREAK_ONE_IN} broken")
    done = stream(flags, lambda stopped: publish(flights, stopped, seconds=seconds, rate=rate))
    if done:
        return done
    step("5. Shards by window, every checksum and every count read back")
    show_windows(folder / "out")
    headrace("verify", str(folder / "out"))
    step("6. Who was refused, and why: on the topic, and in the archive")
    print(f"   {DEAD_TOPIC} brought {dead_letters_on_topic():,} messages to its subscription")
    headrace("dlq", "summary", str(folder / "dead"))
    step("7. The end: the emulators are stopped, and what was in Pub/Sub is gone with them")
    return 0


def learn(work: Path, folder: Path) -> tuple[Path, Path, Path]:
    """The flights, their schema, and a transform learnt from some of them, made once."""
    folder.mkdir(parents=True, exist_ok=True)
    flights, schema = work / "flights.jsonl", folder / "schema.pbtxt"
    some, transform = folder / "some.jsonl", folder / "transform"
    step(f"2. A schema, and a transform learnt from {LEARN_ROWS:,} flights in a batch: the stream uses the same one")
    if not flights.exists():
        write_flights(flights)
    if not (transform / "headrace.json").exists():
        headrace("schema", "infer", str(flights), "--output", str(schema))
        edit_schema(schema)
        every = sum(1 for _ in flights.open("rb")) // LEARN_ROWS or 1
        with flights.open("rb") as lines, some.open("wb") as chosen:
            chosen.writelines(itertools.islice(lines, 0, None, every))
        headrace(
            *("analyze", "--input", str(some), "--schema", str(schema), "--output", str(transform)),
            *("--features", str(SCRIPTS / "flights_features.yaml")),
        )
    return flights, schema, transform


def stream(flags: Sequence[str], feed: Callable[[threading.Event], None]) -> int:
    """Run ``headrace stream`` while ``feed`` publishes, then tell it to stop; its exit code."""
    words = [*flags, "--window", "10s", "--allowed_lateness", "30s", "--shards_per_window", "2"]
    print(f"$ headrace stream {' '.join(words)}", flush=True)
    command = [sys.executable, "-m", "pipeline.main", "stream", *words, "--log_format=text"]
    stopped = threading.Event()
    feeder = threading.Thread(target=feed, args=(stopped,), daemon=True)  # the main thread hears Ctrl-C
    with subprocess.Popen(command, start_new_session=True) as job:  # Ctrl-C is ours to pass on
        try:
            feeder.start()
            while feeder.is_alive() and job.poll() is None:
                feeder.join(0.2)
        finally:
            with uninterrupted():
                stopped.set()
                if job.poll() is None:
                    job.terminate()  # SIGINT is ignored by children of background jobs
                code = job.wait()
                feeder.join(40)
    return code


def publish(flights: Path, stopped: threading.Event, *, seconds: float, rate: int) -> None:
    """Publish flights at a steady rate until the time is over or ``stopped`` is set; then wait until they are taken."""
    from google.cloud import pubsub_v1

    client = pubsub_v1.PublisherClient()
    lines, rng = itertools.cycle(flights.open("rb")), random.Random(2013)
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds and not stopped.is_set():
        due = round(min(now + 1 / BATCHES_A_SECOND, seconds) * rate) - sent
        messages = [message(next(lines).rstrip(b"\n"), rng) for _ in range(due)]
        if messages:
            client.api.publish(request={"topic": TOPIC, "messages": messages}, timeout=30)
        sent += due
        stopped.wait(1 / BATCHES_A_SECOND)
    print(f"   {sent:,} flights are published", flush=True)
    wait_until_taken(stopped)


def message(line: bytes, rng: random.Random) -> dict[str, Any]:
    """A flight as a message; one in a hundred is broken in one of the ways in which producers break them."""
    attributes = {"producer": f"tower-{rng.randrange(3)}"}
    if rng.randrange(BREAK_ONE_IN) == 0:
        line = rng.choice((cut, as_text, not_utf8, beyond_range))(line)
        attributes["producer"] = "tower-9"
    return {"data": line, "attributes": attributes}


def cut(line: bytes) -> bytes:
    """Half of a row."""
    return line[: len(line) // 2]


def as_text(line: bytes) -> bytes:
    """A number in quotes."""
    flight = json.loads(line)
    return json.dumps(flight | {"distance": str(flight["distance"])}).encode()


def not_utf8(line: bytes) -> bytes:
    """Latin-1 where UTF-8 is agreed."""
    return line.replace(b'"origin":"', b'"origin":"\xe9', 1)


def beyond_range(line: bytes) -> bytes:
    """A month that there is not."""
    return json.dumps(json.loads(line) | {"month": 13}).encode()


def wait_until_taken(stopped: threading.Event, *, seconds: float = 120.0) -> None:
    """Wait until the job has taken what was published: look for a message that is left, and give it back at once."""
    from google.cloud import pubsub_v1

    limit = time.monotonic() + seconds
    with pubsub_v1.SubscriberClient() as client:
        while time.monotonic() < limit and not stopped.is_set():
            request = {"subscription": SUBSCRIPTION, "max_messages": 1, "return_immediately": True}
            found = client.pull(request=request, timeout=30).received_messages
            if not found:
                return
            give_back = {"subscription": SUBSCRIPTION, "ack_ids": [found[0].ack_id], "ack_deadline_seconds": 0}
            client.modify_ack_deadline(request=give_back, timeout=30)
            stopped.wait(0.5)


def show_windows(out: Path) -> None:
    """One line a window."""
    for path in sorted(out.glob("window=*/manifest.json")):
        shards = json.loads(path.read_bytes())["shards"]
        rows, size = (sum(shard[name] for shard in shards) for name in ("rows", "bytes"))
        print(f"   {path.parent.name}  {len(shards):3} shards  {rows:8,} rows  {size:11,} bytes")


def dead_letters_on_topic() -> int:
    """How many messages the dead-letter topic's subscription holds; they are taken out."""
    from google.cloud import pubsub_v1

    subscription, count = f"projects/{PROJECT}/subscriptions/flights-dead-sub", 0
    with pubsub_v1.SubscriberClient() as client:
        while True:
            request = {"subscription": subscription, "max_messages": 500, "return_immediately": True}
            found = client.pull(request=request, timeout=30).received_messages
            if not found:
                return count
            count += len(found)
            ids = [one.ack_id for one in found]
            client.acknowledge(request={"subscription": subscription, "ack_ids": ids}, timeout=30)


if __name__ == "__main__":
    sys.exit(main())
