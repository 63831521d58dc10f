"""Putting a decoded block together: columns from row-wise values, and pieces merged in the rows' order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.records import DecodedBlock, Int64Array, RawBlock, Rejection
from pipeline.core.schema import Schema


@dataclass(frozen=True)
class Piece:
    """Some valid rows of a block: ``batch`` has canonical columns; ``rows`` (ascending) says which rows they are."""

    rows: Int64Array
    batch: pa.RecordBatch


def batch_of_rows(rows: Sequence[Mapping[str, Sequence[Any] | None]], schema: Schema) -> pa.RecordBatch:
    """Canonical columns of valid rows, each a map from feature to values; None or an absent key is missing."""
    columns = []
    for feature in schema.features:
        cells: list[Any] = [row.get(feature.name) for row in rows]
        if feature.scalar:
            cells = [None if cell is None else cell[0] for cell in cells]
        columns.append(pa.array(cells, feature.arrow_type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def assemble(
    block: RawBlock, pieces: Sequence[Piece], *, rejections: Sequence[Rejection], schema: Schema
) -> DecodedBlock:
    """The decoded block of disjoint ``pieces``: rows in the order of the block, rejections by offset."""
    ordered = sorted((piece for piece in pieces if len(piece.rows)), key=lambda piece: int(piece.rows[0]))
    by_offset = sorted(rejections, key=lambda rejection: rejection.offset)
    if not ordered:
        return DecodedBlock(block, batch_of_rows([], schema), np.zeros(0, np.int64), by_offset)
    if len(ordered) == 1:
        return DecodedBlock(block, ordered[0].batch, ordered[0].rows, by_offset)
    rows = np.concatenate([piece.rows for piece in ordered])
    batch = pa.concat_batches([piece.batch for piece in ordered])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows)
        rows, batch = rows[order], batch.take(pa.array(order))
    return DecodedBlock(block, batch, rows, by_offset)
