"""The Avro schema that payloads were written with: what of it can be read safely, and how its values become features.

A value becomes a feature's by this table; it is then checked as a JSON value is (``core.decoding.json_values``).

| Avro                                          | INT                  | FLOAT   | BYTES                             |
|-----------------------------------------------|----------------------|---------|-----------------------------------|
| int, long                                     | itself               | itself  | refused                           |
| float, double                                 | where it is integral | itself  | refused                           |
| boolean                                       | with a bool_domain   | refused | refused                           |
| string, enum; uuid                            | refused              | refused | UTF-8                             |
| bytes, fixed                                  | refused              | refused | itself                            |
| timestamp-millis/-micros/-nanos (and local-)  | the number stored    | same    | RFC 3339 (local-: without offset) |
| date                                          | days since 1970      | same    | 2013-01-31                        |
| time-millis/-micros                           | the number stored    | same    | 10:00:00.000001                   |
| decimal                                       | where it is integral | nearest | as written, 1.50                  |
| array of these                                | a list               | a list  | a list                            |
| null                                          | null                 | null    | null                              |
| map, record                                   | refused              | refused | refused                           |

A union is what its branch is; where two branches would be read differently from one kind of value (a date and a plain
int), it is the value stored. Fields that the schema of the features does not name are read over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro.schema

from pipeline.core.decoding.json_values import BigNumber, Odd
from pipeline.core.errors import UsageError
from pipeline.core.event_times import rfc3339
from pipeline.core.schema import Feature, Kind
from pipeline.core.text import printable

Convert = Callable[[Any], Any]
"""Makes of a value as Avro stores it one as JSON would have it."""

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PYTHON = {
    "null": type(None),
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("bytes", "fixed"), bytes),
    **dict.fromkeys(("string", "enum"), str),
    **dict.fromkeys(("map", "record"), dict),
    "array": list,
}
_STAMPS = {"timestamp-millis": (1000, 1), "timestamp-micros": (1, 1), "timestamp-nanos": (1, 1000)}
# Microseconds are the number times the first over the second.
_SECONDS = {"time-millis": 1000, "time-micros": 1_000_000}
_EPOCH = date(1970, 1, 1)
_LEAST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH.toordinal(), date.max.toordinal() - _EPOCH.toordinal()
_MAX_DECIMAL_DIGITS = 400


@dataclass(frozen=True)
class WriterSchema:
    """A record schema. ``plain`` is what fastavro reads with: no logical types, so that no value fails to convert."""

    plain: Any
    fields: dict[str, Any]
    fingerprint: bytes
    """CRC-64-AVRO of the parsing canonical form, 8 bytes little-endian, as in a single-object header."""


def load_writer_schema(text: str) -> WriterSchema:
    """The schema in ``text`` (JSON). Raises UsageError for one that is no record, or that no payload is safe with."""
    try:
        schema = json.loads(text)
        expanded = fastavro.schema.expand_schema(schema)
        plain = fastavro.schema.parse_schema(_without_logical_types(schema))
        canonical = fastavro.schema.to_parsing_canonical_form(schema)
    except RecursionError:
        raise UsageError("the Avro schema is nested too deeply") from None
    except Exception as error:
        message = printable(f"{type(error).__name__}: {error}", 300)
        raise UsageError(f"the Avro schema cannot be read: {message}") from error
    if not isinstance(expanded, dict) or expanded.get("type") != "record":
        raise UsageError("the Avro schema must be a record: its fields are the features")
    _check_safe(expanded)
    fields = {field["name"]: field["type"] for field in expanded["fields"]}
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
    return WriterSchema(plain, fields, fingerprint)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "scale", "precision", "default")}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical_types(kept[key])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_without_logical_types(field) for field in kept["fields"]]
    return kept


def _check_safe(schema: Any) -> int:
    """The fewest bytes that a value takes. Raises UsageError where a few bytes could make a value without bounds."""
    if isinstance(schema, list):
        return 1 + min(map(_check_safe, schema), default=0)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return _check_safe(kind)
    if kind == "record":
        return sum(_check_safe(field["type"]) for field in schema["fields"])
    if kind == "array":
        if not _check_safe(schema["items"]):
            raise UsageError(
                "the Avro schema has an array whose items take no bytes: a payload of a few bytes could hold any number"
            )
        return 1
    if kind == "map":
        _check_safe(schema["values"])
        return 1
    if kind in ("fixed", "enum"):
        return int(schema["size"]) if kind == "fixed" else 1
    if kind not in _PRIMITIVES:
        raise UsageError(
            f"the Avro schema refers to {printable(str(kind), 80)!r} inside itself: payloads could nest without end"
        )
    return {"null": 0, "float": 4, "double": 8}.get(kind, 1)


def converter(schema: Any, feature: Feature) -> Convert:
    """How values of the (expanded) type ``schema`` become values of ``feature``."""
    if isinstance(schema, list):
        return _union_converter(schema, feature)
    if not isinstance(schema, dict):
        return _as_is
    kind, logical = schema["type"], schema.get("logicalType", "")
    if isinstance(kind, (dict, list)):
        return converter(kind, feature)
    if kind == "array":
        return _Each(converter(schema["items"], feature))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _AsDecimal(int(schema.get("precision", 0)), int(schema.get("scale", 0)), feature.kind is Kind.BYTES)
    if feature.kind is not Kind.BYTES:
        return _as_is
    if kind == "fixed" and logical == "uuid":
        return _as_uuid
    stamp = logical.removeprefix("local-")
    if kind == "long" and stamp in _STAMPS:
        return _AsStamp(*_STAMPS[stamp], local=logical != stamp)
    if kind == "int" and logical == "date":
        return _as_date
    if kind in ("int", "long") and logical in _SECONDS:
        return _AsTime(_SECONDS[logical])
    return _as_is


def _union_converter(branches: list[Any], feature: Feature) -> Convert:
    by_type: dict[type, set[Convert]] = {}
    for branch in branches:
        by_type.setdefault(_PYTHON.get(_kind_of(branch), dict), set()).add(converter(branch, feature))
    chosen = {found: next(iter(ways)) for found, ways in by_type.items() if len(ways) == 1}
    return _ByType(tuple(sorted(chosen.items(), key=_type_name)))


def _kind_of(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else _kind_of(kind)


def _type_name(item: tuple[type, Convert]) -> str:
    return item[0].__name__


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _ByType:
    ways: tuple[tuple[type, Convert], ...]

    def __call__(self, value: Any) -> Any:
        for kind, convert in self.ways:
            if type(value) is kind:
                return convert(value)
        return value


@dataclass(frozen=True)
class _Each:
    convert: Convert

    def __call__(self, value: Any) -> Any:
        return [self.convert(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class _AsDecimal:
    precision: int
    scale: int
    as_text: bool

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, bytes):
            return value
        digits = self.precision or _MAX_DECIMAL_DIGITS
        unscaled = int.from_bytes(value, "big", signed=True) if len(value) <= _MAX_DECIMAL_DIGITS else 10**digits
        if abs(unscaled) >= 10**digits:
            return Odd(f"a decimal of more than {digits} digits")
        sign, text = int(unscaled < 0), str(abs(unscaled))
        number = format(Decimal((sign, tuple(map(int, text)), -self.scale)), "f")
        return number if self.as_text else BigNumber(number)


@dataclass(frozen=True)
class _AsStamp:
    times: int
    over: int
    local: bool

    def __call__(self, value: Any) -> Any:
        if type(value) is not int:
            return value
        text = rfc3339(value * self.times // self.over)
        if text is None:
            return Odd(f"the timestamp {value}, which is in no year from 1 to 9999")
        return text.removesuffix("Z") if self.local else text


@dataclass(frozen=True)
class _AsTime:
    per_second: int

    def __call__(self, value: Any) -> Any:
        if type(value) is not int:
            return value
        if not 0 <= value < 86_400 * self.per_second:
            return Odd(f"the time {value}, which no day has")
        text: str = (rfc3339(value * (1_000_000 // self.per_second)) or "")[11:].removesuffix("Z")
        return text


def _as_date(value: Any) -> Any:
    if type(value) is not int:
        return value
    if not _LEAST_DAY <= value <= _LAST_DAY:
        return Odd(f"the date {value}, which is in no year from 1 to 9999")
    return (_EPOCH + timedelta(days=value)).isoformat()


def _as_uuid(value: Any) -> Any:
    return str(UUID(bytes=value)) if isinstance(value, bytes) and len(value) == 16 else value
