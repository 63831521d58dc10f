"""Compressed shards: what goes in comes out, damage is told, and TensorFlow reads them."""

from __future__ import annotations

import io
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.compression import (
    COMPRESSIONS,
    CompressedDataError,
    Compression,
    Decompressed,
    can_be_joined,
    compressor,
)
from pipeline.core.framing import frame

PACKED = st.sampled_from(["gzip", "zlib"])


def squeeze(data: bytes, compression: Compression, pieces: int = 1) -> bytes:
    squeezing = compressor(compression)
    step = max(len(data) // pieces, 1)
    cuts = [squeezing.compress(memoryview(data[at : at + step])) for at in range(0, len(data), step)]
    return b"".join([*map(bytes, cuts), squeezing.flush()])


def read_all(data: bytes, compression: Compression, size: int) -> bytes:
    reader, pieces = Decompressed(io.BytesIO(data), compression), []
    while piece := reader.read(size):
        pieces.append(piece)
        assert len(piece) <= size
    return b"".join(pieces)


@given(st.binary(max_size=5000), st.sampled_from(COMPRESSIONS), st.integers(1, 7), st.integers(1, 3000))
def test_what_goes_in_comes_out(data: bytes, compression: Compression, pieces: int, size: int) -> None:
    assert read_all(squeeze(data, compression, pieces), compression, size) == data


@given(st.lists(st.binary(max_size=500), max_size=4), st.integers(1, 3000))
def test_joined_gzip_members_are_one_stream(parts: list[bytes], size: int) -> None:
    assert can_be_joined("gzip")
    assert read_all(b"".join(squeeze(part, "gzip") for part in parts), "gzip", size) == b"".join(parts)


@given(PACKED, st.binary(min_size=50, max_size=2000), st.data())
def test_a_cut_stream_is_told(compression: Compression, data: bytes, draw: st.DataObject) -> None:
    packed = squeeze(data, compression)
    cut = draw.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(CompressedDataError):
        read_all(packed[:cut], compression, 1000)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_foreign_bytes_are_told(compression: Compression) -> None:
    with pytest.raises(CompressedDataError, match="cannot be decompressed"):
        read_all(b"not compressed at all", compression, 1000)


def test_a_bomb_is_read_in_bounded_pieces() -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    reader = Decompressed(io.BytesIO(bomb), "zlib")
    assert len(reader.read(1000)) == 1000


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_the_same_bytes_every_time(compression: Compression) -> None:
    assert squeeze(b"flights" * 999, compression) == squeeze(b"flights" * 999, compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_it(compression: Compression, tmp_path) -> None:
    import tensorflow as tf

    records = [bytes([n]) * n for n in range(100)]
    path = tmp_path / "shard"
    members = 2 if can_be_joined(compression) else 1
    path.write_bytes(squeeze(bytes(frame(records)), compression) * members)
    kind = "" if compression == "none" else compression.upper()
    assert list(tf.data.TFRecordDataset(str(path), compression_type=kind).as_numpy_iterator()) == records * members


def test_tensorflow_reads_only_the_first_of_joined_zlib_streams(tmp_path) -> None:
    """Why ``can_be_joined`` says no: rows would be lost in training without a word."""
    import tensorflow as tf

    path = tmp_path / "shard"
    path.write_bytes(squeeze(bytes(frame([b"a"])), "zlib") + squeeze(bytes(frame([b"b"])), "zlib"))
    assert not can_be_joined("zlib")
    assert list(tf.data.TFRecordDataset(str(path), compression_type="ZLIB").as_numpy_iterator()) == [b"a"]
