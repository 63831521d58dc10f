"""Validation: the schema's verdict on values, row by row with every fault, and vectorised as a mask.

``check_values`` *defines* what is valid; ``valid_mask`` gives the same verdict over canonical columns.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.reasons import Reason
from pipeline.core.records import BoolArray, Fault
from pipeline.core.schema import INT64_MAX, INT64_MIN, Feature, Kind, Schema

Value = int | float | bytes
Values = Sequence[Value | None]

REFUSED: Final = object()
"""Stands for a value that its decoder refused: counted, otherwise not looked at."""

_SHOWN_CHARACTERS = 64
_FLOAT32 = struct.Struct("<f")


def show(value: object) -> str:
    """``value`` for a message: at most about 64 characters, control characters escaped, whatever its size."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"  # str() of a huge int is slow, then a ValueError
    if isinstance(value, (bytes, bytearray, memoryview)):
        head = bytes(value[: 4 * _SHOWN_CHARACTERS + 4])
        value = head.decode("utf-8", "backslashreplace")
    if not isinstance(value, str):
        return repr(value)[: 2 * _SHOWN_CHARACTERS]
    cut = value[:_SHOWN_CHARACTERS]
    return repr(cut) + ("…" if len(value) > len(cut) else "")


def value_limits(feature: Feature) -> tuple[int, int | None]:
    """How many values a row may hold where the feature is present: (least, most); most None is no limit.

    A fixed shape asks for exactly the product of its dimensions.
    """
    if feature.shape is not None:
        size = math.prod(feature.shape)
        return size, size
    return feature.min_values, feature.max_values


def check_values(values: Mapping[str, Values | None], schema: Schema) -> list[Fault]:
    """All faults of one row, in the schema's order; an empty list is a valid row.

    ``values`` maps a feature to its values: int for INT, int or float for FLOAT, bytes for BYTES. An
    absent key is a missing feature, None a null one; both are faults only of a required feature.
    A None inside the values is a ``null_feature``. Keys that the schema does not name are not looked at.
    """
    faults: list[Fault] = []
    for feature in schema.features:
        name = feature.name
        faults += check_feature(feature, values[name]) if name in values else check_missing(feature)
    return faults


def check_missing(feature: Feature) -> list[Fault]:
    """The faults of a row that does not mention ``feature``."""
    if not feature.required:
        return []
    return [Fault(Reason.MISSING_FEATURE, f"required feature {show(feature.name)} is missing", feature.name)]


def check_feature(feature: Feature, values: Sequence[Any] | None) -> list[Fault]:
    """The faults of one feature of one row (see ``check_values``): at most one for each reason.

    A value may be ``REFUSED``, where its decoder has found a fault already.
    """
    if values is None:
        if not feature.required:
            return []
        return [Fault(Reason.NULL_FEATURE, f"required feature {show(feature.name)} is null", feature.name)]
    faults: dict[Reason, Fault] = {}
    least, most = value_limits(feature)
    if len(values) < least or (most is not None and len(values) > most):
        fault = _count_fault(feature, len(values))
        faults[fault.reason] = fault
    for index, value in enumerate(values):
        for reason, complaint in _value_faults(feature, value):
            if reason not in faults:
                place = "" if feature.scalar else f"value {index} of "
                faults[reason] = Fault(reason, f"{place}feature {show(feature.name)} {complaint}", feature.name)
    return list(faults.values())


def _count_fault(feature: Feature, count: int) -> Fault:
    least, most = value_limits(feature)
    wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    message = f"feature {show(feature.name)} has {count} values, the schema wants {wanted}"
    return Fault(Reason.TOO_FEW_VALUES if count < least else Reason.TOO_MANY_VALUES, message, feature.name)


# Each of these gives (reason, complaint) pairs; nothing, the common case, costs no allocation.
_Complaints = Sequence[tuple[Reason, str]]


def _value_faults(feature: Feature, value: Any) -> _Complaints:
    if value is REFUSED:
        return ()
    if value is None:
        return [(Reason.NULL_FEATURE, "is null")]
    if feature.kind is Kind.BYTES:
        return _bytes_faults(feature, value)
    return _int_faults(feature, value) if feature.kind is Kind.INT else _float_faults(feature, value)


def _bytes_faults(feature: Feature, value: bytes) -> _Complaints:
    allowed = _allowed_bytes(feature)
    if allowed is None or value in allowed:
        return ()
    return [(Reason.NOT_IN_DOMAIN, f"is {show(value)}, not one of its {len(allowed)} allowed values")]


def _int_faults(feature: Feature, value: int) -> _Complaints:
    if not INT64_MIN <= value <= INT64_MAX:
        return [(Reason.INT_OVERFLOW, f"is {show(value)}, which does not fit in 64 bits")]
    faults = _range_faults(value, feature.int_min, feature.int_max)
    if feature.bool_domain is not None and value not in (0, 1):
        return [*faults, (Reason.NOT_IN_DOMAIN, f"is {show(value)}, a truth value is 0 or 1")]
    return faults


def _float_faults(feature: Feature, value: float) -> _Complaints:
    # Judged as it will be stored, in float32: else 0.1 would exceed a maximum of 0.1 (a float in the proto).
    try:
        stored = _FLOAT32.unpack(_FLOAT32.pack(float(value)))[0]
    except OverflowError:
        return [(Reason.FLOAT_OVERFLOW, f"is {show(value)}, which does not fit in float32")]
    faults = _range_faults(stored, feature.float_min, feature.float_max)
    if (feature.disallow_nan and math.isnan(stored)) or (feature.disallow_inf and math.isinf(stored)):
        return [(Reason.NON_FINITE, f"is {stored}, which the schema disallows"), *faults]
    return faults


def _range_faults(value: float, low: float | None, high: float | None) -> _Complaints:
    # Written so that NaN, where allowed, is in every range (as in TFDV).
    if low is not None and value < low:
        return [(Reason.OUT_OF_RANGE, f"is {show(value)}, below the minimum {low}")]
    if high is not None and value > high:
        return [(Reason.OUT_OF_RANGE, f"is {show(value)}, above the maximum {high}")]
    return ()


def _allowed_bytes(feature: Feature) -> tuple[bytes, ...] | None:
    if feature.bool_domain is not None:
        return (feature.bool_domain.true_value, feature.bool_domain.false_value)
    return feature.domain


def valid_mask(batch: pa.RecordBatch, schema: Schema) -> BoolArray:
    """Which rows of ``batch`` are valid, shape (rows,): the verdict of ``check_values``, vectorised.

    ``batch`` has the canonical columns (``Schema.arrow_schema``) by name; a null is a missing value.
    Floats are as stored, in float32, so an overflow has to be looked for before the cast.
    """
    mask = np.ones(batch.num_rows, np.bool_)
    for feature in schema.features:
        valid = _valid_rows(batch.column(feature.name), feature)
        if valid is not None:
            mask &= valid
    return mask


def _valid_rows(column: pa.Array, feature: Feature) -> BoolArray | None:
    """The mask of one column, or None where all rows are valid."""
    nested = pa.types.is_large_list(column.type)
    valid = _valid_lists(column, feature) if nested else _valid_values(column, feature)
    if column.null_count == 0:
        return valid
    present: BoolArray = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if feature.required:
        return present if valid is None else present & valid
    return None if valid is None else ~present | valid


def _valid_lists(column: pa.LargeListArray, feature: Feature) -> BoolArray | None:
    offsets = column.offsets.to_numpy()
    counts = np.diff(offsets)
    least, most = value_limits(feature)
    valid: BoolArray = counts >= least
    if most is not None:
        valid &= counts <= most
    inner = column.values
    inner_valid = _valid_values(inner, feature)
    if inner.null_count:
        not_null = pc.is_valid(inner).to_numpy(zero_copy_only=False)
        inner_valid = not_null if inner_valid is None else not_null & inner_valid
    if inner_valid is not None:
        invalid_before = np.concatenate(([0], np.cumsum(~inner_valid)))
        valid &= invalid_before[offsets[1:]] == invalid_before[offsets[:-1]]
    return valid


def _valid_values(values: pa.Array, feature: Feature) -> BoolArray | None:
    """Which values obey the feature's domain, shape (values,); what it says of nulls means nothing."""
    if feature.kind is Kind.BYTES:
        allowed = _allowed_bytes(feature)
        if allowed is None:
            return None
        found = pc.is_in(values, value_set=_value_set(allowed))
        return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    low, high = (
        (feature.int_min, feature.int_max) if feature.kind is Kind.INT else (feature.float_min, feature.float_max)
    )
    truth = feature.kind is Kind.INT and feature.bool_domain is not None
    finite = feature.kind is Kind.FLOAT and (feature.disallow_nan or feature.disallow_inf)
    if low is None and high is None and not truth and not finite:
        return None
    # What lies under a null may be anything, and means nothing.
    numbers = np.frombuffer(values.buffers()[1] or b"", values.type.to_pandas_dtype())
    numbers = numbers[values.offset : values.offset + len(values)]
    if not truth and not finite and _all_within(numbers, low, high):
        return None
    if feature.kind is Kind.FLOAT:
        numbers = numbers.astype(np.float64)  # so that a bound is not rounded to float32
    return _valid_numbers(numbers, feature, low=low, high=high)


@lru_cache(256)
def _value_set(allowed: tuple[bytes, ...]) -> pa.Array:
    return pa.array(allowed, pa.large_binary())


def _all_within(numbers: npt.NDArray[Any], low: float | None, high: float | None) -> bool:
    """Whether no number, those under nulls included, is beyond a bound; most often so, and told by two reductions."""
    if not len(numbers):
        return True
    # As Python numbers, so that a bound is not rounded to float32; NaN is within no bounds here.
    return (low is None or numbers.min().item() >= low) and (high is None or numbers.max().item() <= high)


def as_numbers(values: pa.Array) -> npt.NDArray[Any]:
    """A numeric array as numpy, shape (values,), with 0 for nulls."""
    filled = pc.fill_null(values, 0) if values.null_count else values  # 18 us a call, also where nothing is null
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _valid_numbers(
    numbers: npt.NDArray[np.int64] | npt.NDArray[np.float64], feature: Feature, *, low: float | None, high: float | None
) -> BoolArray:
    invalid = np.zeros(len(numbers), np.bool_)
    if low is not None:
        invalid |= numbers < low
    if high is not None:
        invalid |= numbers > high
    if feature.kind is Kind.INT and feature.bool_domain is not None:
        invalid |= (numbers != 0) & (numbers != 1)
    if feature.kind is Kind.FLOAT and feature.disallow_nan:
        invalid |= np.isnan(numbers)
    if feature.kind is Kind.FLOAT and feature.disallow_inf:
        invalid |= np.isinf(numbers)
    return ~invalid
