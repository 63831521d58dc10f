"""Payloads of messages: the verdict that a file's line gets, many at a time or one by one, whatever the bytes."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.decoding import DecoderSettings, payloads
from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.decoding.payloads import DecodedPayloads, JsonPayloads
from pipeline.core.messages import Message
from pipeline.core.reasons import Reason
from pipeline.core.records import Split
from tests.core.decoding.json_cases import CASES_SCHEMA, SCHEMAS, good_row, random_rows

payloads._FEW_MESSAGES = 0  # few messages are decoded like many here, so that the laws hold for that way

CASES = JsonPayloads(CASES_SCHEMA, DecoderSettings())


def message_of(payload: bytes) -> Message:
    return Message(payload, (), "1", 0, 0)


def messages_of(payloads) -> list[Message]:
    return [message_of(payload) for payload in payloads]


def verdicts(decoded: DecodedPayloads, count: int) -> list:
    """Of each message its row or its faults; fails unless every message has exactly one."""
    assert decoded.batch.num_rows == len(decoded.rows)
    assert sorted([*decoded.rows.tolist(), *decoded.refused]) == list(range(count))
    assert decoded.rows.tolist() == sorted(decoded.rows.tolist())
    found = dict(decoded.refused)
    found.update(zip(decoded.rows.tolist(), map(repr, decoded.batch.to_pylist()), strict=True))
    return [found[index] for index in range(count)]


def as_a_file(line: bytes, decoder: JsonLinesDecoder):
    """The row or the faults of the only line of a file; None where it is blank."""
    (block,) = decoder.blocks(Split("mem", 0, len(line), len(line)), lambda _: io.BytesIO(line))
    decoded = decoder.decode_rows(block)
    if block.blank:
        return None
    return decoded.rejections[0].faults if decoded.rejections else repr(decoded.batch.to_pylist()[0])


def pretty(row: bytes) -> bytes:
    try:
        return json.dumps(json.loads(row), indent=2).encode() + b"\n"
    except (ValueError, RecursionError):
        return row.replace(b",", b",\r\n")


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=60, deadline=None)
@given(rng=st.randoms(use_true_random=False), unknown=st.sampled_from(["ignore", "reject"]))
def test_a_payload_has_the_verdict_of_the_same_line_alone_in_a_file(name, rng, unknown):
    rows = [row.replace(b"\n", b" ") for row in random_rows(rng, SCHEMAS[name], 18)]
    decoder = JsonLinesDecoder(SCHEMAS[name], unknown_features=unknown)
    found = verdicts(
        JsonPayloads(SCHEMAS[name], DecoderSettings(unknown_features=unknown)).decode(messages_of(rows)), len(rows)
    )
    for row, verdict in zip(rows, found, strict=True):
        expected = as_a_file(row, decoder) if row else None
        if expected is None:  # blank: refused, as there are no blank messages
            assert verdict[0].reason is Reason.INVALID_JSON
        else:
            assert verdict == expected


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=60, deadline=None)
@given(rng=st.randoms(use_true_random=False), max_depth=st.sampled_from([1, 3, 64]))
def test_many_at_a_time_are_decoded_like_each_alone(name, rng, max_depth):
    rows = []
    for row in random_rows(rng, SCHEMAS[name], 30):
        kind = rng.randrange(8)
        rows.append(pretty(row) if kind < 3 else b"\xef\xbb\xbf" + row if kind == 3 else row)
    rows += [b"", b" \n ", b"\xef\xbb\xbf", b'{"a":1}\n{"a":2}', b'{"a":"}', b'{"}', b'{"a":{}', b'{"b":1}}']
    rng.shuffle(rows)
    decoder = JsonPayloads(SCHEMAS[name], DecoderSettings(max_depth=max_depth, max_record_bytes=400))
    together = verdicts(decoder.decode(messages_of(rows)), len(rows))
    assert together == verdicts(decoder.decode_each(messages_of(rows)), len(rows))
    assert together == [verdicts(decoder.decode([message]), 1)[0] for message in messages_of(rows)]


@pytest.mark.parametrize("seed", range(4))
def test_a_few_bad_ones_among_many_good_ones(seed):
    rng = random.Random(f"payloads {seed}")
    nasty = random_rows(rng, CASES_SCHEMA, 600)
    rows = [row if rng.random() < 0.02 else pretty(good_row(rng, CASES_SCHEMA)) for row in nasty]
    assert verdicts(CASES.decode(messages_of(rows)), 600) == verdicts(CASES.decode_each(messages_of(rows)), 600)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"a":1}', None),
        (b'{\n  "a": 1,\n  "l": [\n    1,\n    2,\n    3\n  ]\n}\n', None),
        (b'\xef\xbb\xbf{"a":1}', None),
        (b'{"a":1}\r\n', None),
        (b"", Reason.INVALID_JSON),
        (b"\n", Reason.INVALID_JSON),
        (b" \t ", Reason.INVALID_JSON),
        (b'{"a":1}\n{"a":2}', Reason.INVALID_JSON),
        (b'{"a":1}\n\n', None),
        (b'{"a":1,\n"s":"two\nlines"}', Reason.INVALID_JSON),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'{"a":1}\xef\xbb\xbf', Reason.INVALID_JSON),
        ('{"a":1}'.encode("utf-16"), Reason.INVALID_UTF8),
        (b'{"a":1,"s":"%s"}' % (b"x" * 7_000_000), None),
        (b'{"a":1,"s":"%s"}' % (b"x" * 17_000_000), Reason.RECORD_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("others", [0, 30])
def test_payloads(payload, reason, others):
    messages = messages_of([b'{"a":7}'] * others + [payload])
    decoded = CASES.decode(messages)
    assert decoded.batch.num_rows == others + (reason is None)
    assert [faults[0].reason for faults in decoded.refused.values()] == ([reason] if reason else [])


def test_an_empty_payload_is_said_to_be_empty():
    (faults,) = CASES.decode([message_of(b"")]).refused.values()
    assert faults[0].message == "the message has no payload"


@given(st.lists(st.integers(1, 30), max_size=12))
def test_many_bytes_are_decoded_in_parts_of_bounded_size(lengths):
    before = payloads._JOINED_BYTES
    payloads._JOINED_BYTES = 40
    try:
        rows = [b'{"a":1,"s":"%s"}' % (b"x" * length) for length in lengths]
        decoded = CASES.decode(messages_of(rows))
    finally:
        payloads._JOINED_BYTES = before
    assert decoded.rows.tolist() == list(range(len(rows)))
    assert decoded.batch.column("s").to_pylist() == [b"x" * length for length in lengths]


def test_no_messages_make_an_empty_batch():
    decoded = CASES.decode([])
    assert decoded.batch.schema == CASES_SCHEMA.arrow_schema
    assert (decoded.batch.num_rows, decoded.refused) == (0, {})


def test_columns_are_canonical():
    decoded = CASES.decode(messages_of([b'{"a":1}'] * 20))
    assert decoded.batch.schema == CASES_SCHEMA.arrow_schema
    assert pa.types.is_int64(decoded.batch.column("a").type)
