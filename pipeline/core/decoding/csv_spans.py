"""Which lines of a CSV file make one row: a quoted newline holds lines together, wherever the file is cut.

Lines with an odd number of quotes are *odd*. A row over several lines starts at an odd line, which
leaves a quote open, and ends at the next odd line: in between, quotes come in pairs and the cell
stays open. So only two odd lines that follow each other can be linked. A link holds where the lines
together are strict CSV of a bounded length (``SpanRule``). Links are taken in file order: a line
that ends a row starts none. An odd line without a link stands alone, and is refused alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from pipeline.core.decoding.csv_blocks import CsvBlock
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.decoding.csv_scan import Bytes, in_rows, quote_positions, well_formed
from pipeline.core.decoding.lines import line_blocks
from pipeline.core.records import BoolArray, Int64Array, Opener, RawBlock, Split

LOOK_BYTES = 64 << 10


@dataclass(frozen=True)
class SpanRule:
    """When two odd lines, and what is between, are one row.

    A row with as many cells as ``header`` may have ``max_bytes``, one with another number of cells
    ``max_ragged_bytes`` (0: none is taken for a row).
    """

    options: CsvOptions
    header: tuple[str, ...]
    max_bytes: int
    max_ragged_bytes: int

    @classmethod
    def of(cls, options: CsvOptions, header: tuple[str, ...], *, max_record_bytes: int) -> SpanRule:
        """The rule of ``options``: rows to read (``multiline``), or rows to refuse as one, within 64 KiB.

        Without ``multiline`` only a row of the right number of cells is surely a quoted newline, and
        not a stray quote that would take good lines with it.
        """
        near = min(LOOK_BYTES, max_record_bytes)
        if options.multiline:
            return cls(options, header, max_bytes=max_record_bytes, max_ragged_bytes=near)
        return cls(options, header, max_bytes=near, max_ragged_bytes=0)


def join_lines(lines: Iterator[RawBlock], rule: SpanRule) -> Iterator[CsvBlock]:
    """Blocks of rows from consecutive blocks of ``lines``, the first of which starts a row.

    Sums of ``bytes_read`` are kept; blank lines within a row are part of it and no longer counted.
    """
    carry: RawBlock | None = None
    for block in lines:
        done, carry = _join(block if carry is None else _concatenate(carry, block), rule, final=False)
        yield done
    if carry is not None:
        yield _join(carry, rule, final=True)[0]


def row_start(offset: int, *, file: Split, first: int, open_file: Opener, rule: SpanRule) -> int:
    """Where to begin reading for the rows that start at or after ``offset``: ``offset``, or within the
    last line of the row that lies across it.

    ``file`` is the whole file, whose rows begin at ``first``. Reads 128 KiB around ``offset``, and
    more only where rows seem to be linked without end.
    """
    if offset <= first:
        return first
    if offset >= file.end or not rule.options.quote:
        return offset
    look = rule.max_bytes
    while True:
        low = max(first, offset - look)
        region = Split(file.uri, low, min(offset + rule.max_bytes, file.end), file.file_bytes)
        blocks = line_blocks(region, open_file, block_bytes=region.size_bytes, max_record_bytes=rule.max_bytes)
        found = _span_end(reduce(_concatenate, blocks), offset, rule, from_first=low == first)
        if found is not None:
            return found
        look *= 2


def _span_end(block: RawBlock, offset: int, rule: SpanRule, *, from_first: bool) -> int | None:
    """The end of the row in ``block`` that lies across ``offset``; ``offset`` if none; None if more must be seen."""
    odd, holds = _links(block, rule)
    before = int(np.searchsorted(block.starts[odd], offset - block.base))
    if not before or before > len(holds) or not holds[before - 1]:
        return offset  # no odd line before, or the last one is linked to nothing
    broken = np.flatnonzero(~holds[:before])
    if not len(broken) and not from_first and block.ends[odd[0]] <= rule.max_bytes:
        return None  # the first odd line may end a row that starts before the block
    first_link = int(broken[-1]) + 1 if len(broken) else 0
    taken = (before - 1 - first_link) % 2 == 0
    return block.base + int(block.ends[odd[before]]) if taken else offset


def _links(block: RawBlock, rule: SpanRule) -> tuple[Int64Array, BoolArray]:
    """The odd rows of ``block``, and whether each is linked to the next (one fewer): links, not yet choices."""
    view: Bytes = np.frombuffer(block.data, np.uint8)
    quotes = quote_positions(view, block.data, options=rule.options)
    rows, quotes = in_rows(quotes, starts=block.starts, ends=block.ends)
    odd = np.flatnonzero(np.bincount(rows, minlength=block.num_rows) & 1)
    holds = np.zeros(max(len(odd) - 1, 0), np.bool_)
    for parity in (0, 1):  # links of the same parity do not overlap
        opening, closing = odd[parity:-1:2], odd[parity + 1 :: 2]
        starts, ends = block.starts[opening], block.ends[closing]
        holds[parity::2] = _one_row(view, quotes, starts, ends, rule)
    return odd, holds


def _one_row(view: Bytes, quotes: Int64Array, starts: Int64Array, ends: Int64Array, rule: SpanRule) -> BoolArray:
    """Whether ``rule`` takes the lines from ``starts[i]`` to ``ends[i]`` for one row."""
    lengths = ends - starts
    holds = lengths <= rule.max_bytes
    holds &= well_formed(view, quotes, starts=starts, ends=ends, options=rule.options, cells=None)
    counted = np.flatnonzero(holds & (lengths > rule.max_ragged_bytes))
    if len(counted):
        starts, ends, cells = starts[counted], ends[counted], len(rule.header)
        holds[counted] = well_formed(view, quotes, starts=starts, ends=ends, options=rule.options, cells=cells)
    return holds


def _join(block: RawBlock, rule: SpanRule, *, final: bool) -> tuple[CsvBlock, RawBlock | None]:
    """The rows of ``block``; with what may be the start of a longer row left over, unless ``final``."""
    if not rule.options.quote or rule.options.quote_byte not in block.data or not block.num_rows:
        return _csv_block(block, rule), None
    odd, holds = _links(block, rule)
    chosen = _alternate(holds)
    rest = None
    if len(odd) and not final and not (len(chosen) and chosen[-1]):
        rest = _cut(block, int(odd[-1]), rule)
        if rest is not None:
            block = _head(block, int(odd[-1]), rest)
    links = np.flatnonzero(chosen)
    if len(links):
        block = _with_joined(block, odd[links], odd[links + 1])
    return _csv_block(block, rule), rest


def _alternate(holds: BoolArray) -> BoolArray:
    """Of links that follow each other without a gap every other one, from the first: rows do not overlap."""
    index = np.arange(len(holds))
    begins = holds & ~np.concatenate(([False], holds[:-1]))
    distance = index - np.maximum.accumulate(np.where(begins, index, 0))
    chosen: BoolArray = holds & (distance % 2 == 0)
    return chosen


def _cut(block: RawBlock, row: int, rule: SpanRule) -> RawBlock | None:
    """What follows from ``row`` on, if it may be one row with lines that are yet to be read."""
    start = int(block.starts[row])
    if len(block.data) - start > rule.max_bytes:  # always so where a line over the size limit follows
        return None
    data = block.data[start:]
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    rows = block.num_rows - row
    return RawBlock(
        block.uri,
        block.base + start,
        data,
        block.starts[row:] - start,
        block.ends[row:] - start,
        blank=lines - rows,
    )


def _head(block: RawBlock, row: int, rest: RawBlock) -> RawBlock:
    """``block`` without ``rest``, which starts at ``row``."""
    starts, ends = block.starts[:row], block.ends[:row]
    blank = block.blank - rest.blank
    return RawBlock(block.uri, block.base, block.data, starts, ends, blank, block.oversized, block.bytes_read)


def _with_joined(block: RawBlock, first: Int64Array, last: Int64Array) -> RawBlock:
    """``block`` with rows ``first[i]`` to ``last[i]`` made one."""
    starts, ends = block.starts, block.ends.copy()
    blank = block.blank
    if blank:
        newlines = np.flatnonzero(np.frombuffer(block.data, np.uint8) == 10)
        inner = np.searchsorted(newlines, ends[last]) - np.searchsorted(newlines, starts[first])
        blank -= int((inner - (last - first)).sum())
    ends[first] = ends[last]
    swallowed = np.zeros(block.num_rows + 1, np.int64)
    swallowed[first + 1] += 1
    swallowed[last + 1] -= 1
    keep = np.cumsum(swallowed[:-1]) == 0
    return RawBlock(
        block.uri, block.base, block.data, starts[keep], ends[keep], blank, block.oversized, block.bytes_read
    )


def _concatenate(carry: RawBlock, block: RawBlock) -> RawBlock:
    """Two blocks of which one begins where the other ends."""
    shift = len(carry.data)
    return RawBlock(
        block.uri,
        carry.base,
        carry.data + block.data,
        np.concatenate((carry.starts, block.starts + shift)),
        np.concatenate((carry.ends, block.ends + shift)),
        carry.blank + block.blank,
        block.oversized,
        carry.bytes_read + block.bytes_read,
    )


def _csv_block(block: RawBlock, rule: SpanRule) -> CsvBlock:
    return CsvBlock(
        block.uri,
        block.base,
        block.data,
        block.starts,
        block.ends,
        block.blank,
        block.oversized,
        block.bytes_read,
        rule.header,
    )
