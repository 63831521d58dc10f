"""Window arithmetic, what a batch key knows of the watermark, and window manifests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.manifest import Code, ShardEntry
from pipeline.core.names import WindowName, WindowShardName
from pipeline.core.reading import Source
from pipeline.core.windows import (
    END_EVENT_US,
    FIRST_EVENT_US,
    MAX_WINDOW_SECONDS,
    NEVER_CLOSED,
    Clock,
    WindowManifest,
    is_late,
    shard_due,
    window_name,
    window_start,
)

EVENTS = st.integers(FIRST_EVENT_US, END_EVENT_US - 1)
SIZES = st.integers(1, MAX_WINDOW_SECONDS)


@given(EVENTS, SIZES)
def test_every_event_lies_in_its_window_and_the_window_has_a_name_that_parses(event_us, size):
    start = window_start(event_us, size)
    assert start * 1_000_000 <= event_us < (start + size) * 1_000_000
    assert start % size == 0
    name = window_name(start, size)
    assert WindowName.parse(str(name)) == name
    assert (name.start.timestamp(), name.end.timestamp()) == (start, start + size)


def test_windows_begin_at_multiples_of_their_size_before_1970_too():
    assert window_start(599_999_999, 600) == 0
    assert window_start(600_000_000, 600) == 600
    assert window_start(-1, 600) == -600


def test_a_row_is_late_when_the_watermark_has_passed_the_end_of_its_window_and_the_lateness():
    late = {
        closed: is_late(600, window_seconds=600, allowed_lateness_seconds=60, closed_before=closed)
        for closed in (1259, 1260, NEVER_CLOSED)
    }
    assert late == {1259: False, 1260: True, NEVER_CLOSED: False}


def test_a_shard_is_due_when_its_window_ends_or_the_one_in_which_its_rows_came():
    def due(start, stamped):
        return shard_due(start, stamped_us=stamped * 1_000_000, window_seconds=600)

    assert [due(600, stamped) for stamped in (0, 600, 1199)] == [1200, 1200, 1200]
    assert [due(600, stamped) for stamped in (1200, 1799, 1800)] == [1800, 1800, 2400]
    assert due(600, -9_223_372_036_854) == 1200
    assert due(600, 9_223_371_950_454) <= END_EVENT_US // 1_000_000 + 600


@given(EVENTS, SIZES)
def test_nothing_is_late_before_anything_is_known(event_us, size):
    start = window_start(event_us, size)
    assert not is_late(start, window_seconds=size, allowed_lateness_seconds=0, closed_before=NEVER_CLOSED)


def after(clock: Clock, *, watermark: int, size: int = 600) -> tuple[Clock, int]:
    """The clock once the watermark stands at ``watermark``, and how often its timer fired."""
    fired = 0
    while clock.armed <= watermark:
        clock, fired = clock.on_timer(clock.armed, window_seconds=size), fired + 1
    return clock, fired


def heard(clock: Clock, event_s: int, *, size: int = 600, lateness: int = 0) -> Clock:
    return clock.on_message(event_s * 1_000_000, window_seconds=size, allowed_lateness_seconds=lateness)


def test_the_first_message_sets_the_timer_to_the_closing_of_its_window():
    assert heard(Clock(), 1234, lateness=60) == Clock(armed=1860)
    assert heard(heard(Clock(), 1234), 10) == Clock(armed=600)
    assert heard(heard(Clock(), 10), 1234) == Clock(armed=600)


def test_while_messages_come_every_closing_is_known_of():
    clock = heard(Clock(), 0)
    for watermark in range(600, 60_000, 600):
        clock, fired = after(clock, watermark=watermark)
        assert (clock.closed_before, fired) == (watermark, 1)
        clock = heard(clock, watermark + 5)


def test_a_message_after_a_long_rest_brings_the_timer_back():
    clock, _ = after(heard(Clock(), 0), watermark=600 * 1000)
    known = clock.closed_before
    assert clock.armed > 600 * 1000
    back = heard(clock, 600 * 1001)
    assert back == Clock(known, known + 600, 0)
    assert after(back, watermark=600 * 1000)[0].closed_before > known


def test_a_drain_is_over_in_tens_of_firings():
    end_of_time = 9_223_371_950_454
    assert after(heard(Clock(), 1_700_000_000), watermark=end_of_time)[1] < 50
    assert after(heard(Clock(), 1_700_000_000, size=1), watermark=end_of_time, size=1)[1] < 60


@pytest.mark.parametrize("event_us", [-9_223_372_036_854_775_000, 9_223_371_950_454_775_000])
def test_the_ends_of_time_are_an_event_time_like_any(event_us):
    clock = Clock().on_message(event_us, window_seconds=1, allowed_lateness_seconds=0)
    assert after(clock, watermark=9_223_371_950_454, size=1)[1] < 60


def test_firing_twice_changes_nothing():
    clock, _ = after(heard(Clock(), 0), watermark=600)
    assert clock.on_timer(600, window_seconds=600) == clock


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100_000)), max_size=40), st.integers(1, 5000))
def test_a_clock_never_claims_what_the_watermark_has_not_passed(events, size):
    clock, watermark, armed = Clock(), 0, False
    for is_message, second in events:
        if is_message:
            clock, armed = heard(clock, second, size=size), True
        else:
            watermark = max(watermark, second)
        if armed:
            clock, _ = after(clock, watermark=watermark, size=size)
            assert clock.closed_before <= watermark < clock.armed


def entry(shard: int, *, rows: int = 3, digest: str = "0123456789abcdef") -> ShardEntry:
    return ShardEntry(str(WindowShardName(shard, digest)), "train", rows, rows, 100 * rows, 7)


MANIFEST = WindowManifest(
    window=window_name(1_714_521_600, 600),
    job_name="job",
    code=Code("1.0"),
    schema_fingerprint="aa",
    transform_fingerprint=None,
    layout="rows",
    feature_spec={"features": {}, "labels": [], "layout": {"name": "rows", "rows_per_record": 1}},
    compression="none",
)


def test_a_manifest_comes_back_from_its_bytes():
    manifest = MANIFEST.with_shards([entry(1), entry(0)])
    assert WindowManifest.from_json(manifest.to_json()) == manifest
    document = json.loads(manifest.to_json())
    assert document["window"] == "window=20240501T000000Z_20240501T001000Z"
    assert (document["start"], document["end"]) == ("2024-05-01T00:00:00Z", "2024-05-01T00:10:00Z")
    assert document["counts"] == {"written": 6}


def test_the_reader_understands_it():
    source = Source.of_window(MANIFEST.with_shards([entry(0)]).to_json(), "out/window=x")
    assert [(shard.uri, shard.split, shard.rows) for shard in source.shards] == [
        ("out/window=x/part-00000-0123456789abcdef.tfrecord", "train", 3)
    ]


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=8))
def test_renewing_is_a_union_whatever_the_order_and_however_often(first, second):
    one = MANIFEST.with_shards(map(entry, first))
    both = MANIFEST.with_shards(map(entry, second)).taking_over(one)
    other = MANIFEST.with_shards(map(entry, first)).taking_over(MANIFEST.with_shards(map(entry, second)))
    assert both.to_json() == other.to_json() == both.taking_over(both).to_json()
    assert {shard.name for shard in both.shards} == {entry(shard).name for shard in (*first, *second)}


def test_two_accounts_of_one_shard_are_refused():
    with pytest.raises(HeadraceError, match="told of"):
        MANIFEST.with_shards([entry(0), entry(0, rows=4)])


def test_a_window_of_another_kind_is_not_taken_over():
    with pytest.raises(HeadraceError, match="another --output"):
        MANIFEST.taking_over(replace(MANIFEST, compression="gzip"))
    with pytest.raises(HeadraceError, match="another --output"):
        MANIFEST.taking_over(replace(MANIFEST, feature_spec={"features": {"x": {}}}))
    assert MANIFEST.taking_over(replace(MANIFEST, job_name="before", transform_fingerprint="f")) == MANIFEST


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("format_version", "2.0", "reads 1.x"),
        ("window", "window=today", "not a window's name"),
        ("shards", [{"name": "../x", "rows": 1, "records": 1, "bytes": 1, "crc32c": "00000007"}], "not the name"),
        ("counts", {"written": 7}, "not the sum"),
        ("layout", None, "expected a string"),
    ],
)
def test_a_damaged_manifest_is_named(field, value, match):
    document = json.loads(MANIFEST.with_shards([entry(0)]).to_json())
    document[field] = value
    with pytest.raises(UsageError, match=match):
        WindowManifest.from_json(json.dumps(document).encode(), "out/manifest.json")


def test_fields_of_a_newer_minor_version_are_kept():
    document = json.loads(MANIFEST.to_json()) | {"format_version": "1.7", "newer": [1]}
    again = WindowManifest.from_json(json.dumps(document).encode()).with_shards([entry(0)])
    assert json.loads(again.to_json())["newer"] == [1]
    assert again.format_version == "1.7"
