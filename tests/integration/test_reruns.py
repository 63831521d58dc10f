"""Reruns: the same name replaces that run and nothing else; the same seed and input give the same bytes."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.bench import Workbench
from fakes.cli import headrace, headrace_process
from fakes.runs import Run, assert_whole, files_below, records_of, row_of

from pipeline.core.errors import HeadraceError
from pipeline.transforms.publish import check_owner

BAD = [b'{"id":"one"}', b"no"]


def test_a_rerun_replaces_that_run_and_nothing_else(bench, row_schema, rows):
    many = bench.write("many.jsonl", [*rows(300), *BAD])
    few = bench.write("few.jsonl", rows(10, start=1000))
    other = bench.good_run(many, schema=row_schema, run_id="other")
    kept = {path: path.read_bytes() for path in files_below(other.folder)}
    first = bench.good_run(many, "--min_shards=4", "--splits=train=0.5,eval=0.5", schema=row_schema)
    assert len(first.shards()) == 8
    assert len(first.letters()) == 2
    again = bench.good_run(few, schema=row_schema)
    assert sorted(again.column("id")) == list(range(1000, 1010))
    assert again.letters() == [], "the dead letters of the run it replaces are gone"
    assert_whole(again)
    assert {path: path.read_bytes() for path in files_below(other.folder)} == kept
    assert len(other.letters()) == 2
    assert headrace("verify", bench.output).code == 0
    back = bench.good_run(many, "--min_shards=4", schema=row_schema)
    assert len(back.shards()) == 4
    assert_whole(back)


def test_a_rerun_with_fewer_archives_leaves_no_stale_one(bench, row_schema, rows):
    spread = bench.write(
        "spread.jsonl", [line for n in range(60) for line in (*rows(3, start=3 * n), b'{"id":%d.5}' % n)]
    )
    first = bench.good_run(spread, "--min_shards=4", schema=row_schema)
    assert len(list((bench.dead / "run=r").rglob("*.avro"))) == 4
    assert len(first.letters()) == 60
    again = bench.good_run(spread, "--min_shards=2", schema=row_schema)
    assert len(list((bench.dead / "run=r").rglob("*.avro"))) == 2
    assert_whole(again)


def test_latest_and_previous_run_id(bench, row_schema, rows):
    source = bench.write("f.jsonl", rows(3))
    previous = []
    for run_id in ("one", "two", "two", "one"):
        run = bench.good_run(source, schema=row_schema, run_id=run_id)
        assert run.latest == run_id
        previous.append(run.manifest["previous_run_id"])
    assert previous == [None, "one", "one", "two"]


def test_a_damaged_run_can_be_replaced(bench, row_schema, rows):
    source = bench.write("f.jsonl", rows(3))
    run = bench.good_run(source, schema=row_schema)
    for damage in (b"", run.folder.joinpath("manifest.json").read_bytes()[:-7]):
        (run.folder / "manifest.json").write_bytes(damage)
        assert sorted(bench.good_run(source, schema=row_schema).column("id")) == [0, 1, 2]


def test_what_a_killed_attempt_left_behind_is_gone(bench, row_schema, rows):
    junk = bench.output / ".staging-r" / "task-00000.train.000.tfrecord"
    junk.parent.mkdir(parents=True)
    junk.write_bytes(b"junk")
    stray = bench.write("out/run=r/train/part-00000-of-00009.tfrecord", b"stray")
    run = bench.good_run(bench.write("f.jsonl", rows(3)), schema=row_schema)
    assert not junk.parent.exists()
    assert not stray.exists()
    assert_whole(run)


@pytest.mark.parametrize("run_id", ["../x", "a/b", ".hidden", "a" * 101, "a b"])
def test_a_run_id_that_is_no_folder_name_is_refused(bench, row_schema, rows, run_id):
    done, _ = bench.run(bench.write("f.jsonl", rows(1)), schema=row_schema, run_id=run_id)
    assert done.code == 2
    assert not (bench.folder / "x").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--splits=train=0.7,eval=0.3",),
        ("--shuffle=global",),
        pytest.param(("--shuffle=none",), marks=pytest.mark.slow),
    ],
)
def test_same_seed_and_input_same_bytes_whatever_the_threads(bench, row_schema, transform, rows, words):
    for n in range(3):
        bench.write(f"in/{n}.jsonl", [*rows(400, start=400 * n), *BAD])
    seen = []
    for run_id, threads in (("a", 1), ("b", 3)):
        flags = ("--transform", transform, "--min_shards=3", *words, "--threads", threads)
        run = bench.good_run(bench.folder / "in", *flags, schema=row_schema, run_id=run_id)
        seen.append((run.shard_bytes(), [letter["payload"] for letter in run.letters()]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("threads", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_same_bytes_with_the_analysis_included(bench, row_schema, features, rows, threads):
    for n in range(4):
        bench.write(f"in/{n}.jsonl", rows(700, start=700 * n))
    seen = []
    for count in (1, threads):
        flags = ("--features", features, "--min_shards=6", "--threads", count)
        seen.append(digests(bench.good_run(bench.folder / "in", *flags, schema=row_schema)))
    assert seen[0] == seen[1]


@pytest.mark.slow
def test_same_bytes_in_processes_of_their_own(bench, row_schema, features, rows):
    source, seen = bench.write("f.jsonl", rows(500)), []
    for _ in range(2):
        flags = bench.flags(source, schema=row_schema)
        assert headrace_process("run", *flags, "--features", features, "--min_shards=3").code == 0
        seen.append(digests(Run(bench.output, bench.dead, "r")))
    assert seen[0] == seen[1]


def digests(run: Run) -> dict[str, str]:
    """sha256 of every file of the run that has the same bytes when nothing changed, and of what was learnt.

    The manifest holds times; TensorFlow numbers functions by process and names tables by temporary paths.
    """
    unstable = {"manifest.json", *(f"transform_fn/{name}" for name in _WITH_GRAPH)}
    found = {name: data for name, data in run.contents().items() if name not in unstable}
    found["learnt"] = learnt(run.folder / "transform_fn")
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


_WITH_GRAPH = ("headrace.json", "transform_fn/saved_model.pb", "transform_fn/fingerprint.pb")


def learnt(folder: Path) -> bytes:
    """All constants of a saved graph: means, bounds, sizes."""
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString((folder / "transform_fn" / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    constants = [n.attr["value"].tensor.SerializeToString(deterministic=True) for n in nodes if n.op == "Const"]
    return b"".join(sorted(constants))


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory, row_schema, rows) -> dict[str, Run]:
    """The same 600 rows in three files, shuffled in several ways."""
    bench = Workbench(tmp_path_factory.mktemp("shuffled"))
    for n in range(3):
        bench.write(f"in/{n}.jsonl", rows(200, start=200 * n))
    ways = {
        "seed 0": ("--seed=0",),
        "seed 1": ("--seed=1",),
        "none": ("--shuffle=none", "--seed=1"),
        "global 0": ("--shuffle=global",),
        "global 1": ("--shuffle=global", "--seed=1"),
    }
    return {
        name: bench.good_run(
            bench.folder / "in", *words, "--min_shards=3", schema=row_schema, run_id=name.replace(" ", "")
        )
        for name, words in ways.items()
    }


def test_every_shuffle_keeps_the_rows(shuffled):
    for run in shuffled.values():
        assert sorted(run.column("id")) == list(range(600))
        assert_whole(run)


def test_another_seed_is_another_order(shuffled):
    orders = [run.column("id") for run in shuffled.values()]
    assert all(left != right for n, left in enumerate(orders) for right in orders[:n])


def test_no_shuffle_keeps_the_order_of_the_input(shuffled):
    assert shuffled["none"].column("id") == list(range(600))
    assert len(shuffled["none"].shards()) == 3


def test_shuffled_rows_are_far_from_their_neighbours(shuffled):
    for name in ("seed 0", "global 0"):
        order = shuffled[name].column("id")
        steps = [abs(a - b) for a, b in pairwise(order)]
        assert sum(step == 1 for step in steps) < 20, "of 599"


def test_a_global_shuffle_mixes_all_files_into_every_shard(shuffled):
    run = shuffled["global 0"]
    for path in run.shards():
        files = {row_of(record)["id"][0] // 200 for record in records_of(path)}
        assert files == {0, 1, 2}


def test_a_refused_rerun_keeps_the_dead_letters_of_the_committed_run(bench, row_schema, rows):
    source = bench.write("good.jsonl", [*rows(5), b'{"id":"x"}'])
    run = bench.good_run(source, schema=row_schema)
    before = run.letters()
    assert len(before) == 1
    refused = bench.write("bad.jsonl", [b'{"id":"y"}', b"null"])
    assert headrace("run", *bench.flags(refused, schema=row_schema)).code == 3
    after = run.letters()
    assert len(after) == 3, "those of the refused attempt are kept too"
    assert [letter for letter in after if letter["dlq_source"].startswith(f"{source}#")] == before
    again = bench.good_run(source, schema=row_schema)
    assert [letter["dlq_id"] for letter in again.letters()] == [letter["dlq_id"] for letter in before]


def test_of_two_runs_with_one_id_only_the_owner_commits(tmp_path):
    settings = SimpleNamespace(build=SimpleNamespace(staging=str(tmp_path)), attempt="first", run_id="r")
    with pytest.raises(HeadraceError, match="another run with the id r"):
        check_owner(settings)
    (tmp_path / "owner").write_text("first")
    check_owner(settings)
    (tmp_path / "owner").write_text("second")
    with pytest.raises(HeadraceError, match="different ids"):
        check_owner(settings)
