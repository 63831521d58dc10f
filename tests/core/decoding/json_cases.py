"""What the JSON tests share: schemas, blocks, nasty tokens, random rows and their mutations."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.records import DecodedBlock, RawBlock
from pipeline.core.schema import BoolDomain, Feature, Kind, Schema

INT, FLOAT, BYTES = Kind.INT, Kind.FLOAT, Kind.BYTES


def schema_of(*features: Feature) -> Schema:
    return Schema(features, schema_pb2.Schema())


def one(name: str, kind: Kind, **rules) -> Feature:
    return Feature(name, kind, min_values=1, max_values=1, **rules)


CASES_SCHEMA = schema_of(
    one("a", INT, required=True),
    one("x", FLOAT),
    one("s", BYTES),
    Feature("l", FLOAT, shape=(3,), min_values=3, max_values=3),
    one("d", BYTES, domain=(b"red", b"green")),
)
SCHEMAS = {
    "cases": CASES_SCHEMA,
    "lists": schema_of(
        Feature("a", INT, required=True, max_values=2),
        Feature("x", FLOAT, min_values=1, float_min=-1.0),
        Feature("s", BYTES, domain=(b"", b"red", b"1")),
        Feature("l", INT, min_values=2),
    ),
    "bools": schema_of(
        one("a", INT, bool_domain=BoolDomain()),
        Feature("x", INT, bool_domain=BoolDomain()),
        one("s", BYTES, bool_domain=BoolDomain(b"true", b"red")),
        one("l", INT, int_min=-5, int_max=2**60),
    ),
    "names": schema_of(one("a/b", INT), one('\u00e9"\\\n', FLOAT), one("", BYTES), Feature("[]", INT), one("a", INT)),
}

TOKENS = [
    *("0", "1", "-1", "-0", "1.0", "1e2", "1.5", "-0.0", "1E-2", "01", "1.", ".5", "+1", "-", "0x10", "1e", "1e400"),
    *(
        "-1e400",
        "1e300",
        "3.4028235e38",
        "3.4028236e38",
        "9999999999999999999e21",
        "1e-400",
        "16777217",
        "9007199254740992",
        "9007199254740993",
    ),
    *("9007199254740993.0", "9007199254740993.5", "9223372036854775807", "9223372036854775808", "1e18", "1e19"),
    *("-9223372036854775808", "-9223372036854775809", "-9223372036854775808.0", "1" * 5000, "1" * 400 + ".5"),
    *("0.1", "100000000000000000000000000e-26", "4503599627370497.5", "1.00000000000000000000000000000000001"),
    *("NaN", "Infinity", "-Infinity", "Inf", "-NaN", "nan", "true", "false", "null", "tru", "nulll", "None"),
    *('""', '"red"', '"blue"', '"1"', '"NaN"', '": NaN,"', '"true"', '"a\\u0000b"', '"\\ud800"', '"\\udc00"'),
    *('"\\ud83d\\ude00"', '"\\\\ud800"', '"\\ud800\\\\\\udc00"', '"\\x"', '"\t"', '"\x7f"', '"\u00e9\u20ac\U0001f600"'),
    *('"\\u00e9"', '"[[{{"', '"a\\"b"', '"', '"\\"', "[]", "[1]", "[1,2]", "[1,2,3]", "[1.0,2,3e0]", "[1,2,3,4]"),
    *("[null]", "[1,null,3]", "[true]", '["red"]', '["red","1"]', "[[1]]", "[1,]", "[", "]", "{}", '{"a":1}', "{"),
    *("[NaN]", "[1e300]", '{"z":NaN}', "[[[[[[[[[[1]]]]]]]]]]", '{"a":{"a":{"a":{"a":1}}}}', "/**/", "//", "\x00", ""),
]
KEYS = [
    '"a"',
    '"x"',
    '"s"',
    '"l"',
    '"d"',
    '"z"',
    '"a/b"',
    '""',
    '"[]"',
    '"\u00e9\\"\\\\\\n"',
    '"\\u0061"',
    '"\\ud800"',
    "a",
]
SPACES = ["", "", "", "", " ", "\t", "\r", "\x0b", "\u00a0", "\x00"]
BAD_BYTES = [
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\r",
    b"}{",
    b'"',
    b"\\",
    b"NaN",
    b"[",
    b"null",
    b"\n",
]


def random_row(rng: random.Random, schema: Schema) -> bytes:
    """A row that is mostly well-formed, with nasty values in it."""
    names = [feature.name for feature in schema.features]
    members = []
    for _ in range(rng.choice((1, 2, 3, 5))):
        key = rng.choice(KEYS) if rng.random() < 0.3 else '"' + rng.choice(names).replace('"', '\\"') + '"'
        members.append(f"{_space(rng)}{key}{_space(rng)}:{_space(rng)}{rng.choice(TOKENS)}{_space(rng)}")
    return f"{_space(rng)}{{{','.join(members)}}}{_space(rng)}".encode("utf-8", "surrogatepass")


def _space(rng: random.Random) -> str:
    return rng.choice(SPACES) if rng.random() < 0.1 else ""


def good_row(rng: random.Random, schema: Schema) -> bytes:
    """A row that the oracle accepts, more often than not."""
    values = {INT: ["1", "0", "-3", "1.0", "77"], FLOAT: ["1", "0.5", "-1e-3"], BYTES: ['"red"', '"1"', '"true"']}
    members = []
    for feature in schema.features:
        if rng.random() < 0.2 and not feature.required:
            continue
        count = feature.min_values or rng.choice((1, 2))
        items = [rng.choice(values[feature.kind]) for _ in range(count)]
        name = feature.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        members.append(f'"{name}":' + (items[0] if count == 1 and rng.random() < 0.9 else f"[{','.join(items)}]"))
    return ("{" + ",".join(members) + "}").encode()


def mutated(rng: random.Random, row: bytes) -> bytes:
    """``row`` with one or two bytes flipped, put in, taken out, cut off, or tokens spliced in."""
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(row) + 1)
        kind = rng.randrange(6)
        if kind == 0 and row:
            at = min(at, len(row) - 1)
            row = row[:at] + bytes([row[at] ^ (1 << rng.randrange(8))]) + row[at + 1 :]
        elif kind == 1:
            row = row[:at] + bytes([rng.randrange(256)]) + row[at:]
        elif kind == 2:
            row = row[:at] + row[at + rng.choice((1, 1, 5)) :]
        elif kind == 3:
            row = row[:at] + rng.choice((b"", b"}"))
        elif kind == 4:
            row = row[:at] + rng.choice(BAD_BYTES) + row[at:]
        else:
            row = row[:at] + rng.choice(TOKENS).encode() + row[at:]
    return row


def random_rows(rng: random.Random, schema: Schema, count: int) -> list[bytes]:
    """Good, nasty and mutated rows in a mix that differs from call to call."""
    good, nasty = rng.random(), rng.random()
    rows = []
    for _ in range(count):
        row = good_row(rng, schema) if rng.random() < good else random_row(rng, schema)
        rows.append(mutated(rng, row) if rng.random() < nasty * 0.5 else row)
    return rows


def block_of(rows: Iterable[bytes], *, terminator: bytes = b"\n") -> RawBlock:
    """A block of just these rows, whatever is in them (also newlines, as in a message)."""
    rows = list(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    starts = np.cumsum(lengths + len(terminator)) - lengths - len(terminator)
    return RawBlock("mem", 100, b"".join(row + terminator for row in rows), starts, starts + lengths)


def verdict(decoded: DecodedBlock):
    """All that a decoder says of a block, comparable; -0.0 is not 0.0 here."""
    return decoded.batch.schema, decoded.rows.tolist(), repr(decoded.batch.to_pylist()), decoded.rejections


def check_laws(decoder: JsonLinesDecoder, block: RawBlock) -> DecodedBlock:
    """Fast path equals oracle; each row is accepted or refused, once; payloads are the exact bytes."""
    data = bytes(bytearray(block.data))
    fast, slow = decoder.decode(block), decoder.decode_rows(block)
    assert verdict(fast) == verdict(slow)
    assert block.data == data
    fast.batch.validate(full=True)
    refused = [rejection.offset for rejection in fast.rejections]
    assert sorted([block.offset(row) for row in fast.rows] + refused) == [
        block.offset(r) for r in range(block.num_rows)
    ]
    by_offset = {block.offset(row): block.payload(row) for row in range(block.num_rows)}
    assert all(r.payload == by_offset[r.offset] and r.length == len(r.payload) for r in fast.rejections)
    assert fast.rows_read == fast.batch.num_rows + len(fast.rejections)
    return fast
