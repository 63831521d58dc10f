"""The accounts: what balances is summed, and any lost, doubled or invented row is named with its numbers."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.accounts import balance
from pipeline.core.errors import GuardError, HeadraceError, UsageError
from pipeline.core.records import ShardPart, Split, Task, TaskReport


def make(task, train, evaluated, rejected, blank=0, size=100):
    parts = [ShardPart(s, task, 0, "u", n, n, n, 0) for s, n in (("train", train), ("eval", evaluated)) if n]
    written, refused = train + evaluated, sum(rejected.values())
    report = TaskReport(task, size, written + refused, blank, written, tuple(sorted(rejected.items())), tuple(parts))
    return Task(task, (Split("u", 0, size, size),), 0), report


TASKS, REPORTS = zip(
    make(0, 5, 2, {"wrong_type": 1, "invalid_json": 2}, 4), make(1, 3, 0, {"wrong_type": 1}), strict=True
)
DEAD = 4


def test_sums():
    counts = balance(reversed(REPORTS), planned=TASKS, dead_letters_written=DEAD)
    assert (counts.read, counts.written, counts.dead_lettered, counts.blank) == (14, 10, 4, 4)
    assert counts.written_by_split == (("eval", 2), ("train", 8))
    assert counts.dead_lettered_by_reason == (("invalid_json", 2), ("wrong_type", 2))


def changed(**changes):
    return (REPORTS[0], dataclasses.replace(REPORTS[1], **changes))


@pytest.mark.parametrize(
    ("reports", "dead", "says"),
    [
        (REPORTS[:1], 3, r"no report of 1 of 2 tasks, the first is task 1"),
        ((*REPORTS, REPORTS[0]), 7, r"2 reports of task 0"),
        ((*REPORTS, dataclasses.replace(REPORTS[0], task=9)), 7, r"task 9, which was not planned"),
        (changed(rows_read=5), DEAD, r"task 1: 5 rows read, but 3 written \+ 1 dead-lettered = 4"),
        (changed(rows_written=4, rows_read=5), DEAD, r"task 1: 4 rows written, but its parts hold 3"),
        (changed(bytes_read=99), DEAD, r"task 1: 99 bytes read of 100 planned"),
        (REPORTS, 3, r"4 rows were refused, but 3 dead letters were written"),
        (REPORTS, 5, r"4 rows were refused, but 5 dead letters"),
    ],
)
def test_each_imbalance_is_named(reports, dead, says):
    with pytest.raises(HeadraceError, match=says) as caught:
        balance(reports, planned=TASKS, dead_letters_written=dead)
    assert not isinstance(caught.value, (UsageError, GuardError))
    assert caught.value.exit_code == 1


def test_many_problems_stay_a_short_message():
    tasks = [make(i, 1, 0, {})[0] for i in range(1000)]
    reports = [dataclasses.replace(make(i, 1, 0, {})[1], rows_read=7) for i in range(1000)]
    with pytest.raises(HeadraceError, match="and 995 more") as caught:
        balance(reports, planned=tasks, dead_letters_written=0)
    assert len(str(caught.value)) < 1000


def test_nothing_planned_nothing_done_balances():
    assert balance([], planned=[], dead_letters_written=0).read == 0


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.integers(0, 50)] * 4), min_size=1, max_size=8),
    at=st.integers(0, 7),
    name=st.sampled_from(["bytes_read", "rows_read", "rows_written"]),
    by=st.sampled_from([-1, 1, 1000]),
)
def test_any_single_wrong_number_is_caught(rows, at, name, by):
    made = [make(i, a, b, {"internal": c}, d) for i, (a, b, c, d) in enumerate(rows)]
    tasks, reports = [t for t, _ in made], [r for _, r in made]
    dead = sum(c for _, _, c, _ in rows)
    assert balance(reports, planned=tasks, dead_letters_written=dead).read == sum(a + b + c for a, b, c, _ in rows)
    at %= len(rows)
    reports[at] = dataclasses.replace(reports[at], **{name: getattr(reports[at], name) + by})
    with pytest.raises(HeadraceError):
        balance(reports, planned=tasks, dead_letters_written=dead)
