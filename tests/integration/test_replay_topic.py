"""Replays through the Pub/Sub emulator: a stream dead-letters, a replay repairs, the stream accepts; every row once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from fakes.cli import ROOT, headrace
from fakes.streams import running_stream

from dlq_replay.envelope import letter_of_message
from dlq_replay.pull import Held, Subscription
from dlq_replay.worker import system_clock
from pipeline.core.archive import write_archive
from pipeline.core.dead_letter import to_attributes
from pipeline.core.messages import RefusedMessage, letter_of, make_message
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault

QUICK = ("--idle_seconds", 1)


def broken_row(number):
    return json.dumps({"id": number, "x": f"{number}.5", "w": "fir"}).encode()


def letter(
    number, *, attempt=0, payload=None, attributes=None, key="", subscription="projects/test-proj/subscriptions/in"
):
    """What a stream makes of a refused message."""
    own = {"k": f"v{number}", "CloudPubSubDeadLetterSourceDeliveryCount": "5"} if attributes is None else attributes
    if attempt:
        own |= {"dlq_id": f"{number:064x}", "dlq_attempt": str(attempt)}
    message = make_message(
        broken_row(number) if payload is None else payload,
        own,
        message_id=str(number),
        publish_time_us=1,
        event_time_us=1_714_564_800_000_000,
        ordering_key=key,
    )
    fault = Fault(Reason.WRONG_TYPE, f"x of {number} is a string", "x")
    return letter_of(
        RefusedMessage(message, (fault,), message.event_time_us),
        subscription=subscription,
        job="j",
        schema_fingerprint="f",
        failed_at="2024-05-01T12:00:00Z",
    )


class Lot:
    """A dead-letter topic with its subscription, the topic that letters go back to, and a folder for the ledger."""

    def __init__(self, pubsub, folder):
        self.pubsub, self.ledger = pubsub, folder / "dead"
        self.topic = pubsub.topic()
        self.subscription = pubsub.subscription(self.topic)
        self.target = pubsub.topic()
        self.arrived = pubsub.subscription(self.target, enable_message_ordering=True)

    def put(self, *letters):
        messages = [(one.payload or b"", to_attributes(one).attributes) for one in letters]
        self.pubsub.publish(self.topic, *messages)

    def replay(self, *words, execute=True):
        return headrace(
            *("dlq", "replay", self.subscription, "--ledger", self.ledger, "--to", self.target, "--json", *QUICK),
            *(("--execute",) if execute else ()),
            *words,
        )

    def left(self):
        """The messages that are still there, nobody's lease on them."""
        return self.pubsub.pull(self.subscription, ack=False)


@pytest.fixture
def lot(pubsub, tmp_path):
    return Lot(pubsub, tmp_path)


def test_a_summary_of_a_subscription_loses_nothing_and_holds_nothing(lot):
    lot.put(*(letter(n) for n in range(40)))
    for _ in range(2):
        done = headrace("dlq", "summary", lot.subscription, "--json", *QUICK)
        assert done.code == 0, done.err
        assert done.json["dead_letters"] == 40
        assert done.json["by_reason"] == {"wrong_type": 40}
        assert done.json["by_feature"] == {"x": 40}
        assert done.json["by_hour"] == {"2024-05-01T12:00Z": 40}
    assert len(lot.pubsub.pull_all(lot.subscription, 40)) == 40
    shown = headrace("dlq", "show", lot.subscription, "--json", *QUICK)
    assert shown.json["dead_letters"] == []


def test_a_peek_says_that_a_policy_of_the_service_counts_it(lot):
    policy = {"dead_letter_topic": lot.target, "max_delivery_attempts": 7}
    counted = lot.pubsub.subscription(lot.topic, dead_letter_policy=policy)
    lot.put(letter(1))
    assert "delivered 7 times is moved" in headrace("dlq", "summary", counted, *QUICK).err
    assert "is moved" not in headrace("dlq", "summary", lot.subscription, *QUICK).err


def test_a_dry_run_of_a_subscription_takes_nothing_away(lot, row_schema):
    lot.put(*(letter(n) for n in range(10)))
    fixes = lot.ledger.parent / "fixes.yaml"
    fixes.write_text("fixes: [{cast: {x: float}}]")
    done = lot.replay("--schema", row_schema, "--fix", fixes, execute=False)
    assert done.code == 0, done.err
    assert (done.json["would_pass"], done.json["would_fail"]) == (10, 0)
    assert not lot.ledger.exists()
    assert len(lot.pubsub.pull_all(lot.subscription, 10)) == 10


def test_letters_go_back_as_they_came_and_are_acknowledged_when_they_are_safe(lot):
    first = [letter(n, key=f"key{n % 2}") for n in range(20)]
    lot.put(*first)
    done = lot.replay()
    assert done.code == 0, done.err
    assert done.json["counts"]["replayed"] == 20
    got = {one.attributes["dlq_id"]: one for one in lot.pubsub.pull_all(lot.arrived, 20)}
    assert len(got) == 20
    for one in first:
        message = got[one.dlq_id]
        assert message.data == one.payload
        assert message.ordering_key == one.ordering_key
        assert message.attributes == {
            "dlq_id": one.dlq_id,
            "dlq_attempt": "1",
            "dlq_event_time": "2024-05-01T12:00:00Z",
            **dict(one.attributes),
        }
    assert lot.left() == []
    kept = headrace("dlq", "summary", lot.ledger / "_replay" / "letters", "--json").json
    assert kept["by_reason"] == {"wrong_type": 20}  # what Pub/Sub does not hold any more


def test_a_letter_published_twice_is_replayed_once_also_from_its_archive(lot, tmp_path):
    lot.put(letter(1), letter(1), letter(2))
    counts = lot.replay().json["counts"]
    assert (counts["replayed"], counts["already_done"]) == (2, 1)
    lot.put(letter(2), letter(3))
    counts = lot.replay().json["counts"]
    assert (counts["replayed"], counts["already_done"]) == (1, 1)
    kept = lot.ledger / "_replay" / "letters"
    done = headrace("dlq", "replay", kept, "--to", lot.target, "--execute", "--json")
    assert (done.json["counts"]["replayed"], done.json["counts"]["already_done"]) == (0, 3)
    assert len(lot.pubsub.pull_all(lot.arrived, 3)) == 3


def test_what_was_not_selected_or_cannot_be_sent_stays_in_the_subscription(lot):
    lot.put(letter(1), letter(2, attributes={f"k{n:02d}": "v" for n in range(86)}), letter(3, payload=b"[]"))
    module = lot.ledger.parent / "fix.py"
    module.write_text(
        "def fix(payload, attributes):\n    assert payload != b'[]', 'no list'\n    return payload, attributes\n"
    )
    done = lot.replay("--attribute", "k=v1", "--attribute", "k=v1")
    assert done.json["counts"]["replayed"] == 1
    done = lot.replay("--fix_module", f"{module}:fix")
    assert done.json["counts"]["replayed"] == 1
    assert done.json["counts"]["left"] == {"the fix module failed: AssertionError: no list": 1}
    assert [one.data for one in lot.left()] == [b"[]"]


def test_used_up_letters_are_parked_on_a_topic_and_acknowledged(lot):
    parking = lot.pubsub.topic()
    parked = lot.pubsub.subscription(parking)
    lot.put(letter(1, attempt=3), letter(2, attempt=2))
    counts = lot.replay("--parking_topic", parking).json["counts"]
    assert (counts["replayed"], counts["parked"], counts["parked_ids"]) == (1, 1, [f"{1:064x}"])
    (message,) = lot.pubsub.pull_all(parked, 1)
    assert message.data == broken_row(1)
    assert message.attributes["dlq_attempt"] == "3"
    assert message.attributes["dlq_reason"] == "wrong_type"
    assert lot.left() == []


def test_letters_that_come_while_a_replay_runs_are_left_to_the_next(lot):
    """A stream that refuses all of it again would else feed the replay for ever."""
    lot.put(*(letter(n) for n in range(3)))
    seen = []

    class Looping(Subscription):
        def pull(self, most):
            found = super().pull(most)
            if found and len(seen) < 30:
                seen.extend(found)
                lot.put(*(letter(100 + len(seen) + n) for n in range(3)))
            return found

    import dlq_replay.worker as worker

    before = worker.Subscription
    worker.Subscription = Looping
    try:
        done = lot.replay("--max_seconds", 20)
    finally:
        worker.Subscription = before
    assert done.code == 0, done.err
    assert done.json["counts"]["replayed"] == 3
    assert "published after the replay began" in done.json["counts"]["not_looked_at"]
    assert len(lot.left()) >= 3


def test_a_bounded_drain_stops_where_it_was_told_to(lot):
    lot.put(*(letter(n) for n in range(30)))
    assert lot.replay("--max_messages", 12).json["counts"]["read"] == 12
    assert lot.replay("--limit", 5).json["counts"]["replayed"] == 5
    assert lot.replay().json["counts"]["replayed"] == 13
    assert Counter(one.attributes["dlq_id"] for one in lot.pubsub.pull_all(lot.arrived, 30)).most_common(1)[0][1] == 1


def test_messages_without_our_attributes_are_letters_too(lot):
    """What the service's own dead-letter policy, or a person, put there."""
    lot.pubsub.publish(lot.topic, (b"\xff\x00", {"CloudPubSubDeadLetterSourceDeliveryCount": "9", "dlq_attempt": "x"}))
    done = headrace("dlq", "show", lot.subscription, "--json", *QUICK)
    (one,) = done.json["dead_letters"]
    assert (one["reason"], one["payload"], one["attempt"]) == ("undelivered", "ff00", 0)
    assert lot.replay().json["counts"]["replayed"] == 1
    (message,) = lot.pubsub.pull_all(lot.arrived, 1)
    assert message.data == b"\xff\x00"
    assert message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "9"
    assert message.attributes["dlq_attempt"] == "1"


def test_envelopes_read_back(lot):
    made = letter(7, key="k", attributes={"errorMessage": "theirs", "dlq_job": "theirs", "googx": "g"})
    lot.put(made)
    with Held(Subscription(lot.subscription), system_clock()) as held:
        (pulled,) = held.pull(10)
    back = pulled.letter
    for name in ("dlq_id", "payload", "reason", "feature", "message", "attributes", "ordering_key", "attempt", "job"):
        assert getattr(back, name) == getattr(made, name), name
    empty = letter_of_message(b"", {}, subscription="s", message_id="1", publish_time_us=0)
    assert (empty.payload, empty.reason, empty.failed_at) == (b"", "undelivered", "1970-01-01T00:00:00Z")


def test_large_letters_and_those_whose_bytes_lie_in_a_file_go_back_whole(lot, tmp_path):
    large = [letter(n, payload=bytes([n]) * 3_000_000) for n in range(3)]
    spilled = letter(9, payload=b"z" * 100_000)
    (tmp_path / "spill").write_bytes(spilled.payload)
    pointing = replace(spilled, payload=None, payload_uri=str(tmp_path / "spill"))
    gone = replace(letter(10), payload=None, payload_uri=str(tmp_path / "nowhere"))
    lot.put(*large, pointing, gone)
    counts = lot.replay("--payload_folder", tmp_path).json["counts"]
    assert counts["replayed"] == 4
    assert counts["left"] == {"the file that holds the payload is gone": 1}
    got = {one.attributes["dlq_id"]: one.data for one in lot.pubsub.pull_all(lot.arrived, 4)}
    assert got == {one.dlq_id: one.payload for one in (*large, spilled)}


def test_a_letter_that_anyone_published_cannot_have_a_file_of_ours_sent(lot, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    names = {"dlq_payload_uri": str(tmp_path / "secret"), "dlq_payload_sha256": hashlib.sha256(b"secret").hexdigest()}
    attempts = {"dlq_id": "../../x", "dlq_attempt": "-1"}, {"dlq_attempt": "9" * 40}, {"dlq_attempt": "x"}
    lot.pubsub.publish(lot.topic, *((b"", names | more) for more in attempts))
    for execute in (False, True):
        done = lot.replay(execute=execute)
        assert done.code == 0, done.err
        left = (done.json["counts"] if execute else done.json)["left"]
        assert [why.split(",")[0] for why in left] == [
            "the letter names a file outside the dead-letter folder for its payload"
        ]
    assert lot.pubsub.pull(lot.arrived) == []
    assert len(lot.left()) == 3


def test_to_original_finds_the_topic_of_the_subscription_that_refused(lot):
    source = lot.pubsub.subscription(lot.target)
    lot.put(letter(1, subscription=source), letter(2, subscription=source))
    done = headrace(
        *("dlq", "replay", lot.subscription, "--ledger", lot.ledger, "--to", "original", "--execute", "--json", *QUICK)
    )
    assert done.code == 0, done.err
    assert done.json["counts"]["replayed"] == 2
    assert len(lot.pubsub.pull_all(lot.arrived, 2)) == 2


def test_a_topic_that_is_not_there_fails_in_words_and_loses_nothing(lot):
    lot.put(letter(1))
    done = headrace(
        *("dlq", "replay", lot.subscription, "--ledger", lot.ledger, "--execute", *QUICK),
        *("--to", "projects/test-proj/topics/nowhere"),
    )
    assert done.code == 1
    assert "cannot publish to projects/test-proj/topics/nowhere" in done.err
    assert "--replay_id=" in done.err
    assert len(lot.left()) == 1


def test_a_subscription_needs_a_ledger(lot):
    done = headrace("dlq", "replay", lot.subscription, "--to", lot.target, "--execute")
    assert done.code == 2
    assert "--ledger FOLDER" in done.err
    done = headrace("dlq", "summary", lot.subscription, "dead")
    assert done.code == 2


@pytest.mark.slow
def test_a_drain_that_is_killed_loses_nothing(lot):
    lot.put(*(letter(n) for n in range(60)))
    words = ["dlq", "replay", lot.subscription, "--ledger", lot.ledger, "--to", lot.target, "--execute", "--rate=20"]
    command = [sys.executable, "-m", "pipeline.main", *map(str, words)]
    environment = {**os.environ, **lot.pubsub.env}
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    got = []
    limit = time.monotonic() + 120
    while len(got) < 10 and time.monotonic() < limit:
        assert process.poll() is None
        got += lot.pubsub.pull(lot.arrived)
    process.kill()
    process.wait()
    # The leases of a process that died run out after ten minutes; the same is had by giving them back.
    lot.pubsub.subscriber.seek(request={"subscription": lot.subscription, "time": {"seconds": 1}}, timeout=30)
    done = lot.replay("--claim_lease", "1s")
    assert done.code == 0, done.err
    got += lot.pubsub.pull_all(lot.arrived)
    ids = Counter(one.attributes["dlq_id"] for one in got)
    assert set(ids) == {letter(n).dlq_id for n in range(60)}
    assert sum(ids.values()) - 60 <= 20 * 8  # at most the batches that were on their way


@pytest.mark.slow
def test_two_replays_of_one_archive_in_two_processes_send_each_letter_once(lot):
    folder = lot.ledger / "run=r"
    folder.mkdir(parents=True)
    letters = [letter(n) for n in range(400)]
    for number in range(4):
        with (folder / f"task-{number:05d}.avro").open("wb") as stream:
            write_archive(stream, letters[number * 100 : (number + 1) * 100])
    words = ["dlq", "replay", str(lot.ledger), "--to", lot.target, "--execute", "--json", "--rate=80"]
    command = [sys.executable, "-m", "pipeline.main", *words]
    environment = {**os.environ, **lot.pubsub.env}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) for _ in range(2)]
    said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    reports = [json.loads(out) for out, _ in said]
    assert max(one["started"] for one in reports) < min(one["finished"] for one in reports), "they did not run at once"
    counts = [one["counts"] for one in reports]
    assert sum(one["replayed"] for one in counts) == 400
    assert all(one["replayed"] + one["already_done"] == 400 for one in counts)
    got = Counter(one.attributes["dlq_id"] for one in lot.pubsub.pull_all(lot.arrived, 400))
    assert got == Counter(one.dlq_id for one in letters)


@pytest.mark.slow
def test_a_stream_refuses_a_replay_repairs_and_the_stream_accepts_every_row_once(
    pubsub, tmp_path, row_schema, transform, rows
):
    fixes = tmp_path / "fixes.yaml"
    fixes.write_text("fixes:\n  - when: {reason: wrong_type, feature: x}\n    cast: {x: float}\n")
    flags = ("--schema", row_schema, "--transform", transform, "--window", "1h")
    with running_stream(pubsub, tmp_path / "job", *flags) as stream:
        pubsub.publish(stream.topic, *rows(50), *(broken_row(n) for n in range(1000, 1030)), b"no json")
        dead = []
        stream.wait_for(
            lambda: dead.extend(pubsub.pull(stream.dead_subscription, ack=False)) or len(dead) >= 31, "letters"
        )
        acks = {"subscription": stream.dead_subscription, "time": {"seconds": 1}}
        pubsub.subscriber.seek(request=acks, timeout=30)
        words = (
            "dlq",
            "replay",
            stream.dead_subscription,
            "--ledger",
            tmp_path / "dead",
            "--fix",
            fixes,
            "--json",
            *QUICK,
        )
        proof = headrace(*words, "--schema", row_schema, "--transform", transform).json
        assert (proof["would_pass"], proof["would_fail"]) == (30, 1)
        done = headrace(*words, "--to", "original", "--execute")
        assert done.code == 0, done.err
        assert done.json["counts"]["replayed"] == 31
        again = []
        stream.wait_for(lambda: again.extend(pubsub.pull(stream.dead_subscription)) or again, "the second failure")
        assert [one.data for one in again] == [b"no json"]
        assert again[0].attributes["dlq_attempt"] == "1"
        first = next(one for one in dead if one.data == b"no json")
        assert again[0].attributes["dlq_id"] == first.attributes["dlq_id"]
        stopped = stream.stop()
        assert stopped.code == 0, stopped.err
        ids = sorted(row["id"][0] for row in stream.rows_once())
        assert ids == [*range(50), *range(1000, 1030)]
