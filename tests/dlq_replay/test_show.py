"""Showing dead letters: the right ones, all their faults, and payloads that cannot harm a terminal."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dlq_replay.archives import read_letters
from dlq_replay.payloads import WITHHELD_MARK, View
from dlq_replay.selection import Filters
from dlq_replay.show import letter_as_json, letter_lines, select
from pipeline.core.dead_letter import redact
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from tests.dlq_replay.helpers import archive_of, letter, opener

LETTERS = [
    letter(0, payload=b'{"a":"1"}'),
    letter(1, faults=[(Reason.OUT_OF_RANGE, "x"), (Reason.WRONG_TYPE, "a")]),
    letter(2, faults=[(Reason.INVALID_JSON, None)], payload=b"\xff\xfe\x80\x81"),
    letter(3, faults=[(Reason.WRONG_TYPE, "x")]),
]
FILES = {"a": archive_of(LETTERS[:2]), "b": archive_of(LETTERS[2:])}


def chosen(files=FILES, limit=20, **options):
    return select(
        read_letters(files, opener(files)), Filters(**{name: (value,) for name, value in options.items()}), limit=limit
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"reasons": "wrong_type"}, [0, 3]),
        ({"features": "a"}, [0, 1]),
        ({"reasons": "wrong_type", "features": "x"}, [3]),
        ({"reasons": "late_data"}, []),
        ({"limit": 2}, [0, 1]),
        ({"limit": 4}, [0, 1, 2, 3]),
        ({"reasons": "wrong_type", "limit": 1}, [0]),
    ],
)
def test_filters_and_limit(options, expected):
    selection = chosen(**options)
    assert list(selection.letters) == [LETTERS[i] for i in expected]
    assert selection.more == (options.get("limit") in (1, 2))


def test_where_nothing_matches_the_reasons_are_named():
    last = chosen(reasons="late_data").lines()[-1]
    assert last == "none of 4 dead letters matches; their reasons are: invalid_json, out_of_range, wrong_type"
    assert chosen({"a": archive_of([])}).lines() == ["there are no dead letters here"]


def test_lines_of_a_letter():
    assert letter_lines(LETTERS[1], 7) == [
        "7  out_of_range in x",
        "   source   f.jsonl#offset=1",
        "   failed   2024-05-01T12:00:00Z, attempt 0, job j",
        f"   id       {LETTERS[1].dlq_id}",
        "   fault    out_of_range (validate) in x: bad",
        "   fault    wrong_type (validate) in a: bad",
        "   payload  2 bytes: {}",
    ]


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a":"1"}', '9 bytes: {"a":"1"}'),
        (b'{"name":"caf\xe9"}', '15 bytes: {"name":"caf\\xe9"}'),
        (b"\xff\xfe\x80\x81", "4 bytes, in hexadecimal: fffe8081"),
        (b"", "0 bytes"),
        (b"\x1b[2J" + b"a" * 20, "24 bytes: \\x1b[2J" + "a" * 20),
        (None, "300 bytes, kept in (nowhere)"),
    ],
)
def test_payloads_are_text_where_they_can_be(payload, shown):
    assert letter_lines(letter(0, payload=payload), 1)[-1] == f"   payload  {shown}"


@settings(max_examples=100, deadline=None)
@given(payload=st.binary(max_size=200), text=st.text(max_size=50), limit=st.integers(2, 100))
def test_nothing_shown_is_invisible_or_beyond_its_bound(payload, text, limit):
    made = letter(0, uri=text, payload=payload, message=text, faults=[(Reason.INTERNAL, text)], attributes={text: text})
    lines = letter_lines(made, 1, View(limit))
    assert all(line.isprintable() for line in lines)
    assert len(lines[-1]) <= limit + 50


@settings(max_examples=50, deadline=None)
@given(payload=st.binary(max_size=60))
def test_json_holds_the_exact_payload(payload):
    value = json.loads(json.dumps(letter_as_json(letter(0, payload=payload))))
    decode = bytes.fromhex if value["payload_encoding"] == "hex" else str.encode
    assert decode(value["payload"]) == payload
    assert value["payload_cut"] is False
    assert letter_as_json(letter(0, payload=b"x" * 9), View(4))["payload"] == "xxxx"
    assert letter_as_json(letter(0, payload=b"x" * 9), View(4))["payload_cut"] is True


def test_damage_is_told_before_the_letters():
    selection = chosen({"bad": b"junk", **FILES})
    assert selection.lines()[0] == "DAMAGED: bad at byte 0: not an Avro file (the rest was read)"
    assert len(selection.letters) == 4
    assert selection.as_json()["damage"] == [{"archive": "bad", "offset": 0, "what": "not an Avro file"}]


def test_markup_in_data_is_printed_as_it_is():
    out = io.StringIO()
    files = {"a": archive_of([letter(0, payload=b"[bold]x[/bold]")])}
    chosen(files).render(Console(file=out, width=40))
    assert "[bold]x[/bold]" in out.getvalue()


def test_redacted_features_are_not_shown():
    made = letter(0, payload=b'{"a":"secret","b":1.0}')
    view = View(redact=frozenset({"a"}))
    assert letter_lines(made, 1, view)[-1] == '   payload  22 bytes: {"a":"(redacted)","b":1.0}'
    assert letter_as_json(made, view)["payload"] == '{"a":"(redacted)","b":1.0}'
    hidden = letter_lines(letter(0, payload=b'{"a":"secret"'), 1, view)[-1]
    assert "secret" not in hidden
    assert "withheld, since" in hidden


def test_what_a_job_withheld_is_shown_on_request_only():
    redacted = redact([Fault(Reason.WRONG_TYPE, "x", "a")], frozenset({"a"}))[0]
    assert redacted.message.endswith(WITHHELD_MARK)
    made = letter(0, payload=b'{"a":"secret"}', message=redacted.message)
    assert "secret" not in letter_lines(made, 1)[-1]
    assert letter_as_json(made)["payload"] is None
    assert "--reveal" in letter_as_json(made)["payload_withheld"]
    assert "secret" in letter_lines(made, 1, View(reveal=True))[-1]
