"""Summaries: counts add up whatever the order, damage is told, and hostile text cannot reach the terminal."""

import io
import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dlq_replay.archives import Damage, read_letters
from dlq_replay.selection import ALL, Filters
from dlq_replay.summary import OTHER, summarise
from pipeline.core.reasons import Reason
from tests.dlq_replay.helpers import archive_of, letter, opener

LETTERS = [
    letter(0, uri="gs://b/1.jsonl", attempt=1),
    letter(
        9, uri="gs://b/1.jsonl", faults=[(Reason.OUT_OF_RANGE, "x"), (Reason.WRONG_TYPE, "a"), (Reason.WRONG_TYPE, "a")]
    ),
    letter(
        5,
        uri="gs://b/2.jsonl",
        payload=None,
        faults=[(Reason.RECORD_TOO_LARGE, None)],
        failed_at="2023-01-01T00:00:00Z",
    ),
    letter(7, uri="gs://b/2.jsonl", message="second"),
]
FILES = {"a.avro": archive_of(LETTERS[:3]), "b.avro": archive_of(LETTERS[3:])}


def summary_of(files, filters=ALL, **options):
    return summarise(read_letters(files, opener(files)), filters, of=f"{len(files)} archives", **options)


def test_counts_by_everything():
    summary = summary_of(FILES)
    assert (summary.read, summary.letters, summary.spilled, summary.payload_bytes) == (4, 4, 1, 306)
    assert summary.by_reason == (("wrong_type", 2), ("out_of_range", 1), ("record_too_large", 1))
    assert summary.by_feature == (("a", 3), ("x", 1))
    assert summary.by_stage == (("validate", 4),)
    assert summary.by_source == (("gs://b/1.jsonl", 2), ("gs://b/2.jsonl", 2))
    assert summary.by_attempt == (("0", 3), ("1", 1))
    assert summary.by_hour == (("2023-01-01T00:00Z", 1), ("2024-05-01T12:00Z", 3))
    assert (summary.first_failed_at, summary.last_failed_at) == ("2023-01-01T00:00:00Z", "2024-05-01T12:00:00Z")
    assert [e.reason for e in summary.examples] == ["wrong_type", "out_of_range", "record_too_large"]
    assert summary.examples[0].source == "gs://b/1.jsonl#offset=0"
    assert json.loads(json.dumps(summary.as_json()))["by_reason"]["wrong_type"] == 2


@settings(max_examples=30, deadline=None)
@given(
    picks=st.lists(st.tuples(st.sampled_from(Reason), st.sampled_from(["a", "b", None])), max_size=12),
    cut=st.integers(0, 12),
)
def test_counts_add_up_and_do_not_depend_on_how_letters_lie_in_files(picks, cut):
    letters = [letter(i, faults=[pick]) for i, pick in enumerate(picks)]
    one = summary_of({"a": archive_of(letters)})
    two = summary_of({"b": archive_of(letters[cut:]), "a": archive_of(letters[:cut])})
    assert dict(one.by_reason) == dict(two.by_reason) == Counter(reason.value for reason, _ in picks)
    assert dict(one.by_feature) == dict(two.by_feature) == Counter(f for _, f in picks if f)
    assert sum(count for _, count in one.by_stage) == one.letters == len(picks)


def test_damage_is_listed_and_the_rest_counted():
    summary = summary_of(FILES | {"c.avro": FILES["a.avro"][:-3]})
    assert summary.letters == 4
    assert [(d.uri, d.what) for d in summary.damage] == [("c.avro", summary.damage[0].what)]
    assert any("DAMAGED: c.avro at byte" in line for line in summary.lines())
    assert summary.as_json()["damage"][0]["offset"] == summary.damage[0].offset


def test_filters_and_a_limit_say_what_is_summed_up():
    summary = summary_of(FILES, Filters(reasons=("wrong_type",)))
    assert (summary.read, summary.letters, summary.by_reason) == (4, 2, (("wrong_type", 2),))
    assert "4 were looked at, and these are those that were asked for" in summary.lines()
    assert summary_of(FILES, limit=1).letters == 1


def test_many_hours_are_shown_from_the_last():
    letters = [letter(i, failed_at=f"2024-05-{1 + i // 24:02d}T{i % 24:02d}:30:00Z") for i in range(30)]
    letters.append(letter(99, failed_at="some day"))
    summary = summary_of({"a": archive_of(letters)})
    assert len(summary.by_hour) == 31
    lines = summary.lines()
    hours = lines[lines.index("hour:") + 1 :][:10]
    assert "(22 hours before)" in hours[0]
    assert "2024-05-02T05:00Z" in hours[-1]


def test_no_letters_is_a_summary_too():
    assert summary_of({}).lines() == ["0 dead letters in 0 archives, 0 bytes refused"]


def printed(summary, **options):
    out = io.StringIO()
    summary.render(Console(file=out, width=100, **options))
    return out.getvalue()


def test_plain_lines_off_a_terminal_and_tables_on_one():
    summary = summary_of(FILES)
    assert printed(summary) == "\n".join(summary.lines()) + "\n"
    table = printed(summary, force_terminal=True)
    assert "50.0%" in table
    assert "gs://b/1.jsonl" in table


def test_hostile_text_is_shown_harmlessly():
    nasty = "\x1b]0;owned\x07[red]\u202e" + "x" * 5000
    letters = [letter(0, uri=nasty, message=nasty, faults=[(Reason.WRONG_TYPE, nasty)], failed_at=nasty)]
    summary = summary_of({"a": archive_of(letters)})
    summary = type(summary)(**{**vars(summary), "damage": (Damage(nasty, 1, "x"),)})
    for line in summary.lines():
        assert line.isprintable()
        assert len(line) < 700
    shown = printed(summary, force_terminal=True, color_system=None)
    assert "\x1b]" not in shown
    assert "\u202e" not in shown
    assert "[red]" in shown


def test_long_tables_are_cut_and_say_so():
    letters = [letter(i, faults=[(Reason.WRONG_TYPE, f"f{i:02d}")]) for i in range(25)]
    lines = summary_of({"a": archive_of(letters)}).lines()
    assert any("(15 more)" in line for line in lines)


def test_distinct_values_are_bounded(monkeypatch):
    monkeypatch.setattr("dlq_replay.summary._MAX_DISTINCT", 3)
    letters = [letter(i, uri=f"u{i}") for i in range(10)]
    assert dict(summary_of({"a": archive_of(letters)}).by_source) == {OTHER: 7, "u0": 1, "u1": 1, "u2": 1}
