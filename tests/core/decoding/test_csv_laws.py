"""Laws of the CSV decoder: fast equals oracle, no row lost, and the same result however the file is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.core.decoding.csv import CsvDecoder, CsvOptions
from pipeline.core.decoding.csv_rows import QuoteError, split_cells
from pipeline.core.decoding.csv_scan import well_formed
from tests.core.decoding.csv_cases import HEADER, SCHEMA, assert_same, naive_rows, read

DIALECTS = [
    CsvOptions(),
    CsvOptions(multiline=True),
    CsvOptions(delimiter="\t"),
    CsvOptions(delimiter=";", null_tokens=()),
    CsvOptions(delimiter=" ", quote="'"),
    CsvOptions(quote="", null_tokens=("NULL", "")),
]

SPELLINGS = """
0 1 -0 +7 007 1.0 1. +1.000 1.5 1e3 .5 -.5e-3 1e300 1e400 1e-400 -3.4028235e38 3.4028236e38 16777217 nan -INF infinity
nan(1) 0x10 0X1f -0x1 1_0 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
000000000000000000000000000000001 true FALSE True -- + . e5 1e ٣ red green blue é 日本 NA NULL
""".split()  # noqa: SIM905
SPELLINGS += ["", " ", "a b", " 1", "1 ", "\t2", "2\t", "\x0b3", "x\0", " 0x1"]
CELLS = st.sampled_from(SPELLINGS) | st.text(max_size=4) | st.integers(0, 99).map(str) | st.floats(width=32).map(repr)


@st.composite
def rows(draw, options: CsvOptions) -> bytes:
    """A row that is mostly well formed."""
    cells = []
    for _ in range(draw(st.sampled_from([len(HEADER)] * 12 + [0, 1, 6, 8]))):
        cell = draw(CELLS)
        special = any(mark in cell for mark in (options.delimiter, options.quote or "\n", "\r", "\n"))
        if options.quote and (draw(st.integers(0, 4)) == 0 or (special and draw(st.integers(0, 9)))):
            cell = options.quote + cell.replace(options.quote, 2 * options.quote) + options.quote
        cells.append(cell)
    return options.delimiter.join(cells).encode("utf-8", "replace")


@st.composite
def valid_rows(draw, options: CsvOptions) -> bytes:
    text = draw(st.sampled_from(["abc", "é", "a b", '"', "", "NA"]))
    if options.quote and (options.quote in text or draw(st.booleans())):
        text = options.quote + text.replace(options.quote, 2 * options.quote) + options.quote
    elif options.delimiter in text:
        text = "z"
    cells = [str(draw(st.integers(-9, 99))), str(draw(st.floats(-9, 9, width=16))), text, "red", "1", "0.25"]
    missing = options.null_tokens[0] if options.null_tokens else ""
    return options.delimiter.join([*cells, missing]).encode()


@st.composite
def bodies(draw, options: CsvOptions) -> bytes:
    """Lines of a file, well formed, wrong, mutated and noise."""
    marks = [
        b'"',
        b"'",
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b"\t",
        b";",
        b" ",
        b"\xff",
        b"\0",
        b"",
        b'"\n',
        b',""',
        b"\xe2\x82",
    ]
    lines = draw(st.lists(rows(options) | valid_rows(options) | valid_rows(options), max_size=8))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 4]))):
        if lines:
            at = draw(st.integers(0, len(lines) - 1))
            cut = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:cut] + draw(st.sampled_from(marks)) + lines[at][cut + draw(st.integers(0, 2)) :]
    ends = draw(st.lists(st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n", b"\n \t\n"]), min_size=1, max_size=3))
    body = b"".join(line + ends[index % len(ends)] for index, line in enumerate(lines))
    return body if draw(st.booleans()) else body.removesuffix(b"\n")


@st.composite
def files(draw) -> tuple[CsvOptions, bytes]:
    options = draw(st.sampled_from(DIALECTS))
    names = draw(st.permutations([*HEADER, "z"])) if draw(st.booleans()) else HEADER
    header = options.delimiter.join(names).encode() + draw(st.sampled_from([b"\n", b"\r\n"]))
    bom = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    return options, bom + header + draw(bodies(options))


QUOTES = st.lists(
    st.sampled_from(
        [b'"', b'""', b'"\n', b'\n"', b"\n", b"\r\n", b",", b"a", b'"a"', b'a,"b', b'c",d', b'",""', b"\n\n"]
    ),
    max_size=24,
).map(b"".join)


def decoder(options: CsvOptions, **rules) -> CsvDecoder:
    return CsvDecoder(SCHEMA, options, **rules)


@settings(max_examples=400, deadline=None)
@given(files())
def test_fast_path_equals_oracle(file):
    options, data = file
    found = decoder(options)
    fast, slow = read(data, found), read(data, found, slow=True)
    for left, right in zip(fast.blocks, slow.blocks, strict=True):
        assert_same(left, right)


@settings(max_examples=200, deadline=None)
@given(files(), st.integers(1, 200), st.integers(1, 64), st.integers(3, 300))
def test_result_does_not_depend_on_cuts(file, split_bytes, block_bytes, max_record_bytes):
    options, data = file
    whole = read(data, decoder(options, max_record_bytes=max_record_bytes), split_bytes=len(data) + 1)
    found = decoder(options, max_record_bytes=max_record_bytes, block_bytes=block_bytes)
    assert read(data, found, split_bytes=split_bytes).summary == whole.summary


@settings(max_examples=300, deadline=None)
@given(
    QUOTES, st.booleans(), st.integers(1, 30), st.integers(1, 30), st.sampled_from([3, 8, 12, 1 << 20]), st.booleans()
)
@example(b'"\n' * 9, False, 1, 1, 3, True)
@example(b'"\n' * 8, False, 2, 5, 1 << 20, True)
def test_rows_are_those_of_the_naive_reader(body, multiline, split_bytes, block_bytes, max_record_bytes, narrow):
    header = ("a",) if narrow else ("a", "x")
    options = CsvOptions(header=header, multiline=multiline)
    found = decoder(options, max_record_bytes=max_record_bytes, block_bytes=block_bytes)
    rows, blank = naive_rows(body, 0, options, cells=len(header), max_record_bytes=max_record_bytes)
    result = read(body, found, split_bytes=split_bytes)
    blocks = [decoded.block for decoded in result.blocks]
    seen = [(block.offset(row), block.payload(row)) for block in blocks for row in range(block.num_rows)]
    too_large = [(offset, length) for block in blocks for offset, length in block.oversized]
    assert seen == [(offset, row) for offset, row in rows if len(row) <= max_record_bytes]
    assert too_large == [(offset, len(row)) for offset, row in rows if len(row) > max_record_bytes]
    assert result.blank == blank


ROW = st.lists(st.sampled_from([b'"', b'"', b",", b"a", b"1", b" "]), max_size=8).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=5), st.sampled_from([CsvOptions(), CsvOptions(delimiter=" ")]))
def test_screening_agrees_with_the_row_wise_splitter(lines, options):
    data = b"\n".join(lines)
    lengths = np.array([len(line) for line in lines])
    starts = np.cumsum(lengths + 1) - lengths - 1
    view = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(view == ord('"'))
    for cells in (1, 2, 3):
        found = well_formed(view, quotes, starts=starts, ends=starts + lengths, options=options, cells=cells)
        assert found.tolist() == [_cell_count(line, options) == cells for line in lines]
    found = well_formed(view, quotes, starts=starts, ends=starts + lengths, options=options, cells=None)
    assert found.tolist() == [_cell_count(line, options) > 0 for line in lines]


def _cell_count(row: bytes, options: CsvOptions) -> int:
    try:
        return len(split_cells(row, options))
    except QuoteError:
        return 0


@pytest.mark.parametrize("feature", [0, 1, 4, 5], ids=["int", "float", "bool", "list"])
def test_every_spelling_of_a_number_alone_and_among_others(feature):
    good = [b"1", b"1.5", b"t", b"red", b"true", b"2", b""]
    found = decoder(CsvOptions(header=HEADER))
    spellings = [cell.encode() for cell in SPELLINGS]
    rows = []
    for spelling in spellings + [b'"' + cell + b'"' for cell in spellings]:
        cells = [*good[:feature], spelling, *good[feature + 1 :]]
        rows += [b",".join(good), b",".join(cells)]
        fast, slow = (read(b"\n".join(rows[-2:]), found, slow=slow).blocks for slow in (False, True))
        assert_same(fast[0], slow[0])
    fast, slow = (read(b"\n".join(rows), found, slow=slow).blocks for slow in (False, True))
    assert_same(fast[0], slow[0])


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(files())
def test_fast_path_equals_oracle_at_length(file):
    options, data = file
    found = decoder(options)
    fast, slow = read(data, found), read(data, found, slow=True)
    for left, right in zip(fast.blocks, slow.blocks, strict=True):
        assert_same(left, right)
