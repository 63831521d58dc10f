"""Screens for JSON lines: which rows must not, or had better not, reach the native parser.

The native parser crashes on some input, and takes much that is no JSON (``NaN``, two objects on a line,
whatever follows a NUL). These screens find such rows a block at a time; a false alarm only costs time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.core.records import BoolArray, Int64Array, RawBlock

_BEFORE_WORD = np.isin(np.arange(256), list(b"-:,[ \t\r\n"))
_AFTER_WORD = np.isin(np.arange(256), list(b"i,]} \t\r\n"))  # i of Infinity
_UTF8_STEP_BYTES = 64 << 10
_NEARLY_ALL = 0.98

# What a value is, by its first byte; the layout screen compares these.
_CLASSES = np.zeros(256, np.uint8)
for _code, _characters in enumerate((b"-0123456789", b'"', b"tf", b"[", b"{", b"n"), start=1):
    _CLASSES[list(_characters)] = _code
_NULL_CLASS = _CLASSES[ord("n")]


def unsafe_rows(block: RawBlock, max_depth: int) -> BoolArray:
    """Rows that must not reach the native parser, shape (rows,).

    All others are UTF-8, begin with ``{`` and end with ``}`` but for white space, and hold neither a
    NUL, a bare NaN or Infinity, nor more than ``max_depth`` opening brackets.
    """
    data, array = block.data, np.frombuffer(block.data, np.uint8)
    unsafe = _not_braced(block, array)
    _mark_at(block, _non_utf8_positions(block), unsafe)
    if b"\0" in data:
        _mark_at(block, np.flatnonzero(array == 0), unsafe)
    for word in (b"NaN", b"Inf"):
        _mark_at(block, _bare_words(array, word), unsafe)
    # Each row that is safe so far has one bracket at least: this tells cheaply that none has too many.
    if (
        np.count_nonzero(array == ord("{")) + np.count_nonzero(array == ord("[")) - np.count_nonzero(~unsafe)
        >= max_depth
    ):
        opening = np.flatnonzero((array & 0xDF) == ord("["))  # { and [ differ in that one bit
        row = np.searchsorted(block.ends, opening, side="right")
        same_row = row[max_depth:] == row[: len(row) - max_depth] if len(row) > max_depth else row[:0] == 0
        _mark_at(block, opening[: len(same_row)][same_row], unsafe)
    return unsafe


def non_utf8_rows(block: RawBlock) -> BoolArray:
    """Rows that are not UTF-8, shape (rows,)."""
    marked: BoolArray = np.zeros(block.num_rows, np.bool_)
    _mark_at(block, _non_utf8_positions(block), marked)
    return marked


def _not_braced(block: RawBlock, array: npt.NDArray[np.uint8]) -> BoolArray:
    first = np.minimum(block.starts, len(array) - 1)
    unbraced: BoolArray = (
        (array[first] != ord("{")) | (array[block.ends - 1] != ord("}")) | (block.starts == block.ends)
    )
    for row in np.flatnonzero(unbraced).tolist():  # rows that are indented are not unsafe
        payload = block.payload(row).strip(b" \t\r\n")
        unbraced[row] = not (payload.startswith(b"{") and payload.endswith(b"}"))
    return unbraced


def _mark_at(block: RawBlock, positions: Int64Array, marked: BoolArray) -> None:
    """Mark the rows that hold the bytes at ``positions`` (ascending); some may lie between rows."""
    row = np.searchsorted(block.ends, positions, side="right")
    row, positions = row[row < block.num_rows], positions[row < block.num_rows]
    marked[row[block.starts[row] <= positions]] = True


def _bare_words(array: npt.NDArray[np.uint8], word: bytes) -> Int64Array:
    """Where ``word`` may stand as a value: between what surrounds a value, be it inside a string."""
    # Three times as fast as bytes.find, which has to stop at every N and I.
    position = np.flatnonzero(array[1:-3] == word[0]) + 1
    for index in (1, 2):
        position = position[array[position + index] == word[index]]
    return position[_BEFORE_WORD[array[position - 1]] & _AFTER_WORD[array[position + len(word)]]]


def _non_utf8_positions(block: RawBlock) -> Int64Array:
    """A byte that is not UTF-8 of each row that has one."""
    if block.data.isascii():
        return np.zeros(0, np.int64)
    positions = []
    row, view = 0, memoryview(block.data)
    while row < block.num_rows:
        # In steps, so that the text between two bad rows is decoded again only for some kilobytes.
        start = int(block.starts[row])
        upto = max(int(np.searchsorted(block.ends, start + _UTF8_STEP_BYTES, side="right")), row + 1)
        try:
            str(view[start : int(block.ends[upto - 1])], "utf-8")
            row = upto
        except UnicodeDecodeError as error:
            positions.append(start + error.start)
            row = int(np.searchsorted(block.ends, positions[-1], side="right")) + 1
            if block.starts[row - 1] > positions[-1]:  # between rows: in an oversized one
                row -= 1
    return np.array(positions, np.int64)


def odd_rows(block: RawBlock) -> BoolArray:
    """Rows that differ from the usual row of the block in the type of a value, shape (rows,).

    Rows with the usual number of ``":`` are compared, value by value in order of appearance; the others
    are odd where they are very few. A guess: made once a block is known to hold rows that the native
    parser fails on, to find most of them in one go.
    """
    array = np.frombuffer(block.data, np.uint8)
    odd = np.zeros(block.num_rows, np.bool_)
    colons = np.flatnonzero((array[:-1] == ord('"')) & (array[1:] == ord(":"))) + 1
    bounds = np.searchsorted(colons, np.append(block.starts, block.ends[-1:]))
    counts = np.diff(bounds)
    usual = int(np.bincount(counts).argmax()) if len(counts) else 0
    if usual == 0:
        return odd
    rows = np.flatnonzero(counts == usual)
    value = colons[bounds[rows][:, None] + np.arange(usual)] + 1  # (rows, usual)
    value = np.minimum(value, len(array) - 1)
    value += array[value] == ord(" ")
    classes = _CLASSES[array[np.minimum(value, len(array) - 1)]]
    for column in classes.T:
        expected = int(np.bincount(column[column != _NULL_CLASS], minlength=1).argmax())
        odd[rows] |= (column != expected) & (column != _NULL_CLASS)
    if len(rows) > _NEARLY_ALL * block.num_rows:
        odd |= counts != usual
    return odd
