"""Event times: texts and numbers as microseconds, whatever the way they are read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.event_times import parse_rfc3339, read_times, rfc3339

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(moment=MOMENTS, minutes=OFFSETS, separator=st.sampled_from("Tt "))
def test_a_time_with_any_offset_is_what_datetime_says(moment, minutes, separator):
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = aware.isoformat(sep=separator)
    assert parse_rfc3339(text.encode()) == micros(aware)


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_written_and_parsed_it_is_the_same(time_us):
    text = rfc3339(time_us)
    assert text is not None
    assert parse_rfc3339(text.encode()) == time_us


@pytest.mark.parametrize("time_us", [-(2**63), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1])
def test_times_beyond_the_calendar_have_no_text(time_us):
    assert rfc3339(time_us) is None


PLAIN = st.builds(
    "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}{}".format,
    st.integers(0, 9999),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 61),
    st.sampled_from(["Z", "Z", "Z", "z", "", ".5Z", "+01:00"]),
)


@settings(deadline=None)
@given(st.lists(PLAIN | st.just("2013-02-28T23:59:59Z"), max_size=4), st.integers(0, 2))
def test_columns_are_read_like_single_texts(texts, skipped):
    column = pa.array([text.encode() for text in texts], pa.large_binary()).slice(skipped)
    times, bad = read_times(column)
    expected = [parse_rfc3339(text.encode()) for text in texts[skipped:]]
    assert [None if is_bad else time for time, is_bad in zip(times.tolist(), bad.tolist(), strict=True)] == expected


@given(MOMENTS.map(lambda moment: moment.replace(microsecond=0)))
def test_plain_times_are_read_at_once_and_right(moment):
    texts = [moment.isoformat() + "Z"] * 3
    times, bad = read_times(pa.array([text.encode() for text in texts], pa.large_binary()))
    assert times.tolist() == [micros(moment.replace(tzinfo=timezone.utc))] * 3
    assert not bad.any()


@pytest.mark.parametrize(
    ("number", "time_us"),
    [
        (0, 0),
        (-1, -1_000_000),
        (1_700_000_000, 1_700_000_000_000_000),
        (99_999_999_999, 99_999_999_999_000_000),
        (100_000_000_000, 100_000_000_000_000),
        (1_700_000_000_123, 1_700_000_000_123_000),
        (1_700_000_000_123_456, 1_700_000_000_123_456),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456),
        (2**63 - 1, (2**63 - 1) // 1000),
        (-(2**63), -(2**63) // 1000),
    ],
)
def test_numbers_are_seconds_or_finer_by_their_size(number, time_us):
    times, bad = read_times(pa.array([number], pa.int64()))
    assert times.tolist() == [time_us]
    assert not bad.any()


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        (b"1970-01-01T00:00:00.1234567Z", 123_456),
        (b"1970-01-01T00:00:00.5+00:30", -1_800_000_000 + 500_000),
        (b"1969-12-31T23:59:60Z", 0),
        (b"0000-01-01T00:00:00Z", None),
        (b"2013-02-29T00:00:00Z", None),
        (b"2013-01-01T00:00:00", None),
        (b"2013-01-01", None),
        (b"", None),
        (b"\xff" * 20, None),
        ("２013-01-01T00:00:00Z".encode(), None),
    ],
)
def test_texts(text, time_us):
    assert parse_rfc3339(text) == time_us
