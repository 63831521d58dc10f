"""Which valid rows the ops of a spec cannot take, found in columns before the graph would fail or give nonsense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from pipeline.core.coded import codes_of, is_coded
from pipeline.core.event_times import PATTERN
from pipeline.core.reasons import Reason
from pipeline.core.records import BoolArray, Fault, Int64Array
from pipeline.core.schema import Kind, Schema
from pipeline.features import ops
from pipeline.features.op import Op
from pipeline.features.spec import FeatureSpec, Output

Test = Callable[[pa.Array], BoolArray]
"""Flat values without nulls in, True where a value is bad."""


@dataclass(frozen=True)
class _Check:
    feature: str
    test: Test
    message: str


class RowChecks:
    """The conditions that a spec puts on raw values: the op that meets the raw value decides.

    What only shows in the middle of a chain (log1p after a scaling) shows as a non-finite output.
    """

    def __init__(self, spec: FeatureSpec, schema: Schema) -> None:
        kinds = {feature.name: feature.kind for feature in schema.features}
        checks = [_check_of(output, kinds[output.source]) for output in spec.outputs if output.source in kinds]
        self._checks = list(dict.fromkeys(check for check in checks if check))

    def faults(self, batch: pa.RecordBatch) -> dict[int, Fault]:
        """The first fault of each row of a canonical batch that has one; ``transform_error``, feature named.

        Columns can be coded (see ``core.coded``): then each different value is looked at once.
        """
        found: dict[int, Fault] = {}
        for check in self._checks:
            for row in _bad_rows(batch.column(check.feature), check.test).tolist():
                found.setdefault(row, Fault(Reason.TRANSFORM_ERROR, check.message, check.feature))
        return found


def _bad_rows(column: pa.Array, test: Test) -> Int64Array:
    """The rows with a value that ``test`` finds bad, ascending."""
    if is_coded(column):
        bad_words = np.zeros(len(column.dictionary), np.bool_)
        bad_words[_bad_rows(column.dictionary, test)] = True
        return np.flatnonzero(bad_words[codes_of(column)])
    listed = pa.types.is_large_list(column.type)
    bad = test(column.flatten() if listed else column.drop_null())
    if not bad.any():
        return np.zeros(0, np.int64)
    rows = pc.list_parent_indices(column).to_numpy() if listed else np.flatnonzero(column.is_valid())
    return np.unique(rows[bad])


def _check_of(output: Output, kind: Kind) -> _Check | None:
    first = next((op for op in output.ops if not isinstance(op, ops.Label | ops.FillMissing)), None)
    found = _test_of(first, kind)
    if first is None or found is None:
        return None
    test, needs = found
    return _Check(output.source, test, f"the feature cannot go through {first.name}: {needs}")


def _test_of(op: Op | None, kind: Kind) -> tuple[Test, str] | None:
    match op:
        case ops.TimeParts():
            return bad_times, "it is no RFC 3339 time, such as 2013-01-01T10:00:00Z"
        case ops.Cast(to="float") if kind is Kind.BYTES:
            return bad_floats, "the string is no finite number"
        case ops.Cast(to="int") if kind is Kind.BYTES:
            return bad_integers, "the string is no whole number of 64 bits"
        case ops.Cast(to="int") if kind is Kind.FLOAT:
            return _outside_int64, "the number does not fit 64 bits"
        case ops.Log1p():
            return _at_most_minus_one, "log1p needs a number above -1"
        case ops.OneHot(depth=depth) if depth:
            return _OutsideDepth(depth), f"one_hot needs a whole number from 0 to {depth - 1}"
        case ops.ScaleToZScore() | ops.ScaleTo01() | ops.ScaleByMinMax() | ops.Bucketize() | ops.ApplyBuckets():
            return (_not_finite, "it is NaN or infinite") if kind is Kind.FLOAT else None
    return None


def bad_times(values: pa.Array) -> BoolArray:
    """Where a string is no valid RFC 3339 time. Shape (len(values),)."""
    if (plain := _plain_times(values)) is not None:
        return ~plain
    bad = ~_flags(pc.match_substring_regex(values, f"^({PATTERN})$"))
    good = np.flatnonzero(~bad)
    texts = values.take(pa.array(good)).cast(pa.large_string())  # ASCII, as the pattern says
    year, month, day = (_digits(texts, at, end) for at, end in ((0, 4), (5, 7), (8, 10)))
    bad[good] = day > _month_days(year, month)
    return bad


_PLAIN_LOW = np.frombuffer(b"0000-00-00T00:00:00Z", np.uint8)
_PLAIN_HIGH = np.frombuffer(b"9999-19-39T29:59:59Z", np.uint8)


def _plain_times(values: pa.Array) -> BoolArray | None:
    """Where 2013-01-01T10:00:00Z is a time, if that is how all are written (ten times faster than a pattern)."""
    if not len(values):
        return np.zeros(0, np.bool_)
    ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    if (np.diff(ends) != len(_PLAIN_LOW)).any():
        return None
    text = np.frombuffer(values.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(-1, len(_PLAIN_LOW))
    if not ((text >= _PLAIN_LOW) & (text <= _PLAIN_HIGH)).all():
        return None
    century, years, month, day, hour = (text[:, at].astype(np.int64) * 10 + text[:, at + 1] - 528 for at in _PLAIN_AT)
    in_range = (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23)
    return np.asarray(in_range & (day <= _month_days(century * 100 + years, np.where(in_range, month, 0))))


_PLAIN_AT = (0, 2, 5, 8, 11)
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _month_days(year: Int64Array, month: Int64Array) -> Int64Array:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return np.asarray(_MONTH_DAYS[month] + (leap & (month == 2)))


def _digits(texts: pa.Array, at: int, end: int) -> Int64Array:
    numbers: Int64Array = pc.utf8_slice_codeunits(texts, at, end).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def bad_floats(values: pa.Array) -> BoolArray:
    """Where a string is no finite float32 by TensorFlow's own reading."""
    return _unreadable(values, "float32")


def bad_integers(values: pa.Array) -> BoolArray:
    """Where a string is no int64 by TensorFlow's own reading."""
    return _unreadable(values, "int64")


def _unreadable(values: pa.Array, dtype: str) -> BoolArray:
    """Ask the parser of the graph itself, whole column first, halving where it refuses."""
    bad: BoolArray = np.zeros(len(values), np.bool_)
    texts = np.asarray(values, dtype=object)

    def narrow(start: int, end: int) -> None:
        try:
            numbers = tf.strings.to_number(tf.constant(texts[start:end], tf.string), dtype).numpy()
        except tf.errors.InvalidArgumentError:
            if end - start == 1:
                bad[start] = True
                return
            middle = (start + end) // 2
            narrow(start, middle)
            narrow(middle, end)
            return
        if dtype == "float32":
            bad[start:end] = ~np.isfinite(numbers)

    if len(values):
        narrow(0, len(values))
    return bad


def _outside_int64(values: pa.Array) -> BoolArray:
    return np.asarray(~(np.abs(_numbers(values)) < 2.0**63))


def _at_most_minus_one(values: pa.Array) -> BoolArray:
    numbers = _numbers(values)
    return np.asarray(~((numbers > -1) & (numbers < np.inf)))


def _not_finite(values: pa.Array) -> BoolArray:
    return np.asarray(~np.isfinite(_numbers(values)))


@dataclass(frozen=True)
class _OutsideDepth:
    depth: int

    def __call__(self, values: pa.Array) -> BoolArray:
        numbers = _numbers(values)
        return np.asarray((numbers < 0) | (numbers >= self.depth))


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _flags(values: pa.BooleanArray) -> BoolArray:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
