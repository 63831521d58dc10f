"""Runs that must not be committed: no rows, too many refused, a rule of the schema broken over the whole run."""

from __future__ import annotations

import json

import pytest
from fakes.runs import files_below


def _no_commit(bench, run):
    assert not run.committed
    assert not (bench.output / "LATEST").exists()
    assert files_below(bench.output) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("f.jsonl", b"", "empty"),
        ("f.jsonl", b"\n\n \r\n", "no rows"),
        ("f.csv", b"a,s\n", "no rows"),
        ("f.csv", b"a,s\r\n\r\n", "no rows"),
    ],
)
def test_no_rows(bench, case_schema, name, data, said):
    done, run = bench.run(bench.write(name, data), schema=case_schema)
    assert done.code == 3
    assert said in done.err
    assert "dead letters are kept" not in done.err, "there are none"
    _no_commit(bench, run)


@pytest.mark.parametrize("shuffle", ["blocks", "global", "none"])
def test_every_row_refused(bench, case_schema, shuffle):
    lines = [b'{"a":"%d"}' % n for n in range(9)] + [b"no"]
    done, run = bench.run(bench.write("f.jsonl", lines), f"--shuffle={shuffle}", schema=case_schema)
    assert done.code == 3
    assert "every one of the 10 rows" in done.err
    assert "9 wrong_type" in done.err
    assert str(run.dead / "run=r") in done.err, "where to look"
    assert [letter["payload"] for letter in run.letters()] == lines
    _no_commit(bench, run)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_guard_speaks_in_words_without_a_trace(bench, case_schema, threads):
    done, _ = bench.run(bench.write("f.jsonl", [b"no"]), "--threads", threads, schema=case_schema)
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("headrace: failed: ")


@pytest.mark.parametrize(("allowed", "code"), [("0.2", 0), ("0.19", 3), ("0", 3), ("1", 0)])
def test_max_rejected_fraction(bench, case_schema, allowed, code):
    lines = [b'{"a":%d}' % n for n in range(8)] + [b"no", b"[]"]
    done, run = bench.run(bench.write("f.jsonl", lines), f"--max_rejected_fraction={allowed}", schema=case_schema)
    assert done.code == code
    assert run.committed == (code == 0)
    assert len(run.letters()) == 2, "dead letters are kept either way"


def test_a_refused_rerun_leaves_the_committed_run_as_it_was(bench, case_schema):
    good = bench.write("good.jsonl", [b'{"a":%d}' % n for n in range(10)])
    first = bench.good_run(good, schema=case_schema, run_id="first")
    second = bench.good_run(good, schema=case_schema, run_id="second")
    before = {path: path.read_bytes() for path in files_below(bench.output)}
    bad = bench.write("bad.jsonl", [b'{"a":1}', b"no", b"no"])
    for run_id in ("second", "first", "third"):
        done, _ = bench.run(bad, "--max_rejected_fraction=0.5", schema=case_schema, run_id=run_id)
        assert done.code == 3
        assert {path: path.read_bytes() for path in files_below(bench.output)} == before
    assert second.latest == "second"
    assert first.column("a")


def test_min_fraction_over_the_run(bench):
    schema = bench.write(
        "s.pbtxt",
        b'feature { name: "a" type: INT presence { min_fraction: 1 } value_count { min: 1 max: 1 } }'
        b'feature { name: "b" type: INT presence { min_fraction: 0.5 } value_count { min: 1 max: 1 } }',
    )
    enough = [b'{"a":1,"b":2}', b'{"a":1}', b'{"a":"not counted"}']
    run = bench.good_run(bench.write("enough.jsonl", enough), schema=schema)
    assert run.manifest["quality"]["ok"]
    done, _ = bench.run(bench.write("less.jsonl", [*enough, b'{"a":1}']), schema=schema, run_id="less")
    assert done.code == 3
    assert "b is present in 33.33%" in done.err
    assert not (bench.output / "run=less").exists()


def test_min_examples_count(bench):
    schema = bench.write(
        "s.pbtxt",
        b'feature { name: "a" type: INT value_count { min: 1 max: 1 } } dataset_constraints { min_examples_count: 3 }',
    )
    done, _ = bench.run(bench.write("f.jsonl", [b'{"a":1}'] * 2), schema=schema)
    assert done.code == 3
    assert bench.run(bench.write("f.jsonl", [b'{"a":1}'] * 3), schema=schema)[0].code == 0


@pytest.mark.parametrize("shuffle", ["blocks", "global", "none"])
def test_fewer_rows_than_shards_make_no_empty_shard(bench, case_schema, shuffle):
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":2}'])
    run = bench.good_run(source, "--min_shards=5", f"--shuffle={shuffle}", schema=case_schema)
    assert sorted(run.column("a")) == [1, 2]
    assert 1 <= len(run.shards()) <= 2
    assert all(path.stat().st_size > 0 for path in run.shards())


def test_min_shards_are_made_where_there_are_rows_for_them(bench, row_schema, rows):
    run = bench.good_run(bench.write("f.jsonl", rows(500)), "--min_shards=4", schema=row_schema)
    assert len(run.shards()) == 4
    assert json.loads((run.folder / "manifest.json").read_bytes())["counts"]["written"] == 500


@pytest.mark.parametrize("flag", ["--min_shards=1000001", "--target_shard_bytes=1"])
def test_more_shards_than_anyone_can_want_are_refused_before_any_work(bench, row_schema, rows, flag, monkeypatch):
    monkeypatch.setattr("pipeline.commands.prepare._MOST_TASKS", 100)
    done, run = bench.run(bench.write("f.jsonl", rows(10)), flag, schema=row_schema)
    assert done.code == 2
    assert "--target_shard_bytes" in done.err
    assert not run.folder.exists()
