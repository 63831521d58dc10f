"""The endless replay: each message sent once when its bundle ends, a failed bundle brought again, loops that end."""

from __future__ import annotations

from datetime import datetime, timezone

import apache_beam as beam
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import PipelineOptions
from fakes.cli import headrace
from fakes.runs import letters_in

from dlq_replay import names, stream_job
from dlq_replay.replayer import Ports
from dlq_replay.senders import ArchiveParking
from dlq_replay.settings import ReplaySettings, Target
from dlq_replay.store import FolderStore
from dlq_replay.stream_job import ReplayLetters, StreamReplayJob, build_stream_replay
from pipeline.core.dead_letter import to_attributes
from pipeline.transforms import files
from tests.dlq_replay.helpers import letter
from tests.dlq_replay.replays import Sent

SUBSCRIPTION = "projects/test-proj/subscriptions/dead"
LETTERS = [letter(i, payload=b'{"a":%d}' % i) for i in range(10)]
NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


def message(one):
    return PubsubMessage(one.payload, to_attributes(one).attributes, message_id="1", publish_time=NOW)


@pytest.fixture
def sent(monkeypatch):
    """Where letters go instead of a topic."""
    sent = Sent()

    def make_ports(settings, acknowledge, clock):
        return Ports(
            sent,
            ArchiveParking(settings.places.parked),
            ArchiveParking(settings.places.letters("r")),
            FolderStore(settings.places.ledger),
            files.open_read,
            clock,
            acknowledge,
        )

    monkeypatch.setattr(stream_job, "make_ports", make_ports)
    return sent


@pytest.fixture
def job(tmp_path):
    target = Target("topic", "projects/test-proj/topics/t")
    settings = ReplaySettings("r", str(tmp_path), NOW, target, keep_letters=True, park_left=True)
    return StreamReplayJob(settings, SUBSCRIPTION)


def bundle(step, letters):
    step.start_bundle()
    for one in letters:
        step.process(message(one))
    step.finish_bundle()


def test_what_a_bundle_holds_is_sent_when_it_ends_and_once(job, sent, tmp_path):
    step = ReplayLetters(job)
    step.setup()
    bundle(step, LETTERS)
    bundle(step, LETTERS[:4])
    other = ReplayLetters(job)
    other.setup()
    bundle(other, LETTERS)
    assert sorted(sent.ids) == sorted(one.dlq_id for one in LETTERS)
    assert len(letters_in(tmp_path / "_replay" / "letters")) == 10


def test_a_bundle_that_failed_comes_again_and_nothing_of_it_is_lost(job, sent):
    step = ReplayLetters(job)
    step.setup()
    real, fails = sent.send, [True, True]

    def send(name, batch):
        if fails:
            fails.pop()
            raise OSError("unavailable")
        return real(name, batch)

    sent.send = send
    for _ in range(2):
        with pytest.raises(OSError, match="unavailable"):
            bundle(step, LETTERS)
    bundle(step, LETTERS)
    assert sorted(sent.ids) == sorted(one.dlq_id for one in LETTERS)


def test_used_up_and_unsendable_letters_are_parked(job, sent, tmp_path):
    step = ReplayLetters(job)
    step.setup()
    bundle(step, [letter(50, attempt=3), letter(51, payload=b"x" * 2000)])
    assert sent.ids == []
    assert len(letters_in(tmp_path / "_replay" / "parked")) == 2


def test_it_runs_as_a_beam_step(job, sent):
    with beam.Pipeline(runner="FnApiRunner") as root:
        _ = root | beam.Create(list(map(message, LETTERS))) | beam.ParDo(ReplayLetters(job))
    assert sorted(sent.ids) == sorted(one.dlq_id for one in LETTERS)


def test_the_graph_has_written_labels_and_no_shuffle_before_sending(job):
    pipeline = beam.Pipeline(options=PipelineOptions(["--streaming"]))
    build_stream_replay(pipeline, job)
    steps = pipeline.to_runner_api().components.transforms
    labels = {step.unique_name for step in steps.values()}
    assert {label for label in labels if "/" not in label and not label.startswith("ref_")} == {
        names.READ_LETTERS,
        names.REPLAY_LETTERS,
    }
    assert not any("group_by_key" in step.spec.urn for step in steps.values())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "on Dataflow"),
        (("--runner=DataflowRunner", "--rate=5", "--reason=wrong_type"), "leave out --rate, --reason"),
        (("--runner=DataflowRunner", "--senders=2"), "leave out --senders"),
    ],
)
def test_what_only_a_bounded_replay_can_do_is_refused(tmp_path, words, says):
    done = headrace(
        *(
            "dlq",
            "replay",
            SUBSCRIPTION,
            "--ledger",
            tmp_path,
            "--to",
            "original",
            "--execute",
            "--streaming",
            *words,
        )
    )
    assert done.code == 2
    assert says in done.err
