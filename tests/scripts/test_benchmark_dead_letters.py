"""The dead-letter rows of the benchmark, on a few flights: every letter counted, repaired and replayed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from bench.data import Inputs
from bench.dead_letters import Replaying, Summarising, jobs, lines


def test_jobs_write_their_letters_once_and_count_each(tmp_path):
    made = jobs(tmp_path, Inputs(tmp_path / "data", 400), 3)
    assert {key for line in lines(3) for key in line.keys} == set(made)
    for key, count in (("summary", 100), ("large replay", 300)):
        job, settings = made[key]()
        assert (job, settings["letters"]) == (key.split()[-1], count)
        (Summarising if job == "summary" else Replaying)(**settings).run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("task-*.avro")}
    made["replay"]()
    assert {path: path.stat().st_mtime_ns for path in before} == before
