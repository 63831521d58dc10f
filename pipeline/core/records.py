"""The nouns: frozen records that travel between planning, decoding, building and committing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.reasons import Reason, Stage

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

Opener = Callable[[str], BinaryIO]
"""Opens a URI for reading: a seekable binary file, uncompressed. The caller closes it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one row. ``message`` is a sentence for a person, any length."""

    reason: Reason
    message: str
    feature: str | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused row: where it lies, its original bytes, and all its faults (the first is the reason).

    ``payload`` is None only for a row over the size limit: its ``length`` bytes lie in the source
    at ``offset``. ``offset`` is in bytes from the start of the file ``uri``.
    """

    uri: str
    offset: int
    length: int
    payload: bytes | None
    stage: Stage
    faults: tuple[Fault, ...]

    @property
    def reason(self) -> Reason:
        """The reason of the first fault."""
        return self.faults[0].reason


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """A file of the input as it was when the run was planned; ``version`` is an mtime, generation or checksum."""

    uri: str
    size_bytes: int
    version: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """The rows of a file that *start* in bytes ``[start, end)``: the unit that the planner deals out."""

    uri: str
    start: int
    end: int
    file_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of input that this split stands for."""
        return self.end - self.start


@dataclass(frozen=True)
class RawBlock:
    """Whole rows of one file as bytes: row ``i`` is ``data[starts[i]:ends[i]]``, terminator excluded.

    ``base`` is the file offset of ``data[0]``; ``starts`` and ``ends`` have shape (rows,). Blank
    rows are in ``blank`` and not among the rows. ``oversized`` holds (file offset, length) of rows
    over the size limit, which are not in ``data``. ``bytes_read`` is the input consumed for the
    block, so that the sum over a split is the split's size.
    """

    uri: str
    base: int
    data: bytes
    starts: Int64Array
    ends: Int64Array
    blank: int = 0
    oversized: tuple[tuple[int, int], ...] = ()
    bytes_read: int = 0

    @property
    def num_rows(self) -> int:
        """Rows held as bytes (neither blank nor oversized)."""
        return len(self.starts)

    def payload(self, row: int) -> bytes:
        """The original bytes of row ``row``."""
        return self.data[self.starts[row] : self.ends[row]]

    def offset(self, row: int) -> int:
        """The file offset in bytes of row ``row``."""
        return self.base + int(self.starts[row])

    def row_hashes(self, rows: Int64Array) -> UInt64Array:
        """CRC32C of the bytes of each of ``rows``, shape (len(rows),): the same row, the same hash, anywhere."""
        view, crc = memoryview(self.data), google_crc32c.value
        spans = zip(self.starts[rows].tolist(), self.ends[rows].tolist(), strict=True)
        return np.fromiter((crc(view[s:e].tobytes()) for s, e in spans), np.uint64, len(rows))


@dataclass(frozen=True)
class DecodedBlock:
    """What a decoder made of a block: every row is in ``batch`` or in ``rejections``.

    ``batch`` has the schema's features as columns, in the schema's order and canonical types
    (``core.schema.Feature.arrow_type``), valid under the schema; a null is a missing value.
    ``rows`` (ascending, shape (batch.num_rows,)) says which row of the block each came from.
    """

    block: RawBlock
    batch: pa.RecordBatch
    rows: Int64Array
    rejections: list[Rejection] = field(default_factory=list)

    @property
    def rows_read(self) -> int:
        """Rows read: accepted, refused and oversized; blank lines are counted apart."""
        return self.block.num_rows + len(self.block.oversized)


class Decoder(Protocol):
    """One input format: how it is split, read and decoded. Decoders are stateless as seen from outside.

    Anything in the data is answered with a rejection; only storage faults are raised.
    """

    def splits(self, file: InputFile, split_bytes: int, open_file: Opener) -> list[Split]:
        """Splits that tile the file, each about ``split_bytes``; one where the format cannot be split.

        Raises UsageError for a file that can never be read as this format (say a bad CSV header).
        """
        ...

    def blocks(self, split: Split, open_file: Opener) -> Iterator[RawBlock]:
        """The rows that start in the split, in order, in blocks of bounded size."""
        ...

    def decode(self, block: RawBlock) -> DecodedBlock:
        """Fast path: columnar, narrowing to ``decode_rows`` only for rows in doubt."""
        ...

    def decode_rows(self, block: RawBlock) -> DecodedBlock:
        """The oracle: row by row; *defines* what is accepted and which faults a row has."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """What one BuildShard call works on: ``splits`` in this order, then rows permuted by ``seed``."""

    index: int
    splits: tuple[Split, ...]
    seed: int

    @property
    def size_bytes(self) -> int:
        """Bytes of input in the task."""
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A file of framed records written aside by one task, to be published alone or concatenated."""

    split: str
    task: int
    sequence: int
    uri: str
    rows: int
    records: int
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The accounts of one task; sums over all tasks must balance before a run is committed."""

    task: int
    bytes_read: int
    rows_read: int
    rows_blank: int
    rows_written: int
    rejected: tuple[tuple[str, int], ...]
    """(reason code, rows), sorted by code."""
    parts: tuple[ShardPart, ...]

    @property
    def rows_rejected(self) -> int:
        """Rows refused, all reasons together."""
        return sum(count for _, count in self.rejected)


Json = dict[str, Any]
