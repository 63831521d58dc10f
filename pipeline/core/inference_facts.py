"""What inference remembers of each key: how often it came, and as what; bounded, mergeable, made for chunks of rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

from pipeline.core.decoding.csv_rows import FLOAT_SYNTAX, INT_SYNTAX
from pipeline.core.schema import FLOAT32_MAX, INT64_MAX, INT64_MIN

MAX_DOMAIN_VALUES = 30
"""A feature with more distinct strings than this never gets a string_domain, and they are not remembered."""

_INT = re.compile(INT_SYNTAX)
_FLOAT = re.compile(FLOAT_SYNTAX)
_PADDED = re.compile(rb"[+-]?0[0-9]+")
_NON_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TRUTH = (b"true", b"false")
_MAX_NUMBER_BYTES = 400  # longer ones fit no type, and Python refuses to convert very long integers


class Shape(Enum):
    """What one value looks like."""

    NULL = "null"
    TRUTH = "truth value"
    BIT = "0 or 1"
    INT = "integer"
    PADDED = "number with leading zeros"
    BIG = "integer beyond 64 bits"
    REAL = "fraction"
    HUGE = "number beyond float32"
    TEXT = "string"
    OTHER = "nested value"


Shapes = frozenset[Shape]


@dataclass
class Facts:
    """What was seen of one key.

    ``rows`` counts the rows in which the key is neither absent nor null, by the shapes of their
    values; ``lengths`` counts them by number of values (a bare value is one); ``largest`` is the largest
    magnitude of an integer; ``texts`` counts the distinct strings, and is None when they are too many.
    """

    rows: Counter[Shapes] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    largest: int = 0
    texts: Counter[bytes] | None = field(default_factory=Counter)

    @property
    def present(self) -> int:
        """Rows that have a value."""
        return self.rows.total()

    def add_values(self, values: Sequence[object]) -> None:
        """Adds what a chunk of rows holds: values as parsed from JSON (Decimal: kept exact), None where missing."""
        groups = _by_type(values)
        groups.pop(type(None), None)
        for value in groups.pop(list, ()):
            self._add_list(value)
        for kind, group in groups.items():
            self.lengths[1] += len(group)
            for shape, count in self._look(kind, group).items():
                self.rows[frozenset((shape,))] += count

    def add_cells(self, cells: Iterable[bytes | None]) -> None:
        """Adds the cells that a chunk of rows of a CSV file holds; None means missing."""
        counts = Counter(cells)
        counts.pop(None, None)
        for cell, count in counts.items():
            shape = self._look_at_cell(cell or b"")
            self.rows[frozenset((shape,))] += count
            self.lengths[1] += count
            self._remember({cell or b"": count})

    def merge(self, other: Facts) -> Facts:
        """What was seen in both."""
        merged = Facts(
            self.rows + other.rows,
            self.lengths + other.lengths,
            max(self.largest, other.largest),
            None if self.texts is None else Counter(self.texts),
        )
        merged._remember(other.texts)
        return merged

    def _add_list(self, values: list[object]) -> None:
        self.lengths[len(values)] += 1
        shapes: set[Shape] = set()
        for kind, group in _by_type(values).items():
            shapes.update(self._look(kind, group))
        self.rows[frozenset(shapes)] += 1

    def _look(self, kind: type, values: Sequence[Any]) -> dict[Shape, int]:
        """The shapes of values of one Python type, with counts."""
        look = _LOOKS.get(kind)
        return look(self, values) if look else {Shape.OTHER: len(values)}

    def _look_at_nulls(self, values: Sequence[None]) -> dict[Shape, int]:
        return {Shape.NULL: len(values)}

    def _look_at_truth(self, values: Sequence[bool]) -> dict[Shape, int]:
        return {Shape.TRUTH: len(values)}

    def _look_at_texts(self, values: Sequence[str]) -> dict[Shape, int]:
        try:
            "".join(values).encode()
        except UnicodeEncodeError:  # lone surrogates: no bytes stand for them
            sound = [text for text in values if text.isascii() or text == text.encode("utf-8", "ignore").decode()]
            return _counts({Shape.OTHER: len(values) - len(sound), **(self._look_at_texts(sound) if sound else {})})
        if self.texts is not None:
            self._remember({text.encode(): count for text, count in Counter(values).items()})
        return {Shape.TEXT: len(values)}

    def _look_at_ints(self, values: Sequence[int]) -> dict[Shape, int]:
        low, high = min(values), max(values)
        if low < INT64_MIN or high > INT64_MAX:
            return dict(Counter(map(self._number_shape, values)))
        self.largest = max(self.largest, -low, high)
        bits = values.count(0) + values.count(1)
        return _counts({Shape.BIT: bits, Shape.INT: len(values) - bits})

    def _look_at_floats(self, values: Sequence[float]) -> dict[Shape, int]:
        integral = sum(map(float.is_integer, values))
        if math.isfinite(sum(values)):
            low, high = min(values), max(values)
            if integral == 0 and max(-low, high) <= FLOAT32_MAX:
                return {Shape.REAL: len(values)}
            if integral == len(values) and low >= -(2.0**63) and high < 2.0**63:
                return self._look_at_ints([int(value) for value in values])
        return dict(Counter(map(self._number_shape, values)))

    def _look_at_exact(self, values: Sequence[Decimal]) -> dict[Shape, int]:
        return dict(Counter(map(self._number_shape, values)))

    def _number_shape(self, value: Any) -> Shape:
        if not abs(value) <= FLOAT32_MAX:  # or NaN
            return Shape.HUGE
        if value != int(value):
            return Shape.REAL
        if not INT64_MIN <= int(value) <= INT64_MAX:
            return Shape.BIG
        self.largest = max(self.largest, abs(int(value)))
        return Shape.BIT if value in (0, 1) else Shape.INT

    def _look_at_cell(self, cell: bytes) -> Shape:
        if cell.lower() in _TRUTH:
            return Shape.TRUTH
        if _NON_FINITE.fullmatch(cell):
            return Shape.HUGE
        if not _FLOAT.fullmatch(cell):
            return Shape.TEXT
        if len(cell) > _MAX_NUMBER_BYTES:
            return Shape.HUGE
        if _PADDED.fullmatch(cell):
            return Shape.PADDED
        if _INT.fullmatch(cell):
            return self._number_shape(int(cell.partition(b".")[0]))
        # A number with an exponent is no integer in CSV, whatever its value.
        return Shape.HUGE if abs(float(cell)) > FLOAT32_MAX else Shape.REAL

    def _remember(self, texts: dict[bytes, int] | Counter[bytes] | None) -> None:
        if self.texts is None or texts is None:
            self.texts = None
            return
        self.texts.update(texts)
        if len(self.texts) > MAX_DOMAIN_VALUES:
            self.texts = None


def _by_type(values: Sequence[Any]) -> dict[type, Sequence[Any]]:
    """The values by their Python type, in order of first appearance."""
    if len(set(map(type, values))) == 1:
        return {type(values[0]): values}
    groups: dict[type, Any] = {}
    for value in values:
        groups.setdefault(type(value), []).append(value)
    return groups


def _counts(counts: dict[Shape, int]) -> dict[Shape, int]:
    return {shape: count for shape, count in counts.items() if count}


_LOOKS: dict[type, Callable[[Facts, Any], dict[Shape, int]]] = {
    type(None): Facts._look_at_nulls,
    bool: Facts._look_at_truth,
    int: Facts._look_at_ints,
    float: Facts._look_at_floats,
    Decimal: Facts._look_at_exact,
    str: Facts._look_at_texts,
}
