"""Exports: everything, readable back, and nothing that a spreadsheet would run."""

import csv
import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.export import COLUMNS, as_csv, jsonl
from dlq_replay.payloads import OPEN, View
from pipeline.core.reasons import Reason
from tests.dlq_replay.helpers import letter

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def records(letters, view=OPEN):
    return list(csv.DictReader(io.StringIO("".join(as_csv(letters, view)), newline="")))


def test_json_lines_hold_everything():
    made = letter(
        0, faults=[(Reason.OUT_OF_RANGE, "x"), (Reason.WRONG_TYPE, "a")], payload=b"\xff", attributes={"k": "v"}
    )
    line = json.loads(next(jsonl([made], View())))
    assert [fault["reason"] for fault in line["faults"]] == ["out_of_range", "wrong_type"]
    assert (line["payload"], line["payload_encoding"], line["attributes"]) == ("ff", "hex", {"k": "v"})


def test_csv_has_a_column_for_everything_that_fits_a_cell():
    rows = records([letter(0, payload=b'{"a":"1"}', attributes={"k": "v"}), letter(1, payload=None)])
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["payload"] == '{"a":"1"}'
    assert rows[0]["attributes"] == '{"k": "v"}'
    assert (rows[1]["payload"], rows[1]["payload_length"], rows[1]["payload_cut"]) == ("", "300", "false")


def test_formulas_are_text_to_a_spreadsheet():
    for start in ('=HYPERLINK("http://evil")', "+1", "-1", "@SUM(A1)", "\t=1", " =1", "'quoted", "|x", "%x"):
        made = letter(0, uri=start, payload=start.encode(), message=start, faults=[(Reason.WRONG_TYPE, start)])
        row = records([made])[0]
        assert row["payload"] == f"'{start}"
        assert row["message"][0] == row["feature"][0] == row["source"][0] == "'"


@settings(max_examples=100, deadline=None)
@given(payload=st.text(st.characters(exclude_characters="\x00"), max_size=20), name=st.text(max_size=5))
def test_csv_reads_back_and_no_cell_can_be_a_formula(payload, name):
    data = payload.encode("utf-8", "replace")
    rows = records([letter(0, payload=data, uri=name, attributes={name: payload})])
    assert len(rows) == 1
    for cell in rows[0].values():
        assert not cell.lstrip(" ").startswith(FORMULAS)
    shown = rows[0]["payload"]
    assert (shown[1:] if shown.startswith("'") else shown) == data.decode()


def test_long_payloads_are_cut_and_say_so():
    row = records([letter(0, payload=b"x" * 50)], View(10))[0]
    assert (row["payload"], row["payload_cut"]) == ("x" * 10, "true")
