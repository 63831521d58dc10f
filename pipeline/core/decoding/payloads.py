"""Payloads of messages: each one a record of its own, decoded many at a time by the core that decodes files.

JSON payloads are joined into a block, so that the columnar path takes them; a payload may hold line ends. One that
is a line gets the verdict that it would get as the only line of a JSON lines file, except that nothing is blank: a
payload that is empty or white space is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipeline.core.decoding import DecoderSettings
from pipeline.core.decoding.assembly import batch_of_rows
from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.decoding.lines import BOM
from pipeline.core.messages import Message
from pipeline.core.reasons import Reason
from pipeline.core.records import DecodedBlock, Fault, Int64Array, RawBlock
from pipeline.core.schema import Schema
from pipeline.core.settings import InputSettings

_FEW_MESSAGES = (
    64  # of 20 features; so few are read sooner one by one: looking at columns costs 2 ms whatever they hold
)
_JOINED_BYTES = 64 << 20  # more payloads than this at once are decoded in several blocks

Faults = tuple[Fault, ...]


@dataclass(frozen=True)
class DecodedPayloads:
    """What came of some messages: each is a row of ``batch`` or a key of ``refused``.

    ``batch`` has the canonical columns, valid under the schema; ``rows`` (ascending, shape (batch.num_rows,)) says
    which message each came from; ``refused`` has the faults of the others.
    """

    batch: pa.RecordBatch
    rows: Int64Array
    refused: dict[int, Faults]


class PayloadDecoder(Protocol):
    """One format of payloads. Holds no state that changes a result; can be shared by threads."""

    def decode(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The fast path: many at once. Never raises for anything in the data."""
        ...

    def decode_each(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The same one by one: *defines* what is accepted and which faults a message has."""
        ...


class JsonPayloads:
    """A ``PayloadDecoder`` of JSON objects in UTF-8, with or without a BOM, on one line or many.

    What exactly is accepted is written in ``core.decoding.json_rows``.
    """

    def __init__(self, schema: Schema, settings: DecoderSettings) -> None:
        self._schema = schema
        self._max_bytes = settings.max_record_bytes
        self._decoder = JsonLinesDecoder(
            schema,
            unknown_features=settings.unknown_features,
            max_record_bytes=settings.max_record_bytes,
            max_depth=settings.max_depth,
        )

    def decode(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The valid messages as columns, and the faults of all others; the same as ``decode_each``."""
        if len(messages) <= _FEW_MESSAGES:
            return self.decode_each(messages)
        return self._decode(messages, self._decoder.decode)

    def decode_each(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The same by the row-wise oracle."""
        return self._decode(messages, self._decoder.decode_rows)

    def _decode(self, messages: Sequence[Message], decode: Callable[[RawBlock], DecodedBlock]) -> DecodedPayloads:
        payloads = [message.payload for message in messages]
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        refused = refused_unread(lengths, self._max_bytes)
        if not refused and lengths.sum() <= _JOINED_BYTES:
            return _of_block(decode(_joined(payloads, lengths)), np.arange(len(payloads)))
        left = [index for index in range(len(payloads)) if index not in refused]
        parts = [
            _of_block(decode(_joined([payloads[index] for index in part], lengths[part])), np.array(part, np.int64))
            for part in _parts(left, payloads)
        ]
        batches = [part.batch for part in parts]
        for part in parts:
            refused.update(part.refused)
        return DecodedPayloads(
            batch=pa.concat_batches(batches) if batches else batch_of_rows([], self._schema),
            rows=np.concatenate([part.rows for part in parts] or [np.zeros(0, np.int64)]),
            refused=refused,
        )


def make_payload_decoder(settings: InputSettings, schema: Schema, *, avro_schema: str = "") -> PayloadDecoder:
    """The decoder of payloads in ``settings.format`` (``json`` or ``avro``), judging them by ``schema``.

    ``avro_schema`` is the JSON text of the schema that avro payloads were written with. Raises UsageError where it
    cannot be used.
    """
    if settings.format == "avro":
        from pipeline.core.decoding.avro_datum import AvroPayloads

        return AvroPayloads(schema, settings.decoding, avro_schema)
    return JsonPayloads(schema, settings.decoding)


def refused_unread(lengths: Int64Array, max_bytes: int, *, empty: Reason = Reason.INVALID_JSON) -> dict[int, Faults]:
    """The faults of payloads that are refused for their length alone: empty ones, and those over ``max_bytes``."""
    refused: dict[int, Faults] = {}
    for index in np.flatnonzero((lengths == 0) | (lengths > max_bytes)).tolist():
        if not lengths[index]:
            refused[index] = (Fault(empty, "the message has no payload"),)
        else:
            message = f"the payload has {lengths[index]} bytes, the limit is {max_bytes}"
            refused[index] = (Fault(Reason.RECORD_TOO_LARGE, message),)
    return refused


def _joined(payloads: Sequence[bytes], lengths: Int64Array) -> RawBlock:
    """The payloads (none empty) as rows of one block; a BOM belongs to no row."""
    ends = np.cumsum(lengths) + np.arange(len(payloads))
    starts = ends - lengths
    data = b"\n".join(payloads)
    if not data.isascii():  # which takes a tenth of the time of looking for a BOM
        starts += [len(BOM) if payload.startswith(BOM) else 0 for payload in payloads]
    return RawBlock("", 0, data, starts, ends, bytes_read=len(data))


def _of_block(decoded: DecodedBlock, indices: Int64Array) -> DecodedPayloads:
    """Rows of a block as messages: row i is message ``indices[i]``."""
    if not decoded.rejections:
        return DecodedPayloads(decoded.batch, indices[decoded.rows], {})
    offsets = np.array([rejection.offset for rejection in decoded.rejections], np.int64)
    rows = np.searchsorted(decoded.block.starts, offsets)
    refused = zip(indices[rows].tolist(), decoded.rejections, strict=True)
    return DecodedPayloads(
        decoded.batch, indices[decoded.rows], {index: rejection.faults for index, rejection in refused}
    )


def _parts(indices: Sequence[int], payloads: Sequence[bytes]) -> list[list[int]]:
    """Runs of ``indices`` whose payloads are at most ``_JOINED_BYTES`` together (or one payload)."""
    sizes = accumulate(len(payloads[index]) for index in indices)
    parts: dict[int, list[int]] = {}
    for index, upto in zip(indices, sizes, strict=True):
        parts.setdefault((upto - 1) // _JOINED_BYTES, []).append(index)
    return list(parts.values())
