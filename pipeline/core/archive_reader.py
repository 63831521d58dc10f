"""Reading dead-letter archives, good or damaged: every good block is used and every damage is told.

The container is read by hand and bounded, because a library would obey a hostile file's own schema and sizes.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import fastavro

from pipeline.core.archive import EARLIER_SCHEMA, PARSED_SCHEMA, SCHEMA, from_record
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.text import printable

_MAGIC, _SYNC_BYTES, _HEADER_BYTES = b"Obj\x01", 16, 64 << 10
_PIECE_BYTES = 1 << 20
_READABLE = ((SCHEMA, PARSED_SCHEMA), (EARLIER_SCHEMA, fastavro.parse_schema(EARLIER_SCHEMA)))
_MAX_BLOCK_BYTES = 1 << 30  # unpacked; bounds the memory that a hostile archive can ask for


@dataclass(frozen=True, slots=True)
class ArchiveDamage:
    """A part of an archive that could not be read: from byte ``offset`` on, and what was found there."""

    offset: int
    what: str


def read_archive(stream: BinaryIO) -> Iterator[DeadLetter | ArchiveDamage]:
    """The dead letters of an archive in order, with an ``ArchiveDamage`` in the place of each part that is damaged.

    After damage, reading goes on at the next sync marker, so that all good blocks are used. ``stream`` must be
    seekable. A file that is no archive of ours is one damage at byte 0. Raises nothing but storage faults.
    """
    stream.seek(0)
    header = _read_header(stream.read(_HEADER_BYTES))
    if isinstance(header, str):
        yield ArchiveDamage(0, header)
        return
    offset: int | None = header.size_bytes
    while offset is not None:
        stream.seek(offset)
        block = _read_block(stream, header)
        if block is None:
            return
        what = block.what or (yield from _letters(block, header.schema))
        if what:
            yield ArchiveDamage(offset, what)
        offset = block.end if block.end is not None else _after_marker(stream, offset + 1, header.sync)


@dataclass(frozen=True, slots=True)
class _Header:
    size_bytes: int
    sync: bytes
    deflated: bool
    schema: Any


@dataclass(frozen=True, slots=True)
class _Block:
    """``count`` records as ``data``, unpacked; or ``what`` is wrong. ``end`` is None where that is not known."""

    count: int = 0
    data: bytes = b""
    end: int | None = None
    what: str = ""


def _read_header(data: bytes) -> _Header | str:
    """The header, or what is wrong with it. By hand: a library would obey whatever schema a hostile file brings."""
    if not data.startswith(_MAGIC):
        return "not an Avro file" if data else "the file is empty"
    try:
        metadata, at = _read_map(data, len(_MAGIC))
        schema = json.loads(metadata.get(b"avro.schema", b"null"))
    except (ValueError, IndexError, RecursionError):
        return "the Avro header is damaged or cut short"
    written = next((parsed for known, parsed in _READABLE if schema == known), None)
    if written is None:
        return "an Avro file, but not a dead-letter archive that this version of headrace can read"
    codec = metadata.get(b"avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        return f"compressed with {printable(codec, 40)}, but archives are 'deflate' or 'null'"
    sync = data[at : at + _SYNC_BYTES]
    if len(sync) < _SYNC_BYTES:
        return "the Avro header is damaged or cut short"
    return _Header(at + _SYNC_BYTES, sync, codec == b"deflate", written)


def _read_map(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """An Avro map of bytes at ``at``, and where it ends. Raises IndexError or ValueError for a damaged one."""
    found: dict[bytes, bytes] = {}
    count, at = _read_long(data, at)
    while count:
        if count < 0:  # then its size in bytes follows
            count, (_, at) = -count, _read_long(data, at)
        for _ in range(count):
            key, at = _read_bytes(data, at)
            found[key], at = _read_bytes(data, at)
        count, at = _read_long(data, at)
    return found, at


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a length of {length}")
    return data[at : at + length], at + length


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    """An Avro long (zigzag varint, up to 10 bytes) at ``at``, and where it ends."""
    value = shift = 0
    for place in range(at, at + 10):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return (value >> 1) ^ -(value & 1), place + 1
        shift += 7
    raise ValueError("a number of more than 10 bytes")


def _read_block(stream: BinaryIO, header: _Header) -> _Block | None:
    """The block at the stream's position; None at the end of the file."""
    start = stream.tell()
    head = stream.read(20)
    if not head:
        return None
    try:
        count, at = _read_long(head, 0)
        size, at = _read_long(head, at)
    except (IndexError, ValueError):
        return _Block(what="the file ends inside a block's head, or it is damaged")
    if count < 0 or not 0 <= size <= _MAX_BLOCK_BYTES:
        return _Block(what=f"a block of {count} records in {size} bytes cannot be right")
    stream.seek(start + at)
    packed, sync = _read_whole(stream, size), stream.read(_SYNC_BYTES)
    if len(packed) < size or len(sync) < _SYNC_BYTES:
        return _Block(what=f"the file ends inside a block of {size} bytes")
    if sync != header.sync:
        return _Block(what=f"no sync marker after a block of {size} bytes")
    data = _unpack(packed) if header.deflated else packed
    end = start + at + size + _SYNC_BYTES
    return _Block(end=end, what="a block cannot be unpacked") if data is None else _Block(count, data, end)


def _read_whole(stream: BinaryIO, size: int) -> bytes:
    """``size`` bytes, fewer only at the end; in pieces, so that a hostile size is not allocated before it is there."""
    pieces = []
    while size and (piece := stream.read(min(size, _PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _unpack(packed: bytes) -> bytes | None:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(packed, _MAX_BLOCK_BYTES)
    except zlib.error:
        return None
    # fastavro leaves the first 3 bytes of zlib's checksum behind the data
    return data if unpacker.eof and len(unpacker.unused_data) <= 3 else None


def _letters(block: _Block, schema: Any) -> Generator[DeadLetter, None, str]:
    """The dead letters of a block; returns what is wrong with the rest of it, or nothing."""
    records = io.BytesIO(block.data)
    resolved = None if schema is PARSED_SCHEMA else PARSED_SCHEMA
    for number in range(block.count):
        try:
            letter = from_record(fastavro.schemaless_reader(records, schema, resolved))
        except (EOFError, ValueError, LookupError, OverflowError, TypeError) as error:
            return f"record {number + 1} of {block.count} of a block is damaged: {printable(str(error), 100)}"
        yield letter
    return "bytes are left over at the end of a block" if records.tell() < len(block.data) else ""


def _after_marker(stream: BinaryIO, offset: int, marker: bytes) -> int | None:
    """Where the first ``marker`` at or after ``offset`` ends; None if there is none."""
    stream.seek(offset)
    window = b""
    while piece := stream.read(_PIECE_BYTES):
        window = window[1 - _SYNC_BYTES :] + piece
        found = window.find(marker)
        if found >= 0:
            return stream.tell() - len(window) + found + _SYNC_BYTES
    return None
