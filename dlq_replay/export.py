"""Dead letters for other programs: JSON lines with everything, or CSV that is safe in a spreadsheet. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from dlq_replay.payloads import View
from dlq_replay.show import letter_as_json
from pipeline.core.dead_letter import DeadLetter

COLUMNS = (
    "dlq_id",
    "reason",
    "feature",
    "stage",
    "message",
    "source",
    "failed_at",
    "event_time",
    "attempt",
    "job",
    "schema",
    "ordering_key",
    "attributes",
    "payload",
    "payload_encoding",
    "payload_cut",
    "payload_length",
    "payload_sha256",
    "payload_uri",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def jsonl(letters: Iterable[DeadLetter], view: View) -> Iterator[str]:
    """A line (with its end) a letter: everything, all faults included; ASCII."""
    for letter in letters:
        yield json.dumps(letter_as_json(letter, view)) + "\n"


def as_csv(letters: Iterable[DeadLetter], view: View) -> Iterator[str]:
    """A header line, then a record a letter, as RFC 4180 writes them.

    A cell that a spreadsheet would take for a formula begins with an apostrophe, as do those that begin with one: so
    taking one apostrophe off gives the text. Attributes are one JSON object. Lone surrogates and NUL, which
    spreadsheets refuse, are shown as escapes.
    """
    yield _record(COLUMNS)
    for letter in letters:
        made = letter_as_json(letter, view)
        made["attributes"] = json.dumps(made["attributes"], sort_keys=True) if made["attributes"] else ""
        yield _record([_cell(made[column]) for column in COLUMNS])


def _record(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    first = text.lstrip(" ")[:1]
    return f"'{text}" if first in _FORMULA or first == "'" else text
