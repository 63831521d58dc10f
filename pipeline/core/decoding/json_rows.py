r"""The JSON oracle: one row at a time through ``json``; *defines* what is accepted and each fault of a row.

What it decides where JSON or the schema leave a choice:

- Raw NUL bytes as a quarter of a row or more are UTF-16 or UTF-32 text: ``invalid_utf8``.
- A lone surrogate escape (``"\ud800"``), which no UTF-8 text can hold, is ``invalid_json``, anywhere in the row.
- ``NaN`` and ``Infinity`` are ``non_finite`` anywhere in the row; a number beyond float64 (``1e400``) in features only.
- A bare value is a list of one, for every feature: accepted where the schema allows one value. ``[1]`` is so too.
- An INT may be written with a point or an exponent (``1.0``, ``1e2``): JSON has one number type. Such a number
  below 2**53 is what float64 reads, as for every JSON reader; above, its exact value counts, never a rounded one.
- An INT with a ``bool_domain`` may be written ``true`` or ``false``.
- A key given twice is a fault when the schema names it (nested objects are never looked into).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.core.decoding import UnknownFeatures
from pipeline.core.decoding.json_values import NOT_FINITE, describe, read_decimal, read_feature, read_integer
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.schema import Feature, Schema
from pipeline.core.validation import Value, check_missing, show

RowValues = dict[str, list[Value | None] | None]

_MAX_NAMED_KEYS = 16
_NON_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class _Pairs:
    """An object as its (key, value) pairs in order, so that a key given twice is seen."""

    pairs: list[tuple[str, Any]]


class _Malformed(ValueError):
    """The row is no JSON object at all: its one fault."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(reason, message)


@dataclass(frozen=True)
class RowParser:
    """Parses rows of JSON lines; ``max_depth`` is the deepest nesting of brackets (``{}`` alone is 1 deep).

    ``unwrap`` makes of what stands for a feature its value, in dialects where that is not the same.
    """

    schema: Schema
    unknown_features: UnknownFeatures = "ignore"
    max_depth: int = 64
    unwrap: Callable[[Any, Feature], Any] | None = None

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(feature.name for feature in self.schema.features)

    def parse(self, row: bytes) -> RowValues | list[Fault]:
        """The values of ``row`` by feature (None: null; absent: missing), valid under the schema, or all its faults.

        The faults that concern the row come first, then those of its features in the schema's order.
        """
        try:
            pairs, may_hold_bare_words = self._read(row)
        except _Malformed as error:
            return [error.fault]
        given, faults = self._by_name(pairs)
        if may_hold_bare_words and any(self._holds_stray_bare_word(key, value) for key, value in pairs):
            faults.append(Fault(Reason.NON_FINITE, "the row holds NaN or Infinity, which JSON does not have"))
        values: RowValues = {}
        for feature in self.schema.features:
            if feature.name not in given:
                faults += check_missing(feature)
            elif len(given[feature.name]) == 1:  # which of several would count is not ours to guess
                value = given[feature.name][0]
                value = value if self.unwrap is None else self.unwrap(value, feature)
                values[feature.name], found = read_feature(value, feature)
                faults += found
        return faults or values

    def _read(self, row: bytes) -> tuple[list[tuple[str, Any]], bool]:
        """The pairs of the row's object, and whether a NaN or Infinity may be among the values."""
        text = _decode_text(row)
        if _too_deep(text, self.max_depth):
            raise _Malformed(Reason.TOO_DEEP, f"the row is nested deeper than {self.max_depth} brackets")
        value = _parse_text(text)
        if _has_lone_surrogate(text):
            raise _Malformed(Reason.INVALID_JSON, "the row holds a lone surrogate escape, which is no character")
        if not isinstance(value, _Pairs):
            raise _Malformed(Reason.NOT_AN_OBJECT, f"the row is {describe(value)}, not an object")
        return value.pairs, "NaN" in text or "Infinity" in text

    def _holds_stray_bare_word(self, key: str, value: Any) -> bool:
        """Whether a NaN or Infinity is somewhere in ``value`` but is not itself a value of a feature."""
        if key not in self._names:
            return _holds_bare_word(value)
        items = value if isinstance(value, list) else [value]
        return any(item is not NOT_FINITE and _holds_bare_word(item) for item in items)

    def _by_name(self, pairs: list[tuple[str, Any]]) -> tuple[dict[str, list[Any]], list[Fault]]:
        """Each feature's values as given (more than one: given twice), and the faults of the keys."""
        given: dict[str, list[Any]] = {}
        unknown: dict[str, None] = {}
        for key, value in pairs:
            if key in self._names:
                given.setdefault(key, []).append(value)
            elif self.unknown_features == "reject":
                unknown[key] = None
        twice = [key for key, values in given.items() if len(values) > 1]
        faults = [
            Fault(Reason.DUPLICATE_KEY, f"key {show(key)} is given {len(given[key])} times", key) for key in twice
        ]
        return given, faults + list(_unknown_faults(list(unknown)))


def _decode_text(row: bytes) -> str:
    if row and row.count(0) * 4 >= len(row):
        raise _Malformed(Reason.INVALID_UTF8, "the row holds many NUL bytes: is it UTF-16 or UTF-32 text?")
    try:
        return row.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the row is not UTF-8 at byte {error.start}: {error.reason}"
        raise _Malformed(Reason.INVALID_UTF8, message) from None


def _too_deep(text: str, max_depth: int) -> bool:
    """Whether brackets outside strings nest deeper than ``max_depth``; told without any recursion."""
    if text.count("{") + text.count("[") <= max_depth:
        return False
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    brackets = np.frombuffer(outside.encode().translate(None, _NON_BRACKETS), np.uint8)
    steps = np.where((brackets == ord("{")) | (brackets == ord("[")), 1, -1)
    return bool(len(steps)) and int(np.cumsum(steps).max()) > max_depth


def _parse_text(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message = f"the row is not JSON at character {error.pos}: {error.msg[:100]}"
        raise _Malformed(Reason.INVALID_JSON, message) from None


def _as_not_finite(word: str) -> Any:
    return NOT_FINITE


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=read_integer, parse_float=read_decimal, parse_constant=_as_not_finite
)


def _holds_bare_word(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_bare_word, value))
    if isinstance(value, _Pairs):
        return any(_holds_bare_word(item) for _, item in value.pairs)
    return value is NOT_FINITE


def _has_lone_surrogate(text: str) -> bool:
    if _SURROGATE_ESCAPE.search(text) is None:
        return False
    # An escaped backslash is masked, not cut out: its neighbours must not become a pair.
    return _SURROGATE_ESCAPE.search(_SURROGATE_PAIR.sub("", text.replace("\\\\", "__"))) is not None


def _unknown_faults(keys: list[str]) -> Iterator[Fault]:
    for key in keys[:_MAX_NAMED_KEYS]:
        feature = key if key.isprintable() and len(key) <= 128 else None
        yield Fault(Reason.UNKNOWN_FEATURE, f"key {show(key)} is not in the schema", feature)
    if len(keys) > _MAX_NAMED_KEYS:
        yield Fault(Reason.UNKNOWN_FEATURE, f"{len(keys) - _MAX_NAMED_KEYS} more keys are not in the schema")
