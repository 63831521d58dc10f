"""Publishing dead letters over the real wire: nothing fails on data, faults are retried, each letter comes once."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
from dataclasses import replace

import grpc
import pytest

from pipeline.core.dead_letter import OWN_NAMES, original_attributes
from pipeline.core.errors import HeadraceError
from pipeline.transforms import publisher as publishing
from pipeline.transforms.publisher import RetryPolicy, TopicPublisher
from tests.core.test_pubsub import letter
from tests.fakes.publishing import running_service

TOPIC = "projects/test-proj/topics/dead"
QUICK = RetryPolicy(first_wait=0.001, longest_wait=0.002)
GIVES_UP = RetryPolicy(first_wait=0.001, longest_wait=0.002, total=0.0)
PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNKNOWN", "CANCELLED")


@pytest.fixture
def service(monkeypatch):
    with running_service() as running:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", running.host)
        yield running


@pytest.fixture
def spill(tmp_path):
    return tmp_path / "spill"


@pytest.fixture
def publisher(service, spill):
    made = TopicPublisher(TOPIC, spill=str(spill), retry=QUICK)
    yield made
    made.close()


def letters(count: int, payload: bytes = b"x"):
    return [letter(payload, number=n) for n in range(count)]


def test_letters_arrive_as_they_are(service, publisher):
    sent = [letter(b"\x00\xff", attributes=[("k", "v"), ("googclient_schemaencoding", "JSON")]), letter(b"", number=1)]
    assert publisher.publish(sent) == 2
    assert service.topics == {TOPIC}
    assert [bytes(message.data) for message in service.taken] == [b"\x00\xff", b""]
    assert [message.attributes["dlq_id"] for message in service.taken] == [one.dlq_id for one in sent]
    assert original_attributes(service.taken[0].attributes.items()) == sent[0].attributes


def test_names_that_are_parameters_of_the_client_are_only_names(service, publisher):
    names = ["topic", "data", "retry", "timeout", "ordering_key", "metadata", "request", "self", "", "goog", "googlex"]
    publisher.publish([letter(b"", attributes=[(name, name) for name in names])])
    (message,) = service.taken
    assert dict(original_attributes(message.attributes.items())) == {name: name for name in names if name}


def test_a_hundred_attributes_of_any_size(service, publisher):
    theirs = [(f"{n:03d}" + "é" * 200, "é" * 2000) for n in range(120)]
    publisher.publish([letter(b"x" * 6_800_000, attributes=theirs)])
    (message,) = service.taken
    assert len(message.attributes) <= 100
    assert set(message.attributes) - set(OWN_NAMES) < {name for name, _ in theirs}


@pytest.mark.parametrize("seed", range(5))
def test_no_data_makes_publishing_fail(service, publisher, seed):
    rng = random.Random(f"publish {seed}")

    def text(most: int) -> str:
        alphabet = ("a", "é", "\0", "\x1b", "\U0001f600", "goog", "orig_", "dlq_id", " ")
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(most)))

    sent = [
        letter(
            rng.randbytes(rng.randrange(2000)),
            attributes={text(400): text(2000) for _ in range(rng.randrange(130))}.items(),
            key=text(2000),
            number=n,
        )
        for n in range(60)
    ]
    sent = [replace(one, faults=(replace(one.faults[0], message=text(3000)),)) for one in sent]
    keeping = TopicPublisher(TOPIC, spill="unused", keep_ordering_key=bool(seed % 2), retry=QUICK)
    keeping.publish(sent)
    keeping.close()
    assert sorted(service.ids) == sorted(one.dlq_id for one in sent)


def test_requests_stay_within_their_limits(service, publisher):
    publisher.publish(letters(2500))
    assert service.requests == [1000, 1000, 500]
    publisher.publish(letters(5, b"x" * 3_000_000))
    assert service.requests[3:] == [3, 2]


def test_what_is_too_large_is_spilled_once_and_pointed_to(service, publisher, spill):
    big = letter(b"y" * 7_500_000, attributes=[("k", "v")])
    publisher.publish([big, letter(number=1)])
    publisher.publish([big])
    (path,) = spill.iterdir()
    assert path.read_bytes() == big.payload
    assert path.name == f"oversized-{big.dlq_id}.bin"
    for message in (service.taken[0], service.taken[2]):
        assert bytes(message.data) == b""
        assert message.attributes["dlq_payload_uri"] == str(path)
        assert message.attributes["dlq_payload_sha256"] == hashlib.sha256(big.payload).hexdigest()
        assert message.attributes["k"] == "v"
    assert bytes(service.taken[1].data) == b"x"


def test_another_payload_under_the_same_id_does_not_take_the_place_of_the_first(service, publisher, spill):
    first = letter(b"y" * 7_500_000)
    fixed = replace(letter(b"z" * 7_500_000, number=5), dlq_id=first.dlq_id, attempt=1)
    publisher.publish([first, fixed])
    assert sorted(path.read_bytes()[:1] for path in spill.iterdir()) == [b"y", b"z"]
    assert len({message.attributes["dlq_payload_uri"] for message in service.taken}) == 2


def test_a_cut_spill_is_written_again(service, publisher, spill):
    big = letter(b"y" * 7_500_000)
    publisher.publish([big])
    (path,) = spill.iterdir()
    path.write_bytes(b"y" * 10)
    publisher.publish([big])
    assert path.read_bytes() == big.payload


def test_a_payload_that_cannot_be_spilled_is_a_fault_and_nothing_is_lost(service, tmp_path):
    (tmp_path / "file").write_text("in the way")
    stuck = TopicPublisher(TOPIC, spill=str(tmp_path / "file"), retry=QUICK)
    with pytest.raises(OSError, match="file"):
        stuck.publish([letter(b"y" * 7_500_000)])
    assert service.taken == []


@pytest.mark.parametrize("code", PASSING)
def test_faults_that_pass_are_retried(service, publisher, code):
    service.faults = {0: grpc.StatusCode[code], 1: grpc.StatusCode[code], 3: grpc.StatusCode[code]}
    publisher.publish(letters(1500))
    assert len(service.ids) == len(set(service.ids)) == 1500


@pytest.mark.parametrize("position", range(4))
def test_a_fault_that_stays_is_raised_and_a_retry_publishes_each_letter_once(service, spill, position):
    publisher = TopicPublisher(TOPIC, spill=str(spill), retry=GIVES_UP)
    service.faults = {position: grpc.StatusCode.UNAVAILABLE}
    sent = letters(3500)
    with pytest.raises(HeadraceError, match=r"topics/dead could not be published to for 0 s.*as told"):
        publisher.publish(sent)
    assert len(service.taken) == 1000 * position
    assert publisher.publish(sent) == 3500
    assert sorted(service.ids) == sorted(one.dlq_id for one in sent)
    assert publisher.publish(sent[:2]) == 2  # a letter that fails again later is not mistaken for a retry
    assert len(service.taken) == 3502


def test_an_answer_that_is_lost_repeats_letters_under_the_same_id(service, publisher):
    service.lost = {0: grpc.StatusCode.UNAVAILABLE}
    publisher.publish(letters(3))
    assert sorted(service.ids) == sorted(2 * [one.dlq_id for one in letters(3)])


def test_a_letter_given_twice_is_published_once(service, publisher):
    assert publisher.publish([*letters(2), *letters(2)]) == 4
    assert len(service.taken) == 2


@pytest.mark.parametrize("code", ["NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"])
def test_a_topic_that_is_missing_or_forbidden_is_named_at_once(service, publisher, code):
    service.faults = {0: grpc.StatusCode[code]}
    with pytest.raises(
        HeadraceError, match=r"cannot publish to projects/test-proj/topics/dead.*roles/pubsub.publisher"
    ):
        publisher.publish(letters(1))
    assert len(service.requests) == 1


def test_a_service_that_does_not_answer_is_given_up(service, spill, monkeypatch):
    publisher = TopicPublisher(TOPIC, spill=str(spill), retry=replace(GIVES_UP, request=0.2))
    with service._lock, pytest.raises(HeadraceError, match="could not be published to"):
        publisher.publish(letters(1))
    publisher.publish(letters(1))


def test_a_rule_that_nobody_knew_of_costs_the_letter_only_what_is_spilled(service, publisher, spill):
    service.refuses = lambda message: "no" if "odd" in message.attributes else None
    sent = letters(50)
    sent[17] = letter(b"abc", attributes=[("odd", "1"), ("even", "2")], number=17)
    publisher.publish(sent)
    assert sorted(service.ids) == sorted(one.dlq_id for one in sent)
    (bare,) = [message for message in service.taken if "dlq_payload_uri" in message.attributes]
    assert bare.attributes["dlq_id"] == sent[17].dlq_id
    with open(bare.attributes["dlq_payload_uri"], "rb") as stream:
        assert stream.read() == b"abc"
    assert json.loads((spill / f"attributes-{sent[17].dlq_id}.json").read_bytes()) == {"odd": "1", "even": "2"}


def test_a_topic_that_takes_no_dead_letter_at_all_is_an_error(service, publisher):
    service.refuses = lambda message: "data is not of the schema"
    with pytest.raises(HeadraceError, match="Has the topic a schema"):
        publisher.publish(letters(3))
    assert service.taken == []


def test_ordering_keys_are_kept_on_demand_and_never_mixed_in_a_request(service, spill):
    keeping = TopicPublisher(TOPIC, spill=str(spill), keep_ordering_key=True, retry=QUICK)
    keeping.publish([letter(number=n, key=f"key {n % 3}" if n % 4 else "") for n in range(40)])
    keeping.close()
    assert {message.ordering_key for message in service.taken} == {"", "key 0", "key 1", "key 2"}
    assert len(service.taken) == 40


def test_it_can_be_pickled_and_closed_whenever(service, publisher):
    publisher.publish(letters(1))
    copy = pickle.loads(pickle.dumps(publisher))
    publisher.close()
    publisher.close()
    copy.publish(letters(1))
    publisher.publish(letters(1))
    copy.close()
    assert len(service.taken) == 3


def test_nothing_to_publish_connects_to_nobody(monkeypatch, spill):
    monkeypatch.setattr(publishing, "connect", lambda: pytest.fail("connected"))
    assert TopicPublisher(TOPIC, spill=str(spill)).publish([]) == 0


def test_without_credentials_it_says_so(monkeypatch, spill):
    from google.auth.exceptions import DefaultCredentialsError
    from google.pubsub_v1 import PublisherClient

    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)

    def none(self, *args, **kwargs):
        raise DefaultCredentialsError("none found")

    monkeypatch.setattr(PublisherClient, "__init__", none)
    with pytest.raises(HeadraceError, match="without credentials: DefaultCredentialsError: none found"):
        TopicPublisher(TOPIC, spill=str(spill)).publish(letters(1))


def test_against_the_emulator(pubsub, spill):
    topic = pubsub.topic()
    subscription = pubsub.subscription(topic)
    sent = [*letters(1200), letter(b"", number=2000, attributes=[("topic", "t"), ("data", "d")])]
    sent.append(letter(b"z" * 6_800_000, number=2001))
    sent.append(letter(b"z" * 7_800_000, number=2002))
    publisher = TopicPublisher(topic, spill=str(spill))
    assert publisher.publish(sent) == len(sent)
    publisher.close()
    found = {one.attributes["dlq_id"]: one for one in pubsub.pull_all(subscription, len(sent))}
    assert found.keys() == {one.dlq_id for one in sent}
    assert found[sent[1201].dlq_id].data == sent[1201].payload
    assert os.path.getsize(found[sent[1202].dlq_id].attributes["dlq_payload_uri"]) == 7_800_000
    assert found[sent[1200].dlq_id].attributes["topic"] == "t"
