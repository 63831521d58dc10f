"""Data splits: by fraction, by key, stable; the analysis learns from the train split only."""

from __future__ import annotations

from collections import Counter

import pytest
from fakes.cli import headrace
from fakes.runs import assert_whole

SPLITS = "--splits=train=0.6,eval=0.3,test=0.1"


def test_fractions_are_met_and_splits_are_disjoint(bench, row_schema, rows):
    run = bench.good_run(bench.write("f.jsonl", rows(3000)), SPLITS, schema=row_schema)
    ids = {name: set(run.column("id", name)) for name in ("train", "eval", "test")}
    assert sum(map(len, ids.values())) == 3000
    assert set.union(*ids.values()) == set(range(3000))
    # Four standard deviations of a binomial: sqrt(3000 p (1 - p)) is 27, 25 and 16.
    assert len(ids["train"]) == pytest.approx(1800, abs=107)
    assert len(ids["eval"]) == pytest.approx(900, abs=100)
    assert len(ids["test"]) == pytest.approx(300, abs=66)
    assert_whole(run)


def test_a_row_stays_in_its_split_whatever_else_is_in_the_input(bench, row_schema, rows):
    small = bench.good_run(bench.write("small.jsonl", rows(300)), SPLITS, schema=row_schema, run_id="small")
    large = bench.good_run(bench.write("large.jsonl", rows(900)[::-1]), SPLITS, schema=row_schema, run_id="large")
    for name in ("train", "eval", "test"):
        assert set(small.column("id", name)) == {n for n in large.column("id", name) if n < 300}


def test_another_seed_splits_otherwise(bench, row_schema, rows):
    source = bench.write("f.jsonl", rows(300))
    one = bench.good_run(source, SPLITS, schema=row_schema, run_id="one")
    two = bench.good_run(source, SPLITS, "--seed=2", schema=row_schema, run_id="two")
    assert set(one.column("id", "train")) != set(two.column("id", "train"))


@pytest.mark.parametrize("key", ["w", pytest.param("id", marks=pytest.mark.slow), "x"])
def test_rows_with_equal_keys_stay_together(bench, row_schema, key):
    lines = [b'{"id":%d,"x":%d.5,"w":"word %d"}' % (n % 150, n % 150, n % 150) for n in range(600)]
    run = bench.good_run(bench.write("f.jsonl", lines), SPLITS, f"--split_key={key}", schema=row_schema)
    keys = [set(run.column(key, name)) for name in ("train", "eval", "test")]
    assert all(keys), "no split is empty"
    assert sum(map(len, keys)) == len(set.union(*keys)) == 150
    assert set(Counter(run.column(key)).values()) == {4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--splits=train=0.9"], "sum to 0.9"),
        (["--splits=train=0.5,train=0.5"], "twice"),
        (["--splits=Train=1"], "Train"),
        (["--splits=train=0.5,eval"], "eval"),
        (["--splits=../x=1"], "../x"),
        ([SPLITS, "--split_key=nothing"], "not in the schema"),
    ],
)
def test_bad_splits_are_refused(bench, row_schema, rows, words, said):
    done, run = bench.run(bench.write("f.jsonl", rows(3)), *words, schema=row_schema)
    assert done.code == 2
    assert said in done.err
    assert not run.folder.exists()


def test_the_analysis_sees_good_rows_of_the_train_split_only(bench, row_schema, features, rows):
    wild = [b'{"id":%d,"x":1e30,"w":5}' % n for n in range(50)]
    source, splits = bench.write("f.jsonl", [*rows(1000), *wild]), "--splits=eval=0.5,train=0.5"
    run = bench.good_run(source, "--features", features, splits, schema=row_schema)
    learnt, other = run.column("x", "train"), run.column("x", "eval")
    assert abs(_mean(learnt)) < 1e-4, "z-scores of what was learnt from have mean 0"
    assert _mean([value**2 for value in learnt]) == pytest.approx(1, abs=1e-3)
    assert abs(_mean(other)) > 1e-3
    assert len(run.letters()) == 50
    given = ("--transform", run.folder / "transform_fn", splits)
    again = bench.good_run(source, *given, schema=row_schema, run_id="again")
    assert again.shard_bytes() == run.shard_bytes()
    assert again.manifest["transform_fingerprint"] == run.manifest["transform_fingerprint"]


@pytest.mark.slow
def test_the_first_split_is_learnt_from_where_none_is_called_train(bench, row_schema, features, rows):
    source = bench.write("f.jsonl", rows(1000))
    run = bench.good_run(source, "--features", features, "--splits=fit=0.5,rest=0.5", schema=row_schema)
    assert abs(_mean(run.column("x", "fit"))) < 1e-4


@pytest.mark.slow
def test_analyze_and_run_learn_the_same(bench, row_schema, features, rows):
    source = bench.write("f.jsonl", rows(400))
    analyze = ("analyze", "--input", source, "--schema", row_schema, "--features", features, SPLITS, "--threads", 1)
    done = headrace(*analyze, "--output", bench.folder / "tf", "--json")
    assert done.json == {"transform": str(bench.folder / "tf")}
    within = bench.good_run(source, "--features", features, SPLITS, schema=row_schema, run_id="within")
    apart = bench.good_run(source, "--transform", bench.folder / "tf", SPLITS, schema=row_schema, run_id="apart")
    assert apart.shard_bytes() == within.shard_bytes()


def test_a_transform_for_another_schema_is_refused(bench, case_schema, transform):
    done, run = bench.run(bench.write("f.jsonl", [b'{"a":1}']), "--transform", transform, schema=case_schema)
    assert done.code == 2
    assert "another schema" in done.err
    assert not run.folder.exists()


def test_transform_and_features_together_are_refused(bench, row_schema, transform, features, rows):
    words = ("--transform", transform, "--features", features)
    done, _ = bench.run(bench.write("f.jsonl", rows(3)), *words, schema=row_schema)
    assert done.code == 2
    assert "--features and --transform" in done.err


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
