"""From raw rows to a trainer's batches through the command line: no layout changes, loses or invents a value."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from fakes.runs import assert_whole, files_below

from pipeline.features.reader import make_dataset

WAYS = ("blocks", "global", "none")


def read(output, split):
    """All rows of a split as sorted tuples of values."""
    dataset = make_dataset(output, 16, split=split, drop_remainder=False)
    batches = [{name: value.tolist() for name, value in batch.items()} for batch in dataset.as_numpy_iterator()]
    names = sorted(dataset.element_spec)
    return sorted(row for batch in batches for row in zip(*(batch[name] for name in names), strict=True))


@pytest.mark.parametrize("shuffle", WAYS)
def test_raw_rows_reach_the_trainer_alike_in_every_layout(bench, row_schema, rows, transform, shuffle):
    source = bench.write("f.jsonl", [*rows(150), b"{}"])
    flags = ("--transform", transform, "--shuffle", shuffle, "--splits=train=0.8,eval=0.2", "--min_shards=2")
    found = {}
    for layout in ("rows", "packed", "blocks"):
        run = bench.good_run(
            source, *flags, "--layout", layout, "--rows_per_record=7", schema=row_schema, run_id=layout
        )
        assert run.manifest["layout"] == run.manifest["feature_spec"]["layout"]["name"] == layout
        assert run.manifest["counts"]["dead_lettered"] == 1
        if layout != "blocks":
            assert_whole(run)
        else:
            assert all(-(-s["rows"] // 7) <= s["records"] < s["rows"] for s in run.manifest["shards"])
        found[layout] = {split: read(run.folder, split) for split in ("train", "eval")}
    assert found["rows"] == found["packed"] == found["blocks"]
    ids = [row[0] for split in found["rows"].values() for row in split]
    assert sorted(ids) == list(range(150))
    assert len(found["rows"]["eval"]) > 5


def test_rows_as_they_are_in_blocks(bench, row_schema, rows):
    bench.good_run(bench.write("f.jsonl", rows(20)), "--layout=blocks", schema=row_schema)
    found = read(bench.output, "train")
    raw = [json.loads(line) for line in rows(20)]
    wanted = [(r["id"], r["w"].encode(), tf.constant(r["x"], tf.float32).numpy().item()) for r in raw]
    assert found == sorted(wanted)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "'d', 'l', 's', 'x'"),
        (["--features", "x: pass_through\na: pass_through\n"], "'x'"),
    ],
)
def test_blocks_refuse_what_varies_before_any_work(bench, case_schema, flags, named):
    words = [flags[0], bench.write("given", flags[1].encode())] if flags else []
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":2,"x":1.5}'])
    done, run = bench.run(source, *words, "--layout=blocks", schema=case_schema)
    assert done.code == 2
    assert f"--layout=blocks cannot hold {named}" in done.err
    assert "fill_missing" in done.err
    assert not run.committed
    assert files_below(bench.output) == []


def test_blocks_refuse_what_a_module_gives_before_any_work(bench, row_schema, rows):
    module = bench.write("m.py", b"def preprocessing_fn(i): return {'y': i['w']}\n")
    flags = ("--preprocessing_module", module, "--layout=blocks")
    done, _ = bench.run(bench.write("f.jsonl", rows(3)), *flags, schema=row_schema)
    assert done.code == 2
    assert "--layout=blocks cannot hold 'y'" in done.err
    assert files_below(bench.output) == []


def test_blocks_refuse_a_transform_made_earlier_too(bench, case_schema):
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":2,"x":1.5}'])
    features = bench.write("features.yaml", b"x: pass_through\na: pass_through\n")
    bench.good_run(source, "--features", features, "--layout=packed", schema=case_schema)
    flags = ("--transform", bench.output / "run=r" / "transform_fn", "--layout=blocks")
    done, _ = bench.run(source, *flags, schema=case_schema, run_id="again")
    assert done.code == 2
    assert "cannot hold 'x'" in done.err
