"""``headrace run`` with its shards built in processes: the same bytes, and every way in which that can end badly."""

from __future__ import annotations

import sys

import pytest
from fakes.cli import headrace, python
from fakes.runs import Run, assert_whole

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

WATCHED = """
import os, signal, sys
from pathlib import Path
from pipeline.main import main
from pipeline.transforms import tasks

here, decode_task = os.getpid(), tasks.decode_task

def watched(task, *arguments, **options):
    with open({pids!r}, "a") as file:
        print(os.getpid() != here, file=file)
    if task.index == 2:
        {fault}
    return decode_task(task, *arguments, **options)

tasks.decode_task = watched
sys.exit(main({words!r}))
"""


@pytest.fixture
def source(bench, rows):
    """Rows, good and bad, for several tasks."""
    return bench.write("f.jsonl", [*rows(150), b"no", b'{"id":1.5}', *rows(150, start=150), b"[]"])


@pytest.fixture
def run_with(bench, source, row_schema):
    """A run of three workers in a process of its own; ``fault`` is done by the one that decodes task 2."""

    def run(*words: object, fault: str = "pass"):
        flags = bench.flags(source, schema=row_schema)
        pids = bench.folder / "pids"
        pids.unlink(missing_ok=True)
        all_words = ["run", *map(str, flags), *map(str, words), "--threads=3", "--min_shards=6", "--json"]
        done = python("-c", WATCHED.format(pids=str(pids), fault=fault, words=all_words))
        return done, Run(bench.output, bench.dead, "r"), pids.read_text().split() if pids.exists() else []

    return run


@pytest.mark.parametrize(
    "words", [(), ("--layout=blocks", "--rows_per_record=8"), ("--compression=gzip", "--splits=train=0.5,eval=0.5")]
)
def test_the_shards_are_those_of_one_thread(bench, run_with, source, row_schema, words):
    done, run = bench.run(source, "--min_shards=6", *words, schema=row_schema)
    assert done.code == 0, done.err
    expected, letters = run.shard_bytes(), run.letters()
    done, run, elsewhere = run_with(*words)
    assert done.code == 0, done.err
    assert elsewhere == ["True"] * 6
    assert run.shard_bytes() == expected
    assert [(letter["dlq_id"], letter["payload"]) for letter in run.letters()] == [
        (letter["dlq_id"], letter["payload"]) for letter in letters
    ]
    assert (done.json["rows_read"], done.json["rows_dead_lettered"]) == (303, 3)
    assert headrace("verify", run.folder).code == 0


def test_a_transform_is_learnt_here_and_applied_there(bench, run_with, source, row_schema, features):
    done, run = bench.run(source, "--min_shards=6", "--features", features, schema=row_schema)
    assert done.code == 0, done.err
    expected = run.shard_bytes()
    done, run, elsewhere = run_with("--features", features)
    assert done.code == 0, done.err
    assert elsewhere == ["False"] * 6 + ["True"] * 6  # the analysis, and the build
    assert run.shard_bytes() == expected


def test_a_global_shuffle_stays_in_threads(run_with):
    done, run, elsewhere = run_with("--shuffle=global")
    assert done.code == 0, done.err
    assert elsewhere == ["False"] * 6
    assert_whole(run)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 1, "a worker process was killed"),
        ("os.kill(os.getppid(), signal.SIGTERM)", 130, "interrupted"),
        ("os.kill(os.getppid(), signal.SIGINT)", 130, "interrupted"),
        ("raise OSError(28, 'No space left on device')", 1, "No space left on device"),
        ("raise MemoryError", 1, "MemoryError"),
        ("os._exit(0)", 1, "a worker process was killed"),
    ],
)
def test_a_run_that_ends_badly_leaves_nothing_and_can_be_run_again(bench, run_with, fault, code, said):
    done, run, _ = run_with(fault=fault)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert not run.committed
    assert [path.name for path in bench.output.iterdir()] == []
    done, run, _ = run_with()
    assert done.code == 0, done.err
    assert_whole(run)
