"""CSV: what each kind of row, cell, header and dialect comes to, by both decoders."""

from __future__ import annotations

import pytest

from pipeline.core.decoding import DecoderSettings, make_decoder
from pipeline.core.decoding.csv import CsvDecoder, CsvOptions
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import InputFile, RawBlock, Split
from tests.core.decoding.csv_cases import (
    BYTES,
    FLOAT,
    HEADER,
    INT,
    SCHEMA,
    assert_same,
    opener,
    read,
    scalar,
    schema_of,
)

SMALL = schema_of(scalar("a", INT, required=True), scalar("s", BYTES))
MULTILINE = CsvOptions(multiline=True)


def both(data: bytes, schema=SMALL, options: CsvOptions | None = None, **settings):
    """``data`` by the fast decoder, after it was seen to agree with the row-wise one."""
    decoder = CsvDecoder(schema, options=options, **settings)
    fast, slow = read(data, decoder), read(data, decoder, slow=True)
    for left, right in zip(fast.blocks, slow.blocks, strict=True):
        assert_same(left, right)
    return fast


def reasons(data: bytes, schema=SMALL, options: CsvOptions | None = None, **settings) -> list[list[str]]:
    found = both(data, schema, options, **settings)
    return [[fault.reason.value for fault in rejection.faults] for rejection in found.rejections]


def row(cells: str) -> bytes:
    return f"{','.join(HEADER)}\n{cells}\n".encode()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("1,,,,,,", {"a": 1}),
        ("1,NA,NA,NA,NA,NA,NA", {"a": 1}),
        ('1,,"",,,,', {"a": 1, "s": b""}),
        ('1,,"NA",,,,', {"a": 1, "s": b"NA"}),
        ("+1,,,,,,", {"a": 1}),
        ("007,,,,,,", {"a": 7}),
        ("1.0,,,,,,", {"a": 1}),
        ("-1.,,,,,,", {"a": -1}),
        ("9007199254740993.0,,,,,,", {"a": 2**53 + 1}),
        ('"1","2.5","s",,,,', {"a": 1, "x": 2.5, "s": b"s"}),
        ("9223372036854775807,,,,,,", {"a": 2**63 - 1}),
        ("-9223372036854775808,,,,,,", {"a": -(2**63)}),
        ("1,.5,,,,,", {"a": 1, "x": 0.5}),
        ("1,+2e-1,,,,,", {"a": 1, "x": pytest.approx(0.2)}),
        ("1,1e-400,,,,,", {"a": 1, "x": 0.0}),
        ("1,16777217,,,,,", {"a": 1, "x": 16777216.0}),
        ('1,,"say ""hi"", you",red,,,', {"a": 1, "s": b'say "hi", you', "d": b"red"}),
        ("1,,é ,,,,", {"a": 1, "s": "é ".encode()}),
        ("1,,a\rb,,,,", {"a": 1, "s": b"a\rb"}),
        ("1,,,,True,,", {"a": 1, "b": 1}),
        ("1,,,,false,,", {"a": 1, "b": 0}),
        ("1,,,,1,,", {"a": 1, "b": 1}),
        ("1,,,,,2.5,", {"a": 1, "l": [2.5]}),
    ],
)
def test_accepted(cells, expected):
    found = both(row(cells), SCHEMA)
    assert found.rejections == []
    (values,) = found.rows
    assert values == dict.fromkeys(HEADER) | expected


@pytest.mark.parametrize(
    ("cells", "expected", "feature"),
    [
        (",,,,,,", ["null_feature"], "a"),
        ("NA,,,,,,", ["null_feature"], "a"),
        ('"",,,,,,', ["wrong_type"], "a"),
        ("1.5,,,,,,", ["wrong_type"], "a"),
        ("1e3,,,,,,", ["wrong_type"], "a"),
        ("0x10,,,,,,", ["wrong_type"], "a"),
        (" 1,,,,,,", ["wrong_type"], "a"),
        ("\r1,,,,,,", ["wrong_type"], "a"),
        ("1,,,,,,2\t", ["wrong_type", "too_few_values"], "m"),
        ("true,,,,,,", ["wrong_type"], "a"),
        ("9223372036854775808,,,,,,", ["int_overflow"], "a"),
        ("-9223372036854775809,,,,,,", ["int_overflow"], "a"),
        ("9" * 5000 + ",,,,,,", ["int_overflow"], "a"),
        ("1,1 ,,,,,", ["wrong_type"], "x"),
        ("1,abc,,,,,", ["wrong_type"], "x"),
        ("1,nan,,,,,", ["non_finite"], "x"),
        ("1,-Inf,,,,,", ["non_finite"], "x"),
        ("1,INFINITY,,,,,", ["non_finite"], "x"),
        ("1,1e400,,,,,", ["non_finite"], "x"),
        ("1,1e300,,,,,", ["float_overflow"], "x"),
        ("1,,,blue,,,", ["not_in_domain"], "d"),
        ("1,,,,2,,", ["not_in_domain"], "b"),
        ("1,,,,yes,,", ["wrong_type"], "b"),
        ("1,,,,,,5", ["too_few_values"], "m"),
        ("1,,,,,,q", ["wrong_type", "too_few_values"], "m"),
        ("x,nan,,blue,,,", ["wrong_type", "non_finite", "not_in_domain"], "a"),
        ("1,2", ["ragged_row"], None),
        ("1,,,,,,,", ["ragged_row"], None),
        ('1,,a"b,,,,', ["unbalanced_quote"], None),
        ('1,,"a"b,,,,', ["unbalanced_quote"], None),
        ('1,, "a",,,,', ["unbalanced_quote"], None),
        ('1,,"a,,,,', ["unbalanced_quote"], None),
    ],
)
def test_refused(cells, expected, feature):
    data = row(cells)
    assert reasons(data, SCHEMA) == [expected]
    (rejection,) = both(data, SCHEMA).rejections
    assert rejection.faults[0].feature == feature
    assert rejection.payload == cells.encode()
    assert rejection.offset == len(",".join(HEADER)) + 1
    assert rejection.stage is rejection.reason.stage


def test_good_rows_around_refused_ones_are_kept_in_order():
    found = both(b'a,s\n1,x\nq,y\n3,"z"\n4\n5,\xff\n6,"\n+7,w\n')
    assert [values["a"] for values in found.rows] == [1, 3, 7]
    assert [rejection.reason.value for rejection in found.rejections] == [
        "wrong_type",
        "ragged_row",
        "invalid_utf8",
        "unbalanced_quote",
    ]


def test_ragged_row_says_how_many_cells_were_expected_and_found():
    found = both(b"a,s\n1\n1,2,3\n")
    assert [rejection.reason for rejection in found.rejections] == [Reason.RAGGED_ROW] * 2
    messages = [rejection.faults[0].message for rejection in found.rejections]
    assert messages == ["the row has 1 cells, the header has 2", "the row has 3 cells, the header has 2"]


@pytest.mark.parametrize("payload", [b"1,\xff\xfe\x80\x81", b"1,caf\xe9", b"\xff\xfe1\x00,\x001\x00"])
def test_invalid_utf8_keeps_the_exact_bytes(payload):
    (rejection,) = both(b"a,s\n" + payload + b"\n2,b\n").rejections
    assert rejection.reason is Reason.INVALID_UTF8
    assert rejection.payload == payload


def test_utf16_without_a_mark_is_invalid_utf8():
    assert reasons("1,x".encode("utf-16-le"), options=CsvOptions(header=("a", "s"))) == [["invalid_utf8"]]


def test_many_nul_bytes_are_another_encoding_and_few_are_text():
    assert reasons(b"a,s\n1,\0\n") == [["invalid_utf8"]]
    assert both(b"a,s\n1,xyz\0\n").rows == [{"a": 1, "s": b"xyz\0"}]


def test_all_faults_of_a_malformed_row_are_listed():
    assert reasons(b"a,s\n1,\xff,3\n") == [["invalid_utf8", "ragged_row"]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_blank_lines_and_bom(end, last, bom):
    lines = [b"a,s", b"1,x", b"", b"2,y", b"  ", b"q,", b'3,"z"']
    data = bom + end.join(lines) + (end if last else b"")
    found = both(data)
    assert found.rows == [{"a": 1, "s": b"x"}, {"a": 2, "s": b"y"}, {"a": 3, "s": b"z"}]
    assert found.blank == 2
    (rejection,) = found.rejections
    assert (rejection.payload, data[rejection.offset :][:2]) == (b"q,", b"q,")


def test_a_bom_after_the_start_is_a_part_of_its_cell():
    (schema, bom) = (schema_of(scalar("s", BYTES), scalar("a", INT)), b"\xef\xbb\xbf")
    assert both(b"s,a\n" + bom + b"x,1\n", schema).rows == [{"s": bom + b"x", "a": 1}]
    assert reasons(b"a,s\n" + bom + b"1,x\n") == [["wrong_type"]]


def test_a_row_of_tabs_is_a_row_of_missing_values():
    options = CsvOptions(delimiter="\t")
    found = both(b"s\tt\n\t\n\n", schema_of(scalar("s", BYTES), scalar("t", BYTES)), options)
    assert found.rows == [{"s": None, "t": None}]
    assert found.blank == 1


class TestQuotedNewlines:
    """CASES: a quoted newline is one row, or one refusal; never two wrong rows."""

    data = b'a,s\n1,"x\n2,y"\n3,z\n'

    def test_multiline_reads_one_row(self):
        found = both(self.data, options=MULTILINE)
        assert found.rows == [{"a": 1, "s": b"x\n2,y"}, {"a": 3, "s": b"z"}]

    def test_otherwise_one_refusal_spans_the_lines(self):
        found = both(self.data)
        assert found.rows == [{"a": 3, "s": b"z"}]
        (rejection,) = found.rejections
        assert rejection.reason is Reason.UNBALANCED_QUOTE
        assert "--csv_multiline" in rejection.faults[0].message
        assert rejection.payload == b'1,"x\n2,y"'

    @pytest.mark.parametrize("options", [CsvOptions(), MULTILINE])
    def test_an_unclosed_quote_costs_its_line_only(self, options):
        found = both(b'a,s\n1,x\n2,"y\n3,z\n4,"v"\n', options=options)
        assert [values["a"] for values in found.rows] == [1, 3, 4]
        (rejection,) = found.rejections
        assert (rejection.reason, rejection.payload) == (Reason.UNBALANCED_QUOTE, b'2,"y')

    @pytest.mark.parametrize("options", [CsvOptions(), MULTILINE])
    def test_an_unclosed_quote_at_the_end_of_a_big_file(self, options):
        lines = [b"%d,x" % index for index in range(50_000)]
        lines[100] = b'100,"x'
        found = read(b"a,s\n" + b"\n".join(lines), CsvDecoder(SMALL, options, block_bytes=10_000), split_bytes=30_000)
        assert sum(block.batch.num_rows for block in found.blocks) == 49_999
        assert [rejection.payload for rejection in found.rejections] == [b'100,"x']

    def test_multiline_keeps_returns_and_blank_lines_of_a_cell(self):
        found = both(b'a,s\r\n1,"x\r\n\r\n \n"\r\n\r\n2,y', options=MULTILINE)
        assert found.rows == [{"a": 1, "s": b"x\r\n\r\n \n"}, {"a": 2, "s": b"y"}]
        assert found.blank == 1

    def test_a_row_over_64_kib_of_lines(self):
        cell = (b"x" * 63 + b"\n") * 1100
        data = b'a,s\n1,"' + cell + b'"\n2,y\n'
        assert both(data, options=MULTILINE).rows == [{"a": 1, "s": cell}, {"a": 2, "s": b"y"}]
        found = both(data)
        assert found.rows == [{"a": 2, "s": b"y"}]
        assert found.rejections[0].payload == b'1,"' + b"x" * 63
        assert len(found.rejections) == 1101

    def test_multiline_row_over_the_limit_costs_its_first_line(self):
        data = b'a,s\n1,"' + b"x\n" * 50 + b'"\n2,y\n'
        found = both(data, options=MULTILINE, max_record_bytes=60)
        assert found.rows == [{"a": 2, "s": b"y"}]
        assert found.rejections[0].payload == b'1,"x'

    def test_a_ragged_multiline_row_is_refused_as_one(self):
        assert reasons(b'a,s\n1,"x\n2,y",z\n3,z\n', options=MULTILINE) == [["ragged_row"]]

    def test_multiline_has_one_split(self):
        decoder = CsvDecoder(SMALL, MULTILINE)
        assert decoder.splits(InputFile("mem", len(self.data)), 4, opener(self.data)) == [Split("mem", 0, 18, 18)]


def test_a_row_over_the_limit_is_refused_without_its_bytes():
    found = both(b"a,s\n1,x\n2," + b"y" * 100 + b"\n3,z\n", max_record_bytes=50)
    assert [values["a"] for values in found.rows] == [1, 3]
    (rejection,) = found.rejections
    assert (rejection.reason, rejection.stage) == (Reason.RECORD_TOO_LARGE, Stage.READ)
    assert (rejection.payload, rejection.offset, rejection.length) == (None, 8, 102)


def test_a_column_written_as_pandas_writes_integers_with_gaps():
    found = both(b"a,s\n1.0,x\n2.0,\n-3.0,y\n,z\n")
    assert [values["a"] for values in found.rows] == [1, 2, -3]


class TestHeader:
    def test_columns_in_any_order_with_others_between(self):
        assert both(b"z,s,q,a\n0,x,0,1\n").rows == [{"a": 1, "s": b"x"}]

    def test_quoted_names(self):
        assert both(b'"a","s"\n1,x\n').rows == [{"a": 1, "s": b"x"}]

    def test_given_header_means_no_header_line(self):
        options = CsvOptions(header=("a", "s"))
        assert [values["a"] for values in both(b"\xef\xbb\xbf1,x\n2,y\n", options=options).rows] == [1, 2]

    def test_an_optional_feature_without_a_column_is_missing(self):
        assert both(b"a\n1\n").rows == [{"a": 1, "s": None}]

    def test_no_feature_has_a_column(self):
        assert both(b"q,r\n1,x\n2\n", schema_of(scalar("s", BYTES))).rows == [{"s": None}]

    @pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
    def test_empty_file(self, data):
        assert both(data).summary == ([], [], 0)

    @pytest.mark.parametrize("data", [b"a,s", b"a,s\n", b"a,s\r\n\r\n"])
    def test_header_only(self, data):
        found = both(data)
        assert (found.rows, found.rejections) == ([], [])

    def test_header_over_several_lines_in_multiline(self):
        schema = schema_of(scalar("a\nb", INT))
        assert both(b'"a\nb",c\n1,x\n', schema, MULTILINE).rows == [{"a\nb": 1}]

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"a,a\n", "more than once: 'a'"),
            (b"b,s\n", "required feature 'a'"),
            (b"a;s\n", "delimiter"),
            (b"\n1,x\n", "names no column"),
            (b'a,"s\n', "never closed"),
            (b"a,caf\xe9\n", "not UTF-8"),
            ("a,s\n".encode("utf-16"), "not UTF-8"),
            ("a,s\n".encode("utf-16-le"), "UTF-16"),
            (b"a" * (2 << 20), "over 1048576 bytes"),
        ],
    )
    def test_refused_at_the_start(self, data, message):
        decoder = CsvDecoder(SMALL)
        for step in (
            lambda: decoder.splits(InputFile("gs://b/f.csv", len(data)), 100, opener(data)),
            lambda: list(decoder.blocks(Split("gs://b/f.csv", 0, len(data), len(data)), opener(data))),
        ):
            with pytest.raises(UsageError, match="gs://b/f") as caught:
                step()
            assert message in str(caught.value)

    def test_unknown_columns_are_refused_when_asked(self):
        data = b"a,s,z\n1,x,0\n"
        assert both(data).rows
        with pytest.raises(UsageError, match="'z'"):
            both(data, unknown_features="reject")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delimiter": ""},
        {"delimiter": ",,"},
        {"delimiter": "\n"},
        {"delimiter": "é"},
        {"delimiter": "1"},
        {"delimiter": '"'},
        {"quote": "x"},
        {"quote": "", "multiline": True},
        {"header": ()},
        {"header": ("a", "a")},
        {"null_tokens": ("a,b",)},
        {"null_tokens": ("n" * 65,)},
        {"null_tokens": tuple(map(str, range(65)))},
    ],
)
def test_a_dialect_that_cannot_be_read_is_refused(wrong):
    with pytest.raises(UsageError):
        CsvOptions(**wrong)


def test_no_quoting():
    assert both(b'a,s\n1,5" pipe\n', options=CsvOptions(quote="")).rows == [{"a": 1, "s": b'5" pipe'}]


def test_the_registry_makes_csv_and_tsv_decoders():
    settings = DecoderSettings(csv=CsvOptions(null_tokens=("-",)))
    found = read(b"a\ts\n1\t-\n", make_decoder("tsv", SMALL, settings))
    assert found.rows == [{"a": 1, "s": None}]
    assert make_decoder("csv", SMALL).options == CsvOptions()


def test_blocks_of_other_decoders_are_not_taken():
    decoder = CsvDecoder(schema_of(scalar("x", FLOAT)))
    with pytest.raises(TypeError, match="RawBlock"):
        decoder.decode(RawBlock("mem", 0, b"", [], []))


def test_messages_are_bounded_and_escaped():
    cell = "\x1b[31m" + "9" * 100_000
    (rejection,) = both(f"a,s\n{cell},x\n".encode()).rejections
    assert len(rejection.faults[0].message) < 300
    assert "\x1b" not in rejection.faults[0].message


def test_a_big_schema_and_file_goes_the_fast_way(monkeypatch):
    """No valid row needs the row-wise parser, quoted or not, with blank lines between or not."""
    monkeypatch.setattr("pipeline.core.decoding.csv_rows.RowParser.parse", None)
    rows = b"".join(b'%d,%d.5,"t, ""%d""",red,true,0.5,NA\r\n' % (i, i, i) for i in range(1000))
    found = read(
        ",".join(HEADER).encode() + b"\n" + rows[:7000] + rows[7000:].replace(b"\r\n", b"\n \t \n"), CsvDecoder(SCHEMA)
    )
    assert len(found.rows) == 1000
    assert found.rows[7]["s"] == b't, "7"'
