"""Every case and 10,000 fuzzed payloads through the emulator into the real ``headrace stream``: none is lost.

One job takes them all. What it wrote is read back by hand, and each message is found again by its id: as a row, or as
a dead letter on the topic and in the archive, never as both, never twice.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fakes.cli import Done, headrace
from fakes.pubsub import Received
from fakes.streams import Stream, running_stream

from tests.core.decoding.json_cases import CASES_SCHEMA, random_rows
from tests.integration.test_json_cases import ACCEPTED, REFUSED

pytestmark = pytest.mark.slow

FUZZED, NOISE, SEED = 10_000, 500, 20240501
NATIVE = {
    "CloudPubSubDeadLetterSourceDeliveryCount": "5",
    "CloudPubSubDeadLetterSourceSubscription": "before",
    "CloudPubSubDeadLetterSourceSubscriptionProject": "test-proj",
    "CloudPubSubDeadLetterSourceTopicPublishTime": "2024-05-01T00:00:00.000+00:00",
}
COLLIDING = {
    **{name: f"mine-{name}" for name in ("topic", "data", "retry", "timeout", "ordering_key", "message", "self")},
    "googx": "reserved",
    "googclient_x": "reserved too",
    "": "no name",
    "é\u202e\n": "ünï\x00\x1b[2J",
}
OURS_TAKEN = {"dlq_reason": "theirs", "errorMessage": "theirs", "dlq_source": "theirs", "orig_dlq_reason": "theirs too"}
HUGE = b'{"a":"' + b"7" * 7_500_000 + b'"}'
SPECIAL: dict[str, tuple[bytes, dict[str, str]]] = {
    "huge": (HUGE, {"k": "v"}),
    "hundred": (b'{"a":"many"}', {f"attribute-{n:03d}": "x" * 1024 for n in range(100)}),
    "long names": (b'{"a":"long"}', {"n" * 256: "é" * 512, "m": "z"}),
    "attributes only": (b"", {"only": "attributes"}),
    "native": (b'{"a":"native"}', NATIVE),
    "colliding": (b'{"a":"colliding"}', COLLIDING),
    "ours taken": (b'{"a":"taken"}', OURS_TAKEN),
    "bad utf-8": (b"\xff\xfe\x80\x81", {"k": "v"}),
    "good with attributes": (b'{"a":31337}', {**COLLIDING, **NATIVE}),
    "newline at the end": (b'{"a":31338}\n', {}),
}


def payloads() -> list[bytes]:
    """Cases, mutated rows, and noise; the same ones each time."""
    rng = random.Random(SEED)
    fuzzed: list[bytes] = []
    while len(fuzzed) < FUZZED:
        fuzzed += random_rows(rng, CASES_SCHEMA, 50)
    noise = [rng.randbytes(rng.randrange(1, 300)) for _ in range(NOISE)]
    mixed = [*fuzzed[:FUZZED], *noise, *(case.line for case in REFUSED), *(line for line, _ in ACCEPTED)]
    rng.shuffle(mixed)
    return [payload for payload in mixed if payload]  # the service takes no message without data and attributes


@dataclass
class Storm:
    """What was sent, by message id, and what came of it."""

    stream: Stream
    sent: dict[str, tuple[bytes, dict[str, str]]]
    special: dict[str, str]
    done: Done
    published: list[Received]
    archived: list[dict[str, Any]]

    def letter(self, name: str) -> Received:
        """The dead letter, on the topic, of a special message."""
        [found] = [one for one in self.published if _id(one.attributes["dlq_source"]) == self.special[name]]
        return found


def _id(source: str) -> str:
    return source.rsplit("#", 1)[1]


@pytest.fixture(scope="module")
def storm(pubsub_emulator, tmp_path_factory, case_schema):
    """The job, fed with everything, asked whether it is alive, and told to stop."""
    folder = tmp_path_factory.mktemp("storm")
    flags = ("--schema", case_schema, "--window=10s", "--max_batch_wait=500ms", "--max_archive_wait=5s")
    with running_stream(pubsub_emulator, folder, *flags) as stream:
        messages = [(payload, {}) for payload in payloads()]
        ids = pubsub_emulator.publish(stream.topic, *messages, *SPECIAL.values())
        sent = dict(zip(ids, [*messages, *SPECIAL.values()], strict=True))
        stream.wait_for(lambda: stream.settled() >= len(sent), "end of the storm", seconds=150, every=1.0)
        alive = (b'{"a":424242}', {})
        [after] = pubsub_emulator.publish(stream.topic, alive[0])
        sent[after] = alive
        stream.wait_for(lambda: stream.settled() >= len(sent), "row after the storm", every=1.0)
        done = stream.stop()
        published = pubsub_emulator.pull_all(stream.dead_subscription)
        special = dict(zip(SPECIAL, ids[-len(SPECIAL) :], strict=True))
        return Storm(stream, sent, special, done, published, stream.archived())


def test_the_job_lives_to_the_end_and_its_accounts_balance(storm):
    assert storm.done.code == 0, storm.done.err[-3000:]
    said = storm.done.json
    assert said["messages"] == said["rows_written"] + said["dead_letters"] == len(storm.sent)
    assert said["dead_letters"] == said["dead_letters_published"] == said["dead_letters_archived"]
    assert sum(said["dead_letters_by_reason"].values()) == said["dead_letters"]
    assert len(said["dead_letters_by_reason"]) >= 12, "the storm meets many reasons"
    assert said["rows_written"] > 1000
    assert "Traceback" not in storm.done.err


def test_every_message_is_a_row_or_a_dead_letter_and_none_is_both(storm):
    dead = Counter(_id(one.attributes["dlq_source"]) for one in storm.published)
    assert set(dead.values()) == {1}
    assert dead == Counter(_id(letter["dlq_source"]) for letter in storm.archived)
    assert {one.attributes["dlq_source"].rsplit("#", 1)[0] for one in storm.published} == {storm.stream.subscription}
    accepted = [data for message_id, (data, _) in storm.sent.items() if message_id not in dead]
    assert len(accepted) + len(dead) == len(storm.sent)
    expected = Counter(_number(json.loads(data, parse_float=str)["a"]) for data in accepted)
    assert Counter(row["a"][0] for row in storm.stream.rows_once()) == expected


def _number(value: Any) -> int:
    """A value, or a list of one. With a point it is what float64 reads below 2**53, and its exact value above."""
    item = value[0] if isinstance(value, list) else value
    if isinstance(item, str) and abs(float(item)) < 2**53:
        return int(float(item))
    return int(Decimal(item))


def test_dead_letters_hold_the_exact_bytes_and_attributes(storm):
    for letter in storm.archived:
        data, attributes = storm.sent[_id(letter["dlq_source"])]
        assert hashlib.sha256(data).hexdigest() == letter["dlq_payload_sha256"]
        payload = letter["payload"]
        assert (Path(letter["dlq_payload_uri"]).read_bytes() if payload is None else payload) == data
        assert {pair["key"]: pair["value"] for pair in _pairs(letter["attributes"])} == attributes
    for one in storm.published:
        if "dlq_payload_uri" not in one.attributes:
            assert one.data == storm.sent[_id(one.attributes["dlq_source"])][0]
        assert len(one.attributes) <= 100
        assert all(len(key.encode()) <= 256 and len(value.encode()) <= 1024 for key, value in one.attributes.items())
        assert not any(key.startswith("goog") for key in one.attributes), "the service would refuse it"


def _pairs(attributes: Any) -> list[dict[str, str]]:
    if isinstance(attributes, dict):
        return [{"key": key, "value": value} for key, value in attributes.items()]
    return list(attributes)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: repr(case.line[:40]))
def test_each_case_has_the_reason_that_it_has_in_a_file(storm, case):
    found = [letter for letter in storm.archived if letter["payload"] == case.line]
    assert found
    assert {letter["dlq_reason"] for letter in found} == {case.reason}
    assert {letter["dlq_feature"] for letter in found} == {case.feature}


@pytest.mark.parametrize(("line", "row"), ACCEPTED, ids=lambda value: repr(value)[:40])
def test_each_accepted_case_is_the_row_that_it_is_in_a_file(storm, line, row):
    assert row in storm.stream.rows_once()


def test_a_payload_of_7_5_mb_is_spilled_and_a_small_message_points_there(storm):
    letter = storm.letter("huge")
    assert len(letter.data) < 10_000
    uri = letter.attributes["dlq_payload_uri"]
    assert Path(uri).read_bytes() == HUGE
    assert letter.attributes["dlq_payload_sha256"] == hashlib.sha256(HUGE).hexdigest()
    assert letter.attributes["k"] == "v"
    assert letter.attributes["dlq_reason"] == "wrong_type"


def test_a_hundred_attributes_are_whole_in_the_archive_and_ours_travel(storm):
    letter = storm.letter("hundred")
    assert len(letter.attributes) == 100
    assert letter.attributes["dlq_reason"] == "wrong_type"
    [kept] = [one for one in storm.archived if _id(one["dlq_source"]) == storm.special["hundred"]]
    assert len(_pairs(kept["attributes"])) == 100


def test_a_message_of_attributes_only_is_refused_like_an_empty_record(storm):
    letter = storm.letter("attributes only")
    assert (letter.data, letter.attributes["only"]) == (b"", "attributes")
    assert letter.attributes["dlq_stage"] in ("decode", "validate")


def test_what_the_native_dead_letter_policy_has_added_is_kept(storm):
    assert NATIVE.items() <= storm.letter("native").attributes.items()


def test_attribute_names_that_collide_with_a_clients_parameters_travel(storm):
    attributes = storm.letter("colliding").attributes
    for name in ("topic", "data", "retry", "timeout", "ordering_key", "message", "self"):
        assert attributes[name] == f"mine-{name}"
    assert attributes["orig_googx"] == "reserved"
    assert attributes["é\u202e\n"] == "ünï\x00\x1b[2J"


def test_originals_that_have_our_names_travel_beside_ours(storm):
    attributes = storm.letter("ours taken").attributes
    assert attributes["dlq_reason"] == "wrong_type"
    assert attributes["orig_errorMessage"] == "theirs"
    assert attributes["orig_dlq_reason"] == "theirs"
    assert attributes["orig_orig_dlq_reason"] == "theirs too"


def test_shards_verify_and_dead_letters_can_be_looked_at(storm):
    done = headrace("verify", storm.stream.output, "--json")
    assert done.code == 0, done.out
    summary = headrace("dlq", "summary", storm.stream.folder / "dead", "--json")
    assert summary.code == 0
    assert json.dumps(len(storm.archived)) in summary.out


def test_window_names_are_safe_and_no_file_is_empty_or_left_over(storm):
    for window, manifest in storm.stream.manifests().items():
        assert re.fullmatch(r"window=\d{8}T\d{6}Z_\d{8}T\d{6}Z", window)
        names = {shard["name"] for shard in manifest["shards"]}
        on_disk = {path.name for path in (storm.stream.output / window).iterdir() if not path.name.startswith(".")}
        assert on_disk == names | {"manifest.json"}
        assert all((storm.stream.output / window / name).stat().st_size for name in names)
