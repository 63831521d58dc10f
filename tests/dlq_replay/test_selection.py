"""One filter language: each filter by itself, all together, samples that are stable, times in every spelling."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.archives import Damage
from dlq_replay.selection import (
    Filters,
    attribute_filter,
    looks_like_ids,
    place_of,
    read_ids,
    read_time,
    share_of,
    take,
    time_bound,
)
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason
from tests.dlq_replay.helpers import letter

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
LETTERS = [
    letter(0, uri="gs://b/day=1/x.jsonl"),
    letter(1, uri="gs://b/day=2/x.jsonl", faults=[(Reason.OUT_OF_RANGE, "x"), (Reason.WRONG_TYPE, "a")]),
    letter(2, faults=[(Reason.INVALID_JSON, None)], failed_at="2024-05-01T13:00:00+01:00", attempt=2),
    letter(3, failed_at="2024-05-02T00:00:00.123456789Z", attributes={"k": "v", "team": "red"}),
    letter(4, failed_at="yesterday"),
]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"reasons": ("wrong_type",)}, [0, 3, 4]),
        ({"reasons": ("wrong_type", "out_of_range")}, [0, 1, 3, 4]),
        ({"features": ("a",)}, [0, 1, 3, 4]),
        ({"reasons": ("out_of_range",), "features": ("a",)}, [1]),
        ({"stages": ("decode",)}, []),
        ({"sources": ("gs://b/day=1/*",)}, [0]),
        ({"sources": ("*/x.jsonl",)}, [0, 1]),
        ({"sources": ("*#offset=2",)}, [2]),
        ({"attempts": (2, 7)}, [2]),
        ({"attributes": (("team", "red"),)}, [3]),
        ({"attributes": (("team", "red"), ("k", "w"))}, []),
        ({"since": NOON}, [0, 1, 2, 3]),
        ({"until": NOON + timedelta(seconds=1)}, [0, 1, 2]),
        ({"until": NOON}, []),
        ({"ids": frozenset({LETTERS[3].dlq_id})}, [3]),
        ({"sample": 0.0}, []),
        ({"sample": 1.0}, [0, 1, 2, 3, 4]),
    ],
)
def test_each_filter_selects_what_it_says(options, expected):
    filters = Filters(**options)
    assert [i for i, one in enumerate(LETTERS) if filters.matches(one)] == expected


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**63), small=st.floats(0, 1), large=st.floats(0, 1), name=st.text(max_size=20))
def test_a_smaller_sample_is_part_of_a_larger_one_with_the_same_seed(seed, small, large, name):
    small, large = sorted((small, large))
    share = share_of(name, seed)
    assert 0 <= share < 1
    assert not share < small or share < large
    assert share == share_of(name, seed)


def test_a_sample_is_about_as_large_as_it_says_and_depends_on_the_seed():
    ids = [f"{i:064x}" for i in range(2000)]
    chosen = {seed: [i for i in ids if share_of(i, seed) < 0.25] for seed in (0, 1)}
    assert all(400 < len(found) < 600 for found in chosen.values())
    assert chosen[0] != chosen[1]
    assert share_of(ids[0], 0) == pytest.approx(0.8631, abs=1e-4)  # for ever: a second sample must find the first


def test_a_limit_counts_selected_letters_and_lets_damage_pass():
    damage = Damage("a", 1, "x")
    items = [LETTERS[2], damage, *LETTERS[:2], LETTERS[3]]
    wrong = Filters(reasons=("wrong_type",))
    assert list(take(items, wrong, limit=1)) == [damage, LETTERS[0]]
    assert list(take(items, wrong, limit=None)) == [damage, LETTERS[0], LETTERS[3]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=timezone.utc)),
        ("2024-05-01T12:00", NOON),
        ("2024-05-01 12:00:00Z", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-05-01T06:30:00-05:30", NOON),
        ("2024-05-01T12:00:00.000000000Z", NOON),
        ("2024-05-01T12:00:60Z", NOON + timedelta(seconds=59)),
        ("2024-13-01", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("noon", None),
        ("", None),
    ],
)
def test_times_in_every_spelling(text, expected):
    assert read_time(text) == expected


def test_time_bounds_can_be_ages():
    assert time_bound("90m", flag="since", now=NOON) == NOON - timedelta(minutes=90)
    assert time_bound("2d", flag="since", now=NOON) == NOON - timedelta(days=2)
    assert time_bound("2024-05-01", flag="since", now=NOON) == datetime(2024, 5, 1, tzinfo=timezone.utc)
    for wrong in ("tomorrow", "", "5", "999999999d"):
        with pytest.raises(UsageError, match="--since"):
            time_bound(wrong, flag="since", now=NOON)


def test_attributes_and_ids():
    assert attribute_filter("a=b=c") == ("a", "b=c")
    for wrong in ("a", "=b"):
        with pytest.raises(UsageError, match="name=value"):
            attribute_filter(wrong)
    one, two = "0" * 64, "f" * 64
    assert read_ids(f"# from the report\n{one}, {two}\n\n{one} # again\n", "ids.txt") == {one, two}
    assert looks_like_ids(f"{one},{two}")
    assert not looks_like_ids("ids.txt")
    with pytest.raises(UsageError, match=r"ids\.txt: 'F+' is no"):
        read_ids("F" * 64, "ids.txt")
    with pytest.raises(UsageError, match="no dlq_id"):
        read_ids("\n# nothing\n", "ids.txt")


def test_filters_say_what_they_are():
    ids = frozenset({LETTERS[0].dlq_id})
    shown = Filters(reasons=("a",), since=NOON, attributes=(("k", "v"),), ids=ids, sample=0.5, seed=3).as_json()
    assert shown.pop("ids")["count"] == 1
    assert shown == {
        "reason": ["a"],
        "since": "2024-05-01T12:00:00+00:00",
        "attribute": {"k": "v"},
        "sample": 0.5,
        "sample_seed": 3,
    }
    assert Filters().as_json() == {}


def test_places():
    assert place_of("gs://b/f#offset=12") == "gs://b/f"
    assert place_of("projects/p/subscriptions/s#77") == "projects/p/subscriptions/s"
