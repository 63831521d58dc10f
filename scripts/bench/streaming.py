"""The streaming path without Pub/Sub: messages to the bytes of a shard, in one process and one thread, both ways.

Ours is what a worker does with a batch: ``MessageProcessor`` from payloads to framed records, with validation and the
TFT graph. The other way is the per-row peer's own functions on each message, and its framing; no transform.
"""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.core.messages import Message, make_message

_START_US = 1_700_000_000_000_000


def messages(source: Path, count: int) -> list[Message]:
    """The first lines of a JSON lines file as messages, a millisecond apart."""
    with source.open("rb") as lines:
        return [
            make_message(
                line.rstrip(b"\n"),
                {"source": "benchmark"},
                message_id=str(10**15 + number),
                publish_time_us=_START_US + number * 1000,
                event_time_us=_START_US + number * 1000,
            )
            for number, line in enumerate(itertools.islice(lines, count))
        ]


def ours(schema: str, transform: str) -> Callable[[list[Message]], int]:
    """Works on a batch; how many messages are in it."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from pipeline.core.messages import StreamSettings
    from pipeline.core.settings import InputSettings
    from pipeline.core.windows import NEVER_CLOSED
    from pipeline.transforms.streaming import make_processor

    proto = text_format.Parse(Path(schema).read_text(encoding="utf-8"), schema_pb2.Schema())
    settings = StreamSettings(
        InputSettings("json", proto.SerializeToString(deterministic=True)),
        "projects/benchmark/subscriptions/none",
        transform=transform,
    )
    processor = make_processor(settings)

    def work(batch: list[Message]) -> int:
        processed = processor.process(batch, closed_before_s=NEVER_CLOSED)
        if processed.refused or not processed.chunks:
            raise RuntimeError(f"{len(processed.refused)} good messages were refused")
        return len(batch)

    return work


def per_row(schema: str, transform: str) -> Callable[[list[Message]], int]:
    """Works on each message of a batch; how many there are."""
    from apache_beam.io.tfrecordio import _TFRecordUtil

    from bench.per_row import ParseAndCheck, ToExample

    parse, encode = ParseAndCheck(), ToExample()

    def work(batch: list[Message]) -> int:
        shard = io.BytesIO()
        for message in batch:
            for row in parse.process(message.payload):  # type: ignore[arg-type]  # json.loads takes bytes too
                for record in encode.process(row):
                    _TFRecordUtil.write_record(shard, record)
        return len(batch)

    return work


WAYS: dict[str, Callable[[str, str], Callable[[list[Message]], int]]] = {"ours": ours, "per_row": per_row}


class Streaming:
    """Works through the messages of ``source`` over and over, ``batch`` at a time; ``rows`` were worked on.

    Making one works for ``warm_up`` seconds; ``run`` then works for ``seconds``.
    """

    def __init__(self, **settings: Any) -> None:
        self._messages = messages(Path(settings["source"]), settings["messages"])
        self._batch, self._seconds = settings["batch"], settings["seconds"]
        self._work = WAYS[settings["way"]](settings["schema"], settings["transform"])
        self._for(settings["warm_up"])
        self.rows = 0

    def run(self) -> None:
        """Work for the time given."""
        self.rows = self._for(self._seconds)

    def _for(self, seconds: float) -> int:
        end, rows = time.perf_counter() + seconds, 0
        for batch in self._batches():
            rows += self._work(batch)
            if time.perf_counter() >= end:
                break
        return rows

    def _batches(self) -> Iterator[list[Message]]:
        while True:
            for at in range(0, len(self._messages), self._batch):
                yield self._messages[at : at + self._batch]
