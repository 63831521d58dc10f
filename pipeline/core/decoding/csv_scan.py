"""Vectorised screening of a block of CSV: which rows are surely well formed, before any native parser sees them."""

from __future__ import annotations

import codecs

import numpy as np
import numpy.typing as npt

from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.records import BoolArray, Int64Array, RawBlock

Bytes = npt.NDArray[np.uint8]

_NEWLINE, _RETURN = 10, 13


def doubtful_rows(block: RawBlock, options: CsvOptions, *, cells: int) -> BoolArray:
    """Which rows a strict row-wise parser must look at, shape (rows,).

    All other rows are UTF-8, have exactly ``cells`` cells, quotes as RFC 4180 wants them, and no
    line end but inside quotes (never without ``options.multiline``), so that a lenient parser reads
    them as the strict one does.
    """
    data, doubt = block.data, np.zeros(block.num_rows, np.bool_)
    if not block.num_rows:
        return doubt
    view: Bytes = np.frombuffer(data, np.uint8)
    _doubt_text(block, doubt)
    _doubt_line_ends(view, block, doubt)
    quotes = quote_positions(view, data, options=options)
    if len(quotes) and not options.multiline:
        _mark(doubt, block, np.flatnonzero(view == _NEWLINE))
    doubt |= ~well_formed(view, quotes, starts=block.starts, ends=block.ends, options=options, cells=cells)
    return doubt


def may_hold_hexadecimal(data: bytes, options: CsvOptions) -> bool:
    """Whether a cell may begin with ``0x``: arrow takes it for an integer, the row-wise parser does not."""
    view: Bytes = np.frombuffer(data, np.uint8)
    edges = np.zeros(256, np.bool_)
    edges[list(b"\r\n" + options.delimiter_byte + options.quote_byte)] = True
    for mark in b"xX":
        if mark in data:
            at = np.flatnonzero(view == mark) - 1
            at = at[view[at] == ord("0")]
            if edges[view[at - 1]].any() or 0 in at:
                return True
    return False


def _next(view: Bytes, positions: Int64Array) -> Bytes:
    """The byte after each of ``positions``; after the last byte of all, that byte once more."""
    return view[np.minimum(positions + 1, len(view) - 1)]


def row_of(block: RawBlock, positions: Int64Array) -> Int64Array:
    """The row that each of ``positions`` in the data lies in or comes after, shape (positions,); 0 before any."""
    return np.maximum(np.searchsorted(block.starts, positions, "right") - 1, 0)


def quote_positions(view: Bytes, data: bytes, *, options: CsvOptions) -> Int64Array:
    """Where the quotes are in ``data``, which is also ``view``, ascending."""
    if not options.quote or options.quote_byte not in data:
        return np.zeros(0, np.int64)
    return np.flatnonzero(view == ord(options.quote))


def well_formed(
    view: Bytes, quotes: Int64Array, *, starts: Int64Array, ends: Int64Array, options: CsvOptions, cells: int | None
) -> BoolArray:
    """Whether each row ``view[starts[i]:ends[i]]`` has strict quotes and ``cells`` cells (None: any), shape (rows,).

    ``quotes`` are the positions of all quotes, in rows or not; rows ascend and do not overlap.
    """
    strict = np.ones(len(starts), np.bool_)
    if len(quotes):
        rows, quotes = in_rows(quotes, starts=starts, ends=ends)
        _check_quotes(view, starts, ends, quotes=quotes, rows=rows, options=options, strict=strict)
        quotes = quotes[strict[rows]]
    if cells is None or not strict.any():
        return strict
    delimiters = np.flatnonzero(view == ord(options.delimiter))
    if len(quotes):
        delimiters = delimiters[~_inside_quotes(len(view), quotes)[delimiters]]
    strict &= _has_count(delimiters, starts, ends, cells - 1)
    return strict


def in_rows(positions: Int64Array, *, starts: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The ascending ``positions`` that lie in a row, after the row of each; both of shape (positions in rows,)."""
    first = np.searchsorted(positions, starts)
    counts = np.searchsorted(positions, ends) - first
    rows = np.repeat(np.arange(len(starts)), counts)
    if len(rows) != len(positions):  # some lie between rows, say in a line that is too long to be one
        ranks = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = positions[first[rows] + ranks]
    return rows, positions


def _check_quotes(
    view: Bytes,
    starts: Int64Array,
    ends: Int64Array,
    *,
    quotes: Int64Array,
    rows: Int64Array,
    options: CsvOptions,
    strict: BoolArray,
) -> None:
    """Clear ``strict`` for rows with a quote where RFC 4180 wants none.

    In a strict row the quotes, counted from 0, alternate: an even one stands at the start of a cell, or
    is the second of a doubled quote; an odd one stands at the end of a cell, or is the first of a
    doubled one; and their number is even.
    """
    quote, delimiter = ord(options.quote), ord(options.delimiter)
    first = np.searchsorted(rows, np.arange(len(starts) + 1))
    strict[np.diff(first) & 1 == 1] = False
    odd = ((np.arange(len(quotes)) - first[rows]) & 1).astype(np.bool_)
    before, after = view[quotes - 1], _next(view, quotes)
    opens = (before == delimiter) | (before == quote) | (quotes == starts[rows])
    closes = (after == delimiter) | (after == quote) | (quotes + 1 == ends[rows])
    strict[rows[~np.where(odd, closes, opens)]] = False


def _inside_quotes(length: int, quotes: Int64Array) -> BoolArray:
    """Whether each of ``length`` bytes lies in a quoted cell, given where quotes open and close (shape (length,))."""
    marks = np.zeros(length, np.uint8)
    marks[quotes] = 1
    parity: BoolArray = (np.cumsum(marks, dtype=np.uint8) & 1).view(np.bool_)
    return parity


def _has_count(positions: Int64Array, starts: Int64Array, ends: Int64Array, count: int) -> BoolArray:
    """Whether a row holds exactly ``count`` of ``positions`` (ascending), shape (rows,)."""
    rows = len(starts)
    if len(positions) == rows * count:
        table = positions.reshape(rows, count)
        if not count or ((table[:, 0] >= starts).all() and (table[:, -1] < ends).all()):
            return np.ones(rows, np.bool_)
    matches: BoolArray = np.searchsorted(positions, ends) - np.searchsorted(positions, starts) == count
    return matches


def _doubt_line_ends(view: Bytes, block: RawBlock, doubt: BoolArray) -> None:
    """Doubt rows with a carriage return other than before a newline: pyarrow takes it for a line end."""
    if _RETURN in block.data:
        at = np.flatnonzero(view == _RETURN)
        _mark(doubt, block, at[_next(view, at) != _NEWLINE])


def _mark(doubt: BoolArray, block: RawBlock, positions: Int64Array) -> None:
    rows = row_of(block, positions)
    within = (positions >= block.starts[rows]) & (positions < block.ends[rows])
    doubt[rows[within]] = True


def _doubt_text(block: RawBlock, doubt: BoolArray) -> None:
    """Doubt rows that hold a NUL or are not UTF-8."""
    if 0 in block.data:
        _mark(doubt, block, np.flatnonzero(np.frombuffer(block.data, np.uint8) == 0))
    if block.data.isascii():
        return
    view, position = memoryview(block.data), int(block.starts[0])
    while True:
        try:
            codecs.utf_8_decode(view[position:], "strict", True)
            return
        except UnicodeDecodeError as error:
            row = int(row_of(block, np.array([position + error.start]))[0])
            doubt[row] = True
        if row + 1 == block.num_rows:
            return
        position = int(block.starts[row + 1])
