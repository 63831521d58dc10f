"""JSON values as the values of a feature: the hooks that keep numbers as written, and the conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.schema import INT64_MAX, INT64_MIN, Feature, Kind
from pipeline.core.validation import REFUSED, Value, check_feature, show

EXACT_FLOAT_LIMIT = 2.0**53
"""Below it, float64 holds every integer exactly."""

_SHORT_INT_CHARACTERS = 20  # -9223372036854775808


@dataclass(frozen=True, slots=True)
class BigNumber:
    """A number as written: an integer of more than 20 characters, or one of 2**53 or more with point or exponent."""

    text: str


@dataclass(frozen=True, slots=True)
class Odd:
    """A value of no feature's type, of another format than JSON: ``text`` says for a message what it is."""

    text: str


class _NotFinite:
    """The value of a bare NaN or Infinity."""


NOT_FINITE: Final = _NotFinite()


def read_integer(text: str) -> int | float | BigNumber:
    """``json``'s hook for numbers without point or exponent; -0 keeps its sign, for a FLOAT."""
    if text == "-0":
        return -0.0
    return int(text) if len(text) <= _SHORT_INT_CHARACTERS else BigNumber(text)  # int() refuses 5,000 digits


def read_decimal(text: str) -> float | BigNumber:
    """``json``'s hook for all other numbers."""
    value = float(text)
    return value if abs(value) < EXACT_FLOAT_LIMIT else BigNumber(text)


def read_feature(given: Any, feature: Feature) -> tuple[list[Value | None] | None, list[Fault]]:
    """The values of one feature as the schema wants them (None: null), and all its faults.

    ``given`` is what ``json`` made of it with the hooks above. Values are only good when there are no faults.
    """
    if given is None:
        return None, check_feature(feature, None)
    faults: dict[Reason, Fault] = {}
    values: list[Any] = []
    read = _reader(feature.kind)
    for index, item in enumerate(given if isinstance(given, list) else [given]):
        value: Any = item if item is None else read(item, feature)
        if isinstance(value, _Complaint):
            if value.reason not in faults:
                place = f"value {index} of " if isinstance(given, list) else ""
                message = f"{place}feature {show(feature.name)} is {describe(item)}, {value.text}"
                faults[value.reason] = Fault(value.reason, message, feature.name)
            value = REFUSED
        values.append(value)
    for fault in check_feature(feature, values):
        faults.setdefault(fault.reason, fault)
    return values, list(faults.values())


@dataclass(frozen=True, slots=True)
class _Complaint:
    reason: Reason
    text: str


_FRACTION = _Complaint(Reason.WRONG_TYPE, "not an integer")
_NOT_A_NUMBER = _Complaint(Reason.WRONG_TYPE, "not a number")
_NOT_A_STRING = _Complaint(Reason.WRONG_TYPE, "not a string")
_BEYOND_INT64 = _Complaint(Reason.INT_OVERFLOW, "which does not fit in 64 bits")
_BEYOND_FLOAT64 = _Complaint(Reason.NON_FINITE, "not a finite number")


def _read_int(item: Any, feature: Feature) -> int | _Complaint:
    if item is True or item is False:
        return int(item) if feature.bool_domain is not None else _FRACTION
    if isinstance(item, int):
        return item if INT64_MIN <= item <= INT64_MAX else _BEYOND_INT64
    if isinstance(item, float):
        return int(item) if item.is_integer() else _FRACTION
    if isinstance(item, BigNumber):
        return _read_big_int(item.text)
    return _BEYOND_FLOAT64 if item is NOT_FINITE else _FRACTION


def _read_big_int(text: str) -> int | _Complaint:
    approximate = float(text)
    if not math.isfinite(approximate) and not text.lstrip("-").isdigit():
        return _BEYOND_FLOAT64
    if abs(approximate) > 2 * INT64_MAX:
        return _BEYOND_INT64
    exact = Decimal(text)
    if int(exact) != exact:
        return _FRACTION
    return int(exact) if INT64_MIN <= exact <= INT64_MAX else _BEYOND_INT64


def _read_float(item: Any, feature: Feature) -> float | _Complaint:
    if isinstance(item, BigNumber):
        item = float(item.text)
    if item is NOT_FINITE or (isinstance(item, float) and not math.isfinite(item)):
        return _BEYOND_FLOAT64
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    return _NOT_A_NUMBER


def _read_bytes(item: Any, feature: Feature) -> bytes | _Complaint:
    if isinstance(item, bytes):  # which JSON does not have, but Avro does
        return item
    return item.encode() if isinstance(item, str) else _NOT_A_STRING


def _reader(kind: Kind) -> Callable[[Any, Feature], Value | _Complaint]:
    return _read_int if kind is Kind.INT else _read_float if kind is Kind.FLOAT else _read_bytes


def describe(item: Any) -> str:
    """What a value is, for a message: bounded and escaped."""
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, BigNumber):
        return item.text if len(item.text) <= 40 else f"a number of {len(item.text)} characters"
    if isinstance(item, str):
        return f"the string {show(item)}"
    if isinstance(item, bytes):
        return f"the bytes {show(item)}"
    if isinstance(item, Odd):
        return item.text
    if isinstance(item, (int, float)):
        return show(item)
    return "NaN or Infinity" if item is NOT_FINITE else "a list" if isinstance(item, list) else "an object"
