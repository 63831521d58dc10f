"""JSON lines: the columnar path has the oracle's verdict on every row, whatever the bytes."""

from __future__ import annotations

import io
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.reasons import Reason
from pipeline.core.records import InputFile
from pipeline.core.schema import BoolDomain, Feature, Kind
from tests.core.decoding.json_cases import (
    CASES_SCHEMA,
    INT,
    SCHEMAS,
    block_of,
    check_laws,
    good_row,
    one,
    random_rows,
    schema_of,
    verdict,
)

GOOD = [b'{"a":%d,"x":0.5,"s":"t","l":[1,2,3],"d":"red"}' % n for n in range(20)]


def decode_file(data: bytes, decoder: JsonLinesDecoder | None = None, *, split_bytes: int = 1 << 30):
    decoder = decoder or JsonLinesDecoder(CASES_SCHEMA)
    blocks = []
    for split in decoder.splits(InputFile("mem", len(data)), split_bytes, lambda _: io.BytesIO(data)):
        blocks += [decoder.decode(block) for block in decoder.blocks(split, lambda _: io.BytesIO(data))]
    return blocks


@pytest.mark.parametrize("unknown", ["ignore", "reject"])
@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=60, deadline=None)
@given(rng=st.randoms(use_true_random=False), max_depth=st.sampled_from([1, 3, 64]))
def test_fast_path_is_the_oracle(name, unknown, rng, max_depth):
    decoder = JsonLinesDecoder(SCHEMAS[name], unknown_features=unknown, max_depth=max_depth)
    check_laws(decoder, block_of(random_rows(rng, SCHEMAS[name], 16), terminator=rng.choice([b"\n", b"\r\n"])))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(6))
def test_fast_path_is_the_oracle_in_long_blocks(name, seed):
    rng = random.Random(f"{name} {seed}")
    schema = SCHEMAS[name]
    decoder = JsonLinesDecoder(schema, unknown_features=rng.choice(["ignore", "reject"]))
    for share in (0.0, 0.001, 0.03, 0.5):
        nasty = random_rows(rng, schema, 700)
        rows = [row if rng.random() < share else good_row(rng, schema) for row in nasty]
        check_laws(decoder, block_of(rows))


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(SCHEMAS)))
def test_what_was_decoded_before_does_not_matter(rng, name):
    schema = SCHEMAS[name]
    used, block = JsonLinesDecoder(schema), block_of(random_rows(rng, schema, 16))
    for _ in range(3):
        used.decode(block_of([good_row(rng, schema) for _ in range(16)]))
    assert verdict(used.decode(block)) == verdict(JsonLinesDecoder(schema).decode(block))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"a":1}', None),
        (b'{"a":1,"z":9}', None),
        (b'{"a":1.0}', None),
        (b'  {"a":1}\t', None),
        (b'{"x":1.5}', Reason.MISSING_FEATURE),
        (b'{"a":null}', Reason.NULL_FEATURE),
        (b'{"a":"1"}', Reason.WRONG_TYPE),
        (b'{"a":1.5}', Reason.WRONG_TYPE),
        (b'{"a":true}', Reason.WRONG_TYPE),
        (b'{"a":9223372036854775808}', Reason.INT_OVERFLOW),
        (b'{"a":-9223372036854775809}', Reason.INT_OVERFLOW),
        (b'{"a":%s}' % (b"1" * 5000), Reason.INT_OVERFLOW),
        (b'{"a":1,"x":NaN}', Reason.NON_FINITE),
        (b'{"a":1,"x":-Infinity}', Reason.NON_FINITE),
        (b'{"a":1,"z":[{"y": NaN}]}', Reason.NON_FINITE),
        (b'{"a":1,"x":1e400}', Reason.NON_FINITE),
        (b'{"a":1,"z":Infinity}', Reason.NON_FINITE),
        (b'{"a":1,"z":[-Infinity ]}', Reason.NON_FINITE),
        (b'{"a":1,"z":-Inf}', Reason.INVALID_JSON),
        (b'{"a":1,"z":"[NaN, Infinity]"}', None),
        (b'{"a":1,"z":1e400}', None),
        (b'{"a":1,"x":1e300}', Reason.FLOAT_OVERFLOW),
        (b'{"a":1,"a":2}', Reason.DUPLICATE_KEY),
        (b'{"a":1,"\\u0061":1}', Reason.DUPLICATE_KEY),
        (b'{"a":1,"z":1,"z":2}', None),
        (b'{"a":1}{"a":2}', Reason.INVALID_JSON),
        (b'{"a":1} null', Reason.INVALID_JSON),
        (b'{"a":1}\x00{"a":2}', Reason.INVALID_JSON),
        (b"[1]", Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b"7", Reason.NOT_AN_OBJECT),
        (b'{"a":1', Reason.INVALID_JSON),
        (b'{"a":1,"s":"\x01"}', Reason.INVALID_JSON),
        (b'{"a":1,"s":"\\ud800"}', Reason.INVALID_JSON),
        (b'{"a":1,"z":"\\udc00"}', Reason.INVALID_JSON),
        (b'{"a":1,"z\\ud800":1}', Reason.INVALID_JSON),
        (b"\xff\xfe\x80\x81", Reason.INVALID_UTF8),
        (b'{"a":1,"s":"caf\xe9"}', Reason.INVALID_UTF8),
        ('{"a":1}'.encode("utf-16"), Reason.INVALID_UTF8),
        ('{"a":1}'.encode("utf-16-be"), Reason.INVALID_UTF8),
        (b'{"a":1,"z":%s1%s}' % (b"[" * 64, b"]" * 64), Reason.TOO_DEEP),
        (b'{"a":1,"z":%s1%s}' % (b"[" * 63, b"]" * 63), None),
        (b'{"a":1,"z":%s' % (b"[" * 100_000), Reason.TOO_DEEP),
        (b'{"a":1,"l":[1,2]}', Reason.TOO_FEW_VALUES),
        (b'{"a":1,"l":[1,2,3,4]}', Reason.TOO_MANY_VALUES),
        (b'{"a":1,"l":[1,null,3]}', Reason.NULL_FEATURE),
        (b'{"a":1,"l":[]}', Reason.TOO_FEW_VALUES),
        (b'{"a":1,"l":5}', Reason.TOO_FEW_VALUES),
        (b'{"a":[1]}', None),
        (b'{"a":[1,2]}', Reason.TOO_MANY_VALUES),
        (b'{"a":1,"d":"blue"}', Reason.NOT_IN_DOMAIN),
        (b'{"a":1,"s":{"t":1}}', Reason.WRONG_TYPE),
    ],
)
@pytest.mark.parametrize("place", [0, 10, 20])
def test_a_row_among_good_ones(row, reason, place):
    rows = [*GOOD[:place], row, *GOOD[place:]]
    decoded = check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of(rows))
    assert [r.reason for r in decoded.rejections] == ([] if reason is None else [reason])
    assert [r.payload for r in decoded.rejections] == ([] if reason is None else [row])
    alone = check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of([row]))
    assert [r.reason for r in alone.rejections] == ([] if reason is None else [reason])


def test_unknown_features_are_refused_by_name_when_strict():
    rows = [*GOOD, b'{"a":1,"z":9}', b'{"a":1,"\\u007a":null,"y":{}}']
    decoded = check_laws(JsonLinesDecoder(CASES_SCHEMA, unknown_features="reject"), block_of(rows))
    assert [[f.feature for f in r.faults] for r in decoded.rejections] == [["z"], ["z", "y"]]
    assert {f.reason for r in decoded.rejections for f in r.faults} == {Reason.UNKNOWN_FEATURE}


def test_a_file_with_all_kinds_of_line_ends():
    data = b'\xef\xbb\xbf{"a":1}\r\n\n  \x0b \n{"a":2}\n\r\nnull\n{"a":3}'
    (decoded,) = decode_file(data)
    assert decoded.batch.column("a").to_pylist() == [1, 2, 3]
    assert (decoded.block.blank, [r.payload for r in decoded.rejections]) == (3, [b"null"])
    assert decoded.rejections[0].offset == data.index(b"null")


@pytest.mark.parametrize("data", [b"null", b"null\n", b"\n\n", b"\xef\xbb\xbf", b"{}" * 9])
def test_a_file_of_nothing_good(data):
    for decoded in decode_file(data):
        assert decoded.batch.num_rows == 0


def test_utf16_file_is_refused_line_by_line():
    data = "".join(f'{{"a":{n}}}\n' for n in range(12)).encode("utf-16-le")
    (decoded,) = decode_file(data)
    assert {r.reason for r in decoded.rejections} == {Reason.INVALID_UTF8}
    assert decoded.rows_read == len(decoded.rejections) == 13


def test_oversized_rows_blank_lines_and_good_rows_are_told_apart():
    rows = [*GOOD, b'{"a":1,"s":"%s"}' % (b"x" * 3000), b" \x0b ", *GOOD, b'{"a":' + b"1" * 3000, b'{"a":7}']
    data = b"\n".join(rows)
    (decoded,) = decode_file(data, JsonLinesDecoder(CASES_SCHEMA, max_record_bytes=2000))
    assert [r.reason for r in decoded.rejections] == [Reason.RECORD_TOO_LARGE] * 2
    assert [(r.length, r.payload) for r in decoded.rejections] == [(len(rows[20]), None), (len(rows[-2]), None)]
    assert decoded.batch.num_rows == 41
    assert (decoded.rows_read, decoded.block.blank) == (43, 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(50, 4000))
def test_splits_do_not_matter(seed, split_bytes):
    data = b"\n".join(random_rows(random.Random(seed), CASES_SCHEMA, 60))
    whole, parts = decode_file(data), decode_file(data, split_bytes=split_bytes)
    assert [x for d in parts for x in d.batch.to_pylist()] == [x for d in whole for x in d.batch.to_pylist()]
    assert [r for d in parts for r in d.rejections] == [r for d in whole for r in d.rejections]
    assert sum(d.block.blank for d in parts) == sum(d.block.blank for d in whole)


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        (one("f", INT), [b"1", b"2.0", b"-0", b"3e1"], [1, 2, 0, 30]),
        (one("f", INT), [b"[4]", b"5", b"null"], [4, 5, None]),
        (one("f", INT, bool_domain=BoolDomain()), [b"true", b"false", b"1", b"0.0"], [1, 0, 1, 0]),
        (one("f", INT), [b"9223372036854775807", b"-9223372036854775808", b"1e18"], [2**63 - 1, -(2**63), 10**18]),
        (one("f", INT), [b"9007199254740993", b"9007199254740995.0"], [2**53 + 1, 2**53 + 3]),
        (one("f", Kind.FLOAT), [b"1", b"-0", b"16777217", b"1e-400"], [1.0, -0.0, 16777216.0, 0.0]),
        (one("f", Kind.BYTES), [b'"\\u00e9"', b'""', b'["x"]'], ["é".encode(), b"", b"x"]),
        (Feature("f", INT), [b"[]", b"7", b"[1,2.0]", b"null"], [[], [7], [1, 2], None]),
        (Feature("f", INT, bool_domain=BoolDomain()), [b"true", b"[false,1]"], [[1], [0, 1]]),
    ],
)
@pytest.mark.parametrize("repeat", [1, 30, 400])
def test_ways_of_writing_a_value(feature, values, expected, repeat):
    """Blocks of one way of writing, of several in turn, and of several in stretches, have the same values."""
    decoder = JsonLinesDecoder(schema_of(feature))
    for cells, wanted in (
        (values * repeat, expected * repeat),
        ([v for v in values for _ in range(repeat)], [e for e in expected for _ in range(repeat)]),
    ):
        decoded = check_laws(decoder, block_of([b'{"f":%s}' % cell for cell in cells]))
        assert repr(decoded.batch.column("f").to_pylist()) == repr(wanted)


@pytest.mark.parametrize("name", SCHEMAS)
def test_rows_that_write_every_value_as_a_list(name):
    names = [feature.name for feature in SCHEMAS[name].features if feature.name.isalpha()]
    cells = [b"[null]", b"[]", b"[1,2]", b"[1]", b"null", b"[1.5]", b"[true]", b'["red"]', b"1", b"[[1]]", b"[1.0]"]
    rng = random.Random(name)
    for share in (0.0, 0.02, 0.3):
        rows = []
        for _ in range(300):
            picked = [rng.choice(cells) if rng.random() < share else rng.choice(cells[3:5]) for _ in names]
            members = [b'"%s":%s' % (key.encode(), cell) for key, cell in zip(names, picked, strict=True)]
            rows.append(b"{" + b",".join(members) + b"}")
        check_laws(JsonLinesDecoder(SCHEMAS[name]), block_of(rows))


def test_more_rows_than_a_window_and_faults_in_each():
    rows = [b'{"a":%d}' % n for n in range(150_000)]
    rows[3], rows[70_000], rows[149_999] = b'{"a":"x"}', b'{"a":1}{"a":1}', b'{"a":01}'
    decoder = JsonLinesDecoder(CASES_SCHEMA)
    decoded = decoder.decode(block_of(rows))
    bad = [3, 70_000, 149_999]
    assert [r.payload for r in decoded.rejections] == [rows[row] for row in bad]
    wanted = np.delete(np.arange(150_000), bad)
    np.testing.assert_array_equal(decoded.rows, wanted)
    np.testing.assert_array_equal(decoded.batch.column("a").to_numpy(), wanted)


def test_every_row_wrong_is_no_catastrophe():
    for bad in (
        b'{"a":"1"}',
        b'{"a":1,"a":1}',
        b'{"a":1}{"a":1}',
        b'{"a":1e400}',
        b'{"a":[1]}',
        b'{"a":' + b"9" * 30 + b"}",
    ):
        check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of([bad] * 1000))
    rows = [b'{"a":1,"z%d":1}' % n for n in range(1000)]
    check_laws(JsonLinesDecoder(CASES_SCHEMA, unknown_features="reject"), block_of(rows))


def test_a_message_that_holds_newlines_is_one_row():
    rows = [b'{\n "a": %d\n}' % n for n in range(16)] + [b'{"a":1}\n{"a":2}', b"", b'{"a":1\n,"s":"\n"}']
    decoded = check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of(rows))
    assert decoded.batch.num_rows == 16


def test_decoders_are_pickled_without_what_they_learned():
    decoder = JsonLinesDecoder(CASES_SCHEMA, unknown_features="reject", max_depth=2)
    block = block_of([*GOOD, b'{"a":1.0}', b'{"a":1,"z":1}', b'{"a":[[1]]}'])
    decoded = decoder.decode(block)
    assert verdict(pickle.loads(pickle.dumps(decoder)).decode(block)) == verdict(decoded)
