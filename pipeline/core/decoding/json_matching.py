"""Rows matched against a template, value by value: what the rows that fit hold, and which rows these are.

All rows stand at the same place of the template at any time, though at different places of their text. The
bytes between two values are compared with the template's; a value is read if it has the plain form that
most values have. A row that differs anywhere does not fit: it is not refused, but read in another way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.decoding.json_words import (
    MOST_WORDS,
    WORD_BYTES,
    UInt8Array,
    Words,
    inner_word,
    leading_digits,
    low_mask,
    string_end,
    word_of,
)
from pipeline.core.records import BoolArray, Int64Array, UInt64Array

Float64Array = npt.NDArray[np.float64]

_U = np.uint64
_FIRST = _U(0xFF)
_MOST_DIGITS = 19  # as many always fit in 64 bits
_TENS = np.array([10**k % 2**64 for k in range(25)], np.uint64)
_FLOAT_TENS = np.array([10.0**k for k in range(23)])  # exact, as 10^23 is not
_EXACT_FLOATS = _U(1 << 53)
_WIDER, _NARROWER = 1 + 2.0**-50, 1 - 2.0**-50
_INT64_MAX = _U((1 << 63) - 1)
_ZERO, _MINUS, _POINT, _QUOTE = ord("0"), ord("-"), ord("."), ord('"')
_LONGEST_LITERAL = (MOST_WORDS - 2) * WORD_BYTES
_LONGEST_STRING = 512 * WORD_BYTES  # or, if it is the only one, it would be read in as many steps as it has words
_WORDS = ((b"null", 0), (b"true", 1), (b"false", 0))
_NO_ROWS = np.zeros(0, np.int64)


class Cursor:
    """Where each of the rows is, ``places``, shape (rows,); ``fitting`` says which were like the template so far."""

    def __init__(self, words: Words, places: Int64Array) -> None:
        self.words = words
        self.places = places
        self.fits: BoolArray = np.ones(len(places), np.bool_)  # but for literals
        self._differs = np.zeros(len(places), np.uint64)

    def fitting(self) -> BoolArray:
        """Which rows are like the template up to their places."""
        fitting: BoolArray = self._differs == 0
        fitting &= self.fits
        return fitting

    def pass_literal(self, literal: bytes) -> UInt64Array:
        """Go past ``literal``; the words that come next."""
        while len(literal) > _LONGEST_LITERAL:
            self._compare(literal[:_LONGEST_LITERAL])
            literal = literal[_LONGEST_LITERAL:]
        return inner_word(self._compare(literal), len(literal))

    def misfit(self, rows: Int64Array | BoolArray) -> None:
        """These rows are not like the template."""
        self.fits[rows] = False

    def _compare(self, literal: bytes) -> list[UInt64Array]:
        words = self.words.at(self.places, (len(literal) + 2 * WORD_BYTES - 1) // WORD_BYTES)
        for at in range(0, len(literal), WORD_BYTES):
            part = literal[at : at + WORD_BYTES]
            difference = words[at // WORD_BYTES] ^ word_of(part)
            if len(part) < WORD_BYTES:
                difference &= low_mask(len(part))
            self._differs |= difference
        self.places += len(literal)
        return words


@dataclass
class _Digits:
    """The run of digits at each place: its value, if it has at most 19 digits, and their number (up to 24).

    No run has more than ``longest`` digits, which saves looking for those that are too long.
    """

    value: UInt64Array
    count: UInt8Array
    longest: int

    @classmethod
    def read(cls, words: Words, places: Int64Array, word: UInt64Array) -> _Digits:
        value, count = leading_digits(word)
        longest = int(count.max(initial=0))
        if longest < WORD_BYTES:
            return cls(value, count, longest)
        long = np.flatnonzero(count == WORD_BYTES)
        while len(long):
            (word,) = words.at(places[long] + count[long], 1)
            more, further = leading_digits(word)
            value[long] = value[long] * _TENS[further] + more
            count[long] += further
            long = long[(further == WORD_BYTES) & (count[long] < 3 * WORD_BYTES)]
        return cls(value, count, int(count.max(initial=0)))

    def put(self, rows: Int64Array, other: _Digits) -> None:
        self.value[rows], self.count[rows] = other.value, other.count
        self.longest = max(self.longest, other.longest)


@dataclass
class _Number:
    """What stands at each place before point and exponent: digits, the rows with a minus before them, and null rows."""

    digits: _Digits
    negative: Int64Array
    null: Int64Array

    @classmethod
    def read(cls, cursor: Cursor, word: UInt64Array, *, words: int) -> _Number:
        """Moves ``cursor`` past it. ``words`` says which of ``_WORDS`` may stand for a number."""
        digits = _Digits.read(cursor.words, cursor.places, word)
        found = cls(digits, _NO_ROWS, _NO_ROWS)
        cursor.fits &= ~_padded(word, digits.count)
        if not digits.count.all():
            found._begin_otherwise(cursor, word, words=words)
        cursor.places += digits.count
        if digits.longest > _MOST_DIGITS:
            cursor.misfit(digits.count > _MOST_DIGITS)
        return found

    def _begin_otherwise(self, cursor: Cursor, word: UInt64Array, *, words: int) -> None:
        rows = np.flatnonzero(self.digits.count == 0)
        is_negative = (word[rows] & _FIRST) == _MINUS
        if is_negative.any():
            self.negative = rows[is_negative]
            self._read_magnitude(cursor)
            rows = rows[~is_negative]
        rows, self.null = pass_words(cursor, word, rows, values=self.digits.value, words=words)
        cursor.misfit(rows)

    def _read_magnitude(self, cursor: Cursor) -> None:
        cursor.places[self.negative] += 1
        places = cursor.places[self.negative]
        (word,) = cursor.words.at(places, 1)
        digits = _Digits.read(cursor.words, places, word)
        cursor.misfit(self.negative[_padded(word, digits.count) | (digits.count == 0)])
        self.digits.put(self.negative, digits)


def pass_words(
    cursor: Cursor, word: UInt64Array, rows: Int64Array, *, values: UInt64Array, words: int
) -> tuple[Int64Array, Int64Array]:
    """Move those of ``rows`` that hold a bare word past it, and set their ``values``: the other rows, the null rows."""
    null = _NO_ROWS
    for text, value in _WORDS[:words]:
        is_word = (word[rows] & low_mask(len(text))) == word_of(text)
        found, rows = rows[is_word], rows[~is_word]
        values[found] = value
        cursor.places[found] += len(text)
        if text == b"null":
            null = found
    return rows, null


def _padded(word: UInt64Array, count: UInt8Array) -> BoolArray:
    """Which numbers of more than one digit begin with 0."""
    padded: BoolArray = word.astype(np.uint8) == _ZERO
    padded &= count > 1
    return padded


def read_integers(cursor: Cursor, word: UInt64Array, *, truth: bool) -> tuple[Int64Array, Int64Array]:
    """Integers (and truth values, as 0 or 1, where ``truth``): int64 values, and the rows that are null."""
    number = _Number.read(cursor, word, words=3 if truth else 1)
    values = number.digits.value
    if number.digits.longest >= _MOST_DIGITS and values.max(initial=0) > _INT64_MAX:
        cursor.misfit(values > _INT64_MAX)
    signed = values.view(np.int64)
    signed[number.negative] *= -1
    return signed, number.null


def read_floats(cursor: Cursor, word: UInt64Array) -> tuple[npt.NDArray[np.float32], Int64Array]:
    """Decimal numbers as the float32 nearest to the float64 nearest to them, and the rows that are null.

    Correct in all rows that fit: powers of ten up to 22 and integers up to 2^53 are exact in float64, so one operation
    on them is rounded once (Clinger 1990). With more digits the result is off by a few units in the last
    place of float64; where that could matter to float32, the row does not fit.
    """
    number = _Number.read(cursor, word, words=1)
    mantissa, scale = number.digits.value, _read_fraction(cursor, number)
    numbers = mantissa.astype(np.float64)
    exact = mantissa < _EXACT_FLOATS
    tens = _FLOAT_TENS[np.minimum(np.abs(scale), 22)]
    if scale.max(initial=0) > 0:
        numbers = np.where(scale > 0, numbers * tens, numbers / tens)
    else:
        numbers /= tens
    cursor.misfit(np.abs(scale) > 22)
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
        if not exact.all():
            low, high = (numbers * _NARROWER).astype(np.float32), (numbers * _WIDER).astype(np.float32)
            cursor.misfit(~exact & (low != high))
    cursor.fits &= np.isfinite(narrow)
    narrow[number.negative] *= -1
    return narrow, number.null


def _read_fraction(cursor: Cursor, number: _Number) -> Int64Array:
    """Read a fraction into ``number.digits.value``, and an exponent; the power of ten to multiply that value by."""
    digits, words = number.digits, cursor.words
    scale = np.zeros(len(cursor.places), np.int64)
    word, following = words.at(cursor.places, 2)
    rows = np.flatnonzero((word & _FIRST) == _POINT)
    if len(rows):
        whole = len(rows) == len(word)
        after = inner_word([word, following], 1) if whole else inner_word([word[rows], following[rows]], 1)
        places = cursor.places[rows] + 1
        fraction = _Digits.read(words, places, after)
        cursor.misfit(rows[(fraction.count == 0) | (digits.count[rows] + fraction.count > _MOST_DIGITS)])
        digits.value[rows] = digits.value[rows] * _TENS[fraction.count] + fraction.value
        scale[rows] = -fraction.count.astype(np.int64)
        cursor.places[rows] = places + fraction.count
        (word,) = words.at(cursor.places, 1)
    exponents = np.flatnonzero((word & _U(0xDF)) == ord("E"))
    if len(exponents):
        scale[exponents] += _read_exponents(cursor, exponents)
    return scale


def _read_exponents(cursor: Cursor, rows: Int64Array) -> Int64Array:
    places = cursor.places[rows] + 1
    (word,) = cursor.words.at(places, 1)
    sign = word & _FIRST
    minus = sign == _MINUS
    places += minus | (sign == ord("+"))
    (word,) = cursor.words.at(places, 1)
    value, count = leading_digits(word)
    cursor.misfit(rows[(count == 0) | (count > 4)])
    cursor.places[rows] = places + count
    exponent = np.minimum(value, _U(9999)).astype(np.int64)
    return np.where(minus, -exponent, exponent)


def read_words(cursor: Cursor, word: UInt64Array) -> None:
    """Go past true, false or null."""
    rows = np.arange(len(word))
    rows, _ = pass_words(cursor, word, rows, values=np.zeros_like(word), words=len(_WORDS))
    cursor.misfit(rows)


def read_strings(cursor: Cursor, word: UInt64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Strings without escapes: where each begins and ends, inside the quotes, and the rows that are null."""
    null = _NO_ROWS
    opened = (word & _FIRST) == _QUOTE
    if not opened.all():
        rows, null = pass_words(cursor, word, np.flatnonzero(~opened), values=np.zeros_like(word), words=1)
        cursor.misfit(rows)
    starts = cursor.places + 1
    count, odd = string_end(word, first=True)
    cursor.fits &= (odd == 0) | ~opened
    ends = cursor.places + count
    rows = np.flatnonzero((count == WORD_BYTES) & (odd == 0) & opened)
    while len(rows):
        places = ends if len(rows) == len(ends) else ends[rows]
        if places[0] - starts[rows[0]] > _LONGEST_STRING:
            cursor.misfit(rows)
            break
        (word,) = cursor.words.at(places, 1)
        count, odd = string_end(word, first=False)
        going = (count == WORD_BYTES) & (odd == 0)
        if len(rows) == len(ends):
            ends += count
        else:
            ends[rows] += count
        cursor.misfit(rows[odd != 0])
        rows = rows[going]
    if len(null):
        starts[null] = ends[null] = cursor.places[null]
    cursor.places = ends + 1
    cursor.places[null] -= 1
    return starts, ends, null
