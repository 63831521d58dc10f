"""The registry of formats: by name, by extension, and what it says when it does not know."""

from __future__ import annotations

import pytest

from pipeline.core.decoding import FORMATS, DecoderSettings, format_of, make_decoder
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason
from tests.core.decoding.json_cases import CASES_SCHEMA, block_of


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("gs://b/x/a.jsonl", "jsonl"),
        ("a.NDJSON", "jsonl"),
        ("/d.csv/a.json", "jsonl"),
        ("a.b.csv", "csv"),
        ("a.tsv", "tsv"),
    ],
)
def test_format_by_extension(uri, expected):
    assert format_of(uri) == expected
    assert expected in FORMATS


@pytest.mark.parametrize("uri", ["a.xlsx", "a", "gs://b/csv", ".csv/a"])
def test_an_unknown_extension_lists_those_known(uri):
    with pytest.raises(UsageError, match=r"\.jsonl .*\.csv") as caught:
        format_of(uri)
    assert uri in str(caught.value)


def test_an_unknown_format_lists_those_known():
    with pytest.raises(UsageError, match=r"'parquette'.*jsonl, csv"):
        make_decoder("parquette", CASES_SCHEMA)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_decoder(name):
    assert callable(make_decoder(name, CASES_SCHEMA).decode)


def test_settings_reach_the_decoder():
    settings = DecoderSettings(unknown_features="reject", max_depth=2)
    decoded = make_decoder("jsonl", CASES_SCHEMA, settings).decode(block_of([b'{"a":1,"z":1}', b'{"a":1,"z":[[]]}']))
    assert [r.reason for r in decoded.rejections] == [Reason.UNKNOWN_FEATURE, Reason.TOO_DEEP]


@pytest.mark.parametrize(
    "wrong",
    [
        {"unknown_features": "drop"},
        {"block_bytes": 0},
        {"max_record_bytes": 0},
        {"max_record_bytes": 1 << 40},
        {"max_depth": 0},
        {"max_depth": 10_000},
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DecoderSettings(**wrong)
