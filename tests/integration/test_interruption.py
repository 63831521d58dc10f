"""A run that is told to stop: exit code 130, nothing committed, nothing left behind."""

from __future__ import annotations

import os
import signal

import pytest


@pytest.mark.parametrize("stopped", ["worker", "SIGTERM"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_run_leaves_nothing(bench, row_schema, rows, monkeypatch, stopped, threads):
    def stop(*_: object, **__: object) -> None:
        if stopped == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("pipeline.transforms.tasks.decode_task", stop)
    done, run = bench.run(bench.write("f.jsonl", rows(3)), f"--threads={threads}", schema=row_schema)
    assert (done.code, "interrupted" in done.err) == (130, True), done.err
    assert not run.committed
    assert [path.name for path in run.output.iterdir()] == []
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_runner_that_there_is_not_is_bad_usage_and_leaves_nothing(bench, row_schema, rows):
    done, run = bench.run(bench.write("f.jsonl", rows(3)), "--runner=NoSuchRunner", schema=row_schema)
    assert (done.code, "NoSuchRunner" in done.err) == (2, True)
    assert [path.name for path in run.output.iterdir()] == []
