"""Messages as dead letters: a stable id, the original bytes and attributes, through any number of failures."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.archive import from_record, to_record
from pipeline.core.dead_letter import OWN_NAMES, original_attributes, parse_source, to_attributes
from pipeline.core.errors import UsageError
from pipeline.core.messages import (
    Message,
    RefusedMessage,
    StreamSettings,
    earlier_failure,
    letter_of,
    make_message,
    own_attributes,
    spill_id,
)
from pipeline.core.pubsub import message_of
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault
from pipeline.core.settings import InputSettings

SUBSCRIPTION = "projects/p/subscriptions/s"
FAULTS = (
    Fault(Reason.WRONG_TYPE, "feature 'a' is the string 'secret', not an integer", "a"),
    Fault(Reason.TOO_FEW_VALUES, "feature 'l' has 2 values", "l"),
)
NAMES = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
    st.sampled_from(sorted(OWN_NAMES)),
    st.sampled_from(["goog", "googclient_schemaencoding", "CloudPubSubDeadLetterSourceDeliveryCount"]),
    st.sampled_from(["orig_", "orig_dlq_id", "orig_orig_dlq_id", "orig_googx", "orig_other", "orig_errorMessage"]),
)
ATTRIBUTES = st.dictionaries(NAMES, st.text(st.characters(codec="utf-8"), max_size=9), max_size=12)


def letter(message: Message, *, faults=FAULTS, event_time_us=None, redact=frozenset()):
    return letter_of(
        RefusedMessage(message, faults, event_time_us),
        subscription=SUBSCRIPTION,
        job="job",
        schema_fingerprint="schema",
        failed_at="2024-05-01T00:00:00Z",
        redact_features=redact,
    )


def message(payload: bytes = b"{", attributes=None, *, number: int = 7, key: str = "") -> Message:
    return make_message(
        payload, attributes, message_id=f"{number}", publish_time_us=1, event_time_us=2, ordering_key=key
    )


def replayed(of, *, payload: bytes | None = None, number: int = 100) -> Message:
    """The message that a replay sends of a letter: what the letter's message carried, one attempt more."""
    attributes = dict(message_of(of).attributes)
    attributes["dlq_attempt"] = str(of.attempt + 1)
    return message(of.payload if payload is None else payload, attributes, number=number, key=of.ordering_key)


@given(payload=st.binary(max_size=50), attributes=ATTRIBUTES, key=st.text(max_size=3))
def test_payload_attributes_and_ordering_key_are_kept(payload, attributes, key):
    made = letter(message(payload, attributes, key=key))
    assert made.payload == payload
    assert made.payload_sha256 == hashlib.sha256(payload).hexdigest()
    assert made.payload_length == len(payload)
    assert made.ordering_key == key
    if earlier_failure(message(payload, attributes)) is None:
        assert dict(made.attributes) == attributes
    assert from_record(to_record(made)) == made


@settings(max_examples=200)
@given(attributes=ATTRIBUTES)
def test_attributes_travel_and_come_back(attributes):
    made = letter(message(attributes=attributes))
    envelope = to_attributes(made)
    assert envelope.altered == ()
    assert not any(name.startswith("goog") for name in envelope.attributes)
    assert original_attributes(envelope.attributes.items()) == made.attributes


@given(attributes=ATTRIBUTES, failures=st.integers(1, 4))
def test_a_message_that_fails_again_tells_the_same_story(attributes, failures):
    first = letter(message(attributes=attributes))
    again = first
    for number in range(failures):
        again = letter(replayed(again, payload=b"fixed %d" % number, number=1000 + number))
        assert again.attempt == first.attempt + number + 1
        assert again.dlq_id == first.dlq_id
        assert again.attributes == first.attributes
        assert again.payload == b"fixed %d" % number
        assert again.source == f"{SUBSCRIPTION}#{1000 + number}"


def test_the_id_is_of_place_and_payload():
    ids = {
        letter(message()).dlq_id,
        letter(message(number=8)).dlq_id,
        letter(message(b"[")).dlq_id,
        letter_of(
            RefusedMessage(message(), FAULTS),
            subscription="other",
            job="",
            schema_fingerprint="",
            failed_at="",
        ).dlq_id,
    }
    assert len(ids) == 4
    same = letter(message(attributes={"k": "v"}), faults=FAULTS[:1], event_time_us=5)
    assert same.dlq_id == letter(message()).dlq_id


def test_golden_letter():
    made = letter(message(b"{", {"k": "v"}), event_time_us=1_700_000_000_250_000)
    digest = hashlib.sha256(b"{").hexdigest()
    line = f"headrace dead letter 1\n{SUBSCRIPTION}#7\n{digest}"
    assert to_attributes(made).attributes == {
        "dlq_id": hashlib.sha256(line.encode()).hexdigest(),
        "dlq_reason": "wrong_type",
        "errorMessage": "feature 'a' is the string 'secret', not an integer",
        "dlq_stage": "validate",
        "dlq_feature": "a",
        "dlq_source": "projects/p/subscriptions/s#7",
        "dlq_failed_at": "2024-05-01T00:00:00Z",
        "dlq_event_time": "2023-11-14T22:13:20.250000Z",
        "dlq_attempt": "0",
        "dlq_job": "job",
        "dlq_schema": "schema",
        "k": "v",
    }
    assert [fault.reason for fault in made.faults] == ["wrong_type", "too_few_values"]
    assert parse_source(made.source) is None


@pytest.mark.parametrize(
    "attributes",
    [
        {"dlq_id": "0" * 64},
        {"dlq_attempt": "1"},
        {"dlq_id": "0" * 64, "dlq_attempt": "-1"},
        {"dlq_id": "0" * 64, "dlq_attempt": "1e3"},
        {"dlq_id": "0" * 64, "dlq_attempt": "9" * 10},
        {"dlq_id": "0" * 64, "dlq_attempt": "\u0661"},
        {"dlq_id": "G" * 64, "dlq_attempt": "1"},
        {"dlq_id": "0" * 63, "dlq_attempt": "1"},
        {"dlq_id": "0" * 64 + "\n", "dlq_attempt": "1"},
    ],
)
def test_attributes_that_are_not_ours_are_the_message_s_own(attributes):
    assert earlier_failure(message(attributes=attributes)) is None
    made = letter(message(attributes=attributes))
    assert dict(made.attributes) == attributes
    assert made.attempt == 0
    assert to_attributes(made).attributes["dlq_id"] == made.dlq_id


def test_the_service_s_own_attributes_stay_through_letter_and_replay():
    native = {
        f"CloudPubSubDeadLetterSource{name}": name
        for name in ("DeliveryCount", "Subscription", "SubscriptionProject", "TopicPublishTime")
    }
    made = letter(message(attributes=native))
    assert dict(made.attributes) == native
    assert to_attributes(made).attributes.items() >= native.items()
    assert dict(own_attributes(replayed(made))) == native


def test_a_reserved_attribute_set_anew_wins_over_the_one_carried():
    made = letter(message(attributes={"googclient_schemaencoding": "BINARY"}))
    again = dict(message_of(made).attributes)
    assert again["orig_googclient_schemaencoding"] == "BINARY"
    delivered = message(attributes={**again, "googclient_schemaencoding": "JSON"})
    assert dict(own_attributes(delivered)) == {"googclient_schemaencoding": "JSON"}
    assert dict(own_attributes(message(attributes=again))) == {"googclient_schemaencoding": "BINARY"}


def test_redaction_takes_values_out_of_what_is_said_but_not_out_of_the_payload():
    made = letter(message(b'{"a":"secret"}'), redact=frozenset({"a"}))
    assert "secret" not in repr(to_attributes(made).attributes)
    assert made.faults[0].message == "wrong_type: details withheld because of --redact_features"
    assert made.faults[1].message == FAULTS[1].message
    assert made.payload == b'{"a":"secret"}'


def test_a_message_that_only_points_at_its_payload_goes_on_pointing_there():
    first = letter(message(b"y" * 10))
    pointing = replace(first, payload=None, payload_uri="gs://b/oversized-1.bin")
    sent = message(b"", dict(message_of(pointing).attributes), number=9)
    again = letter(sent)
    assert (again.payload, again.payload_uri) == (None, "gs://b/oversized-1.bin")
    assert again.payload_sha256 == first.payload_sha256
    assert dict(message_of(again).attributes)["dlq_payload_uri"] == "gs://b/oversized-1.bin"
    with_body = letter(message(b"z", dict(message_of(pointing).attributes)))
    assert (with_body.payload, with_body.payload_uri) == (b"z", None)


def test_a_pointer_that_is_not_ours_is_only_an_attribute():
    made = letter(message(b"", {"dlq_payload_uri": "/etc/passwd", "dlq_payload_sha256": "0" * 64}))
    assert (made.payload, made.payload_uri) == (b"", None)
    assert to_attributes(made).attributes["orig_dlq_payload_uri"] == "/etc/passwd"


def test_a_spill_is_named_after_place_and_content():
    first = letter(message(b"y"))
    assert spill_id(first) == first.dlq_id
    again = letter(replayed(first, payload=b"z"))
    assert again.dlq_id == first.dlq_id
    assert spill_id(again) not in {first.dlq_id, spill_id(letter(replayed(first, payload=b"q")))}


def test_late_data_and_times_beyond_the_calendar():
    late = letter(message(), faults=(Fault(Reason.LATE_DATA, "late", "t"),), event_time_us=2**63 - 1)
    assert late.stage == Stage.SHARD.value
    assert late.event_time is None


def test_lone_surrogates_of_a_library_do_not_break_a_letter():
    made = letter(message(), faults=(Fault(Reason.INTERNAL, "\ud800", "\udc00"),))
    assert made.faults[0].message == "\\ud800"
    to_attributes(made)


def test_the_size_of_a_message_is_payload_and_attributes():
    assert message(b"1234", {"ab": "cde"}).size_bytes == 9


INPUT = InputSettings("json", b"")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input": InputSettings("csv", b"")}, "payload format 'csv'"),
        ({"input": InputSettings("avro", b"")}, "give --avro_schema"),
        ({"window_seconds": 0}, "window_seconds is 0"),
        ({"shards_per_window": -1}, "shards_per_window is -1"),
        ({"max_batch_rows": 0}, "max_batch_rows is 0"),
        ({"max_batch_wait_seconds": -0.5}, "max_batch_wait_seconds is -0.5"),
        ({"max_batch_wait_seconds": float("nan")}, "max_batch_wait_seconds is nan"),
        ({"max_event_ahead_seconds": 2**60}, "max_event_ahead_seconds is"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, says):
    with pytest.raises(UsageError, match=says):
        StreamSettings(**{"input": INPUT, "subscription": SUBSCRIPTION, **changes})
