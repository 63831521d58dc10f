"""Tasks in, shard parts and accounts out: the DoFns that run the Beam-less builder on workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics

from pipeline.core.compression import compressor
from pipeline.core.framing import frame
from pipeline.core.names import PartName
from pipeline.core.progress import progress_of
from pipeline.core.records import Int64Array, Rejection, ShardPart, Task, TaskReport, UInt64Array
from pipeline.core.seeds import mix64, seed_of
from pipeline.core.settings import BuildSettings
from pipeline.features.build import (
    ENCODED_RECORDS,
    DecodedTask,
    EncodedChunk,
    Encoder,
    TransformedChunk,
    decode_task,
    split_indices,
)
from pipeline.features.checks import RowChecks
from pipeline.features.spec import FeatureSpec
from pipeline.transforms import files, names
from pipeline.transforms.loading import layout_of, load_ahead, shared_transformer

_FRAMED_RECORDS = 2048  # headers, payloads and footers of as many records stay in the processor's cache
_ANALYSIS_ROWS = 65_536  # analyzers cost by the call; their state is small whatever the batch


class PartWriter:
    """Writes the framed records of one (task, split) aside, rolling to a new part at 1.5 times the target size.

    Use as a context manager: parts appear whole when it is left without an exception.
    """

    def __init__(self, settings: BuildSettings, *, task: int, split: str) -> None:
        self._folder, self._compression = settings.staging, settings.compression
        self._task, self._split = task, split
        # Half as much again: parts near the target are published by a rename, without being copied.
        self._roll_bytes = settings.target_shard_bytes * 3 // 2
        self._stack = contextlib.ExitStack()
        self._stream: Any = None
        self._rows = self._records = self._size = self._crc = 0
        self.parts: list[ShardPart] = []

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._finish()
        else:
            self._stack.__exit__(*error)

    def add(self, framed: memoryview, *, rows: int, records: int) -> None:
        """Append ``records`` framed records that hold ``rows`` rows."""
        if not records:
            return
        if self._stream is None:
            self._stream = self._stack.enter_context(files.create(self._uri()))
            self._compressor = compressor(self._compression)
        self._write(self._compressor.compress(framed))
        self._rows, self._records = self._rows + rows, self._records + records
        if self._size >= self._roll_bytes:
            self._finish()

    def _write(self, data: bytes | memoryview) -> None:
        if data:
            self._stream.write(data)
            self._crc = google_crc32c.extend(self._crc, np.frombuffer(data, np.uint8))
            self._size += len(data)

    def _uri(self) -> str:
        return files.join(self._folder, str(PartName(self._task, self._split, len(self.parts))))

    def _finish(self) -> None:
        if self._stream is None:
            return
        uri = self._uri()
        self._write(self._compressor.flush())
        self._stack.close()
        self.parts.append(
            ShardPart(self._split, self._task, len(self.parts), uri, self._rows, self._records, self._size, self._crc)
        )
        self._stream = None
        self._rows = self._records = self._size = self._crc = 0


def write_parts(chunks: Iterable[EncodedChunk], settings: BuildSettings, task: int) -> list[ShardPart]:
    """Frame the chunks (grouped by split) and write them aside; no part for a split without rows."""
    parts: list[ShardPart] = []
    with contextlib.ExitStack() as stack:
        writers: dict[str, PartWriter] = {}
        for chunk in chunks:
            if chunk.split not in writers:
                writer = PartWriter(settings, task=task, split=chunk.split)
                writers[chunk.split] = stack.enter_context(writer)
            for piece in chunk.pieces(_FRAMED_RECORDS):
                writers[chunk.split].add(frame(piece.records), rows=piece.rows, records=len(piece.records))
    for writer in writers.values():
        parts.extend(writer.parts)
    return parts


def report_of(task: Task, decoded: DecodedTask, *, rows_written: int, parts: Iterable[ShardPart] = ()) -> TaskReport:
    """The accounts of a finished task."""
    reasons: dict[str, int] = {}
    for rejection in decoded.rejections:
        reasons[rejection.reason.value] = reasons.get(rejection.reason.value, 0) + 1
    return TaskReport(
        task=task.index,
        bytes_read=decoded.bytes_read,
        rows_read=decoded.rows_read,
        rows_blank=decoded.rows_blank,
        rows_written=rows_written,
        rejected=tuple(sorted(reasons.items())),
        parts=tuple(parts),
    )


class _TaskDoFn(beam.DoFn):  # type: ignore[misc]
    """What the two kinds of building share: loading, decoding, counting."""

    def __init__(self, settings: BuildSettings, progress_key: str) -> None:
        self._settings = settings
        self._progress_key = progress_key
        self._count: dict[str, Callable[[int], None]] = {}

    def setup(self) -> None:
        """Make what cannot be pickled: the decoder and the counters."""
        self._schema = self._settings.input.load_schema()
        self._decoder = self._settings.input.make_decoder(self._schema)
        for name in (names.BYTES_READ, names.ROWS_READ, names.ROWS_REJECTED, names.ROWS_WRITTEN):
            self._count[name] = Metrics.counter(names.NAMESPACE, name).inc

    def _decode(self, task: Task, *, count: bool = True) -> DecodedTask:
        progress = progress_of(self._progress_key)
        return decode_task(
            task,
            self._decoder,
            self._schema.arrow_schema,
            open_file=files.open_read,
            progress=progress if count else progress.bytes_only(),
        )

    def _encoder(self, artefact: str | None) -> Encoder:
        transformer = shared_transformer(self._settings, artefact)
        return Encoder(self._settings, transformer=transformer, layout=layout_of(self._settings, transformer))

    def _encode(self, task: Task, decoded: DecodedTask, artefact: str | None) -> Iterator[EncodedChunk]:
        before = len(decoded.rejections)
        yield from self._encoder(artefact).encode(decoded, seed=task.seed)
        progress_of(self._progress_key).add(rows_rejected=len(decoded.rejections) - before)

    def _tagged(self, task: Task, decoded: DecodedTask, report: TaskReport) -> Iterator[Any]:
        self._count[names.BYTES_READ](report.bytes_read)
        self._count[names.ROWS_READ](report.rows_read)
        self._count[names.ROWS_REJECTED](report.rows_rejected)
        self._count[names.ROWS_WRITTEN](report.rows_written)
        rejections = sorted(decoded.rejections, key=_place)
        yield beam.pvalue.TaggedOutput(names.REPORTS, report)
        yield beam.pvalue.TaggedOutput(names.STATISTICS, decoded.statistics.to_bytes())
        yield beam.pvalue.TaggedOutput(names.REJECTIONS, (task.index, rejections))


def _place(rejection: Rejection) -> tuple[str, int]:
    return rejection.uri, rejection.offset


class BuildShard(_TaskDoFn):
    """Task -> a report (with its parts), statistics and rejections; parts are written aside, under stable names.

    A retry writes the same names with the same bytes, so a bundle may fail at any point.
    """

    def process(self, task: Task, artefact: str | None = None) -> Iterator[Any]:
        """Build one task; raises OSError for storage faults."""
        load_ahead(self._settings, artefact)
        decoded = self._decode(task)
        parts = write_parts(self._encode(task, decoded, artefact), self._settings, task.index)
        report = report_of(task, decoded, rows_written=sum(part.rows for part in parts), parts=parts)
        yield from self._tagged(task, decoded, report)


class DecodeTrain(_TaskDoFn):
    """Task -> the valid rows of its train split, as canonical batches: what an analysis may learn from.

    The train split is the one called ``train``, or the first one.
    """

    def __init__(self, settings: BuildSettings, progress_key: str, *, spec: FeatureSpec | None) -> None:
        super().__init__(settings, progress_key)
        self._spec = spec

    def process(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Decode one task; rows that the build will refuse are left out here too."""
        decoded = self._decode(task, count=False)
        named = [name for name, _ in self._settings.splits]
        train = named.index("train") if "train" in named else 0
        keep = split_indices(self._settings, decoded) == train
        if self._spec:
            keep[list(RowChecks(self._spec, self._schema).faults(decoded.batch))] = False
        rows = np.flatnonzero(keep)
        for start in range(0, len(rows), _ANALYSIS_ROWS):
            yield decoded.batch.take(pa.array(rows[start : start + _ANALYSIS_ROWS]))


class TransformRows(_TaskDoFn):
    """Task -> transformed rows keyed by (split, bucket), for the global shuffle; reports carry no parts.

    A row's bucket and its place in it come from its source position and the seed alone.
    """

    def __init__(self, settings: BuildSettings, progress_key: str, *, buckets: int) -> None:
        super().__init__(settings, progress_key)
        self._buckets = buckets

    def process(self, task: Task, artefact: str | None = None) -> Iterator[Any]:
        """Transform one task's rows and deal them into buckets."""
        load_ahead(self._settings, artefact)
        decoded, written = self._decode(task), 0
        encoder = self._encoder(artefact)
        for sequence, chunk in enumerate(encoder.transform(decoded, seed=task.seed)):
            written += len(chunk.rows)
            yield from self._deal(decoded, chunk, (task.index, sequence))
        yield from self._tagged(task, decoded, report_of(task, decoded, rows_written=written))

    def _deal(self, decoded: DecodedTask, chunk: TransformedChunk, origin: tuple[int, int]) -> Iterator[Any]:
        keys = self._position_keys(decoded, chunk.rows)
        buckets = (keys % np.uint64(self._buckets)).astype(np.int64)
        for bucket in np.unique(buckets):
            rows = np.flatnonzero(buckets == bucket)
            piece = (origin, keys[rows].tobytes(), _to_ipc(chunk.batch.take(pa.array(rows))))
            yield beam.pvalue.TaggedOutput(names.ROWS, ((chunk.split, int(bucket)), piece))

    def _position_keys(self, decoded: DecodedTask, rows: Int64Array) -> UInt64Array:
        keys = np.empty(len(rows), np.uint64)
        of_block = decoded.of_block[rows]
        for at in np.unique(of_block):
            block, here = decoded.blocks[int(at)], of_block == at
            offsets = block.base + block.starts[decoded.of_row[rows[here]]]
            keys[here] = mix64(offsets.astype(np.uint64), seed_of("row", block.uri, self._settings.seed))
        return keys


class WriteBucket(beam.DoFn):  # type: ignore[misc]
    """((split, bucket), all its transformed rows) -> the parts of a shard, rows in the order of their keys.

    A row that passed the transform but cannot be encoded fails the run here: its bytes are no longer at hand.
    """

    def __init__(self, settings: BuildSettings) -> None:
        self._settings = settings

    def process(self, group: tuple[tuple[str, int], Iterable[Any]], artefact: str | None = None) -> Iterator[ShardPart]:
        """Sort, encode, frame and write one bucket; raises OSError for storage faults."""
        (split, bucket), values = group
        pieces = sorted(values, key=_origin)
        keys = np.concatenate([np.frombuffer(piece[1], np.uint64) for piece in pieces])
        batch = pa.concat_batches([_from_ipc(piece[2]) for piece in pieces])
        order = np.argsort(keys, kind="stable")
        yield from write_parts(self._encoded(split, batch, order, artefact), self._settings, bucket)

    def _encoded(
        self, split: str, batch: pa.RecordBatch, order: Int64Array, artefact: str | None
    ) -> Iterator[EncodedChunk]:
        layout = layout_of(self._settings, shared_transformer(self._settings, artefact))
        size = layout.rows_per_record
        step = ENCODED_RECORDS * size
        for at in range(0, len(order), step):
            rows = order[at : at + step]
            yield EncodedChunk(split, len(rows), layout.encode_array(batch.take(pa.array(rows))), size)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _from_ipc(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _origin(piece: tuple[tuple[int, int], bytes, bytes]) -> tuple[int, int]:
    return piece[0]
