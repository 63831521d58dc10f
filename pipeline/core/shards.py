"""Planning: which task reads which splits, which parts make which shard, which row goes to which data split.

Pure and seeded. No plan depends on the number of workers, on the order in which a file system lists
files (unless ``shuffle="none"`` asks for that order), or on the clock: the same input gives the same bytes.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Literal

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.framing import combine_crc32c
from pipeline.core.names import ShardName, check_split_name
from pipeline.core.records import Int64Array, ShardPart, Split, Task, UInt64Array
from pipeline.core.seeds import mix64, permutation, seed_of

MIB = 1 << 20
DEFAULT_SHARD_BYTES = 128 * MIB

Shuffle = Literal["blocks", "none", "global"]
Fractions = tuple[tuple[str, float], ...]

# A job of few shards is cut finer, so that every core has work and the last task does not run alone for long;
# below 8 MiB the fixed cost of a task (a graph call's warm-up, a file written aside) starts to show.
_FEW_TASKS, _FINE_TASK_BYTES = 16, 8 * MIB
# A part of half a shard or more is published as it is: joining parts would copy them all. Where that leaves work
# enough for several cores, tasks are so large that their parts are, estimates being off by some per cent.
_WHOLE_SHARE, _WHOLE_SHARE_AIMED_AT, _WHOLE_TASKS = 0.5, 0.55, 8
# Splits: several a task, so that a task mixes several places of the input. Below 1 MiB a seek on object storage costs
# more than the reading; above 16 MiB a thread's read buffer shows in peak memory.
_SPLITS_PER_TASK, _MIN_SPLIT_BYTES, _MAX_SPLIT_BYTES = 8, MIB, 16 * MIB


def task_count(total_bytes: int, *, output_ratio: float, target_shard_bytes: int, min_shards: int) -> int:
    """How many tasks an input of ``total_bytes`` is worth: one a shard, more when that is fewer than 16.

    Then each still fills half a shard if there are 8 such tasks; else they are smaller, and their parts are joined.

    ``output_ratio`` is output bytes per input byte, as estimated. At least 1 and at least ``min_shards``.
    Raises UsageError for a ratio, target or minimum that is not positive.
    """
    _check_positive("output ratio", output_ratio)
    _check_positive("target shard bytes", target_shard_bytes)
    _check_positive("min shards", min_shards)
    shards = max(min_shards, math.ceil(total_bytes * output_ratio / target_shard_bytes))
    whole = min(_FEW_TASKS, int(total_bytes * output_ratio / (target_shard_bytes * _WHOLE_SHARE_AIMED_AT)))
    return max(shards, whole if whole >= _WHOLE_TASKS else min(_FEW_TASKS, total_bytes // _FINE_TASK_BYTES))


def split_bytes_for(
    total_bytes: int, *, output_ratio: float = 1.0, target_shard_bytes: int = DEFAULT_SHARD_BYTES, min_shards: int = 1
) -> int:
    """How large to cut the splits of an input, in bytes: an eighth of a task, within 1 MiB and 16 MiB.

    Smaller only where the input is so small that ``min_shards`` tasks need smaller splits to exist.
    """
    tasks = task_count(
        total_bytes, output_ratio=output_ratio, target_shard_bytes=target_shard_bytes, min_shards=min_shards
    )
    eighth = total_bytes // (tasks * _SPLITS_PER_TASK)
    return max(1, min(max(eighth, _MIN_SPLIT_BYTES), _MAX_SPLIT_BYTES, max(total_bytes, 1) // tasks or 1))


def plan_tasks(
    splits: Sequence[Split],
    *,
    output_ratio: float,
    target_shard_bytes: int,
    min_shards: int,
    seed: int,
    shuffle: Shuffle = "blocks",
) -> list[Task]:
    """Deals every split into exactly one task; no task is empty, and tasks are balanced by bytes.

    ``blocks`` and ``global``: splits in a seeded order across all files, whatever order they came in; a task
    holds at most the mean plus one split. ``none``: splits in the order given, each task a run of them.
    Fewer tasks than ``task_count`` only when there are fewer splits. No splits, no tasks.
    """
    total = sum(split.size_bytes for split in splits)
    tasks = task_count(total, output_ratio=output_ratio, target_shard_bytes=target_shard_bytes, min_shards=min_shards)
    tasks = min(tasks, len(splits))
    if shuffle == "none":
        ordered = list(splits)
        dealt = [ordered[group] for group in _cut_evenly([split.size_bytes for split in ordered], tasks)]
    else:
        canonical = sorted(splits)
        order = permutation(len(canonical), seed_of("splits", seed))
        dealt = _deal([canonical[place] for place in order], tasks)
    return [Task(index, tuple(group), seed_of("task", seed, index)) for index, group in enumerate(dealt)]


def _deal(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Largest split first, each to the task with the fewest bytes; inside a task the order given.

    (Longest processing time rule, Graham 1969.) Splits of one size are thereby dealt round in the order given.
    """
    heap = [(0, 0, task) for task in range(tasks)]
    dealt: list[list[int]] = [[] for _ in range(tasks)]
    for place in sorted(range(len(splits)), key=lambda place: (-splits[place].size_bytes, place)):
        load, count, task = heap[0]
        dealt[task].append(place)
        heapq.heapreplace(heap, (load + splits[place].size_bytes, count + 1, task))
    return [[splits[place] for place in sorted(places)] for places in dealt]


def _cut_evenly(sizes: Sequence[int], groups: int) -> list[slice]:
    """Cuts a row of things into ``groups`` runs of about equal size; none is empty (needs groups <= len(sizes))."""
    if not groups:
        return []
    sums = np.cumsum(np.asarray(sizes, np.float64))
    bounds = [0]
    for group in range(1, groups):
        wanted = sums[-1] * group / groups
        nearest = int(np.searchsorted(sums - np.asarray(sizes) / 2, wanted))
        bounds.append(min(max(nearest, bounds[-1] + 1), len(sizes) - (groups - group)))
    bounds.append(len(sizes))
    return [slice(start, end) for start, end in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard to publish: its parts, concatenated in this order, are its bytes."""

    split: str
    index: int
    of: int
    parts: tuple[ShardPart, ...]

    @property
    def name(self) -> ShardName:
        """Its name inside the run."""
        return ShardName(self.split, self.index, self.of)

    @property
    def rows(self) -> int:
        """Rows of input in it."""
        return sum(part.rows for part in self.parts)

    @property
    def records(self) -> int:
        """TFRecord records in it."""
        return sum(part.records for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Its size as a file."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def crc32c(self) -> int:
        """CRC32C of its bytes, combined from its parts' without reading them."""
        return reduce(lambda crc, part: combine_crc32c(crc, part.crc32c, part.size_bytes), self.parts, 0)


def plan_shards(parts: Sequence[ShardPart], *, target_shard_bytes: int, min_shards: int) -> list[Shard]:
    """Groups the parts of each data split into balanced shards, in the order of (split, task, sequence).

    A data split gets max(min_shards, ceil(bytes / target)) shards, but never more than it has parts, and as many
    as it has parts where all of these are half a target or more. Parts without a record are left out,
    so no shard is empty. Raises UsageError unless both limits are positive.
    """
    _check_positive("target shard bytes", target_shard_bytes)
    _check_positive("min shards", min_shards)
    full = sorted(
        (part for part in parts if part.records), key=lambda part: (part.split, part.task, part.sequence, part.uri)
    )
    shards = []
    for split in sorted({part.split for part in full}):
        own = [part for part in full if part.split == split]
        sizes = [part.size_bytes for part in own]
        whole = min(sizes) >= _WHOLE_SHARE * target_shard_bytes
        count = len(own) if whole else min(max(min_shards, math.ceil(sum(sizes) / target_shard_bytes)), len(own))
        groups = _cut_evenly(sizes, count)
        shards += [Shard(split, index, count, tuple(own[group])) for index, group in enumerate(groups)]
    return shards


def parse_splits(text: str) -> Fractions:
    """Reads ``train=0.9,eval=0.1``. Raises UsageError unless names are good and distinct and fractions sum to 1."""
    fractions = tuple(_parse_fraction(item, text) for item in text.split(","))
    names = [name for name, _ in fractions]
    if len(set(names)) < len(names):
        raise UsageError(f"splits {text[:200]!r}: a name is given twice; give each split once")
    total = math.fsum(fraction for _, fraction in fractions)
    if abs(total - 1) > 1e-9:
        raise UsageError(f"splits {text[:200]!r}: the fractions sum to {total:.12g}, but must sum to 1")
    return fractions


def _parse_fraction(item: str, text: str) -> tuple[str, float]:
    name, equals, number = item.strip().partition("=")
    if not equals or re.fullmatch(r"[0-9]*\.?[0-9]+([eE]-?[0-9]+)?", number, re.ASCII) is None:
        raise UsageError(f"splits {text[:200]!r}: {item[:100]!r} is not <name>=<fraction>, as in 'train=0.9,eval=0.1'")
    fraction = float(number)
    if not 0 < fraction <= 1:
        raise UsageError(f"splits {text[:200]!r}: the fraction of {name[:100]!r} must lie in (0, 1], not {number[:50]}")
    return check_split_name(name), fraction


def assign_splits(hashes: UInt64Array, fractions: Sequence[tuple[str, float]], seed: int) -> Int64Array:
    """The data split of each row, as an index into ``fractions``; shape of ``hashes``.

    Decided by the row's hash and the seed alone, so a row stays in its split whatever else is in the input.
    """
    bounds, total = [], 0.0
    for _, fraction in fractions[:-1]:
        total += fraction
        bounds.append(min(round(total * 2**64), 2**64 - 1))
    mixed = mix64(hashes, seed_of("data splits", seed))
    return np.searchsorted(np.array(bounds, np.uint64), mixed, side="right").astype(np.int64, copy=False)


def _check_positive(what: str, value: float) -> None:
    if not value > 0 or value == math.inf:
        raise UsageError(f"{what} must be a positive number, not {value}")
