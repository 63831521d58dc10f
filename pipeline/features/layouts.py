"""Layouts: how transformed rows are packed into records. A record is a serialised tf.train.Example in all of them.

``rows``: a row a record, a feature a column. Every tool reads it.

``packed``: a row a record; all float features of fixed shape lie in one float vector, all integer ones in
one int vector. Strings, and features that are ragged or optional, stay features of their own.

``blocks``: many rows a record; each feature holds the values of all its rows, one row after the other. A record of n
rows has n * (values of a row) values of every feature, so the number of rows follows from the lengths,
and the last record of a part may hold fewer. Ragged and optional features are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.errors import UsageError
from pipeline.core.framing import OVERHEAD_BYTES
from pipeline.core.records import Json
from pipeline.core.schema_text import nearest
from pipeline.features.packing import ColumnMap, Vector, width_of
from pipeline.features.wire import encode_examples

ROWS_PER_RECORD = 256
"""Rows in a record of ``blocks``, if nothing else is asked for: enough to make the cost of a record vanish."""

_ENTRY_BYTES, _VALUE_BYTES = 14, 4  # what a feature takes beside its name; a float (small integers take less)


class Layout(Protocol):
    """Encodes large_list batches (float32, int64, large_binary) into records, in row order. Holds no state."""

    name: str
    rows_per_record: int

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """The records of the batch; the same batch gives the same bytes in any process.

        Raises ValueError for a row whose values are not as many as the layout was told.
        """
        ...

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """As ``encode_array``, as Python bytes."""
        ...

    def describe(self) -> Json:
        """What a reader must know beside the features, for the manifest."""
        ...


class RowsLayout:
    """One row a record, one feature a column: what every tool reads. A null list is a feature left out."""

    name = "rows"
    rows_per_record = 1

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """One record a row."""
        return encode_examples(batch)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """One record a row."""
        return self.encode_array(batch).to_pylist()  # type: ignore[no-any-return]

    def describe(self) -> Json:
        """Rows in a record: 1."""
        return {"name": self.name, "rows_per_record": 1}


class PackedLayout:
    """One row a record, its numbers of fixed shape in two vectors. The rest as in ``rows``."""

    name = "packed"
    rows_per_record = 1

    def __init__(self, features: Json) -> None:
        self._map = ColumnMap.of(features)

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """One record a row."""
        own = [name for name in batch.schema.names if name not in self._map.names]
        columns = [batch.column(name) for name in own]
        columns += [self._vector(vector, batch) for vector in self._map.vectors]
        names = own + [vector.name for vector in self._map.vectors]
        return encode_examples(pa.RecordBatch.from_arrays(columns, names))

    def _vector(self, vector: Vector, batch: pa.RecordBatch) -> pa.LargeListArray:
        rows = batch.num_rows
        matrix: npt.NDArray[Any] = np.empty((rows, vector.length), vector.dtype)
        for column in self._map.columns_of(vector):
            values = _values(column.name, batch.column(column.name), column.length).to_numpy(zero_copy_only=False)
            matrix[:, column.offset : column.offset + column.length] = values.reshape(rows, column.length)
        return pa.LargeListArray.from_arrays(np.arange(rows + 1) * vector.length, pa.array(matrix.reshape(-1)))

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """One record a row."""
        return self.encode_array(batch).to_pylist()  # type: ignore[no-any-return]

    def describe(self) -> Json:
        """Rows in a record (1), the vectors, and where each feature lies in them."""
        return {"name": self.name, "rows_per_record": 1, **self._map.to_json()}


class BlocksLayout:
    """``rows_per_record`` rows a record (the last of a batch may hold fewer), each feature's values row by row.

    Raises UsageError for features whose number of values varies from row to row.
    """

    name = "blocks"

    def __init__(self, features: Json, rows_per_record: int = ROWS_PER_RECORD) -> None:
        widths = {name: width_of(described) for name, described in features.items()}
        varying = sorted(name for name, width in widths.items() if width is None)
        if varying:
            raise UsageError(
                f"--layout=blocks cannot hold {', '.join(map(repr, varying))}: a row may have any number of values, or "
                "none. Fill what is missing (fill_missing in the feature file), require the feature and give it a "
                "fixed shape in the schema, drop it, or use --layout=packed"
            )
        if not any(widths.values()):
            raise UsageError("--layout=blocks needs at least one feature that holds a value")
        if rows_per_record < 1:
            raise UsageError(f"--rows_per_record must be at least 1, not {rows_per_record}")
        self.rows_per_record = rows_per_record
        self._widths = {name: width for name, width in widths.items() if width}

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """One record for each ``rows_per_record`` rows, begun or full."""
        starts = np.append(np.arange(0, batch.num_rows, self.rows_per_record), batch.num_rows)
        columns = [
            pa.LargeListArray.from_arrays(starts * width, _values(name, batch.column(name), width))
            for name, width in self._widths.items()
        ]
        return encode_examples(pa.RecordBatch.from_arrays(columns, list(self._widths)))

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """As ``encode_array``, as Python bytes."""
        return self.encode_array(batch).to_pylist()  # type: ignore[no-any-return]

    def describe(self) -> Json:
        """The most rows that a record holds."""
        return {"name": self.name, "rows_per_record": self.rows_per_record}


def _values(name: str, column: pa.LargeListArray, width: int) -> pa.Array:
    """The values of all rows, one row after the other. Raises ValueError where a row has not ``width`` of them."""
    if not len(column):
        return column.flatten()
    lengths = np.diff(column.offsets.to_numpy())
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
    wrong = lengths != width
    if wrong.any():
        raise ValueError(f"feature {name!r} has {lengths[wrong][0]} values in a row, and should have {width}")
    return column.flatten()


def _make_rows(features: Json, rows_per_record: int) -> Layout:
    return RowsLayout()


def _make_packed(features: Json, rows_per_record: int) -> Layout:
    return PackedLayout(features)


_LAYOUTS: dict[str, Callable[[Json, int], Layout]] = {
    "rows": _make_rows,
    "packed": _make_packed,
    "blocks": BlocksLayout,
}


def make_layout(name: str, *, features: Json, rows_per_record: int = ROWS_PER_RECORD) -> Layout:
    """The layout called ``name`` for rows with ``features`` (see ``RowTransformer.features``).

    ``rows_per_record`` counts for ``blocks`` only. Raises UsageError for an unknown layout, and for
    features that the layout cannot hold.
    """
    if name not in _LAYOUTS:
        raise UsageError(f"unknown layout '{name}': {nearest(name, _LAYOUTS)}")
    return _LAYOUTS[name](features, rows_per_record)


def estimate_row_bytes(name: str, *, features: Json, rows_per_record: int = ROWS_PER_RECORD) -> float:
    """About how many bytes a row takes in an uncompressed shard of the layout called ``name``."""
    widths = {feature: width_of(described) for feature, described in features.items()}
    values = _VALUE_BYTES * sum(1 if width is None else width for width in widths.values())
    packed = ColumnMap.of(features).names if name == "packed" else frozenset()
    entries = OVERHEAD_BYTES + sum(len(feature) + _ENTRY_BYTES for feature in widths if feature not in packed)
    return values + entries / (rows_per_record if name == "blocks" else 1)
