"""Advice follows from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.core.advice import KEEPS_UP, Reading, Shape, advise, wait_share

GOOD = Shape(layout="blocks", compression="none", shards=8, shard_bytes=8 << 27, cores=2)


def test_nothing_is_changed_where_the_input_keeps_up() -> None:
    worst = replace(GOOD, layout="rows", compression="gzip", shards=1)
    (advice,) = advise(worst, share=KEEPS_UP / 2)
    assert "Change nothing" in advice


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (replace(GOOD, layout="rows"), "--layout=blocks"),
        (replace(GOOD, layout="rows", packable=False), "--layout=packed"),
        (replace(GOOD, layout="packed"), "--layout=blocks"),
        (replace(GOOD, compression="zlib"), "--compression=none"),
        (replace(GOOD, shards=1), "--min_shards=2"),
        (replace(GOOD, shard_bytes=8 << 20), "larger shards"),
        (replace(GOOD, shard_bytes=8 << 30), "smaller shards"),
        (GOOD, "num_readers"),
    ],
)
def test_the_first_advice_is_the_one_that_helps_most(shape: Shape, words: str) -> None:
    assert words in advise(shape, share=0.5)[0]
    assert words in advise(shape, share=None)[0]


def test_wait_share() -> None:
    assert wait_share(1.0, 3.0) == 0.25
    assert wait_share(0.0, 0.0) == 0.0


def test_rates_leave_the_first_batch_out() -> None:
    told = Reading(rows=1000, batches=10, seconds=2.0, first_batch_seconds=5.0, file_bytes=4_000_000).as_json()
    assert (told["rows_per_second"], told["batches_per_second"], told["megabytes_per_second"]) == (500, 5.0, 2.0)
