"""The archive: round trip, same bytes every time, and every kind of damage told while good blocks are used."""

import dataclasses
import hashlib
import io
import zlib
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.archive import PARSED_SCHEMA, spill, to_record, write_archive
from pipeline.core.archive_reader import ArchiveDamage, read_archive
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault, Rejection
from tests.core.test_dead_letter import letter_of

PAYLOADS = st.lists(st.binary(max_size=40), max_size=8)


def letters_of(payloads):
    faults = (Fault(Reason.WRONG_TYPE, "not an integer: é", "a"), Fault(Reason.INTERNAL, "boom"))
    rows = [Rejection("f", i, len(p), p, Stage.VALIDATE, faults) for i, p in enumerate(payloads)]
    return [letter_of(row, attributes={"k": "v", "b": ""}, event_time="2024-01-01T00:00:00Z") for row in rows]


def archive_of(letters):
    stream = io.BytesIO()
    assert write_archive(stream, iter(letters)) == len(letters)
    return stream.getvalue()


def read_all(data):
    items = list(read_archive(io.BytesIO(data)))
    return [i for i in items if not isinstance(i, ArchiveDamage)], [i for i in items if isinstance(i, ArchiveDamage)]


# Payloads of 100 kB that do not compress: three a block or so, hence several blocks
BLOCKS = letters_of([bytes((i * j * 7919 >> 3) % 251 for j in range(100_000)) for i in range(1, 13)])
BLOCK_DATA = archive_of(BLOCKS)
MARKER = BLOCK_DATA[-16:]
BLOCK_ENDS = [i + 16 for i in range(len(BLOCK_DATA)) if BLOCK_DATA.startswith(MARKER, i)]


@settings(max_examples=50, deadline=None)
@given(payloads=PAYLOADS)
def test_written_and_read_it_is_the_same(payloads):
    letters = letters_of(payloads)
    assert read_all(archive_of(letters)) == (letters, [])


def test_an_oversized_row_travels_as_a_pointer():
    letter = letter_of(Rejection("f", 0, 99, None, Stage.READ, (Fault(Reason.RECORD_TOO_LARGE, "99 bytes"),)))
    letter = dataclasses.replace(letter, payload_uri="gs://d/oversized-x.bin", payload_sha256="ab")
    assert read_all(archive_of([letter])) == ([letter], [])


def test_same_letters_same_bytes_other_letters_another_marker():
    letters = letters_of([b"a", b"b"])
    assert archive_of(letters) == archive_of(letters)
    assert archive_of(letters)[-16:] != archive_of(letters[1:])[-16:]


def test_other_avro_readers_can_read_it():
    letters = letters_of([b"\x00\xff", b""])
    assert list(fastavro.reader(io.BytesIO(archive_of(letters)))) == [to_record(letter) for letter in letters]


def test_the_archive_has_several_blocks_to_damage():
    assert len(BLOCK_ENDS) > 3  # the header's marker, and one a block
    assert read_all(BLOCK_DATA) == (BLOCKS, [])


@pytest.mark.parametrize("cut", [1, 5, 16, 17, 1000])
def test_of_a_cut_file_the_good_blocks_are_used(cut):
    good, damage = read_all(BLOCK_DATA[:-cut])
    assert good == BLOCKS[: len(good)]
    assert 0 < len(good) < len(BLOCKS)
    assert damage == [ArchiveDamage(BLOCK_ENDS[-2], damage[0].what)]
    assert "ends inside a block" in damage[0].what


def damaged(at, flip=0xFF):
    data = bytearray(BLOCK_DATA)
    data[at] ^= flip
    return bytes(data)


@pytest.mark.parametrize("place", ["count", "size", "data", "marker"])
def test_after_damage_in_the_middle_later_blocks_are_still_read(place):
    start, end = BLOCK_ENDS[1], BLOCK_ENDS[2]
    at = {"count": start, "size": start + 2, "data": (start + end) // 2, "marker": end - 1}[place]
    good, damage = read_all(damaged(at))
    assert damage
    assert damage[0].offset == start
    assert [letter for letter in BLOCKS if letter in good] == good
    assert good[0] == BLOCKS[0]
    assert good[-1] == BLOCKS[-1]


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, len(archive_of(letters_of([b"abc" * 20, b"d", b"e" * 50]))) - 1), bit=st.integers(0, 7))
def test_no_flipped_bit_raises_or_changes_a_payload(at, bit):
    letters = letters_of([b"abc" * 20, b"d", b"e" * 50])
    data = bytearray(archive_of(letters))
    data[at] ^= 1 << bit
    good, _ = read_all(bytes(data))
    assert {letter.payload for letter in good} <= {letter.payload for letter in letters}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "the file is empty"),
        (b'{"a":1}\n', "not an Avro file"),
        (b"Obj\x01", "header is damaged"),
        (BLOCK_DATA[:40], "header is damaged"),
        (BLOCK_DATA[: BLOCK_ENDS[0] - 3], "header is damaged"),
        (b"Obj\x01" + b"\xff" * 30, "header is damaged"),
        (b"Obj\x01\x02\x16avro.schema" + b"\xfe\xff\x03" + b"[" * 32767 + b"\x00" * 20, "header is damaged"),
    ],
)
def test_what_is_no_archive_is_one_damage_at_its_start(data, says):
    good, damage = read_all(data)
    assert good == []
    assert [d.offset for d in damage] == [0]
    assert says in damage[0].what


def test_a_foreign_avro_file_is_named_as_such():
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}, [{"a": 1}])
    assert "not a dead-letter archive" in read_all(stream.getvalue())[1][0].what


def hostile(count, block, behind=b"abc"):
    """A valid header, then one block of our making."""
    packed = zlib.compress(block)[2:-4] + behind
    stream = io.BytesIO()
    for number in (count, len(packed)):
        fastavro.schemaless_writer(stream, {"type": "long"}, number)
    return BLOCK_DATA[: BLOCK_ENDS[0]] + stream.getvalue() + packed + MARKER


def test_a_hostile_count_or_length_ends_at_once():
    record = io.BytesIO()
    fastavro.schemaless_writer(record, PARSED_SCHEMA, to_record(BLOCKS[0]))
    good, damage = read_all(hostile(2**60, record.getvalue()))
    assert good == BLOCKS[:1]
    assert f"record 2 of {2**60}" in damage[0].what
    assert read_all(hostile(-5, b""))[1]
    assert read_all(hostile(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"))[1]  # a string of 2^62 bytes
    assert "left over" in read_all(hostile(1, record.getvalue() + b"x"))[1][0].what


def test_a_changed_payload_is_damage_though_avro_does_not_notice():
    record = io.BytesIO()
    fastavro.schemaless_writer(record, PARSED_SCHEMA, to_record(BLOCKS[0]) | {"payload": b"forged"})
    good, damage = read_all(hostile(1, record.getvalue()))
    assert good == []
    assert "does not match its sha256" in damage[0].what


def test_data_behind_the_packed_block_is_damage():
    assert read_all(hostile(0, b"", behind=b"abc"))[1] == []  # zlib's trailer, as fastavro leaves it
    assert "cannot be unpacked" in read_all(hostile(0, b"", behind=b"abcd"))[1][0].what


def test_the_next_marker_is_found_across_pieces(monkeypatch):
    start, end = BLOCK_ENDS[1], BLOCK_ENDS[2]
    expected = read_all(damaged(end - 1))
    for size in (64, 101):
        monkeypatch.setattr("pipeline.core.archive_reader._PIECE_BYTES", size)
        assert read_all(damaged(end - 1)) == expected
    assert expected[1][0].offset == start


@settings(max_examples=150, deadline=None)
@given(block=st.binary(max_size=60), count=st.integers(-3, 3))
def test_no_block_content_raises(block, count):
    good, damage = read_all(hostile(count, block))
    assert good == []
    assert damage or count == 0 or not block


@given(data=st.binary(max_size=100), bounds=st.tuples(st.integers(0, 100), st.integers(0, 100)))
def test_spilled_bytes_are_exactly_the_row_s(data, bounds):
    start, end = sorted(min(bound, len(data)) for bound in bounds)
    sink = io.BytesIO()
    digest = spill(io.BytesIO(data), start, length=end - start, sink=sink)
    assert sink.getvalue() == data[start:end]
    assert digest == hashlib.sha256(data[start:end]).hexdigest()


def test_a_spill_from_a_shrunken_file_is_a_storage_fault():
    with pytest.raises(OSError, match="ended 3 bytes before the end of a row of 10 bytes at byte 2"):
        spill(io.BytesIO(b"x" * 9), 2, length=10, sink=io.BytesIO())


def test_a_spill_holds_little_at_a_time():
    class Watched(io.BytesIO):
        largest = 0

        def read(self, size=-1):
            self.largest = max(self.largest, size if size >= 0 else 1 << 60)
            return super().read(size)

    source = Watched(bytes(5 << 20))
    spill(source, 0, length=5 << 20, sink=io.BytesIO())
    assert source.largest <= 1 << 20


def test_an_archive_of_an_earlier_release_is_read():
    golden = Path(__file__).parents[1] / "golden" / "archive_before_ordering_keys.avro"
    (letter,), damage = read_all(golden.read_bytes())
    assert damage == []
    assert (letter.source, letter.payload, letter.reason) == ("gs://b/f.jsonl#offset=8123", b'{"a":"1"}', "wrong_type")
    assert (letter.attributes, letter.ordering_key) == ((("k", "v"),), "")
