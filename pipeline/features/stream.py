"""A batch of messages from payloads to framed records by window and shard key, without Beam.

Every message comes out once: as a row of a chunk, or refused. Decoding, checks, transform and encoding are those of
batch tasks (``core.decoding``, ``features.rows``); what is new here are event times, windows and shard keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import google_crc32c
import numpy as np
import pyarrow as pa

from pipeline.core.decoding.payloads import make_payload_decoder
from pipeline.core.framing import OVERHEAD_BYTES, frame
from pipeline.core.messages import Message, RefusedMessage, StreamSettings, WindowedChunk
from pipeline.core.placing import Placed, Placing
from pipeline.core.reasons import Reason
from pipeline.core.records import BoolArray, Fault, Int64Array
from pipeline.core.schema import Schema
from pipeline.core.seeds import mix64, seed_of
from pipeline.features.layouts import make_layout
from pipeline.features.rows import RowWork, is_machine_fault
from pipeline.features.transformer import RowTransformer

_SHARD_SEED = seed_of("shard of a window")
_Rows = TypeVar("_Rows")


@dataclass(frozen=True)
class Counts:
    """The accounts of some messages: ``read`` = ``written`` + those in ``refused``, which is (reason, count) pairs."""

    read: int
    written: int
    records: int
    refused: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Processed:
    """What became of a batch of messages. Rows of one (window, shard) are in the order of their messages."""

    chunks: list[WindowedChunk]
    refused: list[RefusedMessage]

    @property
    def counts(self) -> Counts:
        """The accounts."""
        written = sum(chunk.rows for chunk in self.chunks)
        reasons = Counter(refused.reason.value for refused in self.refused)
        return Counts(
            read=written + len(self.refused),
            written=written,
            records=sum(chunk.records for chunk in self.chunks),
            refused=tuple(sorted(reasons.items())),
        )


def stream_schema(settings: StreamSettings) -> Schema:
    """The schema that messages are judged by: an event-time feature is required."""
    schema = settings.input.load_schema()
    name = settings.event_time_feature
    features = tuple(replace(f, required=f.required or f.name == name) for f in schema.features)
    return replace(schema, features=features)


class MessageProcessor:
    """Works on batches of messages. Shared by threads; the same batch gives the same result in any process.

    ``transformer`` is the transform of the schema in ``settings.input``. Raises UsageError where settings, schema and
    transform do not go together.
    """

    def __init__(self, settings: StreamSettings, *, transformer: RowTransformer) -> None:
        schema = stream_schema(settings)
        self._shards = settings.shards_per_window
        self._decoder = make_payload_decoder(settings.input, schema, avro_schema=settings.avro_schema)
        self._placing = Placing(settings, schema)
        self._work = RowWork(
            transformer,
            make_layout(settings.layout, features=transformer.features, rows_per_record=settings.rows_per_record),
            allow_non_finite=settings.allow_non_finite,
            redacted=bool(settings.redact_features),
            is_fault=is_machine_fault,
        )

    def process(self, messages: Sequence[Message], *, closed_before_s: int) -> Processed:
        """The chunks and the refused ones of ``messages``; windows that ended too long before are closed.

        A message is ``late_data`` where the end of its window plus the allowed lateness is not after
        ``closed_before_s`` (seconds since 1970). Raises only what speaks of the machine (storage, memory): whatever
        else goes wrong is narrowed to the messages at fault, which are refused.
        """
        try:
            return self._process(messages, closed_before_s)
        except Exception as error:  # a bug, ours or a library's: it must not stop the stream for ever
            if is_machine_fault(error):
                raise
            if len(messages) == 1:
                fault = Fault(Reason.INTERNAL, f"an error that was not foreseen: {type(error).__name__}: {error}")
                return Processed([], [RefusedMessage(messages[0], (fault,))])
        middle = len(messages) // 2
        first, second = (
            self.process(part, closed_before_s=closed_before_s) for part in (messages[:middle], messages[middle:])
        )
        return Processed(first.chunks + second.chunks, first.refused + second.refused)

    def _process(self, messages: Sequence[Message], closed_before_s: int) -> Processed:
        batch = self._decoded(messages, closed_before_s)
        rows = np.flatnonzero(~batch.is_refused)
        columns = batch.columns if len(rows) == len(batch.is_refused) else batch.columns.take(pa.array(rows))
        chunks: list[WindowedChunk] = []
        for done, output in _in_one(self._work.transform(columns, rows, batch.reject)):
            chunks += self._chunks(batch, done, output)
        if sum(chunk.rows for chunk in chunks) + len(batch.refused) != len(messages):
            raise RuntimeError("messages in are not rows out and refused ones")
        return Processed(chunks, [batch.refused[index] for index in sorted(batch.refused)])

    def _decoded(self, messages: Sequence[Message], closed_before_s: int) -> _Batch:
        """The messages decoded and placed in time."""
        decoded = self._decoder.decode(messages)
        refused = {
            index: RefusedMessage(messages[index], faults, self._placing.time_before_decoding(messages[index]))
            for index, faults in decoded.refused.items()
        }
        accepted = messages if not refused else [messages[index] for index in decoded.rows.tolist()]
        placed = self._placing.place(accepted, decoded.batch, closed_before_s=closed_before_s)
        batch = _Batch(accepted, decoded.batch, decoded.rows, placed, refused)
        for row, (fault, time) in placed.refused.items():
            batch.refuse(row, fault, time)
        return batch

    def _chunks(self, batch: _Batch, rows: Int64Array, output: pa.RecordBatch) -> Iterator[WindowedChunk]:
        """The transformed ``rows``, encoded and framed by window and shard key."""
        if self._work.layout.rows_per_record > 1:
            yield from self._chunks_of_blocks(batch, rows, output)
            return
        for done, encoded in _in_one(self._work.encode(output, rows, batch.reject)):
            records, starts, shards = encoded, batch.placed.starts[done], self._shard_keys(batch, done)
            if (starts != starts[0]).any() or (shards != shards[0]).any():
                order = np.lexsort((shards, starts))  # stable
                records, starts, shards = records.take(pa.array(order)), starts[order], shards[order]
            yield from _framed_by_group(starts, shards, records)

    def _chunks_of_blocks(self, batch: _Batch, rows: Int64Array, output: pa.RecordBatch) -> Iterator[WindowedChunk]:
        """All rows of one window go to one shard key, that of the first of them, so that records are full."""
        starts = batch.placed.starts[rows]
        for start in np.unique(starts).tolist():
            within = np.flatnonzero(starts == start)
            part = output if len(within) == len(rows) else output.take(pa.array(within))
            for done, records in self._work.encode(part, rows[within], batch.reject):
                shard = int(self._shard_keys(batch, done[:1])[0])
                yield WindowedChunk(start, shard, len(done), len(records), bytes(frame(records)))

    def _shard_keys(self, batch: _Batch, rows: Int64Array) -> Int64Array:
        """The shard key of each of ``rows``, from payload and id alone: a message that comes again gets the same."""
        if self._shards == 1:
            return np.zeros(len(rows), np.int64)
        chosen = (batch.messages[row] for row in rows.tolist())
        crcs = [google_crc32c.extend(google_crc32c.value(m.payload), m.message_id.encode()) for m in chosen]
        return (mix64(np.array(crcs, np.uint64), _SHARD_SEED) % np.uint64(self._shards)).astype(np.int64)


@dataclass(frozen=True)
class _Batch:
    """Accepted messages on their way, and all refused ones so far by their place in the batch that came in.

    Row i of ``columns`` and of ``placed`` is message ``messages[i]``, which came in as number ``came_as[i]``.
    """

    messages: Sequence[Message]
    columns: pa.RecordBatch
    came_as: Int64Array
    placed: Placed
    refused: dict[int, RefusedMessage]

    @property
    def is_refused(self) -> BoolArray:
        """Which of the rows were refused when they were placed, shape (rows,)."""
        flags: BoolArray = np.zeros(len(self.messages), np.bool_)
        flags[list(self.placed.refused)] = True
        return flags

    def reject(self, row: int, fault: Fault) -> None:
        """Refuse a row that has a place in time."""
        self.refuse(row, fault, int(self.placed.times_us[row]))

    def refuse(self, row: int, fault: Fault, time_us: int | None) -> None:
        """Refuse a row after all; ``time_us`` is its event time, if it has one."""
        self.refused[int(self.came_as[row])] = RefusedMessage(self.messages[row], (fault,), time_us)


def _in_one(parts: Iterable[tuple[Int64Array, _Rows]]) -> list[tuple[Int64Array, _Rows]]:
    """The parts joined, with those that hold no row left out: at most one."""
    full = [part for part in parts if len(part[0])]
    if len(full) < 2:
        return full
    rows = np.concatenate([part[0] for part in full])
    joined: Any = [part[1] for part in full]
    whole = pa.concat_batches(joined) if isinstance(joined[0], pa.RecordBatch) else pa.concat_arrays(joined)
    return [(rows, whole)]


def _framed_by_group(starts: Int64Array, shards: Int64Array, records: pa.LargeBinaryArray) -> Iterator[WindowedChunk]:
    """A chunk for each run of equal (start, shard); one record a row. All are framed at once, then cut."""
    framed = frame(records)
    changes = np.flatnonzero((np.diff(starts) != 0) | (np.diff(shards) != 0)) + 1
    firsts = [0, *changes.tolist(), len(starts)]
    offsets = np.frombuffer(records.buffers()[1], np.int64)[records.offset : records.offset + len(records) + 1]
    ends = offsets - offsets[0] + np.arange(len(offsets)) * OVERHEAD_BYTES
    for first, end in pairwise(firsts):
        piece = bytes(framed[ends[first] : ends[end]])
        yield WindowedChunk(int(starts[first]), int(shards[first]), end - first, end - first, piece)
