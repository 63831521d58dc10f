"""Planning laws: everything exactly once, nothing empty, balanced, and the same plan every time."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import shards
from pipeline.core.errors import UsageError
from pipeline.core.records import ShardPart, Split

MIB = 1 << 20
SIZES = st.lists(st.integers(0, 40 * MIB), max_size=60)


def split_list(sizes):
    return [Split(f"file-{i % 7}", i * 100 * MIB, i * 100 * MIB + size, 1 << 40) for i, size in enumerate(sizes)]


def plan(splits, **changes):
    options = {"output_ratio": 1.0, "target_shard_bytes": 64 * MIB, "min_shards": 1, "seed": 7} | changes
    return shards.plan_tasks(splits, **options)


@settings(max_examples=150, deadline=None)
@given(
    sizes=SIZES,
    ratio=st.sampled_from([0.1, 1.0, 7.0]),
    min_shards=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    shuffle=st.sampled_from(["blocks", "none", "global"]),
)
def test_every_split_once_no_empty_task_and_balanced(sizes, ratio, min_shards, seed, shuffle):
    splits = split_list(sizes)
    tasks = plan(splits, output_ratio=ratio, min_shards=min_shards, seed=seed, shuffle=shuffle)
    assert Counter(s for task in tasks for s in task.splits) == Counter(splits)
    assert all(task.splits for task in tasks)
    assert [task.index for task in tasks] == list(range(len(tasks)))
    wanted = shards.task_count(sum(sizes), output_ratio=ratio, target_shard_bytes=64 * MIB, min_shards=min_shards)
    assert len(tasks) == min(wanted, len(splits))
    assert len({task.seed for task in tasks}) == len(tasks)
    if tasks:
        mean = sum(sizes) / len(tasks)
        assert max(task.size_bytes for task in tasks) <= mean + max(sizes) + 1


@settings(max_examples=50, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_blocks_do_not_depend_on_the_order_of_the_listing(sizes, seed, order):
    splits = split_list(sizes)
    shuffled = list(splits)
    order.shuffle(shuffled)
    assert plan(splits, seed=seed) == plan(shuffled, seed=seed)


@settings(max_examples=50, deadline=None)
@given(sizes=SIZES)
def test_none_keeps_the_order_given(sizes):
    splits = split_list(sizes)[::-1]
    assert [s for task in plan(splits, shuffle="none") for s in task.splits] == splits


def test_blocks_mix_files_and_seeds_differ():
    splits = [Split(f"f{i // 50}", i, i + MIB, MIB) for i in range(200)]
    first = plan(splits, seed=1)
    assert all(len({s.uri for s in task.splits}) > 1 for task in first)
    assert first != plan(splits, seed=2)


def test_a_giant_file_is_not_given_company():
    giant = Split("giant", 0, 100 * MIB, 100 * MIB)
    small = [Split("small", i * MIB, (i + 1) * MIB, 100 * MIB) for i in range(100)]
    tasks = plan([giant, *small], target_shard_bytes=100 * MIB, output_ratio=8 / 200, min_shards=8)
    assert len(tasks) == 16
    assert [task.splits for task in tasks if giant in task.splits] == [(giant,)]


def test_small_jobs_are_cut_finer_but_not_below_8_mib():
    def count(total):
        return shards.task_count(total, output_ratio=1.0, target_shard_bytes=128 * MIB, min_shards=1)

    assert [count(n * MIB) for n in (0, 7, 8, 20, 112, 128, 2000, 2048, 5000)] == [1, 1, 1, 2, 14, 16, 16, 16, 40]
    # From 8 of them on, tasks whose parts are shards already.
    assert [count(n * MIB) for n in (560, 570, 800, 1200)] == [16, 8, 11, 16]


@pytest.mark.parametrize("bad", [{"output_ratio": 0}, {"target_shard_bytes": -1}, {"min_shards": 0}])
def test_nonsense_limits_are_usage_errors(bad):
    with pytest.raises(UsageError, match="must be a positive number"):
        plan([], **bad)


@settings(max_examples=100, deadline=None)
@given(total=st.integers(0, 1 << 45), min_shards=st.integers(1, 50), target=st.integers(1, 1 << 30))
def test_splits_are_several_a_task_within_bounds(total, min_shards, target):
    size = shards.split_bytes_for(total, target_shard_bytes=target, min_shards=min_shards)
    tasks = shards.task_count(total, output_ratio=1.0, target_shard_bytes=target, min_shards=min_shards)
    assert 1 <= size <= 16 * MIB
    assert size * tasks <= max(total, tasks)  # enough splits for every task to have one
    assert size >= min(MIB, max(1, total // tasks))


def test_split_size_by_example():
    assert shards.split_bytes_for(10 << 30) == 16 * MIB
    assert shards.split_bytes_for(100 * MIB) == 100 * MIB // (12 * 8)
    assert shards.split_bytes_for(20 * MIB) == 20 * MIB // 16
    assert shards.split_bytes_for(1000, min_shards=10) == 100


def part(split, task, sequence, size, records=1):
    return ShardPart(split, task, sequence, f"{split}-{task}-{sequence}", records, records, size, 0)


PARTS = st.lists(
    st.tuples(st.sampled_from(["train", "eval"]), st.integers(0, 30), st.integers(0, 3)), unique=True, max_size=40
)


@settings(max_examples=100, deadline=None)
@given(keys=PARTS, data=st.data(), min_shards=st.integers(1, 10), target=st.integers(1, 500))
def test_every_part_once_in_order_no_empty_shard(keys, data, min_shards, target):
    parts = [part(*key, data.draw(st.integers(1, 300))) for key in keys]
    planned = shards.plan_shards(parts, target_shard_bytes=target, min_shards=min_shards)
    assert all(shard.parts for shard in planned)
    for split in ("train", "eval"):
        own = [shard for shard in planned if shard.split == split]
        expected = sorted((p for p in parts if p.split == split), key=lambda p: (p.task, p.sequence))
        assert [p for shard in own for p in shard.parts] == expected
        assert [(shard.index, shard.of) for shard in own] == [(i, len(own)) for i in range(len(own))]
        total = sum(p.size_bytes for p in expected)
        whole = all(2 * p.size_bytes >= target for p in expected)
        assert len(own) == (len(expected) if whole else min(len(expected), max(min_shards, -(-total // target))))
        if own:
            largest = max(p.size_bytes for p in expected)
            assert max(shard.size_bytes for shard in own) <= total / len(own) + largest + 1


def test_parts_of_half_a_shard_or_more_are_not_joined():
    parts = [part("train", task, 0, size) for task, size in enumerate((50, 99, 150))]
    assert [len(shard.parts) for shard in shards.plan_shards(parts, target_shard_bytes=100, min_shards=1)] == [1, 1, 1]
    parts.append(part("train", 3, 0, 49))
    assert sum(len(shard.parts) for shard in shards.plan_shards(parts, target_shard_bytes=200, min_shards=1)) == 4
    assert len(shards.plan_shards(parts, target_shard_bytes=200, min_shards=1)) == 2


def test_parts_without_records_are_left_out():
    parts = [part("train", 0, 0, 0, records=0), part("train", 1, 0, 50), part("eval", 0, 0, 0, records=0)]
    (only,) = shards.plan_shards(parts, target_shard_bytes=100, min_shards=8)
    assert (str(only.name), only.rows, only.records, only.size_bytes) == (
        "train/part-00000-of-00001.tfrecord",
        1,
        1,
        50,
    )


def test_checksum_of_a_shard_is_that_of_its_parts_joined():
    crc = google_crc32c.value
    parts = tuple(ShardPart("train", i, 0, "u", 1, 1, len(d), crc(d)) for i, d in enumerate((b"abc", b"", b"defgh")))
    assert shards.Shard("train", 0, 1, parts).crc32c == crc(b"abcdefgh")


def test_splits_are_parsed():
    assert shards.parse_splits("train=0.9, eval=.1") == (("train", 0.9), ("eval", 0.1))
    assert shards.parse_splits("train=1") == (("train", 1.0),)
    assert len(shards.parse_splits(",".join(f"s{i}=0.1" for i in range(10)))) == 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train=0.9", "sum to 0.9"),
        ("train=0.5,eval=0.6", "sum to 1.1"),
        ("train=0.5,train=0.5", "twice"),
        ("Train=1", "lower-case"),
        ("../x=1", "lower-case"),
        ("train", "<name>=<fraction>"),
        ("train=nan", "<name>=<fraction>"),
        ("train=1,eval=0", r"\(0, 1\]"),
        ("train=2,eval=-1", r"\(0, 1\]|<name>=<fraction>"),
        ("", "<name>=<fraction>"),
    ],
)
def test_bad_splits_say_what_is_wrong(text, says):
    with pytest.raises(UsageError, match=says):
        shards.parse_splits(text)


def test_rows_are_split_by_fraction_and_seed():
    hashes = np.arange(100_000, dtype=np.uint64)
    fractions = (("train", 0.8), ("eval", 0.15), ("test", 0.05))
    first = shards.assign_splits(hashes, fractions, 1)
    counts = np.bincount(first, minlength=3) / len(hashes)
    # standard deviation of a fraction is at most sqrt(.16 / 1e5) = 0.0013; allow five of them
    assert np.allclose(counts, [0.8, 0.15, 0.05], atol=0.0065)
    assert np.array_equal(first, shards.assign_splits(hashes, fractions, 1))
    assert (first != shards.assign_splits(hashes, fractions, 2)).any()


@settings(max_examples=30, deadline=None)
@given(hashes=st.lists(st.integers(0, 2**64 - 1), max_size=30), seed=st.integers(0, 2**64 - 1))
def test_a_rows_split_depends_on_itself_alone(hashes, seed):
    fractions = (("train", 0.5), ("eval", 0.5))
    together = shards.assign_splits(np.array(hashes, np.uint64), fractions, seed).tolist()
    assert together == [int(shards.assign_splits(np.array([h], np.uint64), fractions, seed)[0]) for h in hashes]


def test_a_single_split_takes_every_row():
    assert shards.assign_splits(np.array([0, 2**64 - 1], np.uint64), (("train", 1.0),), 3).tolist() == [0, 0]


def test_the_plan_is_the_same_in_another_process():
    splits = split_list([3 * MIB] * 50)
    program = (
        "from tests.core.test_shards import *\n"
        "print([[s.start for s in t.splits] + [t.seed] for t in plan(split_list([3 * MIB] * 50))])"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root).stdout
    assert out.strip() == str([[s.start for s in task.splits] + [task.seed] for task in plan(splits)])
