"""Dead letters: stable identity, exact payloads, limits in bytes, and nothing redacted leaking."""

import dataclasses
import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.dead_letter import (
    MAX_ATTRIBUTES,
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    OWN_NAMES,
    DeadLetter,
    LetterFault,
    dead_letter_id,
    from_rejection,
    parse_source,
    redact,
    source_of,
    to_attributes,
)
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault, Rejection

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=30)
TEXT = st.text(max_size=30)
FAILED_AT = "2024-05-01T12:00:00Z"


FAULT = Fault(Reason.WRONG_TYPE, "a holds a string", "a")


def rejection(payload=b'{"a":"1"}', faults=(FAULT,), **changes):
    options = {"uri": "gs://b/f.jsonl", "offset": 8123, "length": 9, "stage": Stage.VALIDATE} | changes
    return Rejection(payload=payload, faults=tuple(faults), **options)


def letter_of(row, **changes):
    return from_rejection(row, **({"job": "j", "schema_fingerprint": "s", "failed_at": FAILED_AT} | changes))


def test_a_rejection_becomes_a_letter_with_all_its_faults():
    row = rejection(faults=[Fault(Reason.WRONG_TYPE, "m1", "a"), Fault(Reason.OUT_OF_RANGE, "m2", "x")])
    letter = letter_of(row)
    assert letter == DeadLetter(
        dlq_id=letter_of(rejection()).dlq_id,
        source="gs://b/f.jsonl#offset=8123",
        faults=(
            LetterFault("wrong_type", "validate", "m1", "a"),
            LetterFault("out_of_range", "validate", "m2", "x"),
        ),
        failed_at=FAILED_AT,
        job="j",
        schema="s",
        payload=b'{"a":"1"}',
        payload_length=9,
        payload_sha256=hashlib.sha256(b'{"a":"1"}').hexdigest(),
    )
    assert (letter.reason, letter.stage, letter.feature, letter.message) == ("wrong_type", "validate", "a", "m1")


def test_golden_id():
    """The construction is written out here once more: other programs may compute it."""
    text = b"headrace dead letter 1\ngs://b/f.jsonl#offset=8123\n" + hashlib.sha256(b'{"a":"1"}').hexdigest().encode()
    assert letter_of(rejection()).dlq_id == hashlib.sha256(text).hexdigest()
    assert letter_of(rejection()).dlq_id == "a744d16abeb3979e247218024da6e1259dac28ce0706eec3ddc4423e90bd3e89"


@given(uri=ANY_TEXT, offset=st.integers(0, 2**63), payload=st.binary(max_size=50), message=ANY_TEXT, job=TEXT)
def test_the_id_depends_on_place_and_payload_alone(uri, offset, payload, message, job):
    row = rejection(payload, uri=uri, offset=offset)
    other = rejection(payload, [Fault(Reason.INTERNAL, message)], uri=uri, offset=offset, stage=Stage.READ)
    first = letter_of(row).dlq_id
    assert letter_of(other, job=job, failed_at="2025-01-01T00:00:00Z", attempt=3).dlq_id == first
    assert letter_of(dataclasses.replace(row, offset=offset + 1)).dlq_id != first
    assert letter_of(dataclasses.replace(row, payload=payload + b" ")).dlq_id != first
    assert letter_of(dataclasses.replace(row, uri=uri + "x")).dlq_id != first


def test_an_oversized_row_has_its_id_before_it_is_read():
    letter = letter_of(rejection(None, length=300 << 20))
    assert letter.dlq_id == dead_letter_id("gs://b/f.jsonl#offset=8123", f"length={300 << 20}")
    assert (letter.payload, letter.payload_length, letter.payload_sha256) == (None, 300 << 20, "")


@given(uri=ANY_TEXT, offset=st.integers(0, 2**63 - 1))
def test_sources_parse_back(uri, offset):
    parsed = parse_source(source_of(uri, offset))
    assert parsed == (uri.encode("utf-8", "backslashreplace").decode(), offset)


@pytest.mark.parametrize(
    "source", ["", "projects/p/subscriptions/s#12", "f#offset=", "f#offset=-1", "f#offset=01", "f#offset=٣"]
)
def test_other_sources_are_no_place_in_a_file(source):
    assert parse_source(source) is None


SECRET = "4111-1111"


@given(
    faults=st.lists(
        st.builds(Fault, st.sampled_from(Reason), st.just(f"found {SECRET!r}"), st.sampled_from(["card", None])),
        min_size=1,
        max_size=4,
    )
)
def test_redacted_values_are_in_no_message_but_in_the_payload(faults):
    letter = letter_of(rejection(SECRET.encode(), faults), redact_features=frozenset({"card"}))
    assert not any(SECRET in fault.message for fault in letter.faults)
    assert SECRET not in str(to_attributes(letter).attributes)
    assert letter.payload == SECRET.encode()
    assert [fault.reason for fault in letter.faults] == [fault.reason.value for fault in faults]


def test_other_features_keep_their_messages():
    faults = (Fault(Reason.WRONG_TYPE, "m", "a"), Fault(Reason.INVALID_JSON, "m"))
    assert redact(faults, frozenset()) == faults
    assert [fault.message == "m" for fault in redact(faults, frozenset({"card"}))] == [True, False]


LETTERS = st.builds(
    DeadLetter,
    dlq_id=TEXT,
    source=TEXT,
    faults=st.lists(
        st.builds(LetterFault, TEXT, TEXT, st.text(max_size=2000), st.none() | TEXT), min_size=1, max_size=3
    ).map(tuple),
    failed_at=TEXT,
    job=TEXT,
    schema=TEXT,
    payload=st.none() | st.binary(max_size=20),
    payload_length=st.integers(0, 2**40),
    payload_sha256=TEXT,
    payload_uri=st.none() | TEXT,
    event_time=st.none() | TEXT,
    attempt=st.integers(0, 99),
    attributes=st.dictionaries(
        st.one_of(TEXT, st.sampled_from(sorted(OWN_NAMES)), st.text(min_size=240, max_size=260), st.just("googx")),
        st.text(max_size=1100),
        max_size=6,
    ).map(lambda d: tuple(sorted(d.items()))),
)


@settings(max_examples=100, deadline=None)
@given(letter=LETTERS)
def test_attributes_keep_the_limits_and_lose_nothing_silently(letter):
    envelope = to_attributes(letter)
    attributes = envelope.attributes
    assert len(attributes) <= MAX_ATTRIBUTES
    assert all(0 < len(key.encode()) <= MAX_KEY_BYTES and not key.startswith("goog") for key in attributes)
    assert all(len(value.encode()) <= MAX_VALUE_BYTES for value in attributes.values())
    assert attributes["dlq_id"] == letter.dlq_id
    assert letter.message.startswith(attributes["errorMessage"])
    for name, value in letter.attributes:
        carried = [key for key in attributes if re.fullmatch("(orig_)*" + re.escape(name), key)]
        intact = any(attributes[key] == value for key in carried if key not in OWN_NAMES)
        assert intact == (name not in envelope.altered)


def test_a_message_with_100_attributes_already():
    theirs = tuple(sorted((f"k{i:03d}", "v") for i in range(100)))
    envelope = to_attributes(dataclasses.replace(letter_of(rejection()), attributes=theirs))
    assert len(envelope.attributes) == 100
    assert {name for name, _ in theirs} == (set(envelope.attributes) - OWN_NAMES) | set(envelope.altered)
    assert "dlq_reason" in envelope.attributes


def test_clashing_originals_are_carried_under_another_name():
    theirs = (("dlq_id", "theirs"), ("errorMessage", "e"), ("orig_dlq_id", "older"))
    attributes = to_attributes(dataclasses.replace(letter_of(rejection()), attributes=theirs)).attributes
    assert attributes["dlq_id"] == letter_of(rejection()).dlq_id
    assert attributes["orig_dlq_id"] == "theirs"
    assert attributes["orig_orig_dlq_id"] == "older"
    assert attributes["orig_errorMessage"] == "e"


def test_the_service_s_own_attributes_pass_through():
    theirs = (("CloudPubSubDeadLetterSourceDeliveryCount", "5"),)
    envelope = to_attributes(dataclasses.replace(letter_of(rejection()), attributes=theirs))
    assert envelope.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert envelope.altered == ()


def test_a_long_original_is_cut_and_named():
    envelope = to_attributes(
        dataclasses.replace(letter_of(rejection()), attributes=(("k", "v" * 1024), ("l", "v" * 1025)))
    )
    assert [len(envelope.attributes[name]) for name in "kl"] == [1024, 1024]
    assert envelope.altered == ("l",)


def test_a_long_message_is_cut_on_a_character():
    letter = letter_of(rejection(faults=[Fault(Reason.INTERNAL, "é" * 5000)]))
    assert to_attributes(letter).attributes["errorMessage"] == "é" * 512
    assert letter.message == "é" * 5000


def test_golden_attributes():
    letter = dataclasses.replace(letter_of(rejection(None)), payload_uri="gs://d/x.bin", payload_sha256="ff")
    assert to_attributes(dataclasses.replace(letter, dlq_id="i")).attributes == {
        "dlq_id": "i",
        "dlq_reason": "wrong_type",
        "errorMessage": "a holds a string",
        "dlq_stage": "validate",
        "dlq_feature": "a",
        "dlq_source": "gs://b/f.jsonl#offset=8123",
        "dlq_failed_at": FAILED_AT,
        "dlq_attempt": "0",
        "dlq_job": "j",
        "dlq_schema": "s",
        "dlq_payload_uri": "gs://d/x.bin",
        "dlq_payload_sha256": "ff",
    }
