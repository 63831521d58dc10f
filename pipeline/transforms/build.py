"""Tasks in, shard parts and accounts out: the DoFns that run the Beam-less builder on workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics

from pipeline.core.records import Int64Array, ShardPart, Task, UInt64Array
from pipeline.core.seeds import mix64, seed_of
from pipeline.core.settings import BuildSettings
from pipeline.features.build import (
    ENCODED_RECORDS,
    DecodedTask,
    EncodedChunk,
    TransformedChunk,
    split_indices,
)
from pipeline.features.checks import RowChecks
from pipeline.features.spec import FeatureSpec
from pipeline.transforms import names
from pipeline.transforms.calling import CallingDoFn
from pipeline.transforms.loading import layout_of, load_ahead, shared_transformer
from pipeline.transforms.tasks import BuiltTask, TaskWork, build_task, report_of, work_of, write_parts

_ANALYSIS_ROWS = 65_536  # analyzers cost by the call; their state is small whatever the batch


class _TaskDoFn(CallingDoFn):
    """What the two kinds of building share: settings, counting, outputs."""

    def __init__(self, settings: BuildSettings, progress_key: str) -> None:
        self._settings = settings
        self._progress_key = progress_key
        self._count: dict[str, Callable[[int], None]] = {}

    def setup(self) -> None:
        """Make what cannot be pickled."""
        for name in (names.BYTES_READ, names.ROWS_READ, names.ROWS_REJECTED, names.ROWS_WRITTEN):
            self._count[name] = Metrics.counter(names.NAMESPACE, name).inc

    @property
    def _work(self) -> TaskWork:
        return work_of(self._settings, self._progress_key)

    def outputs(self, result: BuiltTask) -> Iterator[Any]:
        """A task's accounts, statistics and rejections, under their tags."""
        report = result.report
        self._count[names.BYTES_READ](report.bytes_read)
        self._count[names.ROWS_READ](report.rows_read)
        self._count[names.ROWS_REJECTED](report.rows_rejected)
        self._count[names.ROWS_WRITTEN](report.rows_written)
        yield beam.pvalue.TaggedOutput(names.REPORTS, report)
        yield beam.pvalue.TaggedOutput(names.STATISTICS, result.statistics)
        yield beam.pvalue.TaggedOutput(names.REJECTIONS, (report.task, result.rejections))


class BuildShard(_TaskDoFn):
    """Task -> a report (with its parts), statistics and rejections; parts are written aside, under stable names.

    A retry writes the same names with the same bytes, so a bundle may fail at any point.
    """

    def process(self, task: Task, artefact: str | None = None) -> Iterator[Any]:
        """Build one task, in a worker process if the run has any; raises OSError for storage faults."""
        yield from self.call(build_task, self._settings, self._progress_key, task, artefact)


class DecodeTrain(_TaskDoFn):
    """Task -> the valid rows of its train split, as canonical batches: what an analysis may learn from.

    The train split is the one called ``train``, or the first one.
    """

    def __init__(self, settings: BuildSettings, progress_key: str, *, spec: FeatureSpec | None) -> None:
        super().__init__(settings, progress_key)
        self._spec = spec

    def process(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Decode one task; rows that the build will refuse are left out here too."""
        decoded = self._work.decode(task, count=False)
        named = [name for name, _ in self._settings.splits]
        train = named.index("train") if "train" in named else 0
        keep = split_indices(self._settings, decoded) == train
        if self._spec:
            keep[list(RowChecks(self._spec, self._work.schema).faults(decoded.batch))] = False
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
        decoded, written = self._work.decode(task), 0
        encoder = self._work.encoder(artefact)
        for sequence, chunk in enumerate(encoder.transform(decoded, seed=task.seed)):
            written += len(chunk.rows)
            yield from self._deal(decoded, chunk, (task.index, sequence))
        yield from self.outputs(BuiltTask.of(decoded, report_of(task, decoded, rows_written=written)))

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
