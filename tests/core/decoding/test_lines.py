"""Lines: for any bytes, splits and block sizes, the rows are the lines of the file."""

from __future__ import annotations

import io
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.core.decoding import lines
from pipeline.core.decoding.lines import BOM, line_blocks, line_splits, oversized_rejections
from pipeline.core.errors import HeadraceError
from pipeline.core.reasons import Reason
from pipeline.core.records import InputFile, Split

MAX = 1 << 20


def read(data: bytes, cuts=(), *, block_bytes=8 << 20, max_record_bytes=MAX, may_trail=False):
    """All (offset, row), blank lines and oversized rows of ``data`` cut at ``cuts``; checks bytes_read."""
    edges = [0, *sorted(cuts), len(data)]
    rows, blank, oversized = [], 0, []
    for start, end in pairwise(edges):
        split = Split("mem", start, end, len(data))
        blocks = list(
            line_blocks(
                split,
                lambda _: io.BytesIO(data),
                block_bytes=block_bytes,
                max_record_bytes=max_record_bytes,
                may_trail=may_trail,
            )
        )
        assert sum(block.bytes_read for block in blocks) == end - start
        for block in blocks:
            rows += [(block.offset(row), block.payload(row)) for row in range(block.num_rows)]
            blank += block.blank
            oversized += block.oversized
    return rows, blank, oversized


def expected(data: bytes, max_record_bytes: int):
    """The same by bytes.split, a line at a time."""
    rows, blank, oversized, offset = [], 0, [], 0
    lines = data.split(b"\n")
    for index, line in enumerate(lines):
        last = index == len(lines) - 1
        start, payload = offset, line if last else line.removesuffix(b"\r")
        offset += len(line) + 1
        if last and not line:
            break
        if index == 0 and payload.startswith(BOM):
            start, payload = len(BOM), payload[len(BOM) :]
        if len(payload) > max_record_bytes:
            oversized.append((start, len(payload)))
        elif not payload.strip():
            blank += 1
        else:
            rows.append((start, payload))
    return rows, blank, oversized


PIECES = st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"\t", b"\x0b", b"a", b'{"a":1}', b"x" * 9, BOM, b"\0", b"\xff"])
DATA = st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=60)


@settings(max_examples=500, deadline=None)
@given(DATA, st.lists(st.integers(0, 80), max_size=5), st.integers(1, 40), st.integers(1, 12) | st.just(MAX))
@example(BOM + b"\r\n", [1, 2], 1, 1)
@example(b"aaaaaa\r\nb", [], 40, 1)
@example(b"aaaaaaaaaaaaaaaa\r\nb", [7], 3, 2)
@example(b"aaaaaaaa\r \n", [], 1, 4)
@example(b"aaaaaaaa\r\n", [], 1, 4)
def test_rows_are_the_lines_whatever_the_splits_and_blocks(data, cuts, block_bytes, max_record_bytes):
    cuts = [min(cut, len(data)) for cut in cuts]
    assert read(data, cuts, block_bytes=block_bytes, max_record_bytes=max_record_bytes) == expected(
        data, max_record_bytes
    )


@given(DATA, st.lists(st.integers(0, 80), max_size=5), st.integers(1, 40), st.integers(1, 12) | st.just(MAX))
@pytest.mark.parametrize("trail", [1, 5, 4096])
def test_reading_beyond_the_last_row_makes_no_difference(trail, data, cuts, block_bytes, max_record_bytes):
    cuts = [min(cut, len(data)) for cut in cuts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_TRAIL_BYTES", trail)
        found = read(data, cuts, block_bytes=block_bytes, max_record_bytes=max_record_bytes, may_trail=True)
    assert found == expected(data, max_record_bytes)


@given(st.integers(0, 10_000), st.integers(1, 3_000))
def test_splits_tile_the_file_evenly(size, split_bytes):
    splits = line_splits(InputFile("f", size), split_bytes)
    assert [s.start for s in splits] == [0, *(s.end for s in splits)][: len(splits)]
    assert sum(s.size_bytes for s in splits) == size
    assert all(0 < s.size_bytes <= split_bytes for s in splits)
    assert not splits or max(s.size_bytes for s in splits) - min(s.size_bytes for s in splits) <= 1


class LongLine(io.RawIOBase):
    """A file of one ``length`` byte line between two short ones, made up as it is read."""

    def __init__(self, length: int):
        self.head, self.tail, self.length = b"first\n", b"\r\nlast", length
        self.size, self.position = len(self.head) + length + len(self.tail), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        assert whence == 0
        self.position = offset
        return offset

    def readinto(self, buffer) -> int:
        want = min(len(buffer), self.size - self.position, 1 << 16)
        at, done = self.position, 0
        for text, start in ((self.head, 0), (None, len(self.head)), (self.tail, len(self.head) + self.length)):
            end = start + (self.length if text is None else len(text))
            low, high = max(at, start), min(at + want, end)
            if low < high:
                buffer[low - at : high - at] = b"x" * (high - low) if text is None else text[low - start : high - start]
                done += high - low
        self.position += done
        return done


def test_a_huge_line_is_streamed_past_in_bounded_memory():
    length = 300_000_000
    size = LongLine(length).size
    tracemalloc.start()
    blocks = []
    for split in line_splits(InputFile("big", size), size // 3):
        blocks += list(
            line_blocks(
                split,
                lambda _: io.BufferedReader(LongLine(length), 1 << 16),
                block_bytes=1 << 20,
                max_record_bytes=2 << 20,
            )
        )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [block.payload(row) for block in blocks for row in range(block.num_rows)] == [b"first", b"last"]
    assert [entry for block in blocks for entry in block.oversized] == [(6, length)]
    assert sum(block.bytes_read for block in blocks) == size
    assert peak < 24 << 20


def test_an_oversized_row_is_refused_by_its_place():
    data = b"{}\n" + b"x" * 100 + b"\n{}"
    (block,) = line_blocks(Split("mem", 0, len(data), len(data)), lambda _: io.BytesIO(data), max_record_bytes=50)
    (rejection,) = oversized_rejections(block, 50)
    assert (rejection.offset, rejection.length, rejection.payload) == (3, 100, None)
    assert rejection.reason is Reason.RECORD_TOO_LARGE


def test_a_file_shorter_than_planned_is_an_error():
    with pytest.raises(HeadraceError, match="changed"):
        list(line_blocks(Split("mem", 0, 10, 10), lambda _: io.BytesIO(b"abc\n")))
