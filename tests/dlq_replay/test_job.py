"""The replay as a graph: written labels, one shape whatever the options, any number of senders, a report."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import apache_beam as beam
import pytest

from dlq_replay import names
from dlq_replay.drain import DrainSettings
from dlq_replay.fix_file import parse_fixes
from dlq_replay.fix_module import FixModule
from dlq_replay.job import ReplayJob, build_replay
from dlq_replay.plan import read_archives, write_archives
from dlq_replay.report import Asked
from dlq_replay.settings import ReplaySettings, Target
from dlq_replay.worker import Source
from pipeline.commands.beam_options import make_pipeline, pipeline_options
from tests.dlq_replay.helpers import archive_of, letter

LETTERS = [letter(i, payload=b'{"a":"%d"}' % i) for i in range(50)]


@pytest.fixture
def job(tmp_path):
    """A replay of two archives in ``tmp_path/dead`` to rows."""
    dead = tmp_path / "dead"
    (dead / "run=r").mkdir(parents=True)
    for name, letters in (("a", LETTERS[:25]), ("b", LETTERS[25:])):
        (dead / "run=r" / f"{name}.avro").write_bytes(archive_of(letters))
    start = datetime.now(timezone.utc) + timedelta(minutes=1)
    settings = ReplaySettings("one", str(dead), start, Target("rows", "out"))
    write_archives(settings.places.plan("one"), [str(dead / "run=r" / f"{name}.avro") for name in "ab"])
    return ReplayJob(settings, Source(settings.places.plan("one")), Asked("me", ("dead",)))


def labels(job):
    pipeline = beam.Pipeline()
    build_replay(pipeline, job)
    return sorted(step.unique_name for step in pipeline.to_runner_api().components.transforms.values())


def test_every_label_is_written_and_options_do_not_change_the_graph(job):
    plain = labels(job)
    written = {value for key, value in vars(names).items() if key.isupper()}
    tops = [label for label in plain if "/" not in label and not label.startswith("ref_")]  # the root has no label
    assert set(tops) <= written
    assert len(tops) == 7
    assert not [label for label in tops if re.search(r"lambda|\.py|:\d", label)]
    settings = job.settings
    for other in (
        replace(settings, senders=4, rate=7.0),
        replace(settings, target=Target("topic", "projects/p/topics/t"), parking_topic="projects/p/topics/q"),
        replace(settings, force=True, fixes=parse_fixes("fixes: [{drop: [a]}]", "f")),
    ):
        assert labels(replace(job, settings=other)) == plain
    drain = Source(subscription=DrainSettings("projects/p/subscriptions/s", 5, 6.0))
    assert labels(replace(job, source=drain)) == plain


def test_what_travels_to_workers_is_plain(job):
    module = FixModule("fix.py", "fix", "def fix(payload, attributes):\n    return None\n")
    fixes = parse_fixes(r"fixes: [{regex: {a: {pattern: 'x', with: ''}}, default: {b: [1]}}]", "f")
    full = replace(job, settings=replace(job.settings, fix_module=module, fixes=fixes))
    assert pickle.loads(pickle.dumps(full)) == full


@pytest.mark.parametrize("senders", [1, 3])
def test_senders_side_by_side_send_each_letter_once_and_one_report_is_written(job, senders):
    job = replace(job, settings=replace(job.settings, senders=senders), skipped=(("too new", 2),))
    pipeline = make_pipeline(pipeline_options([], threads=senders))
    build_replay(pipeline, job)
    pipeline.run().wait_until_finish()
    with open(job.report_uri) as stream:
        report = json.load(stream)
    assert report["counts"]["replayed"] == 50
    assert report["counts"]["not_looked_at"] == {"too new": 2}
    assert report["by"] == "me"
    rows = [line for path in _files(job, "*.jsonl") for line in path.read_bytes().splitlines()]
    assert sorted(rows) == sorted(one.payload for one in LETTERS)


def test_each_row_says_which_letter_it_was(job):
    pipeline = make_pipeline(pipeline_options([], threads=1))
    build_replay(pipeline, job)
    pipeline.run().wait_until_finish()
    known = {one.payload: one.dlq_id for one in LETTERS}
    seen = 0
    for path in _files(job, "*.jsonl"):
        data = path.read_bytes()
        for line in (path.parent / "_ids" / path.name).read_text().splitlines():
            offset, dlq_id, attempt, attributes, _ = json.loads(line)
            row = data[offset : data.index(b"\n", offset)]
            assert (known[row], attempt, attributes["dlq_attempt"]) == (dlq_id, 1, "1")
            seen += 1
    assert seen == 50


def test_the_list_of_archives_reads_back(tmp_path):
    uris = ["gs://b/x y\n.avro", "é.avro"]
    write_archives(str(tmp_path / "plan"), uris)
    assert read_archives(str(tmp_path / "plan")) == uris


def _files(job, pattern):
    from pathlib import Path

    return sorted(Path(job.settings.places.rows("one")).glob(pattern))
