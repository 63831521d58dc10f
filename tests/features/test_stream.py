"""Batches of messages: every message is a row of one chunk or refused, and rows are what a batch task makes of them."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace

import fastavro
import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.errors import UsageError
from pipeline.core.framing import scan_frames
from pipeline.core.messages import Message, StreamSettings, letter_of
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault, Split, Task
from pipeline.core.settings import BuildSettings, InputSettings
from pipeline.core.windows import NEVER_CLOSED, is_late, window_start
from pipeline.features.artefact import load_artefact
from pipeline.features.build import Encoder, decode_task
from pipeline.features.layouts import make_layout
from pipeline.features.preprocessing import preprocessing_fn_of
from pipeline.features.spec import parse_features
from pipeline.features.stream import MessageProcessor, Processed
from pipeline.features.transformer import IdentityTransformer, Transformer
from tests.features.helpers import analyse

PROTO = text_format.Parse(
    """
    feature { name: "n" type: INT presence { min_fraction: 1 } shape { } }
    feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape { } }
    feature { name: "k" type: BYTES presence { min_fraction: 1 } shape { } }
    feature { name: "v" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 2 } } }
    feature { name: "t" type: BYTES presence { min_fraction: 1 } shape { } }
    """,
    schema_pb2.Schema(),
)
INPUT = InputSettings("json", PROTO.SerializeToString(deterministic=True))
SCHEMA = INPUT.load_schema()
SETTINGS = StreamSettings(INPUT, "projects/p/subscriptions/s", window_seconds=60, allowed_lateness_seconds=120)
LAYOUTS = ("rows", "packed", "blocks")
NOON = 1_700_000_000 // 60 * 60
"""A whole minute, in seconds since 1970."""


def payload_of(n: int, /, **changes) -> bytes:
    row = {"n": n, "x": n / 4, "k": f"key {n % 5}", "v": [n, -n], "t": f"2023-11-14T22:{n % 60:02d}:00Z"}
    return json.dumps(row | changes).encode()


def messages_of(payloads, *, second=lambda n: NOON) -> list[Message]:
    return [
        Message(payload, (), f"m{n}", NOON * 1_000_000, second(n) * 1_000_000 + n) for n, payload in enumerate(payloads)
    ]


def processor(transformer=None, **changes) -> MessageProcessor:
    return MessageProcessor(replace(SETTINGS, **changes), transformer=transformer or IdentityTransformer(SCHEMA))


def records_of(framed: bytes) -> list[bytes]:
    return [
        frames.data[start:end]
        for frames in scan_frames(io.BytesIO(framed))
        for start, end in zip(frames.starts, frames.ends, strict=True)
    ]


def values_of(example: tf.train.Example) -> dict[str, list]:
    kinds = ("int64_list", "float_list", "bytes_list")
    return {
        name: list(next(getattr(feature, kind).value for kind in kinds if feature.HasField(kind)))
        for name, feature in example.features.feature.items()
    }


def rows_in(record: bytes, count: int) -> list[tuple]:
    """The rows of a record of any layout."""
    values = values_of(tf.train.Example.FromString(record))
    return [
        tuple(
            sorted(
                (name, tuple(found[row * len(found) // count : (row + 1) * len(found) // count]))
                for name, found in values.items()
            )
        )
        for row in range(count)
    ]


def rows_of(processed: Processed, rows_per_record: int) -> list[tuple]:
    """All rows written; fails unless chunks say truly how many rows and records they hold."""
    rows = []
    for chunk in processed.chunks:
        records = records_of(chunk.framed)
        assert len(records) == chunk.records > 0
        counts = [min(rows_per_record, chunk.rows - at * rows_per_record) for at in range(len(records))]
        assert sum(counts) == chunk.rows
        for record, count in zip(records, counts, strict=True):
            rows += rows_in(record, count)
    return rows


def batch_rows(payloads, transformer, layout: str, rows_per_record: int):
    """The same payloads as lines of a file through a batch task: its rows, and (payload, faults) of the refused."""
    text = b"\n".join(payloads)
    build = BuildSettings(
        replace(INPUT, format="jsonl"), "staging", layout=layout, rows_per_record=rows_per_record, shuffle="none"
    )
    decoded = decode_task(
        Task(0, (Split("f", 0, len(text), len(text)),), 1),
        build.input.make_decoder(SCHEMA),
        SCHEMA.arrow_schema,
        open_file=lambda _: io.BytesIO(text),
    )
    made = make_layout(layout, features=transformer.features, rows_per_record=rows_per_record)
    rows = []
    for chunk in Encoder(build, transformer=transformer, layout=made).encode(decoded, seed=1):
        for at, record in enumerate(chunk.records.to_pylist()):
            count = min(chunk.rows_per_record, chunk.rows - at * chunk.rows_per_record)
            rows += rows_in(record, count)
    return rows, Counter((r.payload, r.faults) for r in decoded.rejections)


MALFORMED = [
    b"{",
    b'{"n":1}',
    b"null",
    b"\xff",
    payload_of(1, n="1"),
    payload_of(1, x=None),
    payload_of(1, v=[1]),
    payload_of(1, x=1e300),
]
SPEC = """
n: pass_through
x: {log1p: {}}
k: {vocabulary: {num_oov_buckets: 1}}
v: pass_through
t: {time_parts: {parts: [minute, day_of_week]}}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Transformer:
    """A real TFT artefact whose ops cannot take some rows."""
    folder = tmp_path_factory.mktemp("artefact")
    good = [json.loads(payload_of(n)) for n in range(30)]
    batch = pa.RecordBatch.from_pylist(
        [{**row, "k": row["k"].encode(), "t": row["t"].encode()} for row in good], schema=SCHEMA.arrow_schema
    )
    preprocessing = preprocessing_fn_of(parse_features(SPEC, SCHEMA), SCHEMA)
    analyse(preprocessing, SCHEMA, [batch], str(folder / "out"), str(folder / "temp"))
    return Transformer(load_artefact(str(folder / "out"), SCHEMA), SCHEMA)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("transformed", [False, True])
def test_the_same_rows_through_batch_and_stream_are_the_same_records(layout, transformed, request):
    transformer = request.getfixturevalue("trained") if transformed else IdentityTransformer(SCHEMA)
    payloads = [payload_of(n) for n in range(1000)]
    for place, bad in enumerate(MALFORMED):
        payloads[97 * place + 5] = bad
    payloads[33] = payload_of(33, x=-1.0)  # log1p gives -infinity
    payloads[44] = payload_of(44, t="noon")  # no time
    payloads[55] = payload_of(55, x=-7)
    rows, refused = batch_rows(payloads, transformer, layout, 16)
    stream = processor(transformer, layout=layout, rows_per_record=16, shards_per_window=3)
    found = stream.process(messages_of(payloads, second=lambda n: NOON + n % 200), closed_before_s=NEVER_CLOSED)
    assert Counter(rows_of(found, 16 if layout == "blocks" else 1)) == Counter(rows)
    assert Counter((one.message.payload, one.faults) for one in found.refused) == refused
    assert len(refused) == len(MALFORMED) + (3 if transformed else 0)
    assert found.counts.read == 1000 == found.counts.written + sum(count for _, count in found.counts.refused)
    assert found.counts.records == sum(chunk.records for chunk in found.chunks)


class Odd(IdentityTransformer):
    """Raises ``error`` for rows in ``bad``, gives NaN for those in ``nan``, refuses those in ``checked`` beforehand."""

    def __init__(self, bad=(), *, nan=(), checked=(), error=None):
        super().__init__(SCHEMA)
        self.bad, self.nan, self.checked = set(bad), set(nan), set(checked)
        self.error = error or ValueError("cannot")

    def faults(self, batch):
        numbers = batch.column("n").to_pylist()
        return {i: Fault(Reason.TRANSFORM_ERROR, "checked", "n") for i, n in enumerate(numbers) if n in self.checked}

    def transform(self, batch):
        numbers = batch.column("n").to_pylist()
        if self.bad & set(numbers):
            raise self.error
        output = super().transform(batch)
        x = pa.array([float("nan") if n in self.nan else 1.0 for n in numbers], pa.float32())
        column = pa.LargeListArray.from_arrays(pa.array(range(len(numbers) + 1), pa.int64()), x)
        return output.set_column(output.schema.get_field_index("x"), "x", column)


ROW_SETS = st.sets(st.integers(0, 49), max_size=6)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=20, deadline=None)
@given(bad=ROW_SETS, nan=ROW_SETS, checked=ROW_SETS, undecodable=ROW_SETS, late=ROW_SETS, shards=st.integers(1, 4))
def test_every_message_is_written_once_or_refused(layout, bad, nan, checked, undecodable, late, shards):
    payloads = [b"{" if n in undecodable else payload_of(n) for n in range(50)]
    messages = messages_of(payloads, second=lambda n: NOON - 3600 if n in late else NOON + n % 3 * 60)
    stream = processor(Odd(bad, nan=nan, checked=checked), layout=layout, shards_per_window=shards, rows_per_record=4)
    found = stream.process(messages, closed_before_s=NOON)
    refused = {int(one.message.message_id[1:]): one for one in found.refused}
    assert len(refused) == len(found.refused)
    assert sorted(refused) == sorted(bad | nan | checked | undecodable | late)
    for n, one in refused.items():
        reason = Reason.INVALID_JSON if n in undecodable else Reason.LATE_DATA if n in late else Reason.TRANSFORM_ERROR
        assert one.reason is reason
        assert one.message is messages[n]
        assert one.event_time_us == messages[n].event_time_us
    numbers = []
    for chunk in found.chunks:
        here = Processed([chunk], [])
        rows = [dict(row)["n"][0] for row in unpacked(rows_of(here, 4 if layout == "blocks" else 1))]
        assert rows == sorted(rows)  # in the order of the messages
        assert {NOON + n % 3 * 60 for n in rows} == {chunk.window_start}
        assert 0 <= chunk.shard < shards
        numbers += rows
    assert sorted(numbers) == sorted(set(range(50)) - set(refused))
    assert layout == "blocks" or len({(c.window_start, c.shard) for c in found.chunks}) == len(found.chunks)


def unpacked(rows):
    """Rows with ``n`` as a feature; in ``packed`` it is the only integer of the vector of integers."""
    return [[("n", dict(row).get("n") or dict(row)["ints"])] for row in rows]


def test_shards_depend_on_payload_and_id_alone():
    payloads = [payload_of(n) for n in range(200)]
    messages = messages_of(payloads)
    stream = processor(shards_per_window=4)

    def shard_of(batch):
        found = stream.process(batch, closed_before_s=NEVER_CLOSED)
        return {dict(row)["n"]: c.shard for c in found.chunks for row in rows_of(Processed([c], []), 1)}

    together = shard_of(messages)
    apart = shard_of(messages[150:]) | shard_of(messages[:150][::-1])
    assert together == apart
    assert Counter(together.values()).keys() == {0, 1, 2, 3}
    assert min(Counter(together.values()).values()) > 25


def test_a_retried_batch_gives_the_same_bytes():
    messages = messages_of([payload_of(n) for n in range(100)], second=lambda n: NOON + n)
    first, second = (processor(shards_per_window=3).process(messages, closed_before_s=NEVER_CLOSED) for _ in range(2))
    assert first == second


@settings(deadline=None)
@given(
    second=st.integers(NOON - 1000, NOON + 1000),
    closed=st.integers(NOON - 1500, NOON + 1500) | st.just(NEVER_CLOSED),
    window=st.sampled_from([1, 7, 60, 3600]),
    lateness=st.integers(0, 300),
)
def test_a_message_is_late_when_its_window_says_so(second, closed, window, lateness):
    stream = processor(window_seconds=window, allowed_lateness_seconds=lateness)
    messages = messages_of([payload_of(0)], second=lambda n: second)
    found = stream.process(messages, closed_before_s=closed)
    start = window_start(messages[0].event_time_us, window)
    if is_late(start, window_seconds=window, allowed_lateness_seconds=lateness, closed_before=closed):
        assert [one.reason for one in found.refused] == [Reason.LATE_DATA]
        assert found.refused[0].faults[0].message.startswith("the event time 20")
    else:
        assert [chunk.window_start for chunk in found.chunks] == [start]


EVENT_PROTO = text_format.Parse(
    """
    feature { name: "n" type: INT presence { min_fraction: 1 } shape { } }
    feature { name: "at" type: INT value_count { min: 1 max: 1 } }
    feature { name: "t" type: BYTES value_count { min: 1 max: 1 } }
    feature { name: "many" type: INT }
    feature { name: "f" type: FLOAT presence { min_fraction: 1 } shape { } }
    """,
    schema_pb2.Schema(),
)
EVENT_INPUT = InputSettings("json", EVENT_PROTO.SerializeToString(deterministic=True))


def by_feature(payload: bytes, feature: str, **changes) -> Processed:
    stream = MessageProcessor(
        replace(SETTINGS, input=EVENT_INPUT, event_time_feature=feature, **changes),
        transformer=IdentityTransformer(EVENT_INPUT.load_schema()),
    )
    return stream.process(messages_of([payload]), closed_before_s=changes.get("closed", NEVER_CLOSED))


@pytest.mark.parametrize(
    ("feature", "value", "start"),
    [
        ("at", NOON - 61, NOON - 120),
        ("at", (NOON - 61) * 1000 + 999, NOON - 120),
        ("at", (NOON - 61) * 1_000_000, NOON - 120),
        ("at", (NOON - 61) * 1_000_000_000, NOON - 120),
        ("at", -1, -60),
        ("at", NOON + 86_400, NOON + 86_400),
        ("t", "2023-11-14T22:12:59Z", 1_699_999_920),
        ("t", "2023-11-14T23:12:59.25+01:00", 1_699_999_920),
        ("t", "1002-01-01T00:00:00Z", -30_547_152_000),
    ],
)
def test_the_event_time_can_come_from_a_feature(feature, value, start):
    found = by_feature(json.dumps({"n": 1, "f": 0, feature: value}).encode(), feature)
    assert found.refused == []
    assert [chunk.window_start for chunk in found.chunks] == [start]


@pytest.mark.parametrize(
    ("feature", "value", "reason", "known"),
    [
        ("at", NOON + 86_401, Reason.OUT_OF_RANGE, True),
        ("at", 2**63 - 1, Reason.OUT_OF_RANGE, True),
        ("at", -(2**63), None, True),  # in nanoseconds, the year 1677
        ("at", -99_999_999_999, Reason.OUT_OF_RANGE, True),
        ("t", "9998-01-01T00:00:00Z", Reason.OUT_OF_RANGE, True),
        ("t", "1001-12-31T23:59:59Z", Reason.OUT_OF_RANGE, True),
        ("t", "yesterday", Reason.WRONG_TYPE, False),
        ("t", "2023-02-29T00:00:00Z", Reason.WRONG_TYPE, False),
        ("t", "", Reason.WRONG_TYPE, False),
        ("at", None, Reason.NULL_FEATURE, False),
        ("at", 1.5, Reason.WRONG_TYPE, False),
    ],
)
def test_an_event_time_that_cannot_be_is_refused(feature, value, reason, known):
    found = by_feature(json.dumps({"n": 1, "f": 0, feature: value}).encode(), feature)
    assert [one.reason for one in found.refused] == ([reason] if reason else [])
    for one in found.refused:
        assert one.faults[0].feature == feature
        assert (one.event_time_us is not None) == known


def test_a_message_without_its_event_time_is_refused():
    (one,) = by_feature(b'{"n":1,"f":0}', "at").refused
    assert (one.reason, one.event_time_us) == (Reason.MISSING_FEATURE, None)


@pytest.mark.parametrize(
    ("feature", "says"), [("nn", "did you mean"), ("many", "several values"), ("f", "within two minutes")]
)
def test_a_feature_that_is_no_event_time_is_refused_at_start(feature, says):
    with pytest.raises(UsageError, match=says):
        by_feature(b"{}", feature)


def test_a_timestamp_from_the_future_is_refused_without_a_feature_too():
    messages = messages_of([payload_of(0)], second=lambda n: NOON + 86_402)
    (one,) = processor().process(messages, closed_before_s=NEVER_CLOSED).refused
    assert one.reason is Reason.OUT_OF_RANGE
    assert processor(max_event_ahead_seconds=86_403).process(messages, closed_before_s=NEVER_CLOSED).refused == []


def replayed_message(text: str, *, dlq_id: str = "0" * 64, payload: bytes | None = None) -> Message:
    """A message of noon that says when it first came."""
    attributes = (("dlq_attempt", "1"), ("dlq_event_time", text), ("dlq_id", dlq_id))
    return Message(payload or payload_of(0), attributes, "m", NOON * 1_000_000, NOON * 1_000_000)


MINUTES_AGO = "2023-11-14T22:03:20Z"


@pytest.mark.parametrize(
    ("text", "closed_before", "start"),
    [
        (MINUTES_AGO, NEVER_CLOSED, 1_699_999_380),
        (MINUTES_AGO, 1_699_999_380 + 179, 1_699_999_380),
        (MINUTES_AGO, 1_699_999_380 + 180, NOON),  # that window has closed: a replay makes nothing late
        ("1002-01-01T00:00:00Z", NOON, NOON),
        ("1001-12-31T23:59:59Z", NEVER_CLOSED, NOON),
        ("0001-01-01T00:00:00Z", NEVER_CLOSED, NOON),
        ("9999-12-31T23:59:59Z", NEVER_CLOSED, NOON),
        ("2023-11-14T23:59:59Z", NEVER_CLOSED, NOON),  # later than it came
        ("-1", NEVER_CLOSED, NOON),
        ("NaN", NEVER_CLOSED, NOON),
        ("1e18", NEVER_CLOSED, NOON),
        ("\ud800", NEVER_CLOSED, NOON),
        ("", NEVER_CLOSED, NOON),
    ],
)
def test_a_replayed_message_goes_to_the_window_of_its_first_time_while_that_is_open(text, closed_before, start):
    found = processor().process([replayed_message(text)], closed_before_s=closed_before)
    assert (found.refused, [chunk.window_start for chunk in found.chunks]) == ([], [start])


def test_only_a_message_that_was_a_dead_letter_goes_by_its_first_time_and_never_against_a_feature():
    stranger = processor().process([replayed_message(MINUTES_AGO, dlq_id="x")], closed_before_s=NEVER_CLOSED)
    assert [chunk.window_start for chunk in stranger.chunks] == [NOON]
    message = replayed_message(MINUTES_AGO, payload=payload_of(0, t="2023-11-14T22:12:59Z"))
    by_feature = processor(event_time_feature="t").process([message], closed_before_s=NEVER_CLOSED)
    assert [chunk.window_start for chunk in by_feature.chunks] == [1_699_999_920]


def test_a_replayed_message_that_fails_again_keeps_its_first_time():
    (one,) = processor().process([replayed_message(MINUTES_AGO, payload=b"{")], closed_before_s=NEVER_CLOSED).refused
    assert one.event_time_us == 1_699_999_400_000_000


@pytest.mark.parametrize("error", [RecursionError("deep"), UsageError("gives 1 rows"), KeyError("x"), RuntimeError()])
def test_whatever_a_transform_raises_the_stream_goes_on(error):
    found = processor(Odd({3, 17}, error=error)).process(
        messages_of([payload_of(n) for n in range(40)]), closed_before_s=NEVER_CLOSED
    )
    assert [one.message.message_id for one in found.refused] == ["m3", "m17"]
    assert {one.reason for one in found.refused} == {Reason.TRANSFORM_ERROR}
    assert found.counts.written == 38


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), tf.errors.ResourceExhaustedError(None, None, "m")])
def test_faults_of_the_machine_are_raised(error):
    with pytest.raises(type(error)):
        processor(Odd({3}, error=error)).process(
            messages_of([payload_of(n) for n in range(9)]), closed_before_s=NEVER_CLOSED
        )


def test_a_bug_outside_the_transform_costs_only_the_messages_that_meet_it(monkeypatch):
    stream = processor()
    place = stream._placing.place

    def failing(messages, batch, *, closed_before_s):
        if any(message.message_id == "m5" for message in messages):
            raise TypeError("a bug")
        return place(messages, batch, closed_before_s=closed_before_s)

    monkeypatch.setattr(stream._placing, "place", failing)
    found = stream.process(messages_of([payload_of(n) for n in range(40)]), closed_before_s=NEVER_CLOSED)
    (one,) = found.refused
    assert (one.message.message_id, one.reason) == ("m5", Reason.INTERNAL)
    assert found.counts.written == 39


def test_accounts_that_do_not_balance_are_an_internal_error(monkeypatch):
    stream = processor()
    monkeypatch.setattr(stream, "_chunks", lambda batch, rows, output: [])
    found = stream.process(messages_of([payload_of(0)]), closed_before_s=NEVER_CLOSED)
    assert found.counts == replace(found.counts, read=1, written=0, refused=(("internal", 1),))


def test_an_empty_batch_is_nothing():
    assert processor().process([], closed_before_s=NEVER_CLOSED) == Processed([], [])


def test_errors_are_shown_by_type_only_where_features_are_redacted():
    stream = processor(Odd({0}), redact_features=frozenset({"k"}))
    (one,) = stream.process(messages_of([payload_of(0)]), closed_before_s=NEVER_CLOSED).refused
    assert one.faults[0].message.endswith("this row: ValueError")


def test_avro_payloads_become_the_rows_that_json_payloads_become():
    kinds = {"n": "long", "x": "double", "k": "string", "v": {"type": "array", "items": "double"}, "t": "string"}
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": kind} for n, kind in kinds.items()]}
    parsed = fastavro.parse_schema(schema)
    datums = []
    for n in range(50):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, json.loads(payload_of(n)))
        datums.append(stream.getvalue())
    datums[7] = datums[7][:-1]
    avro = processor(input=replace(INPUT, format="avro"), avro_schema=json.dumps(schema))
    found = avro.process(messages_of(datums), closed_before_s=NEVER_CLOSED)
    same = processor().process(messages_of([payload_of(n) for n in range(50) if n != 7]), closed_before_s=NEVER_CLOSED)
    assert rows_of(found, 1) == rows_of(same, 1)
    assert [(one.message.payload, one.reason) for one in found.refused] == [(datums[7], Reason.INVALID_AVRO)]


SECRET = "s3cr3t-7731"
"""What no word about a message may hold."""


@pytest.mark.parametrize(
    "payload",
    [
        payload_of(0, k=[SECRET, SECRET]),
        payload_of(0, k={SECRET: 1}),
        payload_of(0, t=SECRET),
        payload_of(0, v=[SECRET]),
        payload_of(0, **{SECRET: 1}, k=None),
        payload_of(0)[:-1] + f', "k": "{SECRET}"}}'.encode(),
        f'{{"k": "{SECRET}'.encode(),
        f'"{SECRET}"'.encode(),
        SECRET.encode(),
        b'{"' + SECRET.encode() + b'\xff": 1}',
    ],
)
def test_no_word_of_a_dead_letter_holds_a_redacted_value(payload, capfd, caplog):
    redacted = frozenset({"k", "t", "v"})
    stream = processor(redact_features=redacted, event_time_feature="t")
    refused = stream.process(messages_of([payload]), closed_before_s=NEVER_CLOSED).refused
    assert len(refused) == 1
    letter = letter_of(
        refused[0], subscription="s", job="j", schema_fingerprint="f", failed_at="", redact_features=redacted
    )
    assert letter.payload == payload
    assert SECRET not in repr(replace(letter, payload=None))
    assert SECRET not in repr(capfd.readouterr()) + caplog.text
