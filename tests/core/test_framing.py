"""Framing: golden bytes, equality with TensorFlow's own writer and reader, and a damage test per field."""

import io

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.framing import (
    CorruptRecordError,
    combine_crc32c,
    frame,
    length_crcs,
    mask,
    read_frames,
    scan_frames,
)

# Recipe: with tf.io.TFRecordWriter(path) as w: w.write(b"headrace"); w.write(b"")
GOLDEN_HEX = "0800000000000000ff86240f68656164726163657050a6b3000000000000000029039807d8ea82a2"
RECORDS = [b"headrace", b"", b"x" * 300]
# Byte offsets inside the framed RECORDS, by field, of the second record
FIELDS = {"length": 24, "length checksum": 33, "payload checksum": 37}


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def written_by_tensorflow(tf, path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def read_until_damage(data):
    """(payloads before the damage, the damage)."""
    good = []
    try:
        for _, payload in read_frames(io.BytesIO(data)):
            good.append(payload)
    except CorruptRecordError as damage:
        return good, damage
    raise AssertionError("no damage was found")


def everything(data, **options):
    return list(read_frames(io.BytesIO(data), **options))


@settings(max_examples=40, deadline=None)
@given(records=st.lists(st.binary(max_size=200), max_size=30))
def test_framing_then_reading_gives_the_records_and_their_offsets(records):
    data = bytes(frame(records))
    offsets, payloads = [], []
    for offset, payload in everything(data):
        offsets.append(offset)
        payloads.append(payload)
    assert payloads == records
    assert offsets == [sum(16 + len(r) for r in records[:i]) for i in range(len(records))]
    assert len(data) == sum(16 + len(r) for r in records)


@settings(max_examples=40, deadline=None)
@given(
    records=st.lists(st.binary(max_size=50), max_size=20),
    start=st.integers(0, 20),
    length=st.integers(0, 20),
    kind=st.sampled_from([pa.large_binary(), pa.binary()]),
)
def test_a_slice_of_an_arrow_array_frames_as_the_list_of_its_values(records, start, length, kind):
    array = pa.array(records, kind).slice(start, length)
    assert bytes(frame(array)) == bytes(frame(records[start : start + length]))


def test_same_bytes_as_tensorflow_writes(tf, tmp_path):
    records = [b"", b"a", bytes(range(256)) * 40, b"\x00" * 1000, *(bytes([i]) * i for i in range(50))]
    assert bytes(frame(records)) == written_by_tensorflow(tf, tmp_path / "ours", records)


def test_tensorflow_reads_what_we_frame(tf, tmp_path):
    (tmp_path / "file").write_bytes(frame(RECORDS))
    dataset = tf.data.TFRecordDataset(str(tmp_path / "file"))
    assert [record.numpy() for record in dataset] == RECORDS


def test_golden_bytes():
    data = bytes(frame([b"headrace", b""]))
    assert data.hex() == GOLDEN_HEX


def test_masked_crc_of_the_standard_check_value():
    crc = google_crc32c.value(b"123456789")
    assert crc == 0xE3069283  # RFC 3720, appendix B.4
    assert int(mask(crc)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_nothing_frames_to_nothing_and_reads_as_nothing():
    assert bytes(frame([])) == b""
    assert everything(b"") == []


@pytest.mark.parametrize(("field", "at"), FIELDS.items())
def test_a_flipped_bit_in_any_field_is_found_at_its_record(field, at):
    data = bytearray(frame(RECORDS))
    data[at] ^= 0x10
    good, damage = read_until_damage(bytes(data))
    assert good == RECORDS[:1]
    assert damage.offset == 24
    assert ("length" in damage.what) == field.startswith("length")


@settings(max_examples=60, deadline=None)
@given(bit=st.integers(0, 8 * len(frame(RECORDS)) - 1))
def test_every_flipped_bit_is_found_and_never_a_wrong_payload_returned(bit):
    data = bytearray(frame(RECORDS))
    data[bit // 8] ^= 1 << bit % 8
    good, _ = read_until_damage(bytes(data))
    assert good == RECORDS[: len(good)]


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 200, 305, 315])
def test_a_cut_file_names_the_record_that_the_cut_is_in(cut):
    data = bytes(frame(RECORDS))
    good, damage = read_until_damage(data[:-cut])
    assert "ends inside a record" in damage.what
    assert good == RECORDS[:2]
    assert damage.offset == 40


def test_gzip_is_recognised():
    with pytest.raises(CorruptRecordError, match="gzip"):
        everything(b"\x1f\x8b\x08\x00" + bytes(40))


def test_a_hostile_length_with_a_good_checksum_is_refused_or_a_cut():
    length = (1 << 62).to_bytes(8, "little")
    header = length + int(mask(google_crc32c.value(length))).to_bytes(4, "little")
    with pytest.raises(CorruptRecordError, match="over the limit"):
        everything(header + bytes(100))
    with pytest.raises(CorruptRecordError, match="ends inside"):
        everything(header + bytes(100), max_record_bytes=1 << 63)


def test_records_across_read_boundaries_and_short_reads():
    class Dribble(io.RawIOBase):
        """Gives at most 1 MiB a call, as a network stream may."""

        def __init__(self, data):
            self.inner = io.BytesIO(data)

        def read(self, size=-1):
            return self.inner.read(min(size, 1 << 20))

    records = [b"a" * (5 << 20), b"b" * 10, b"c" * (9 << 20), *[b"d" * 1000] * 5000]
    data = bytes(frame(records))
    blocks = list(scan_frames(Dribble(data)))
    assert [f.data[s:e] for f in blocks for s, e in zip(f.starts, f.ends, strict=True)] == records
    assert len(blocks) > 3


@settings(max_examples=50, deadline=None)
@given(first=st.binary(max_size=100), second=st.binary(max_size=300))
def test_combined_crc_is_the_crc_of_the_whole(first, second):
    crc = google_crc32c.value
    assert combine_crc32c(crc(first), crc(second), len(second)) == crc(first + second)


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 70_000), min_size=1, max_size=20))
def test_length_checksums_of_any_lengths_are_those_of_their_bytes(lengths):
    wanted = mask([google_crc32c.value(length.to_bytes(8, "little")) for length in lengths])
    assert length_crcs(np.array(lengths, np.int64)).tolist() == wanted.tolist()
