"""One task from input bytes to encoded records, without Beam: what BuildShard runs, and what tests call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.coded import coded, codes_of, is_coded, with_codes
from pipeline.core.progress import Progress
from pipeline.core.records import (
    DecodedBlock,
    Decoder,
    Fault,
    InputFile,
    Int64Array,
    Opener,
    RawBlock,
    Rejection,
    Task,
    UInt64Array,
)
from pipeline.core.seeds import mix64, permutation
from pipeline.core.settings import BuildSettings
from pipeline.core.shards import assign_splits
from pipeline.core.statistics import BatchStatistics
from pipeline.features.layouts import Layout
from pipeline.features.rows import RowWork
from pipeline.features.transformer import RowTransformer

_BATCH_BYTES = 32 << 20  # what goes through the graph at once: few calls, and little memory for any width of a row
ENCODED_RECORDS = 8192
"""What is encoded at once: stays in the processor's cache."""


@dataclass
class DecodedTask:
    """All valid rows of a task as one batch, where each came from, and what was refused so far.

    ``of_block`` and ``of_row`` have shape (batch.num_rows,): the index into ``blocks`` and the row
    in that block. Columns of single strings are also there as codes.
    """

    blocks: list[RawBlock]
    batch: pa.RecordBatch
    of_block: Int64Array
    of_row: Int64Array
    rejections: list[Rejection]
    bytes_read: int
    rows_read: int
    rows_blank: int

    @cached_property
    def coded(self) -> pa.RecordBatch:
        """``batch``, its columns of single strings coded (see ``core.coded``)."""
        return with_codes(self.batch)

    @cached_property
    def statistics(self) -> BatchStatistics:
        """Statistics of ``batch``, rows included that are refused later."""
        return BatchStatistics.of(self.coded)

    def take(self, rows: Int64Array, *, coded: frozenset[str]) -> pa.RecordBatch:
        """These rows of the batch, the columns in ``coded`` as codes."""
        columns = [
            (self.coded if name in coded else self.batch).column(at) for at, name in enumerate(self.batch.schema.names)
        ]
        return pa.RecordBatch.from_arrays(columns, self.batch.schema.names).take(pa.array(rows))

    def reject(self, row: int, fault: Fault) -> None:
        """Refuse row ``row`` of the batch after all, with its original bytes."""
        block, at = self.blocks[int(self.of_block[row])], int(self.of_row[row])
        payload = block.payload(at)
        stage = fault.reason.stage
        self.rejections.append(Rejection(block.uri, block.offset(at), len(payload), payload, stage, (fault,)))

    def row_hashes(self) -> UInt64Array:
        """CRC32C of the original bytes of each row, shape (batch.num_rows,)."""
        hashes = np.empty(self.batch.num_rows, np.uint64)
        ends = np.searchsorted(self.of_block, np.arange(len(self.blocks) + 1))
        for block, start, end in zip(self.blocks, ends[:-1], ends[1:], strict=True):
            hashes[start:end] = block.row_hashes(self.of_row[start:end])
        return hashes


@dataclass(frozen=True)
class EncodedChunk:
    """Records of one split, each of ``rows_per_record`` rows (the last may hold fewer), ``rows`` in all."""

    split: str
    rows: int
    records: pa.LargeBinaryArray
    rows_per_record: int = 1

    def pieces(self, records: int) -> Iterator[EncodedChunk]:
        """The chunk cut into chunks of at most so many records."""
        for start in range(0, len(self.records), records):
            part = self.records.slice(start, records)
            rows = min(len(part) * self.rows_per_record, self.rows - start * self.rows_per_record)
            yield EncodedChunk(self.split, rows, part, self.rows_per_record)


@dataclass(frozen=True)
class TransformedChunk:
    """Transformed rows of one split, ready to encode, and which rows of the task's batch they are, in order."""

    split: str
    rows: Int64Array
    batch: pa.RecordBatch


def decode_task(
    task: Task, decoder: Decoder, schema: pa.Schema, *, open_file: Opener, progress: Progress | None = None
) -> DecodedTask:
    """Read and decode all splits of ``task``. Raises OSError for storage faults; bad rows are in ``rejections``."""
    decoded: list[DecodedBlock] = []
    for split in task.splits:
        for block in decoder.blocks(split, open_file):
            decoded.append(decoder.decode(block))
            if progress:
                progress.add(
                    bytes_done=block.bytes_read,
                    rows_read=decoded[-1].rows_read,
                    rows_rejected=len(decoded[-1].rejections),
                )
    batches = [block.batch for block in decoded]
    batch = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
    return DecodedTask(
        blocks=[block.block for block in decoded],
        batch=batch,
        of_block=np.repeat(np.arange(len(decoded)), [b.batch.num_rows for b in decoded]).astype(np.int64),
        of_row=np.concatenate([block.rows for block in decoded] or [np.empty(0, np.int64)]),
        rejections=[rejection for block in decoded for rejection in block.rejections],
        bytes_read=sum(block.block.bytes_read for block in decoded),
        rows_read=sum(block.rows_read for block in decoded),
        rows_blank=sum(block.block.blank for block in decoded),
    )


def estimate_output_ratio(
    inputs: Sequence[InputFile], decoder: Decoder, *, row_bytes: float, open_file: Opener, sample_bytes: int = 1 << 20
) -> float:
    """Output bytes for each byte of input, about: rows in a sample of the largest file, times the size of a row.

    It only decides how the work is cut; shards are closed by the bytes that are really written.
    """
    largest = max(inputs, key=_size_then_name)
    split = decoder.splits(largest, min(sample_bytes, largest.size_bytes), open_file)[0]
    rows = read = 0
    for block in decoder.blocks(split, open_file):
        rows, read = rows + block.num_rows, read + block.bytes_read
    return max(rows * row_bytes / read, 0.01) if read else 1.0


def _size_then_name(file: InputFile) -> tuple[int, str]:
    return file.size_bytes, file.uri


def key_hashes(column: pa.Array) -> UInt64Array:
    """A hash of each value of a scalar column, shape (len(column),): equal values, equal hashes, anywhere.

    Missing values all hash alike. Floats go by their bits, so that 0.0 and -0.0 are two keys.
    """
    column = coded(column)
    if is_coded(column):
        found = _word_hashes(column.dictionary)
        found[column.dictionary.is_null().to_numpy(zero_copy_only=False)] = 0
        return found[codes_of(column)]
    zero = pa.scalar(0, column.type)
    values = pc.fill_null(column, zero).to_numpy(zero_copy_only=False)
    bits = values.astype(np.int64) if values.dtype.kind == "i" else values.astype(np.float32).view(np.int32)
    return mix64(bits.astype(np.int64).view(np.uint64), 0)


def _word_hashes(words: pa.Array) -> UInt64Array:
    """CRC32C of each of the binary ``words``."""
    offsets = np.frombuffer(words.buffers()[1], np.int64)[words.offset : words.offset + len(words) + 1]
    data = words.buffers()[2]
    block = RawBlock("", 0, data.to_pybytes() if data else b"", offsets[:-1], offsets[1:])
    return block.row_hashes(np.arange(len(words)))


def split_indices(settings: BuildSettings, decoded: DecodedTask) -> Int64Array:
    """The index of the data split that each row belongs to, shape (rows,): by the row's bytes, or by its key."""
    if len(settings.splits) == 1:
        return np.zeros(decoded.batch.num_rows, np.int64)
    column = decoded.coded.column(settings.split_key) if settings.split_key else None
    hashes = key_hashes(column) if column is not None else decoded.row_hashes()
    return assign_splits(hashes, settings.splits, settings.seed)


def rows_within(batch: pa.RecordBatch, size: int) -> int:
    """How many rows of ``batch`` take about ``size`` bytes; at least one."""
    held: int = batch.nbytes
    return max(1, size * int(batch.num_rows) // max(1, held))


def regroup(chunks: Iterable[TransformedChunk], size: int) -> Iterator[TransformedChunk]:
    """The same rows in chunks of multiples of ``size`` rows; only the last chunk of a split may be another number."""
    waiting: list[TransformedChunk] = []
    for chunk in chunks:
        if waiting and waiting[0].split != chunk.split:
            yield _joined(waiting)
            waiting = []
        joined = _joined([*waiting, chunk])
        whole = len(joined.rows) // size * size
        if whole:
            yield TransformedChunk(joined.split, joined.rows[:whole], joined.batch.slice(0, whole))
        rest = TransformedChunk(joined.split, joined.rows[whole:], joined.batch.slice(whole))
        waiting = [rest] if len(rest.rows) else []
    if waiting:
        yield _joined(waiting)


def _joined(chunks: Sequence[TransformedChunk]) -> TransformedChunk:
    if len(chunks) == 1:
        return chunks[0]
    rows = np.concatenate([chunk.rows for chunk in chunks])
    return TransformedChunk(chunks[0].split, rows, pa.concat_batches([chunk.batch for chunk in chunks]))


class Encoder:
    """Turns decoded tasks into encoded chunks: split, permute, transform, encode. Shared by worker threads."""

    def __init__(self, settings: BuildSettings, *, transformer: RowTransformer, layout: Layout) -> None:
        self._settings = settings
        self._work = RowWork(
            transformer,
            layout,
            allow_non_finite=settings.allow_non_finite,
            redacted=bool(settings.redact_features),
        )

    def encode(self, decoded: DecodedTask, *, seed: int) -> Iterator[EncodedChunk]:
        """Transform and encode; records hold as many rows as the layout says, only a split's last may hold fewer.

        Rows that the transform or the encoder fails on are narrowed down and refused in ``decoded``.
        """
        size = self._work.layout.rows_per_record
        step = ENCODED_RECORDS * size
        for chunk in regroup(self.transform(decoded, seed=seed), size):
            for at in range(0, len(chunk.rows), step):
                part, named = chunk.batch.slice(at, step), chunk.rows[at : at + step]
                for rows, records in self._work.encode(part, named, decoded.reject):
                    yield EncodedChunk(chunk.split, len(rows), records, size)

    def transform(self, decoded: DecodedTask, *, seed: int) -> Iterator[TransformedChunk]:
        """The rows split by split, in a permuted order unless the shuffle is ``none``, transformed."""
        split_of = split_indices(self._settings, decoded)
        for index, (name, _) in enumerate(self._settings.splits):
            rows = np.flatnonzero(split_of == index)
            if self._settings.shuffle != "none":
                rows = rows[permutation(len(rows), seed + index)]
            step = min(self._settings.batch_rows, rows_within(decoded.batch, _BATCH_BYTES))
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                batch = decoded.take(part, coded=self._work.transformer.coded)
                for done, output in self._work.transform(batch, part, decoded.reject):
                    yield TransformedChunk(name, done, output)
