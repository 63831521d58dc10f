"""What travels between the steps of a streaming job, as bytes of our own making.

A running job keeps these bytes in its state across an in-place update, so that they are a contract: each begins with
the version of its format, and a newer release goes on reading the older ones. The runner sees bytes and integers
only, whose coders never change.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.core.archive import from_record, to_record
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import HeadraceError
from pipeline.core.json_fields import Fields, load_json
from pipeline.core.manifest import ShardEntry
from pipeline.core.messages import Message, WindowedChunk
from pipeline.core.windows import shard_as_json, shard_from_json

_PACK_VERSION, _LETTER_VERSION, _CHUNK_VERSION, _ENTRY_VERSION = 1, 1, 1, 1
_PACK = struct.Struct("<BI")  # version, messages
_MESSAGE = struct.Struct("<qqIIIH")  # publish time, event time; bytes of payload, id, ordering key; attributes
_ATTRIBUTE = struct.Struct("<II")
_CHUNK = struct.Struct("<BIIQQ")  # version, rows, records, origin, kind
_ENTRY = struct.Struct("<BQ")  # version, kind
_LETTER = struct.Struct("<BI")  # version, bytes of the JSON before the payload


def pack_messages(messages: Sequence[Message]) -> bytes:
    """Messages in a row; about 1 us each."""
    pieces: list[bytes] = [_PACK.pack(_PACK_VERSION, len(messages))]
    for message in messages:
        _append(pieces, message)
    return b"".join(pieces)


def _append(pieces: list[bytes], message: Message) -> None:
    message_id, key = _to_bytes(message.message_id), _to_bytes(message.ordering_key)
    sizes = (len(message.payload), len(message_id), len(key), len(message.attributes))
    pieces += (_MESSAGE.pack(message.publish_time_us, message.event_time_us, *sizes), message.payload, message_id, key)
    for name, value in message.attributes:
        name_bytes, value_bytes = _to_bytes(name), _to_bytes(value)
        pieces += (_ATTRIBUTE.pack(len(name_bytes), len(value_bytes)), name_bytes, value_bytes)


def count_messages(pack: bytes) -> int:
    """How many messages a pack holds. Raises HeadraceError for a pack of a later release."""
    version, count = _PACK.unpack_from(pack)
    _check_version("messages", version, _PACK_VERSION)
    return int(count)


def unpack_messages(pack: bytes) -> Iterator[Message]:
    """The messages of a pack, in order. Raises HeadraceError for a pack of a later release."""
    reader = _Reader(pack, _PACK.size)
    for _ in range(count_messages(pack)):
        publish, event, payload_bytes, id_bytes, key_bytes, count = reader.struct(_MESSAGE)
        payload, message_id, key = reader.take(payload_bytes), reader.text(id_bytes), reader.text(key_bytes)
        attributes = tuple(reader.attribute() for _ in range(count))
        yield Message(payload, attributes, message_id, publish, event, key)


class _Reader:
    """Bytes being read from the front."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return values

    def take(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "surrogatepass") if size else ""

    def attribute(self) -> tuple[str, str]:
        name_bytes, value_bytes = self.struct(_ATTRIBUTE)
        return self.text(name_bytes), self.text(value_bytes)


def encode_chunk(chunk: WindowedChunk, *, kind: int) -> bytes:
    """A chunk without its window and shard, which are the key that it travels under.

    ``kind`` (64 bits) stands for the size of windows and for how rows are encoded.
    """
    return _CHUNK.pack(_CHUNK_VERSION, chunk.rows, chunk.records, chunk.origin, kind) + chunk.framed


def decode_chunk(key: tuple[int, int], data: bytes, *, kind: int) -> WindowedChunk:
    """The reverse; ``key`` is (window start, shard). Raises HeadraceError for a chunk of a later release or other kind.

    Rows of two kinds in one shard, or in a window of another size, could not be read: better a job that stands still.
    """
    version, rows, records, origin, found = _CHUNK.unpack_from(data)
    _check_version("a chunk", version, _CHUNK_VERSION)
    _check_kind(found, kind)
    return WindowedChunk(key[0], key[1], rows, records, data[_CHUNK.size :], origin)


def framed_bytes(data: bytes) -> int:
    """How many bytes of frames an encoded chunk holds."""
    return len(data) - _CHUNK.size


def encode_letter(letter: DeadLetter) -> bytes:
    """A dead letter: what is said of it as JSON, then its payload as it is."""
    record = to_record(letter)
    payload = record.pop("payload")
    said = json.dumps(record | {"has_payload": payload is not None}, sort_keys=True).encode()
    return _LETTER.pack(_LETTER_VERSION, len(said)) + said + (payload or b"")


def decode_letter(data: bytes) -> DeadLetter:
    """The reverse. Raises HeadraceError for a letter of a later release."""
    version, said_bytes = _LETTER.unpack_from(data)
    _check_version("a dead letter", version, _LETTER_VERSION)
    start = _LETTER.size + said_bytes
    record = json.loads(data[_LETTER.size : start])
    has_payload = record.pop("has_payload")
    return from_record(record | {"payload": data[start:] if has_payload else None})


def encode_entry(entry: ShardEntry, *, kind: int) -> bytes:
    """A shard's entry in the manifest of its window; ``kind`` as for ``encode_chunk``."""
    return _ENTRY.pack(_ENTRY_VERSION, kind) + json.dumps(shard_as_json(entry), sort_keys=True).encode()


def decode_entry(data: bytes, *, kind: int) -> ShardEntry:
    """The reverse. Raises HeadraceError for an entry of a later release or other kind."""
    version, found = _ENTRY.unpack_from(data)
    _check_version("a shard's entry", version, _ENTRY_VERSION)
    _check_kind(found, kind)
    return shard_from_json(Fields(load_json(data[_ENTRY.size :], "entry"), "entry"))


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _check_kind(found: int, kind: int) -> None:
    if found != kind:
        raise HeadraceError(
            "this job was updated while rows of the job before it wait in its state, with another --window, --layout, "
            "--rows_per_record, schema or transform; update it again with what it had (nothing is lost), drain it, "
            "and start the changed job anew"
        )


def _check_version(what: str, version: int, known: int) -> None:
    if version != known:
        raise HeadraceError(
            f"{what} in the state of this job has format {version}, and this release reads {known}: "
            "an update to an older release cannot go on from here; update to the newer one again"
        )
