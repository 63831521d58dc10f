"""Who reads what: the law of division among readers, and how runs and windows are found."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.core.names import WindowName
from pipeline.core.reading import (
    Portion,
    Source,
    SourceShard,
    buffer_rows,
    deal,
    find_run,
    merged,
    parse_time,
    windows_inside,
)

UTC = timezone.utc


def shard(index: int, records: int, rows: int | None = None) -> SourceShard:
    return SourceShard(f"gs://b/part-{index}", "train", rows or records, records, 100 * records)


SHARDS = st.lists(st.integers(1, 60), min_size=1, max_size=12).map(
    lambda sizes: [shard(index, records, records * 3) for index, records in enumerate(sizes)]
)


def records_of(portions: tuple[Portion, ...]) -> list[tuple[str, int]]:
    """Which records a reader reads, one by one."""
    return [(p.shard.uri, record) for p in portions for record in range(p.index, p.shard.records, p.of)]


@given(SHARDS, st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_every_record_goes_to_exactly_one_reader(shards: list[SourceShard], readers: int) -> None:
    total = sum(s.records for s in shards)
    if readers > total:
        for reader in (0, readers - 1):  # every host says so, not only the one that would get nothing
            with pytest.raises(UsageError, match=f"{readers} readers are more than the {total} records"):
                deal(shards, num_readers=readers, reader_index=reader)
        return
    dealt = [deal(shards, num_readers=readers, reader_index=reader) for reader in range(readers)]
    read = [record for portions in dealt for record in records_of(portions)]
    assert sorted(read) == sorted((s.uri, record) for s in shards for record in range(s.records))
    for portions in dealt:
        assert len(records_of(portions)) == sum(portion.records for portion in portions) > 0


@given(SHARDS, st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_readers_get_about_the_same(shards: list[SourceShard], readers: int) -> None:
    total = sum(s.records for s in shards)
    if readers > total:
        return
    dealt = [deal(shards, num_readers=readers, reader_index=reader) for reader in range(readers)]
    counts = [sum(portion.records for portion in portions) for portions in dealt]
    if readers <= len(shards):
        assert max(counts) - min(counts) <= max(s.records for s in shards)
        assert all(portion.of == 1 for portions in dealt for portion in portions)
    else:  # no share can be larger than what the best division of whole readers gives, and one more
        assert all(len(portions) == 1 for portions in dealt)
        assert max(counts) <= _smallest_maximum([s.records for s in shards], readers)


def _smallest_maximum(sizes: list[int], readers: int) -> int:
    """The least n for which shares of at most n records need no more than ``readers`` readers."""
    return next(n for n in range(1, max(sizes) + 1) if sum(-(-size // n) for size in sizes) <= readers)


def test_equal_shards_are_divided_evenly_among_any_number_of_hosts() -> None:
    shards = [shard(index, 64) for index in range(64)]
    for readers in (1, 2, 4, 8, 16, 32, 64, 128, 256, 4096):
        for reader in {0, readers // 2, readers - 1}:
            portions = deal(shards, num_readers=readers, reader_index=reader)
            assert sum(portion.records for portion in portions) == 64 * 64 // readers


@pytest.mark.parametrize(("readers", "index"), [(0, 0), (1, 1), (2, -1)])
def test_a_reader_that_cannot_be_is_refused(readers: int, index: int) -> None:
    with pytest.raises(UsageError, match="the index must lie in"):
        deal([shard(0, 9)], num_readers=readers, reader_index=index)


def test_rows_of_a_portion_are_known_where_they_can_be() -> None:
    blocks = shard(0, 10, 2500)
    assert Portion(blocks).rows(256) == 2500
    assert Portion(blocks, 1, 3).rows(256) is None
    assert Portion(shard(0, 10), 1, 3).rows(1) == len([1, 4, 7])


def test_the_buffer_is_bounded_in_rows_and_in_bytes() -> None:
    assert buffer_rows([SourceShard("a", "train", 10**6, 10**6, 10**8)]) == 65_536
    wide = [SourceShard("a", "train", 1000, 1000, 1000 * 10**6)]
    assert buffer_rows(wide) == 67  # 64 MiB of rows of 1 MB
    assert buffer_rows(wide, compressed=True) == 8
    assert buffer_rows([SourceShard("a", "train", 1, 1, 10**9)]) == 1


def test_a_run_is_found_by_its_manifest_or_by_latest() -> None:
    stored = {"out/LATEST": b"today\n", "out/run=today/manifest.json": b"", "bad/LATEST": b"../elsewhere"}

    def read(uri: str) -> bytes:
        if uri not in stored:
            raise FileNotFoundError(uri)
        return stored[uri]

    def find(folder: str) -> str:
        return find_run(folder, exists=stored.__contains__, read_bytes=read)

    assert find("out") == find("out/") == "out/run=today"
    assert find("out/run=today") == "out/run=today"
    with pytest.raises(UsageError, match=r"nowhere is no committed run .* and no output folder"):
        find("nowhere")
    with pytest.raises(UsageError, match="run id"):
        find("bad")


MOMENTS = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2999, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


@given(MOMENTS, st.integers(1, 10**6))
def test_window_names_are_read_back(start: datetime, seconds: int) -> None:
    window = WindowName(start, start + timedelta(seconds=seconds))
    assert WindowName.parse(str(window)) == window
    assert not set(str(window)) & set(" :[]+/")


@pytest.mark.parametrize(
    "name",
    [
        "window=20240501T000000Z",
        "window=20240501T000000Z_20240501T000000Z",
        "window=20240501T000000Z_20240430T000000Z",
        "window=20241301T000000Z_20250501T000000Z",
        "window=20240501T000000_20240501T010000",
        "run=20240501T000000Z_20240501T010000Z",
    ],
)
def test_other_names_are_no_windows(name: str) -> None:
    with pytest.raises(ValueError):
        WindowName.parse(name)


def test_windows_must_lie_inside_the_range() -> None:
    hours = [f"window=20240501T{hour:02}0000Z_20240501T{hour + 1:02}0000Z" for hour in range(8)]
    names = [*reversed(hours), "LATEST", "run=x", "window=soon"]
    assert windows_inside(names, "2024-05-01T02:00Z", "2024-05-01T05:00Z") == hours[2:5]
    assert windows_inside(names, "2024-05-01T04:30+02:00", "2024-05-01T05:30:00Z") == hours[3:5]
    assert windows_inside([f"{hours[0]}/"], "2024-01-01T00:00Z", datetime(2025, 1, 1, tzinfo=UTC)) == hours[:1]
    assert windows_inside(names, "2025-01-01T00:00Z", "2026-01-01T00:00Z") == []


@pytest.mark.parametrize(
    ("start", "end", "what"),
    [
        ("2024-05-01T06:00Z", "2024-05-01T06:00Z", "is empty"),
        ("2024-05-01T06:00", "2024-05-01T07:00Z", "time zone"),
        ("yesterday", "2024-05-01T07:00Z", "is not a time"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(start: str, end: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        windows_inside([], start, end)


def test_times_are_read_in_utc() -> None:
    assert (
        parse_time("2024-05-01T08:00+02:00") == parse_time("2024-05-01T06:00Z") == datetime(2024, 5, 1, 6, tzinfo=UTC)
    )


def window(**changes: Any) -> bytes:
    shards = [{"name": "part-0-abc.tfrecord", "rows": 3, "records": 1, "bytes": 90}]
    spec = {"features": {}, "layout": {"name": "blocks", "rows_per_record": 8}}
    return json.dumps({"feature_spec": spec, "compression": "none", "shards": shards} | changes).encode()


def test_a_window_says_what_there_is_to_read() -> None:
    source = Source.of_window(window(), "gs://b/window=x")
    assert source.shards == (SourceShard("gs://b/window=x/part-0-abc.tfrecord", "train", 3, 1, 90),)
    assert source.of_split("eval") == ()


@pytest.mark.parametrize("name", ["../part-0.tfrecord", "a/b.tfrecord", "/etc/x.tfrecord", ".tfrecord", "part-0"])
def test_a_window_cannot_name_a_file_elsewhere(name: str) -> None:
    shards = [{"name": name, "rows": 3, "records": 1, "bytes": 90}]
    with pytest.raises(UsageError, match=r"w/manifest.json: .* cannot be a shard's name"):
        Source.of_window(window(shards=shards), "w")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", window(shards=[{"name": "part-0.tfrecord"}])])
def test_a_damaged_window_is_named(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"w/manifest.json"):
        Source.of_window(data, "w")


def test_windows_that_were_written_alike_are_read_as_one() -> None:
    one, two = (Source.of_window(window(), name) for name in ("a", "b"))
    assert [s.uri for s in merged([one, two], "out").shards] == ["a/part-0-abc.tfrecord", "b/part-0-abc.tfrecord"]
    other = Source.of_window(window(compression="gzip"), "c")
    with pytest.raises(UsageError, match=r"a/manifest.json and c/manifest.json were written with different"):
        merged([one, two, other], "out")
