"""What waits in a job's state: every value comes back, and the bytes stay what they are."""

from __future__ import annotations

import hashlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import codec
from pipeline.core.dead_letter import DeadLetter, LetterFault
from pipeline.core.errors import HeadraceError
from pipeline.core.manifest import ShardEntry
from pipeline.core.messages import Message, WindowedChunk

TEXTS = st.text(max_size=20)
TIMES = st.integers(-(2**63), 2**63 - 1)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=5).map(tuple)
MESSAGES = st.builds(Message, st.binary(max_size=50), PAIRS, TEXTS, TIMES, TIMES, TEXTS)
COUNTS = st.integers(0, 2**32 - 1)
FAULTS = st.lists(st.builds(LetterFault, TEXTS, TEXTS, TEXTS, st.none() | TEXTS), min_size=1, max_size=3).map(tuple)


@st.composite
def letters(draw: st.DrawFn) -> DeadLetter:
    payload = draw(st.none() | st.binary(max_size=50))
    return DeadLetter(
        dlq_id=draw(TEXTS),
        source=draw(TEXTS),
        faults=draw(FAULTS),
        failed_at=draw(TEXTS),
        job=draw(TEXTS),
        schema=draw(TEXTS),
        payload=payload,
        payload_length=draw(COUNTS) if payload is None else len(payload),
        payload_sha256="ab" if payload is None else hashlib.sha256(payload).hexdigest(),
        payload_uri=draw(st.none() | TEXTS),
        event_time=draw(st.none() | TEXTS),
        attempt=draw(COUNTS),
        attributes=tuple(sorted(dict(draw(PAIRS)).items())),
        ordering_key=draw(TEXTS),
    )


@given(st.lists(MESSAGES, max_size=5))
def test_messages_come_back(messages):
    pack = codec.pack_messages(messages)
    assert list(codec.unpack_messages(pack)) == messages
    assert codec.count_messages(pack) == len(messages)


def test_a_lone_surrogate_is_no_obstacle():
    message = Message(b"", (("\ud800", "\udfff"),), "1", 0, 0)
    assert list(codec.unpack_messages(codec.pack_messages([message]))) == [message]


@given(letters())
def test_letters_come_back(letter):
    assert codec.decode_letter(codec.encode_letter(letter)) == letter


@given(COUNTS, COUNTS, st.binary(max_size=50), st.integers(0, 2**64 - 1))
def test_chunks_come_back_with_their_key(rows, records, framed, origin):
    chunk = WindowedChunk(-600, 3, rows, records, framed, origin)
    data = codec.encode_chunk(chunk, kind=9)
    assert codec.decode_chunk((-600, 3), data, kind=9) == chunk
    assert codec.framed_bytes(data) == len(framed)


@given(COUNTS, COUNTS, st.integers(0, 2**50), st.integers(0, 2**32 - 1))
def test_entries_come_back(rows, records, size, crc):
    entry = ShardEntry("part-00000-0123456789abcdef.tfrecord", "train", rows, records, size, crc)
    assert codec.decode_entry(codec.encode_entry(entry, kind=9), kind=9) == entry


def test_the_bytes_of_a_pack_are_a_contract():
    message = Message(b'{"a":1}', (("k", "v"),), "12", 1_000_000, 2_000_000, "o")
    assert (
        codec.pack_messages([message])
        == bytes.fromhex("010100000040420f000000000080841e00000000000700000002000000010000000100")
        + b'{"a":1}'
        + b"12"
        + b"o"
        + bytes.fromhex("0100000001000000")
        + b"kv"
    )


def test_the_bytes_of_a_chunk_and_of_an_entry_are_a_contract():
    chunk = codec.encode_chunk(WindowedChunk(0, 0, 3, 2, b"xyz", 7), kind=9)
    assert chunk == bytes.fromhex("01030000000200000007000000000000000900000000000000") + b"xyz"
    entry = codec.encode_entry(ShardEntry("n", "train", 3, 2, 9, 7), kind=9)
    assert entry == (
        b"\x01\x09"
        + bytes(7)
        + b'{"bytes": 9, "crc32c": "00000007", "name": "n", "records": 2, "rows": 3, "split": "train"}'
    )


@pytest.mark.parametrize("decode", [codec.decode_letter, partial(codec.decode_entry, kind=0)])
def test_a_later_format_is_named_and_not_guessed_at(decode):
    with pytest.raises(HeadraceError, match="newer"):
        decode(b"\x02" + bytes(20))
    with pytest.raises(HeadraceError, match="newer"):
        list(codec.unpack_messages(b"\x02" + bytes(20)))
    with pytest.raises(HeadraceError, match="newer"):
        codec.decode_chunk((0, 0), b"\x02" + bytes(40), kind=0)


def test_rows_of_another_kind_are_not_mixed_in():
    data = codec.encode_chunk(WindowedChunk(0, 0, 3, 2, b"xyz"), kind=1)
    with pytest.raises(HeadraceError, match="update it again with what it had"):
        codec.decode_chunk((0, 0), data, kind=2)
    entry = codec.encode_entry(ShardEntry("n", "train", 3, 2, 9, 7), kind=1)
    with pytest.raises(HeadraceError, match="update it again with what it had"):
        codec.decode_entry(entry, kind=2)
