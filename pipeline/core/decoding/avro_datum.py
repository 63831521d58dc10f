r"""Avro payloads: a single datum each, binary or Avro's JSON, of a given schema; checked as JSON payloads are.

- The message attribute ``googclient_schemaencoding``, which a topic with a schema sets, says ``BINARY`` or ``JSON``;
  without it a payload is binary. (A replayed message carries it as ``orig_googclient_schemaencoding``.)
- A binary payload may begin with Avro's single-object header (``C3 01`` and the schema's CRC-64-AVRO) where that is
  the header of the given schema; other headers (such as a registry's magic byte and number, which say nothing
  without the registry) are not taken off, and the payload is refused.
- Bytes that are left over, a datum that is cut short, and whatever else the schema does not allow is ``invalid_avro``;
  a string that is no UTF-8 is ``invalid_utf8``. NaN and infinity are ``non_finite``, as everywhere.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np

from pipeline.core.decoding import DecoderSettings
from pipeline.core.decoding.assembly import batch_of_rows
from pipeline.core.decoding.avro_schema import Convert, WriterSchema, converter, load_writer_schema
from pipeline.core.decoding.json_rows import RowParser, RowValues
from pipeline.core.decoding.json_values import read_feature
from pipeline.core.decoding.lines import BOM
from pipeline.core.decoding.payloads import DecodedPayloads, Faults, refused_unread
from pipeline.core.errors import UsageError
from pipeline.core.messages import Message, own_attributes
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.schema import Feature, Schema
from pipeline.core.text import printable
from pipeline.core.validation import check_missing

ENCODING = "googclient_schemaencoding"
_SINGLE_OBJECT = b"\xc3\x01"
_HEADER_BYTES = 10


class AvroPayloads:
    """A ``PayloadDecoder`` of Avro datums, one by one (some 15 us each): there is no columnar path.

    ``avro_schema`` is the JSON text of the writer's schema. Raises UsageError where it cannot be used, or lacks a
    field that ``schema`` requires (or has others, with ``unknown_features="reject"``): every message would be refused.
    """

    def __init__(self, schema: Schema, settings: DecoderSettings, avro_schema: str) -> None:
        self._schema = schema
        self._max_bytes = settings.max_record_bytes
        self._writer = load_writer_schema(avro_schema)
        self._converters = {
            feature.name: converter(self._writer.fields[feature.name], feature)
            for feature in schema.features
            if feature.name in self._writer.fields
        }
        self._json = RowParser(
            schema,
            settings.unknown_features,
            settings.max_depth,
            unwrap=_Unwrap(self._writer.fields, self._converters),
        )
        _check_fields(self._writer, schema, strict=settings.unknown_features == "reject")

    def decode(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The valid messages as columns, and the faults of all others."""
        return self.decode_each(messages)

    def decode_each(self, messages: Sequence[Message]) -> DecodedPayloads:
        """The same."""
        lengths = np.fromiter((len(message.payload) for message in messages), np.int64, len(messages))
        refused = refused_unread(lengths, self._max_bytes, empty=Reason.INVALID_AVRO)
        accepted, rows = [], []
        for index, message in enumerate(messages):
            if index in refused:
                continue
            parsed = self._parse(message)
            if isinstance(parsed, dict):
                accepted.append(parsed)
                rows.append(index)
            else:
                refused[index] = parsed
        return DecodedPayloads(batch_of_rows(accepted, self._schema), np.array(rows, np.int64), refused)

    def _parse(self, message: Message) -> RowValues | Faults:
        encoding = dict(own_attributes(message)).get(ENCODING, "BINARY") if message.attributes else "BINARY"
        if encoding == "JSON":
            parsed = self._json.parse(message.payload.removeprefix(BOM))
            return tuple(parsed) if isinstance(parsed, list) else parsed
        datum = self._read(message.payload)
        return (datum,) if isinstance(datum, Fault) else self._values(datum)

    def _read(self, payload: bytes) -> dict[str, Any] | Fault:
        """The datum, or what is wrong with the bytes."""
        headed = payload.startswith(_SINGLE_OBJECT)
        ours = headed and payload[2:_HEADER_BYTES] == self._writer.fingerprint
        stream = io.BytesIO(payload)
        stream.seek(_HEADER_BYTES if ours else 0)
        try:
            datum: Any = fastavro.schemaless_reader(stream, self._writer.plain, None)
        except MemoryError:
            raise
        except UnicodeDecodeError as error:
            return Fault(Reason.INVALID_UTF8, f"a string of the datum is not UTF-8: {error.reason}")
        except Exception as error:  # whatever the library meets in the bytes
            what = printable(f"{type(error).__name__}: {error}", 200)
            return Fault(Reason.INVALID_AVRO, f"the payload is no datum of the schema: {what}{_other(headed, ours)}")
        left = len(payload) - stream.tell()
        if left or not isinstance(datum, dict):
            return Fault(Reason.INVALID_AVRO, f"{left} bytes are left over after the datum{_other(headed, ours)}")
        return datum

    def _values(self, datum: dict[str, Any]) -> RowValues | Faults:
        values: RowValues = {}
        faults: list[Fault] = []
        for feature in self._schema.features:
            convert = self._converters.get(feature.name)
            if convert is None or feature.name not in datum:
                faults += check_missing(feature)
                continue
            values[feature.name], found = read_feature(convert(datum[feature.name]), feature)
            faults += found
        return tuple(faults) if faults else values


def _other(headed: bool, ours: bool) -> str:
    return "; it begins like a single object of another schema" if headed and not ours else ""


class _Unwrap:
    """What Avro's JSON has for a value: a union's as ``{"branch": value}``, bytes as a string of characters to 255."""

    def __init__(self, fields: dict[str, Any], converters: dict[str, Convert]) -> None:
        self._fields, self._converters = fields, converters

    def __call__(self, given: Any, feature: Feature) -> Any:
        if feature.name not in self._fields:
            return given
        return self._converters[feature.name](_unwrapped(given, self._fields[feature.name]))


def _unwrapped(given: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return _unwrapped_union(given, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return _unwrapped(given, kind)
    if kind == "array" and isinstance(given, list):
        return [_unwrapped(item, schema["items"]) for item in given]
    if kind in ("bytes", "fixed") and isinstance(given, str):
        try:
            return given.encode("latin-1")
        except UnicodeEncodeError:
            return None
    return given


def _unwrapped_union(given: Any, branches: list[Any]) -> Any:
    pairs = getattr(given, "pairs", None)
    if pairs is None or len(pairs) != 1:
        return given
    wanted, value = pairs[0]
    for branch in branches:
        named = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        if wanted in (named, str(named).rpartition(".")[2]):
            return _unwrapped(value, branch)
    return given


def _check_fields(writer: WriterSchema, schema: Schema, *, strict: bool) -> None:
    names = {feature.name for feature in schema.features}
    missing = sorted(f.name for f in schema.features if f.required and f.name not in writer.fields)
    unknown = sorted(set(writer.fields) - names) if strict else []
    if missing:
        raise UsageError(f"the Avro schema has no field {', '.join(missing)}, which the schema requires")
    if unknown:
        raise UsageError(
            f"the Avro schema has the fields {', '.join(unknown)}, which the schema does not have; add them, or give "
            "--unknown_features=ignore"
        )
