"""Avro payloads: values by the table, checks and reasons as for JSON, and no bytes that do more than be refused."""

from __future__ import annotations

import io
import json
import random
from datetime import date, datetime, time, timezone
from decimal import Decimal
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.decoding import DecoderSettings
from pipeline.core.decoding.avro_datum import ENCODING, AvroPayloads
from pipeline.core.decoding.avro_schema import load_writer_schema
from pipeline.core.decoding.payloads import JsonPayloads, make_payload_decoder
from pipeline.core.errors import UsageError
from pipeline.core.messages import make_message
from pipeline.core.reasons import Reason
from pipeline.core.schema import Feature
from pipeline.core.settings import InputSettings
from tests.core.decoding.json_cases import BYTES, CASES_SCHEMA, FLOAT, INT, one, schema_of
from tests.core.decoding.test_payloads import verdicts

FIELDS = [
    {"name": "a", "type": ["null", "long", "string"]},
    {"name": "x", "type": ["null", "double"]},
    {"name": "s", "type": ["null", "string"]},
    {"name": "l", "type": ["null", {"type": "array", "items": ["null", "double"]}]},
    {"name": "d", "type": ["null", {"type": "enum", "name": "Colour", "symbols": ["red", "green", "blue"]}]},
    {"name": "z", "type": {"type": "map", "values": "long"}},
]
WRITER = {"type": "record", "name": "Row", "fields": FIELDS}
DECODER = AvroPayloads(CASES_SCHEMA, DecoderSettings(), json.dumps(WRITER))


def written(value, schema=WRITER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def row(**values):
    return dict.fromkeys("axsld") | {"z": {}} | values


def message_of(payload: bytes, encoding: str | None = None):
    attributes = {ENCODING: encoding} if encoding else {}
    return make_message(payload, attributes, message_id="1", publish_time_us=0, event_time_us=0)


def decoded(*payloads: bytes, decoder=DECODER, encoding=None):
    return decoder.decode([message_of(payload, encoding) for payload in payloads])


def faults_of(payload: bytes, **given):
    result = decoded(payload, **given)
    return next(iter(result.refused.values()), ())


ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(st.characters(codec="utf-8"), max_size=4),
        "l": st.none() | st.lists(st.none() | st.floats(-9, 9), max_size=4),
        "d": st.none() | st.sampled_from(["red", "green", "blue"]),
    }
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, max_size=6))
def test_a_datum_has_the_verdict_of_the_same_values_in_json(rows):
    avro = decoded(*(written(row(**values)) for values in rows))
    as_json = [message_of(json.dumps(values).encode()) for values in rows]
    same = JsonPayloads(CASES_SCHEMA, DecoderSettings()).decode(as_json)
    assert verdicts(avro, len(rows)) == verdicts(same, len(rows))


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_binary_and_json_encoding_are_the_same(values):
    stream = io.StringIO()
    fastavro.json_writer(stream, fastavro.parse_schema(WRITER), [row(**values)])
    by_text = decoded(stream.getvalue().encode(), encoding="JSON")
    assert verdicts(by_text, 1) == verdicts(decoded(written(row(**values))), 1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"a": 1}, None),
        ({"a": None}, Reason.NULL_FEATURE),
        ({"a": "1"}, Reason.WRONG_TYPE),
        ({"a": 1, "x": float("nan")}, Reason.NON_FINITE),
        ({"a": 1, "x": float("inf")}, Reason.NON_FINITE),
        ({"a": 1, "x": 1e300}, Reason.FLOAT_OVERFLOW),
        ({"a": 1, "l": [1.0, 2.0]}, Reason.TOO_FEW_VALUES),
        ({"a": 1, "l": [1.0, None, 3.0]}, Reason.NULL_FEATURE),
        ({"a": 1, "l": []}, Reason.TOO_FEW_VALUES),
        ({"a": 1, "d": "blue"}, Reason.NOT_IN_DOMAIN),
    ],
)
def test_reasons_are_those_of_json(values, reason):
    found = faults_of(written(row(**values)))
    assert [fault.reason for fault in found] == ([reason] if reason else [])


GOOD = written(row(a=5, s="text", l=[1.0, 2.0, 3.0], d="red"))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", Reason.INVALID_AVRO),
        (GOOD + b"\0", Reason.INVALID_AVRO),
        (GOOD + GOOD, Reason.INVALID_AVRO),
        (b"\x08" + GOOD, Reason.INVALID_AVRO),
        (b'{"a":1}', Reason.INVALID_AVRO),
        (b"Obj\x01", Reason.INVALID_AVRO),
        (b"\0\0\0\0\x05" + GOOD, Reason.INVALID_AVRO),
        (b"\xff" * 100, Reason.INVALID_AVRO),
        (GOOD.replace(b"text", b"t\xffxt"), Reason.INVALID_UTF8),
    ],
)
def test_what_is_no_datum_is_refused(payload, reason):
    (fault,) = faults_of(payload)
    assert fault.reason is reason
    assert len(fault.message) < 400


def test_a_datum_cut_anywhere_is_refused():
    for size in range(len(GOOD)):
        (fault, *_) = faults_of(GOOD[:size])
        assert fault.reason in {Reason.INVALID_AVRO, Reason.INVALID_UTF8}


@pytest.mark.parametrize("seed", range(3))
def test_no_bytes_do_more_than_be_refused(seed):
    rng = random.Random(f"avro {seed}")
    payloads = []
    for _ in range(1000):
        data = bytearray(GOOD if rng.random() < 0.8 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        payloads.append(bytes(data))
    for encoding in (None, "JSON"):
        verdicts(decoded(*payloads, encoding=encoding), 1000)


def test_an_empty_payload_is_said_to_be_empty():
    assert faults_of(b"")[0].message == "the message has no payload"
    assert (
        faults_of(
            b"x" * 30, decoder=AvroPayloads(CASES_SCHEMA, DecoderSettings(max_record_bytes=20), json.dumps(WRITER))
        )[0].reason
        is Reason.RECORD_TOO_LARGE
    )


def test_a_single_object_header_of_the_schema_is_taken_off_and_no_other():
    # The fingerprint of "int" in the Avro specification's test data, 0x7275d51a3f395c8f, little-endian.
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    decoder = AvroPayloads(schema_of(one("a", INT, required=True)), DecoderSettings(), json.dumps(schema))
    header = b"\xc3\x01" + load_writer_schema(json.dumps(schema)).fingerprint
    assert decoded(header + b"\x0a", decoder=decoder).batch.to_pylist() == [{"a": 5}]
    (fault,) = faults_of(b"\xc3\x01" + bytes(8) + b"\x0a", decoder=decoder)
    assert fault.message.endswith("single object of another schema")
    assert decoded(b"\xc3\x01", decoder=decoder).batch.to_pylist() == [{"a": -98}]  # a datum that looks like a header


def test_the_encoding_of_a_replayed_message_is_the_first_one_s():
    payload = b'{"a":{"long":1},"x":null,"s":null,"l":null,"d":null,"z":{}}'
    carried = {"dlq_id": "0" * 64, "dlq_attempt": "1", f"orig_{ENCODING}": "JSON"}
    message = make_message(payload, carried, message_id="1", publish_time_us=0, event_time_us=0)
    assert DECODER.decode([message]).batch.num_rows == 1


MOMENT = datetime(2013, 1, 31, 10, 0, 0, 250_000, tzinfo=timezone.utc)
LOGICAL = [
    ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, INT, 1_359_626_400_250),
    ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, BYTES, b"2013-01-31T10:00:00.250000Z"),
    ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, BYTES, b"2013-01-31T10:00:00.250000Z"),
    (
        {"type": "long", "logicalType": "timestamp-nanos"},
        1_359_626_400_250_000_999,
        BYTES,
        b"2013-01-31T10:00:00.250000Z",
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        1_359_626_400_250_000,
        BYTES,
        b"2013-01-31T10:00:00.250000",
    ),
    ({"type": "int", "logicalType": "date"}, date(2013, 1, 31), INT, 15_736),
    ({"type": "int", "logicalType": "date"}, date(2013, 1, 31), BYTES, b"2013-01-31"),
    ({"type": "int", "logicalType": "time-millis"}, time(10, 0, 1), BYTES, b"10:00:01"),
    ({"type": "long", "logicalType": "time-micros"}, time(10, 0, 0, 1), BYTES, b"10:00:00.000001"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-1.50"), FLOAT, -1.5),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-1.50"), BYTES, b"-1.50"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("7.00"), INT, 7),
    ({"type": "string", "logicalType": "uuid"}, UUID(int=5), BYTES, str(UUID(int=5)).encode()),
    (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        UUID(int=5).bytes,
        BYTES,
        str(UUID(int=5)).encode(),
    ),
    ("bytes", b"\xff\0", BYTES, b"\xff\0"),
    ({"type": "fixed", "name": "F", "size": 2}, b"\xff\0", BYTES, b"\xff\0"),
    ("float", 0.5, FLOAT, 0.5),
    ("double", 3.0, INT, 3),
    (["null", {"type": "int", "logicalType": "date"}], date(2013, 1, 31), BYTES, b"2013-01-31"),
    ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [date(2013, 1, 31)], BYTES, b"2013-01-31"),
]


def with_field(kind, feature: Feature) -> tuple[AvroPayloads, dict]:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    return AvroPayloads(schema_of(feature), DecoderSettings(), json.dumps(schema)), schema


@pytest.mark.parametrize(("kind", "value", "wanted", "expected"), LOGICAL)
def test_values_are_converted_by_the_table(kind, value, wanted, expected):
    decoder, schema = with_field(kind, one("v", wanted))
    found = decoded(written({"v": value}, schema), decoder=decoder)
    assert found.refused == {}
    assert found.batch.column("v").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("kind", "stored", "feature", "reason"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, ("long", 2**62), BYTES, Reason.WRONG_TYPE),
        ({"type": "int", "logicalType": "date"}, ("int", 2**31 - 1), BYTES, Reason.WRONG_TYPE),
        ({"type": "int", "logicalType": "time-millis"}, ("int", 86_400_000), BYTES, Reason.WRONG_TYPE),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, ("bytes", b"\x7f"), FLOAT, Reason.WRONG_TYPE),
        ({"type": "bytes", "logicalType": "decimal"}, ("bytes", b"\x7f" * 7_000_000), FLOAT, Reason.WRONG_TYPE),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            ("bytes", b"\x01"),
            INT,
            Reason.WRONG_TYPE,
        ),
        ("boolean", ("boolean", True), INT, Reason.WRONG_TYPE),
        ("double", ("double", 1.5), INT, Reason.WRONG_TYPE),
        ("bytes", ("bytes", b"\xff"), INT, Reason.WRONG_TYPE),
        ({"type": "map", "values": "long"}, ({"type": "map", "values": "long"}, {"a": 1}), INT, Reason.WRONG_TYPE),
    ],
)
def test_values_that_no_feature_can_hold_are_refused(kind, stored, feature, reason):
    decoder, _ = with_field(kind, one("v", feature))
    plain = {"type": "record", "name": "R", "fields": [{"name": "v", "type": stored[0]}]}
    (fault,) = faults_of(written({"v": stored[1]}, plain), decoder=decoder)
    assert (fault.reason, fault.feature) == (reason, "v")
    assert len(fault.message) < 200


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "cannot be read"),
        ('"long"', "must be a record"),
        ('{"type":"record","name":"R","fields":[{"name":"v","type":"nonsense"}]}', "cannot be read"),
        (
            '{"type":"record","name":"R","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","R"]}]}',
            "nest without end",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"v","type":{"type":"array","items":"null"}}]}',
            "items take no bytes",
        ),
        ("[" * 100_000, "cannot be read|nested too deeply"),
        (
            '{"type":"record","name":"R","fields":[{"name":"w","type":"int"}]}',
            "has no field v, which the schema requires",
        ),
    ],
)
def test_a_schema_that_no_payload_is_safe_with_is_refused_at_start(schema, says):
    with pytest.raises(UsageError, match=says):
        AvroPayloads(schema_of(one("v", INT, required=True)), DecoderSettings(), schema)


def test_fields_that_the_schema_lacks_are_refused_at_start_where_that_is_asked():
    strict = DecoderSettings(unknown_features="reject")
    with pytest.raises(UsageError, match="has the fields z, which the schema does not have"):
        AvroPayloads(CASES_SCHEMA, strict, json.dumps(WRITER))


def test_the_decoder_is_chosen_by_the_format():
    avro = InputSettings("avro", b"")
    assert isinstance(make_payload_decoder(avro, CASES_SCHEMA, avro_schema=json.dumps(WRITER)), AvroPayloads)
    assert isinstance(make_payload_decoder(InputSettings("json", b""), CASES_SCHEMA), JsonPayloads)
