"""Accounts that do not balance: exit 1, the numbers in words, and nothing committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.runs import assert_whole, files_below

from pipeline.commands import run as run_command
from pipeline.core.records import TaskReport
from pipeline.transforms import build, dead_letters, tasks
from pipeline.transforms.processes import Parcel


@pytest.fixture
def source(bench, rows):
    """Twelve good rows and three bad ones."""
    return bench.write("f.jsonl", [*rows(12), b"no", b"[]", b'{"id":1.5}'])


def _refused(bench, done, run, *said):
    assert done.code == 1, done.err
    assert "nothing was committed" in done.err
    assert all(words in done.err for words in said), done.err
    assert "Traceback" not in done.err
    assert not run.committed
    assert files_below(bench.output) == []


def test_balanced_accounts_are_committed(bench, source, row_schema):
    assert_whole(bench.good_run(source, schema=row_schema))


@pytest.mark.parametrize("shuffle", ["blocks", "global"])
def test_a_lost_row(bench, source, row_schema, monkeypatch, shuffle):
    def lossy(*arguments):
        return [replace(part, rows=part.rows - 1) for part in write_parts(*arguments)]

    write_parts = tasks.write_parts
    monkeypatch.setattr(build if shuffle == "global" else tasks, "write_parts", lossy)
    done, run = bench.run(source, f"--shuffle={shuffle}", schema=row_schema)
    said = "12 rows went into the shuffle, but the parts that came out hold 11"
    blocks = "15 rows read, but 11 written + 3 dead-lettered = 14"
    _refused(bench, done, run, said if shuffle == "global" else blocks)


def test_a_lost_part(bench, source, row_schema, monkeypatch):
    def lossy(*arguments, **options) -> TaskReport:
        return replace(report_of(*arguments, **options), parts=())

    report_of = tasks.report_of
    monkeypatch.setattr(tasks, "report_of", lossy)
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, "12 rows written, but its parts hold 0")


def test_a_lost_task(bench, source, row_schema, monkeypatch):
    def lossy(self, task, artefact=None):
        return iter(()) if task.index == 1 else process(self, task, artefact)

    process = build.BuildShard.process
    monkeypatch.setattr(build.BuildShard, "process", lossy)
    done, run = bench.run(source, "--min_shards=3", schema=row_schema)
    _refused(bench, done, run, "no report of 1 of 3 tasks, the first is task 1")


def test_a_task_done_twice(bench, source, row_schema, monkeypatch):
    def eager(self, task, artefact=None):
        yield from process(self, task, artefact)
        yield from process(self, task, artefact)

    process = build.BuildShard.process
    monkeypatch.setattr(build.BuildShard, "process", eager)
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, "2 reports of task 0")


def test_a_lost_dead_letter(bench, source, row_schema, monkeypatch):
    def lossy(self, element):
        return process(self, (element[0], Parcel(element[1].open()[1:])))

    process = dead_letters.WriteDeadLetters.process
    monkeypatch.setattr(dead_letters.WriteDeadLetters, "process", lossy)
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, "3 rows were refused, but 2 dead letters were written")


def test_a_rejection_that_was_swallowed(bench, source, row_schema, monkeypatch):
    def lossy(*arguments, **options):
        decoded = decode_task(*arguments, **options)
        del decoded.rejections[0]
        return decoded

    decode_task = tasks.decode_task
    monkeypatch.setattr(tasks, "decode_task", lossy)
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, "15 rows read, but 12 written + 2 dead-lettered = 14")


@pytest.mark.parametrize("keep_bytes", [0, 1, 300])
def test_a_file_that_shrinks_after_the_plan(bench, source, row_schema, monkeypatch, keep_bytes):
    def announce(*_):
        source.write_bytes(source.read_bytes()[:keep_bytes])

    monkeypatch.setattr(run_command, "_announce", announce)
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, str(source), "changed while it was read")


def test_a_file_that_disappears_after_the_plan(bench, source, row_schema, monkeypatch):
    monkeypatch.setattr(run_command, "_announce", lambda *_: source.unlink())
    done, run = bench.run(source, schema=row_schema)
    _refused(bench, done, run, str(source), "No such file")


def test_a_file_that_grows_after_the_plan_counts_as_it_was_planned(bench, source, row_schema, rows, monkeypatch):
    def announce(*_):
        with source.open("ab") as stream:
            stream.write(b"".join(line + b"\n" for line in rows(5, start=100)))

    monkeypatch.setattr(run_command, "_announce", announce)
    run = bench.good_run(source, schema=row_schema)
    assert sorted(run.column("id")) == list(range(12))


def test_a_part_that_is_damaged_in_storage_is_not_published(bench, rows, row_schema, monkeypatch):
    """Parts that are concatenated are read again, and checked against what was written."""

    def damaging(*arguments):
        parts = write_parts(*arguments)
        for path in (Path(part.uri) for part in parts):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        return parts

    write_parts = tasks.write_parts
    monkeypatch.setattr(tasks, "write_parts", damaging)
    source = bench.write("f.jsonl", rows(200))
    done, run = bench.run(source, "--splits=train=0.5,eval=0.5", "--target_shard_bytes=8000", schema=row_schema)
    assert done.code == 1
    assert "was damaged in storage" in done.err
    assert not run.committed
