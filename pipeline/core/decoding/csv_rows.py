"""The CSV oracle: one row at a time, strict RFC 4180; *defines* what is accepted and each fault of a row.

What it decides where CSV or the schema leave a choice:

- A null token counts in an unquoted cell only: a quoted ``""`` or ``"NA"`` is a value.
- Numbers may be quoted. White space around a number is not taken away: it is ``wrong_type``.
- An INT may have a sign, leading zeros, and a fraction of zeros: ``1.0`` is 1, as in JSON, and is what
  pandas writes in a column with gaps. It has no exponent: ``1E3`` is what spreadsheets make of an identifier.
- An INT with a ``bool_domain`` may be ``true`` or ``false`` in any case.
- A FLOAT is decimal, with or without exponent; ``nan`` and ``inf`` in any case, and what does not fit in
  float64 (``1e400``), are ``non_finite``; what does not fit in float32 only (``1e300``) is ``float_overflow``.
- A carriage return within a line is an ordinary byte of its cell.
- Raw NUL bytes as a quarter of a row or more are UTF-16 or UTF-32 text: ``invalid_utf8``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.schema import INT64_MAX, INT64_MIN, Feature, Kind, Schema
from pipeline.core.validation import REFUSED, Value, check_feature, check_missing, show

RowValues = dict[str, list[Value | None] | None]

Cell = tuple[bytes, bool]
"""A cell: its bytes, quotes taken off, and whether it was quoted."""

INT_SYNTAX = rb"[+-]?[0-9]+(?:\.0*)?"
FLOAT_SYNTAX = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INT = re.compile(INT_SYNTAX)
_FLOAT = re.compile(FLOAT_SYNTAX)
_NON_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TRUTH = {b"true": 1, b"false": 0}
_INT64_DIGITS = 19


class QuoteError(ValueError):
    """A quote stands where RFC 4180 allows none, or is never closed."""


def split_cells(row: bytes, options: CsvOptions) -> list[Cell]:
    """The cells of ``row`` (no line terminator), at least one.

    A quote may only open a cell at its start, is closed right before a delimiter or the end, and is
    doubled inside. Raises QuoteError, saying what is wrong and where, for anything else.
    """
    delimiter, quote = options.delimiter_byte, options.quote_byte
    if not quote or quote not in row:
        return [(text, False) for text in row.split(delimiter)]
    cells: list[Cell] = []
    position = 0
    while True:
        if row.startswith(quote, position):
            end = _closing_quote(row, position, quote)
            cells.append((row[position + 1 : end].replace(quote + quote, quote), True))
            position = end + 1
            if position < len(row) and not row.startswith(delimiter, position):
                raise QuoteError(f"the closing quote at byte {end} is followed by {show(row[position : position + 8])}")
        else:
            end = row.find(delimiter, position)
            end = len(row) if end < 0 else end
            text = row[position:end]
            if quote in text:
                raise QuoteError(f"the quote at byte {position + text.find(quote)} is inside an unquoted cell")
            cells.append((text, False))
            position = end
        if position >= len(row):
            return cells
        position += 1


def _closing_quote(row: bytes, opening: int, quote: bytes) -> int:
    end = row.find(quote, opening + 1)
    while end >= 0 and row.startswith(quote, end + 1):
        end = row.find(quote, end + 2)
    if end < 0:
        raise QuoteError(f"the quote at byte {opening} is never closed")
    return end


@dataclass(frozen=True)
class RowParser:
    """Parses rows under one header. ``header`` has the columns in file order, each name once."""

    schema: Schema
    options: CsvOptions
    header: tuple[str, ...]

    @cached_property
    def _null_cells(self) -> frozenset[bytes]:
        return self.options.null_cells

    def parse(self, row: bytes) -> RowValues | list[Fault]:
        """The values of ``row`` by feature (None: missing; absent: no such column), or all its faults."""
        try:
            cells = self._cells(row)
        except _Malformed as error:
            return error.faults
        values: RowValues = {}
        faults: list[Fault] = []
        by_name = dict(zip(self.header, cells, strict=True))
        for feature in self.schema.features:
            if feature.name not in by_name:
                faults += check_missing(feature)
                continue
            text, quoted = by_name[feature.name]
            null = not quoted and text in self._null_cells
            value = None if null else read_value(text, feature)
            if isinstance(value, Fault):
                faults += [value, *check_feature(feature, [REFUSED])]
                continue
            values[feature.name] = None if value is None else [value]
            faults += check_feature(feature, values[feature.name])
        return faults or values

    def _cells(self, row: bytes) -> list[Cell]:
        faults = []
        if row.count(0) * 4 >= max(len(row), 1):
            faults.append(Fault(Reason.INVALID_UTF8, "the row holds many NUL bytes: is it UTF-16 or UTF-32 text?"))
        try:
            row.decode()
        except UnicodeDecodeError as error:
            faults.append(Fault(Reason.INVALID_UTF8, f"the row is not UTF-8 at byte {error.start}: {error.reason}"))
        try:
            cells = split_cells(row, self.options)
        except QuoteError as error:
            faults.append(Fault(Reason.UNBALANCED_QUOTE, str(error)))
            raise _Malformed(faults) from None
        if b"\n" in row and not self.options.multiline:
            message = f"the row holds a quoted newline ({row.count(10) + 1} lines); use --csv_multiline to read it"
            faults.append(Fault(Reason.UNBALANCED_QUOTE, message))
        if len(cells) != len(self.header):
            message = f"the row has {len(cells)} cells, the header has {len(self.header)}"
            faults.append(Fault(Reason.RAGGED_ROW, message))
        if faults:
            raise _Malformed(faults)
        return cells


class _Malformed(ValueError):
    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


def read_value(text: bytes, feature: Feature) -> Value | Fault:
    """The value of a cell under ``feature``: int, finite float, or the bytes themselves; or its fault."""
    if feature.kind is Kind.BYTES:
        return text
    return _read_int(text, feature) if feature.kind is Kind.INT else _read_float(text, feature)


def _read_int(text: bytes, feature: Feature) -> int | Fault:
    if feature.bool_domain is not None and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if _INT.fullmatch(text) is None:
        return _fault(Reason.WRONG_TYPE, text, feature, "not an integer")
    digits = text.partition(b".")[0].lstrip(b"+-0")
    if len(digits) <= _INT64_DIGITS:  # int() refuses thousands of digits
        value = int(digits or b"0") * (-1 if text.startswith(b"-") else 1)
        if INT64_MIN <= value <= INT64_MAX:
            return value
    return _fault(Reason.INT_OVERFLOW, text, feature, "which does not fit in 64 bits")


def _read_float(text: bytes, feature: Feature) -> float | Fault:
    if _FLOAT.fullmatch(text) is not None:
        value = float(text)
        if math.isfinite(value):
            return value
        return _fault(Reason.NON_FINITE, text, feature, "which does not fit in a double")
    if _NON_FINITE.fullmatch(text) is not None:
        return _fault(Reason.NON_FINITE, text, feature, "not a finite number")
    return _fault(Reason.WRONG_TYPE, text, feature, "not a number")


def _fault(reason: Reason, text: bytes, feature: Feature, complaint: str) -> Fault:
    return Fault(reason, f"feature {show(feature.name)} is {show(text)}, {complaint}", feature.name)
