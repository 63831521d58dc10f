"""Blocks of CSV rows to decoded batches: the fast columnar way, the row-wise way, and how they are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.decoding.csv_columns import ColumnReader
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.decoding.csv_rows import RowParser, RowValues
from pipeline.core.decoding.csv_scan import doubtful_rows, may_hold_hexadecimal
from pipeline.core.records import DecodedBlock, Fault, Int64Array, RawBlock, Rejection
from pipeline.core.schema import Schema
from pipeline.core.validation import valid_mask


@dataclass(frozen=True)
class CsvBlock(RawBlock):
    """A block of CSV rows with the header that they stand under (columns in file order, each name once).

    A row is a line, or the lines that a quoted newline holds together.
    """

    header: tuple[str, ...] = ()

    @classmethod
    def empty(cls, uri: str, base: int, header: tuple[str, ...], *, bytes_read: int) -> CsvBlock:
        """A block without rows, to account for ``bytes_read`` bytes of input."""
        none = np.zeros(0, np.int64)
        return cls(uri, base, b"", none, none, bytes_read=bytes_read, header=header)


def decode_by_rows(block: CsvBlock, schema: Schema, *, options: CsvOptions) -> DecodedBlock:
    """Every row through the row-wise parser."""
    return _finish(block, schema, options, rows=np.arange(block.num_rows), fast=None)


def decode_by_columns(block: CsvBlock, schema: Schema, *, options: CsvOptions) -> DecodedBlock:
    """Rows that are surely valid through pyarrow, all others through the row-wise parser."""
    doubt = doubtful_rows(block, options, cells=len(block.header))
    sure = np.flatnonzero(~doubt)
    text = _join(block, sure)
    reader = ColumnReader(schema, options, block.header)
    read = reader.read(text, len(sure), hexadecimal=may_hold_hexadecimal(text, options)) if len(sure) else None
    if read is None:
        return decode_by_rows(block, schema, options=options)
    batch, cell_doubt = read
    valid = valid_mask(batch, schema) & ~cell_doubt
    if not valid.all():
        doubt[sure[~valid]] = True
        batch, sure = batch.filter(pa.array(valid)), sure[valid]
    return _finish(block, schema, options, rows=np.flatnonzero(doubt), fast=(batch, sure))


def _join(block: RawBlock, rows: Int64Array) -> bytes:
    """The bytes of ``rows``, each ending with a line end; the whole data where these are all its rows, unbroken."""
    if not len(rows):
        return b""
    starts, ends = block.starts[rows], block.ends[rows]
    # Two bytes between rows are one line end or a blank line, which pyarrow skips; more may be anything.
    cuts = np.flatnonzero((np.diff(rows) != 1) | (starts[1:] - ends[:-1] > 2))
    firsts, lasts = np.append(0, cuts + 1), np.append(cuts, len(rows) - 1)
    view = memoryview(block.data)
    runs = zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True)
    return b"\n".join([view[start:end] for start, end in runs] + [b""])


def _finish(
    block: CsvBlock,
    schema: Schema,
    options: CsvOptions,
    *,
    rows: Int64Array,
    fast: tuple[pa.RecordBatch, Int64Array] | None,
) -> DecodedBlock:
    """Judge ``rows`` one by one and put what is accepted in its place among the ``fast`` (batch, rows)."""
    parser = RowParser(schema, options, block.header)
    accepted: list[RowValues] = []
    accepted_rows: list[int] = []
    rejections: list[Rejection] = []
    for row in rows.tolist():
        parsed = parser.parse(block.payload(row))
        if isinstance(parsed, list):
            rejections.append(_rejection(block, row, parsed))
        else:
            accepted.append(parsed)
            accepted_rows.append(row)
    batch, batch_rows = _merge(schema, accepted, accepted_rows, fast)
    return DecodedBlock(block, batch, batch_rows, rejections)


def _merge(
    schema: Schema,
    accepted: Sequence[RowValues],
    accepted_rows: list[int],
    fast: tuple[pa.RecordBatch, Int64Array] | None,
) -> tuple[pa.RecordBatch, Int64Array]:
    if fast is not None and not accepted:
        return fast
    slow, slow_rows = batch_of(accepted, schema), np.array(accepted_rows, np.int64)
    if fast is None or not len(fast[1]):
        return slow, slow_rows
    rows = np.concatenate((fast[1], slow_rows))
    order = np.argsort(rows, kind="stable")
    both = pa.Table.from_batches([fast[0], slow]).combine_chunks().to_batches()[0]
    return both.take(pa.array(order)), rows[order]


def batch_of(rows: Sequence[Mapping[str, Sequence[object] | None]], schema: Schema) -> pa.RecordBatch:
    """The canonical batch of rows given as values by feature (None or absent: missing)."""
    columns = []
    for feature in schema.features:
        lists = [row.get(feature.name) for row in rows]
        values = [values[0] if values else None for values in lists] if feature.scalar else lists
        columns.append(pa.array(values, feature.arrow_type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def _rejection(block: RawBlock, row: int, faults: list[Fault]) -> Rejection:
    payload = block.payload(row)
    return Rejection(block.uri, block.offset(row), len(payload), payload, faults[0].reason.stage, tuple(faults))
