"""How a feature's JSON values are read natively, and the way from what was read to canonical columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.decoding.json_values import EXACT_FLOAT_LIMIT
from pipeline.core.records import BoolArray
from pipeline.core.schema import Feature, Kind, Schema
from pipeline.core.validation import as_numbers, value_limits

_NATIVE_TYPES = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "bytes": pa.large_binary()}


@dataclass(frozen=True, slots=True)
class Reading:
    """How one column is read: the type of its values, and whether they are written in lists."""

    value: Literal["int", "float", "bool", "bytes"]
    listed: bool

    @property
    def native_type(self) -> pa.DataType:
        """The type that the native parser is asked for."""
        value_type = _NATIVE_TYPES[self.value]
        return pa.list_(value_type) if self.listed else value_type


Readings = tuple[Reading, ...]
"""One reading a feature, in the schema's order."""


def usual_readings(schema: Schema) -> Readings:
    """How the features are written most often: integers without a point, lists only where the schema has them."""
    return tuple(Reading(feature.kind.value, not feature.scalar) for feature in schema.features)


def other_readings(feature: Feature, reading: Reading, found: str) -> Reading | None:
    """How else ``feature`` may be written, given that a ``found`` (the parser's word) was met; None: not at all."""
    if found == "array":
        return None if reading.listed else Reading(reading.value, True)
    least, _ = value_limits(feature)
    listed = reading.listed and least > 1
    if found == "boolean" and feature.kind is Kind.INT and feature.bool_domain is not None:
        return Reading("bool", listed)
    if found == "number" and feature.kind is not Kind.BYTES:
        return Reading("int" if reading.value == "bool" else reading.value, listed)
    if found == "string" and feature.kind is Kind.BYTES:
        return Reading("bytes", listed)
    return None


def canonical_batch(table: pa.Table, schema: Schema, readings: Readings) -> tuple[pa.RecordBatch, BoolArray, list[int]]:
    """``table``, read as ``readings`` say, as canonical columns.

    Returns the batch; which rows were converted without doubt, shape (rows,), the others hold arbitrary
    values; and for each feature how many rows were doubtful only because float64 might have rounded them.
    """
    sure = np.ones(table.num_rows, np.bool_)
    columns, rounded = [], []
    for feature, reading in zip(schema.features, readings, strict=True):
        column = _Column(table.column(feature.name), feature, reading)
        columns.append(column.canonical)
        if column.sure is not None:
            sure &= column.sure
        rounded.append(column.rounded)
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema), sure, rounded


class _Column:
    """One column on its way: ``canonical``; ``sure`` rows (None: all); the count of ``rounded`` values."""

    def __init__(self, read: pa.ChunkedArray, feature: Feature, reading: Reading) -> None:
        array = read.chunk(0) if read.num_chunks == 1 else pa.concat_arrays(read.chunks)
        self.rounded = 0
        if not reading.listed:
            values, self.sure = self._values(array, feature, reading)
            self.canonical = values if feature.scalar else wrapped(values)
            return
        inner, inner_sure = self._values(array.values, feature, reading)
        offsets = array.offsets.to_numpy().astype(np.int64)
        self.sure = None if inner_sure is None else _all_within(inner_sure, offsets)
        if feature.scalar:
            self.canonical, single = _unwrapped(inner, offsets, array)
            self.sure = single if self.sure is None else self.sure & single
        else:
            mask = pc.is_null(array) if array.null_count else None
            self.canonical = pa.LargeListArray.from_arrays(pa.array(offsets), inner, mask=mask)

    def _values(self, read: pa.Array, feature: Feature, reading: Reading) -> tuple[pa.Array, BoolArray | None]:
        """The values as the feature's type, and which were converted without doubt (None: all)."""
        if feature.kind is Kind.INT and reading.value == "float":
            return self._integral(read)
        if feature.kind is Kind.INT and reading.value == "bool":
            return pc.cast(read, pa.int64()), None
        if feature.kind is Kind.FLOAT:
            return _as_float32(read)
        return read, None

    def _integral(self, read: pa.Array) -> tuple[pa.Array, BoolArray | None]:
        numbers = as_numbers(read)
        small = np.abs(numbers) < EXACT_FLOAT_LIMIT
        self.rounded = len(small) - int(np.count_nonzero(small))
        integers = np.where(small, numbers, 0.0).astype(np.int64)
        sure = small & (integers == numbers)
        return _like(read, integers), None if sure.all() else sure


def _as_float32(read: pa.Array) -> tuple[pa.Array, BoolArray | None]:
    numbers = as_numbers(read)
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    finite = np.isfinite(narrow)
    return _like(read, narrow), None if finite.all() else finite


def _like(read: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    """``values`` as an array that is null where ``read`` is."""
    mask = pc.is_null(read).to_numpy(zero_copy_only=False) if read.null_count else None
    return pa.array(values, mask=mask)


def wrapped(values: pa.Array) -> pa.LargeListArray:
    """Bare values as lists of one; null stays null."""
    if not values.null_count:
        return pa.LargeListArray.from_arrays(pa.array(np.arange(len(values) + 1)), values)
    present = pc.is_valid(values).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(present)))
    return pa.LargeListArray.from_arrays(pa.array(offsets), values.drop_null(), mask=pa.array(~present))


def _unwrapped(inner: pa.Array, offsets: npt.NDArray[np.int64], lists: pa.Array) -> tuple[pa.Array, BoolArray]:
    """Lists of one as bare values, null lists as null; and which rows were either of these."""
    missing = pc.is_null(lists).to_numpy(zero_copy_only=False)
    single = (np.diff(offsets) == 1) & ~missing
    values = inner.take(pa.array(offsets[:-1], mask=~single))
    return values, missing | (single & pc.is_valid(values).to_numpy(zero_copy_only=False))


def _all_within(sure: BoolArray, offsets: npt.NDArray[np.int64]) -> BoolArray:
    """Whether all values of each list are sure, shape (lists,)."""
    doubtful_before = np.concatenate(([0], np.cumsum(~sure)))
    return np.equal(doubtful_before[offsets[1:]], doubtful_before[offsets[:-1]])
