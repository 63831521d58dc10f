"""Text read eight bytes at a time: one word of each row, and arithmetic that treats its bytes side by side.

A word is a little-endian uint64, so that a row's first byte is its lowest. "SIMD within a register": every step
is one numpy operation over all rows (about 0.3 ns a row; the interpreter lock is released), instead of a loop
over bytes. Tricks as in Mytkowicz et al. and Lemire's "Quickly parsing eight digits" (2018).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int64Array, UInt64Array

UInt8Array = npt.NDArray[np.uint8]

_U = np.uint64
_EACH = 0x0101010101010101
_HIGH = _U(0x80 * _EACH)
_NOT_HIGH_ABOVE_9 = _U(0x76 * _EACH)  # a byte of 10 or more plus 0x76 has its high bit set
_ZEROS, _QUOTES, _BACKSLASHES, _SPACES, _ONES = (_U(byte * _EACH) for byte in (0x30, 0x22, 0x5C, 0x20, 1))
_QUOTES_BUT_FIRST = _QUOTES ^ _U(0x22)
WORD_BYTES = 8
MOST_WORDS = 32
"""So many neighbouring words can be read at once."""
PADDING_BYTES = (MOST_WORDS + 2) * WORD_BYTES
"""What must follow the text, so that words can be read from any place in it."""


@lru_cache(1 << 12)
def word_of(text: bytes) -> np.uint64:
    """``text``, at most 8 bytes, as the low bytes of a word."""
    return _U(int.from_bytes(text, "little"))


@lru_cache(WORD_BYTES + 1)
def low_mask(size: int) -> np.uint64:
    """The mask of the ``size`` lowest bytes of a word."""
    return _U((1 << 8 * size) - 1)


class Words:
    """The words of ``text``, a byte array that ends in padding. Reading beyond it gives other bytes, never a fault."""

    def __init__(self, text: UInt8Array) -> None:
        aligned = text[: len(text) // WORD_BYTES * WORD_BYTES].view("<u8")
        self._shifted = [aligned[at:] for at in range(MOST_WORDS + 1)]

    def at(self, places: Int64Array, count: int) -> list[UInt64Array]:
        """The ``count`` (at most MOST_WORDS) neighbouring words that begin at each place; each of shape (places,)."""
        low = (places & 7).view(np.uint64) << _U(3)
        high = _U(64) - low  # a shift by 64 gives 0 in numpy
        index = places >> 3
        words, following = [], self._shifted[0].take(index, mode="clip")
        for at in range(count):
            word = following >> low
            following = self._shifted[at + 1].take(index, mode="clip")
            word |= following << high
            words.append(word)
        return words


def inner_word(words: list[UInt64Array], at: int) -> UInt64Array:
    """The word that begins ``at`` bytes into neighbouring ``words``."""
    whole, rest = divmod(at, WORD_BYTES)
    if not rest:
        return words[whole]
    word = words[whole] >> _U(8 * rest)
    word |= words[whole + 1] << _U(64 - 8 * rest)
    return word


def leading_digits(word: UInt64Array) -> tuple[UInt64Array, UInt8Array]:
    """The number that the digits at the start of each word make, and how many they are (0 to 8)."""
    digits = word ^ _ZEROS
    mark = digits + _NOT_HIGH_ABOVE_9  # carries only reach bytes behind the first that is no digit
    mark |= digits
    mark &= _HIGH
    count = _bytes_before(mark)
    shift = count.astype(np.uint64)
    shift <<= _U(3)
    digits <<= _U(64) - shift  # zeros come in front
    # Two neighbouring digits, then pairs, then fours of them are put together: first * 10^k + second.
    digits *= _U(10 << 8 | 1)
    digits >>= _U(8)
    digits &= _U(0x00FF00FF00FF00FF)
    digits *= _U(100 << 16 | 1)
    digits >>= _U(16)
    digits &= _U(0x0000FFFF0000FFFF)
    digits *= _U(10_000 << 32 | 1)
    digits >>= _U(32)
    return digits, count


def _bytes_before(mark: UInt64Array) -> UInt8Array:
    """How many bytes lie before the lowest byte that has its high bit set, 8 where none has."""
    below = mark & (_U(0) - mark)
    below -= _U(1)
    count: UInt8Array = np.bitwise_count(below)
    count >>= np.uint8(3)
    return count


def string_end(word: UInt64Array, *, first: bool) -> tuple[UInt8Array, UInt64Array]:
    """Where the closing quote is in each word (8: not in it), and non-zero where what stands before must be read apart.

    That are escapes and control characters; of other bytes nothing is said. The ``first`` word of a
    string begins with its opening quote, which does not count.
    """
    ascii_only = word & _HIGH
    ascii_only ^= _HIGH
    quote = word ^ (_QUOTES_BUT_FIRST if first else _QUOTES)
    quote -= _ONES
    quote &= ascii_only
    odd = word ^ _BACKSLASHES
    odd -= _ONES
    odd |= word - _SPACES
    odd &= ascii_only
    before = quote & (_U(0) - quote)
    before -= _U(1)
    odd &= before
    count: UInt8Array = np.bitwise_count(before)
    count >>= np.uint8(3)
    return count, odd
