"""Templates of JSON lines: rows alike in form have the oracle's verdict, and plain ones are read by columns."""

from __future__ import annotations

import json
import math
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.decoding import json_lines
from pipeline.core.decoding.json_fitting import TemplateParse
from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.decoding.json_template import learn_template
from pipeline.core.records import RawBlock
from pipeline.core.schema import BoolDomain, Feature, Schema
from tests.core.decoding.json_cases import (
    BYTES,
    CASES_SCHEMA,
    FLOAT,
    INT,
    TOKENS,
    block_of,
    check_laws,
    mutated,
    one,
    schema_of,
)

FLAT = schema_of(
    one("a", INT, required=True), one("x", FLOAT), one("s", BYTES), one("b", INT, bool_domain=BoolDomain())
)
ROW = '{"a":%s,"x":%s,"s":%s,"b":%s}'
FORMS = {
    "dense": ROW,
    "spaced": '{"a": %s, "x": %s, "s": %s, "b": %s}',
    "white": ' { "b" :\t%s ,"z": {"a": [ %s ], "}": "," } , "a":%s,\r"s":%s } ',
    "lists": '{"a":[%s],"x":%s,"s":[%s],"b":%s}',
    "long": f'{{"{"k" * 700}":1,"a":%s,"{"é" * 130}":%s,"s":%s,"x":%s}}',
    "unknown": '{"z":%s,"y":[%s,{"q":%s}],"a":7,"w":%s}',
}


@pytest.fixture(autouse=True, scope="module")
def _templates_for_few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_ROWS_FOR_TEMPLATES", 0)
        yield


PLAIN = [
    "0",
    "7",
    "-3",
    "12345678",
    "123456789012345678",
    "null",
    "0.5",
    "-2.25",
    "1e3",
    '"red"',
    '""',
    "true",
    "false",
]


def parse(block: RawBlock, schema: Schema, **settings) -> TemplateParse:
    return TemplateParse(block, schema, (), **{"unknown": "ignore", "max_depth": 64, **settings})


def left_rows(rows, schema: Schema, **settings) -> int:
    """How many rows fit no template."""
    return int(np.count_nonzero(parse(block_of(rows), schema, **settings).left))


@pytest.mark.parametrize("unknown", ["ignore", "reject"])
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(rng=st.randoms(use_true_random=False), share=st.sampled_from([0.0, 0.02, 0.3]))
def test_rows_of_one_form_have_the_oracles_verdict(form, unknown, rng, share):
    columns = [rng.sample(PLAIN, 3) for _ in range(4)]
    rows = []
    for _ in range(rng.choice((14, 60))):
        cells = [rng.choice(TOKENS if rng.random() < share else column) for column in columns]
        row = (FORMS[form] % tuple(cells)).encode("utf-8", "surrogatepass")
        rows.append(mutated(rng, row) if rng.random() < share else row)
    check_laws(JsonLinesDecoder(FLAT, unknown_features=unknown), block_of(rows))


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("token", [token for token in TOKENS if len(token) < 1000])
def test_each_nasty_value_among_plain_ones(column, token):
    cells = [["1", "-20", "3"], ["0.5", "2", "null"], ['"red"', '"t"', "null"], ["true", "0", "null"]]
    rows = [ROW % tuple(found[row % 3] for found in cells) for row in range(20)]
    nasty = [found[1] for found in cells]
    nasty[column] = token
    rows[9] = ROW % tuple(nasty)
    check_laws(JsonLinesDecoder(FLAT), block_of(row.encode("utf-8", "surrogatepass") for row in rows))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-(2**65), 2**65) | st.integers(-(10**4), 10**10), min_size=13, max_size=60))
def test_integers_are_exact(numbers):
    schema = schema_of(one("a", INT), one("x", FLOAT))
    rows = [b'{"a":%d,"x":%d}' % (number, number) for number in numbers]
    check_laws(JsonLinesDecoder(schema), block_of(rows))


@st.composite
def decimals(draw) -> str:
    """A number as a program or a person may write it, near and far from what is exact in float64 and float32."""
    value = draw(st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False))
    if math.isinf(value):
        value = 0.0
    digits = draw(st.integers(0, 22))
    return draw(
        st.sampled_from(
            [repr(value), f"{value:.{digits}e}", f"{min(max(value, -1e6), 1e6):.{digits}f}", f"{value:.9g}"]
        )
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(decimals(), min_size=13, max_size=60))
def test_floats_are_those_of_the_oracle(cells):
    block = block_of([b'{"x":%s}' % cell.encode() for cell in cells])
    check_laws(JsonLinesDecoder(schema_of(one("x", FLOAT))), block)


def test_floats_between_two_float32_are_rounded_once():
    """Decimals around the midpoint of two neighbouring float32, in more digits than float64 holds."""
    rng, cells = random.Random(5), []
    for _ in range(2000):
        low = np.float32(rng.uniform(1, 2) * 10.0 ** rng.randrange(-6, 7))
        middle = (float(low) + float(np.nextafter(low, np.float32(np.inf)))) / 2
        nudged = struct.unpack(
            "<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", middle))[0] + rng.randrange(-2, 3))
        )[0]
        cells.append(rng.choice([repr(nudged), f"{middle:.18f}"[:19], f"{nudged:.17e}"]))
    rows = [b'{"x":%s}' % cell.encode() for cell in cells]
    check_laws(JsonLinesDecoder(schema_of(one("x", FLOAT))), block_of(rows))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=70), min_size=13, max_size=40), st.booleans())
def test_strings_of_any_length_and_alphabet(texts, escape):
    rows = [
        json.dumps({"s": text, "z": text, "a": 1}, ensure_ascii=escape).encode("utf-8", "replace") for text in texts
    ]
    check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of(rows))


@pytest.mark.parametrize("length", range(34))
@pytest.mark.parametrize(
    "odd", [b"", b'"', b"\\", b"\\n", b"\x00", b"\x1f", b"\xff", b"\xc3\xa9", b"#", b"!", b"\x7f", b"]"]
)
def test_a_byte_at_each_place_of_a_string(length, odd):
    rows = [b'{"s":"%s%s%s","a":1}' % (b"y" * place, odd, b"y" * (length - place)) for place in range(length + 1)]
    check_laws(JsonLinesDecoder(CASES_SCHEMA), block_of([b'{"s":"t","a":1}'] * 13 + rows))


def test_plain_rows_need_no_other_decoder():
    rows = []
    for row in range(1000):
        cells = (row * 10**12 - 5, f"{row / 8 - 3}", json.dumps("é" * (row % 30), ensure_ascii=False), "true")
        rows.append((ROW % (cells if row % 7 else (cells[0], "null", "null", "null"))).encode())
    assert left_rows(rows, FLAT) == 0
    rows = [json.dumps({"l": [row, 2.5, -1], "a": [row], "d": "red", "z": {"s": None}}).encode() for row in range(500)]
    assert left_rows(rows, CASES_SCHEMA) == 0


def test_rows_of_several_forms_get_a_template_each():
    forms = [b'{"a":%d}', b'{"a":%d,"x":1}', b'{"x":1, "a":%d}']
    rows = [forms[row % 3] % row for row in range(900)]
    parsed = parse(block_of(rows), FLAT)
    assert len(parsed.templates) == 3
    assert not parsed.left.any()
    again = TemplateParse(block_of(rows), FLAT, parsed.templates, unknown="ignore", max_depth=64)
    assert set(again.templates) == set(parsed.templates)


def test_a_template_is_forgotten_where_nothing_fits_it():
    decoder = JsonLinesDecoder(FLAT)
    for form in (b'{"a":%d}', b'{"x":2,"a":%d}', b'{"a": %d}'):
        decoder.decode(block_of([form % row for row in range(100)]))
        (template,) = decoder._templates
        assert b"".join(template.literals) == form.replace(b"%d", b"").replace(b"2", b"")


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        (b'{"a":1,"a":2}', {}),
        (b'{"x":1}', {}),
        (b'{"a":1,"z":1}', {"unknown": "reject"}),
        (b'{"a":1,"z":[[1]]}', {"max_depth": 2}),
        (b'{"a":1,"\\ud800":1}', {}),
        (b'{"a":[1,2]}', {}),
        (b'{"a":{"a":1}}', {}),
        (b'{"a":"1"}', {}),
        (b'{"a":1.0}', {}),
        (b'{"a":1} x', {}),
        (b'{"a":1,"z":NaN}', {}),
        (b"[1]", {}),
        (b'{"a":1,"z":"\xff"}', {}),
        (b'{"a":1,"z":%s}' % (b"[" * 5000 + b"]" * 5000), {}),
    ],
)
def test_no_template_is_learned_from(row, settings):
    assert learn_template([row] * 20, FLAT, **{"unknown": "ignore", "max_depth": 64, **settings}) is None


def test_messages_that_hold_newlines_fit_too():
    rows = [b'{\n "a": %d,\n "s": "t"\n}' % row for row in range(50)]
    assert left_rows(rows, FLAT) == 0
    check_laws(JsonLinesDecoder(FLAT), block_of(rows))


def test_values_that_repeat_a_templates_text():
    rows = [b'{"s":"t","a":%d}' % row for row in range(20)]
    rows += [b'{"s":"","a":1}', b'{"s":"\\",\\"a\\":1}', b'{"s":"t","a":1},"a":2}', b'{"s":"t","a":1}{"s":"t","a":1}']
    rows += [b'{"s":"t","a":1', b'{"s":"t","a":}', b'{"s":"t","a":1}}', b'{"s":"t","a":1} ', b'{"s":"t,"a":1}', b"{"]
    decoded = check_laws(JsonLinesDecoder(FLAT), block_of(rows))
    assert decoded.batch.num_rows == 22  # the empty string, and the space at the end


def test_features_with_lists_of_one_length():
    schema = schema_of(
        Feature("l", INT, min_values=2, max_values=3), Feature("s", BYTES), Feature("x", FLOAT, max_values=1)
    )
    rows = [b'{"l":[%d,-1],"s":["%d","t"],"x":%d}' % (row, row, row) for row in range(40)]
    assert left_rows(rows, schema) == 0
    rows += [b'{"l":[1,null],"s":["1","t"],"x":null}', b'{"l":[1,2],"s":["1","t"],"x":null}', b'{"l":[],"s":[],"x":1}']
    # An empty list is too few values.
    decoded = check_laws(JsonLinesDecoder(schema), block_of(rows))
    assert decoded.batch.column("x").to_pylist()[-2:] == [[39.0], None]


def test_more_rows_than_a_chunk_and_misfits_in_each():
    rows = [b'{"a":%d,"s":"%d"}' % (row, row) for row in range(40_000)]
    for row in (0, 16_383, 16_384, 39_999):
        rows[row] = b'{"s":"\\u00e9","a":%d}' % row
    rows[20_000] = b'{"a":"x","s":""}'
    decoded = JsonLinesDecoder(FLAT).decode(block_of(rows))
    wanted = np.delete(np.arange(40_000), 20_000)
    np.testing.assert_array_equal(decoded.rows, wanted)
    np.testing.assert_array_equal(decoded.batch.column("a").to_numpy(), wanted)
    assert decoded.batch.column("s")[0].as_py() == "é".encode()
    assert decoded.batch.column("s")[39_998].as_py() == "é".encode()
    assert decoded.batch.column("s")[30_000].as_py() == b"30001"


def test_misfits_in_numbers_go_to_the_native_parser(monkeypatch):
    seen = []
    native = json_lines.NativeParse

    def spy(block, *args, **kwargs):
        seen.append(block.num_rows)
        return native(block, *args, **kwargs)

    monkeypatch.setattr(json_lines, "NativeParse", spy)
    rows = [b'{"a":1,"s":"%s"}' % (b"\\n" if row % 4 == 0 else b"t") for row in range(400)]
    check_laws(JsonLinesDecoder(FLAT), block_of(rows))
    assert seen == [100]


def test_a_string_of_megabytes_is_not_read_word_by_word():
    rows = [b'{"a":1,"s":"%s"}' % (b"y" * length) for length in (4000, 5000, 3_000_000, *range(4085, 4110))]
    assert left_rows(rows, FLAT) > 0
    decoded = check_laws(JsonLinesDecoder(FLAT), block_of(rows))
    assert decoded.batch.num_rows == len(rows)


def test_a_block_without_quotes_is_given_up_soon():
    rows = [b'{"a":1,"s":"t"}'] * 14 + [b'{"a":1,"s":"' + b"y" * 100_000] * 14
    check_laws(JsonLinesDecoder(FLAT), block_of(rows))
