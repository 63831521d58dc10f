"""The policy: so many replays and no more, the first message restored, the story kept across failures."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.fixes import Repaired
from dlq_replay.policy import Fate, Policy
from pipeline.core.dead_letter import to_attributes
from pipeline.core.messages import RefusedMessage, letter_of, make_message
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from tests.dlq_replay.helpers import letter

FAULTS = (Fault(Reason.WRONG_TYPE, "bad", "a"),)


def refused(outgoing, message_id="2"):
    """What the live job makes of a replayed message that it refuses again."""
    message = make_message(
        outgoing.payload,
        dict(outgoing.attributes),
        message_id=message_id,
        publish_time_us=5,
        event_time_us=7,
        ordering_key=outgoing.ordering_key,
    )
    return letter_of(
        RefusedMessage(message, FAULTS, 7),
        subscription="s",
        job="j",
        schema_fingerprint="f",
        failed_at="2024-01-01T00:00:00Z",
    )


def untouched(one):
    return Repaired(one.payload, one.attributes)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_letter_that_always_fails_is_replayed_as_often_as_the_limit_says_and_then_parked(limit):
    policy, replays = Policy(limit), 0
    one = letter(0, attributes={"k": "v", "errorMessage": "theirs"})
    first = one
    while (decision := policy.decide(one, untouched(one))).fate is Fate.REPLAY:
        replays += 1
        one = refused(decision.outgoing, str(replays))
        assert (one.dlq_id, one.attempt, one.attributes) == (first.dlq_id, replays, first.attributes)
    assert replays == limit
    assert decision.fate is Fate.PARK
    assert decision.why == f"replayed {limit} times, and it failed each time"


def test_golden_message_of_a_replay():
    one = replace(
        letter(8123, attempt=1, event_time="2024-04-30T23:59:59Z", payload=b'{"a":"1"}'),
        attributes=(
            ("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
            ("dlq_id", "x"),
            ("errorMessage", "e"),
            ("googx", "g"),
            ("k", "é"),
        ),
        ordering_key="user-7",
    )
    sent = Policy(timestamp_attribute="ts").decide(one, Repaired(b'{"a":1}', one.attributes)).outgoing
    assert sent.payload == b'{"a":1}'
    assert sent.ordering_key == "user-7"
    assert sent.attributes == (
        ("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
        ("dlq_attempt", "2"),
        ("dlq_event_time", "2024-04-30T23:59:59Z"),
        ("dlq_id", one.dlq_id),
        ("errorMessage", "e"),
        ("k", "é"),
        ("orig_dlq_id", "x"),
        ("orig_errorMessage", "e"),
        ("orig_googx", "g"),
        ("ts", "2024-04-30T23:59:59Z"),
    )
    assert refused(sent).attributes == (*one.attributes, ("ts", "2024-04-30T23:59:59Z"))


def test_a_timestamp_attribute_of_their_own_is_kept():
    one = letter(0, event_time="2024-04-30T23:59:59Z", attributes={"ts": "17"})
    sent = Policy(timestamp_attribute="ts").decide(one, untouched(one)).outgoing
    assert dict(sent.attributes)["ts"] == "17"


def test_what_a_fix_module_parks_is_parked_and_a_used_up_letter_whatever_the_fix_says():
    one = letter(0)
    assert Policy().decide(one, replace(untouched(one), parked=True)).why == "the fix module parked it"
    assert Policy(3).decide(replace(one, attempt=7), untouched(one)).fate is Fate.PARK


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({f"k{i}": "" for i in range(99)}, "101 attributes"),
        ({"k" * 257: "v"}, "over 256 bytes"),
        ({"": "v"}, "or empty"),
        ({"k": "é" * 513}, "over 1024"),
        ({"k": "\ud800"}, "UTF-8"),
    ],
)
def test_what_pubsub_would_refuse_is_left_where_it_is_and_says_why(attributes, why):
    one = letter(0)
    decision = Policy().decide(one, Repaired(b"x", tuple(sorted(attributes.items()))))
    assert decision.fate is Fate.LEAVE
    assert why in decision.why


def test_ninety_eight_attributes_of_theirs_all_travel():
    one = letter(0, event_time="2024-04-30T23:59:59Z", attributes={f"k{i:02d}": "" for i in range(98)})
    sent = Policy(timestamp_attribute="ts").decide(one, untouched(one)).outgoing
    assert len(sent.attributes) == 100
    assert refused(sent).attributes == one.attributes


NAMES = st.sampled_from(["k", "dlq_id", "errorMessage", "orig_dlq_id", "googx", "orig_googx", "orig_k"]) | st.text(
    st.characters(codec="utf-8"), min_size=1, max_size=5
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@settings(max_examples=200, deadline=None)
@given(
    attributes=st.dictionaries(NAMES, TEXTS, max_size=8),
    payload=st.binary(max_size=30),
    key=TEXTS,
    attempt=st.integers(0, 2),
)
def test_a_second_failure_tells_the_story_of_the_first(attributes, payload, key, attempt):
    one = replace(letter(0, payload=payload, attempt=attempt, attributes=attributes), ordering_key=key)
    sent = Policy().decide(one, untouched(one)).outgoing
    again = refused(sent)
    assert (again.dlq_id, again.payload, again.ordering_key) == (one.dlq_id, payload, key)
    assert again.attributes == one.attributes
    assert again.attempt == attempt + 1
    assert dict(to_attributes(again).attributes)["dlq_attempt"] == str(attempt + 1)
