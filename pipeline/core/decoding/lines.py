"""Line-based input: tiling files into splits, and reading the lines that start in a split as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import HeadraceError
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import BoolArray, Fault, InputFile, Int64Array, Opener, RawBlock, Rejection, Split

UInt8Array = npt.NDArray[np.uint8]

BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 20
_TRAIL_BYTES = 1 << 12  # read beyond a split's end, for the rest of its last line
# A BOM before and a \r\n after the payload: what a line may hold beyond its payload.
_LINE_OVERHEAD_BYTES = len(BOM) + 2
_IS_TEXT = np.array([not bytes([byte]).isspace() for byte in range(256)], np.bool_)


def line_splits(file: InputFile, split_bytes: int) -> list[Split]:
    """Splits of nearly equal size, at most ``split_bytes`` each, that tile ``file``; none for an empty file.

    They are cut without looking at the bytes: ``line_blocks`` gives each line to the split in which it starts.
    """
    count = -(-file.size_bytes // max(split_bytes, 1))
    cuts = [index * file.size_bytes // count for index in range(count + 1)] if count else []
    return [Split(file.uri, start, end, file.size_bytes) for start, end in pairwise(cuts)]


def line_blocks(
    split: Split,
    open_file: Opener,
    *,
    block_bytes: int = 8 << 20,
    max_record_bytes: int = 16 << 20,
    white_is_blank: bool = True,
    may_trail: bool = False,
) -> Iterator[RawBlock]:
    r"""The lines that start in ``[split.start, split.end)``, in order, in blocks of about ``block_bytes``.

    A row is a line without its ``\n`` or ``\r\n``; the last line of a file needs neither. A UTF-8 BOM at
    the start of the file belongs to no row. Empty lines are counted as blank, and lines of white space
    too unless not ``white_is_blank`` (a format in which a tab separates values). A line over
    ``max_record_bytes`` is only measured, in bounded memory, and listed in ``oversized``. The blocks'
    ``bytes_read`` add up to the split's size. Where ``may_trail``, ``data`` goes on behind the last row: not to
    cut it there saves a copy. Raises HeadraceError if the file is shorter than planned.
    """
    with open_file(split.uri) as file:
        position = _seek_first_line(file, split.start, split.end)
        counted = split.start
        while position < split.end:
            base, wanted = position, min(block_bytes, split.end - position)
            data, size, skipped = _read_lines(file, base, wanted, max_record_bytes, may_trail=may_trail)
            if not data:
                raise HeadraceError(
                    f"{split.uri} ends at byte {position}, but had {split.file_bytes} bytes when the run was planned: "
                    "it changed while it was read. Run again when nobody writes to the input."
                )
            position = base + size + skipped
            upto = min(position, split.end)
            block = _block(
                split.uri, base, data, size, skipped, max_record_bytes=max_record_bytes, white=white_is_blank
            )
            yield replace(block, bytes_read=upto - counted)
            counted = upto
            if position < split.end and size < len(data):
                file.seek(position)
        if counted < split.end:  # no line starts in the split: it lies within one long line
            none = np.zeros(0, np.int64)
            yield RawBlock(split.uri, split.start, b"", none, none, bytes_read=split.end - counted)


def oversized_rejections(block: RawBlock, max_record_bytes: int) -> list[Rejection]:
    """A ``record_too_large`` rejection for each oversized row of ``block``: no payload, only where it lies."""
    return [
        Rejection(
            block.uri,
            offset,
            length,
            None,
            Stage.READ,
            (Fault(Reason.RECORD_TOO_LARGE, f"the row has {length} bytes, the limit is {max_record_bytes}"),),
        )
        for offset, length in block.oversized
    ]


def _seek_first_line(file: BinaryIO, start: int, end: int) -> int:
    """Leave ``file`` at the first line that starts at or after ``start``, and return that offset.

    Some offset at or after ``end`` where none starts before it: a line that spans many splits is not read to its
    end by each of them.
    """
    if start == 0:
        return 0
    file.seek(start - 1)
    skipped, _ = _skip_line(file, most=end - start + 1)
    return start - 1 + skipped


def _skip_line(file: BinaryIO, *, most: int | None = None) -> tuple[int, bytes]:
    """Read past the end of the current line, or ``most`` bytes: (bytes skipped, the last two or fewer of them)."""
    skipped, tail = 0, b""
    while piece := file.readline(_SKIP_BYTES if most is None else min(_SKIP_BYTES, most - skipped)):
        skipped += len(piece)
        tail = (tail + piece)[-2:]
        if piece.endswith(b"\n"):
            break
    return skipped, tail


def _read_lines(
    file: BinaryIO, base: int, wanted: int, max_record_bytes: int, *, may_trail: bool
) -> tuple[bytes, int, int]:
    """``wanted`` bytes from ``base`` and the rest of the last line: (bytes, those of them in lines, bytes skipped)."""
    data = file.read(wanted + _TRAIL_BYTES if may_trail else wanted)
    if len(data) > wanted:
        size = data.find(b"\n", wanted - 1) + 1
        if size:
            return data, size, 0
        file.seek(base + wanted)
        data = data[:wanted]
    if data:
        data, skipped = _complete_last_line(file, data, max_record_bytes)
        return data, len(data), skipped
    return data, 0, 0


def _complete_last_line(file: BinaryIO, data: bytes, max_record_bytes: int) -> tuple[bytes, int]:
    """``data`` read on to the end of its last line, and how many bytes of that line were skipped instead.

    A line that is surely too long is not completed: what was read of it stays in ``data``.
    """
    if data.endswith(b"\n"):
        return data, 0
    limit = max_record_bytes + _LINE_OVERHEAD_BYTES
    partial = len(data) - (data.rfind(b"\n") + 1)
    rest = file.readline(limit - partial) if partial < limit else b""
    data += rest
    if rest.endswith(b"\n") or partial + len(rest) < limit:
        return data, 0
    skipped, tail = _skip_line(file)
    # The terminator is put back, so that the line's end is found like any other line's.
    ending = tail if tail == b"\r\n" else tail[-1:] if tail.endswith(b"\n") else b""
    if skipped > 1 and ending == b"\n" and data.endswith(b"\r"):  # else they would look like one terminator
        data, skipped = data[:-1], skipped + 1
    return data + ending, skipped - len(ending)


def _block(
    uri: str, base: int, data: bytes, size: int, skipped: int, *, max_record_bytes: int, white: bool
) -> RawBlock:
    """The lines in the first ``size`` bytes of ``data`` (the file from ``base``); the last is ``skipped`` bytes longer.

    Lines of white space are blank where ``white``.
    """
    text = np.frombuffer(data, np.uint8, size)
    starts, ends = _line_spans(text, has_bom=base == 0 and data.startswith(BOM))
    lengths = ends - starts
    lengths[-1] += skipped
    too_long = lengths > max_record_bytes
    is_row = ~too_long & ~(_blank_lines(text, starts, ends) if white else starts == ends)
    oversized = tuple(zip((base + starts[too_long]).tolist(), lengths[too_long].tolist(), strict=True))
    blank = len(starts) - int(np.count_nonzero(is_row)) - len(oversized)
    if blank or oversized:
        starts, ends = starts[is_row], ends[is_row]
    return RawBlock(uri, base, data, starts, ends, blank, oversized)


def _line_spans(array: UInt8Array, *, has_bom: bool) -> tuple[Int64Array, Int64Array]:
    """Where the lines of a text (not empty) start and end, terminators excluded; each has shape (lines,)."""
    ends = np.flatnonzero(array == ord("\n")).astype(np.int64, copy=False)
    starts = np.empty(len(ends) + 1, np.int64)
    starts[0] = 0
    np.add(ends, 1, out=starts[1:])
    if array[-1] == ord("\n"):
        starts = starts[:-1]
        after_return = array[ends - 1] == ord("\r")
    else:
        ends = np.append(ends, len(array))
        after_return = array[ends - 1] == ord("\r")
        after_return[-1] = False
    if has_bom:
        starts[0] = len(BOM)
    # At an empty line the byte before is another line's (or wraps around).
    ends -= after_return & (ends > starts)
    return starts, ends


def _blank_lines(array: UInt8Array, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Which lines are empty or white space, shape (lines,)."""
    blank: BoolArray = starts == ends
    filled = np.flatnonzero(~blank)
    if len(filled) and not _IS_TEXT[array[starts[filled]]].all():  # else no line can be all white space
        # Each stretch runs on to the next line that is not empty: past nothing but terminators.
        blank[filled] = ~np.logical_or.reduceat(_IS_TEXT[array], starts[filled])
    return blank
