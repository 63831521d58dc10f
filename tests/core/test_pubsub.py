"""Dead letters as messages: sizes are those of the wire, and every message is in one request within the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.pubsub_v1.types import PublishRequest, PubsubMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import pubsub
from pipeline.core.messages import Message, RefusedMessage, letter_of
from pipeline.core.pubsub import (
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    OutgoingMessage,
    fits,
    message_of,
    plan_requests,
    spill_folder,
)
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault

TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
MESSAGES = st.builds(
    OutgoingMessage,
    st.binary(max_size=300),
    st.dictionaries(TEXT, TEXT, max_size=4).map(lambda d: tuple(d.items())),
    TEXT | st.just(""),
)


def letter(payload: bytes = b"x", *, attributes=(), key: str = "", number: int = 0):
    message = Message(payload, tuple(sorted(attributes)), f"m{number}", 0, 0, key)
    return letter_of(
        RefusedMessage(message, (Fault(Reason.INVALID_JSON, "the row is not JSON"),)),
        subscription="projects/p/subscriptions/s",
        job="j",
        schema_fingerprint="s",
        failed_at="2024-05-01T00:00:00Z",
    )


def wire_bytes(messages) -> int:
    return PublishRequest.pb(
        PublishRequest(
            messages=[
                PubsubMessage(data=m.data, attributes=dict(m.attributes), ordering_key=m.ordering_key) for m in messages
            ]
        )
    ).ByteSize()


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=3))
def test_a_size_is_what_the_message_takes_on_the_wire(messages):
    assert sum(message.size_bytes for message in messages) == wire_bytes(messages)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_sizes_at_the_borders_of_lengths(size):
    message = OutgoingMessage(b"x" * size, (("a", "b"),))
    assert message.size_bytes == wire_bytes([message])


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "", "a", "b"])), max_size=60),
    most_bytes=st.integers(60, 200),
    most=st.integers(1, 7),
)
def test_every_message_is_in_one_request_within_the_limits_and_in_order(sizes, most_bytes, most):
    messages = [OutgoingMessage(b"x" * size, (("n", str(n)),), key) for n, (size, key) in enumerate(sizes)]
    before = pubsub.MAX_REQUEST_BYTES, pubsub.MAX_REQUEST_MESSAGES
    pubsub.MAX_REQUEST_BYTES, pubsub.MAX_REQUEST_MESSAGES = most_bytes, most
    try:
        requests = list(plan_requests(messages))
    finally:
        pubsub.MAX_REQUEST_BYTES, pubsub.MAX_REQUEST_MESSAGES = before
    for request in requests:
        assert 0 < len(request) <= most
        assert wire_bytes(request) <= most_bytes
        assert len({message.ordering_key for message in request}) == 1
    for key in ("", "a", "b"):
        sent = [m for request in requests for m in request if m.ordering_key == key]
        assert sent == [m for m in messages if m.ordering_key == key]


def test_limits_leave_room_in_a_request():
    assert MAX_MESSAGE_BYTES < MAX_REQUEST_BYTES < 10_000_000


def test_a_message_fits_up_to_its_last_byte():
    def with_payload(size: int) -> OutgoingMessage:
        return message_of(letter(b"x" * size))

    room = MAX_MESSAGE_BYTES - with_payload(6_000_000).size_bytes
    assert with_payload(6_000_000 + room).size_bytes == MAX_MESSAGE_BYTES
    assert fits(with_payload(6_000_000 + room))
    assert not fits(with_payload(6_000_000 + room + 1))


def test_attributes_count_into_the_size():
    attributes = [(f"k{n:02d}", "é" * 512) for n in range(80)]
    payload = b"x" * (MAX_MESSAGE_BYTES - 50_000)
    assert fits(message_of(letter(payload)))
    assert not fits(message_of(letter(payload, attributes=attributes)))


def test_the_body_is_the_original_bytes_and_names_may_be_any():
    theirs = {"topic": "a", "data": "b", "retry": "c", "timeout": "d", "ordering_key": "e", "googx": "f", "dlq_id": "g"}
    made = message_of(letter(b"\xff\x00", attributes=theirs.items()))
    assert made.data == b"\xff\x00"
    found = dict(made.attributes)
    assert {name: found[name] for name in ("topic", "data", "retry", "timeout", "ordering_key")} == {
        name: theirs[name] for name in ("topic", "data", "retry", "timeout", "ordering_key")
    }
    assert found["orig_googx"] == "f"
    assert found["orig_dlq_id"] == "g"


def test_the_ordering_key_is_an_attribute_and_only_on_demand_the_key():
    made = message_of(letter(key="k1"))
    assert (made.ordering_key, dict(made.attributes)["dlq_ordering_key"]) == ("", "k1")
    assert message_of(letter(key="k1"), keep_ordering_key=True).ordering_key == "k1"
    too_long = message_of(letter(key="é" * 513), keep_ordering_key=True)
    assert (too_long.ordering_key, len(dict(too_long.attributes)["dlq_ordering_key"].encode())) == ("", 1024)
    assert "dlq_ordering_key" not in dict(message_of(letter()).attributes)


def test_a_spilled_letter_has_no_body_and_points_to_its_payload():
    spilled = pubsub.spilled_letter(letter(b"abc"), "gs://b/oversized-1.bin")
    made = message_of(spilled)
    assert made.data == b""
    assert dict(made.attributes)["dlq_payload_uri"] == "gs://b/oversized-1.bin"
    assert dict(made.attributes)["dlq_payload_sha256"] == spilled.payload_sha256 == letter(b"abc").payload_sha256
    assert spilled == replace(letter(b"abc"), payload=None, payload_uri="gs://b/oversized-1.bin")


def test_there_is_always_a_place_for_what_is_too_large():
    assert spill_folder(output="gs://b/out/", archive="") == "gs://b/out/.dead-letters-oversized"
    assert spill_folder(output="gs://b/out", archive="gs://b/dead") == "gs://b/dead"
