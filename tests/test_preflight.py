"""Preflight: inputs found once and in order, folders probed, keys and names checked."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime, timezone

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline import preflight
from pipeline.core.errors import UsageError
from pipeline.core.schema import schema_of

SCHEMA = schema_of(
    text_format.Parse(
        'feature { name: "k" type: INT value_count { min: 1 max: 1 } } feature { name: "l" type: INT }',
        schema_pb2.Schema(),
    )
)


@pytest.fixture
def files_here(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", "t.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}\n")
    return tmp_path


def test_inputs_are_each_found_once_and_sorted(files_here):
    found = preflight.resolve_inputs([f"{files_here}/*.jsonl", f"{files_here}/a.jsonl", str(files_here / "sub")])
    assert [file.uri.removeprefix(f"{files_here}/") for file in found] == ["a.jsonl", "b.jsonl", "sub/c.jsonl"]


def test_every_pattern_must_match(files_here):
    with pytest.raises(UsageError, match=r"no\*\.jsonl"):
        preflight.resolve_inputs([f"{files_here}/*.jsonl", f"{files_here}/no*.jsonl"])


def test_one_format(files_here):
    found = preflight.resolve_inputs([f"{files_here}/*"])
    with pytest.raises(UsageError, match="mixes formats"):
        preflight.input_format(found, "auto")
    assert preflight.input_format(found, "csv") == "csv"
    assert preflight.input_format(found[:2], "auto") == "jsonl"


def test_csv_options_follow_the_format():
    given = Namespace(
        csv_delimiter=None, csv_quote='"', csv_header=("a",), csv_null_tokens=("", "NA"), csv_multiline=True
    )
    assert preflight.csv_options(given, "tsv").delimiter == "\t"
    options = preflight.csv_options(given, "csv")
    assert (options.delimiter, options.header, options.multiline) == (",", ("a",), True)
    given.csv_delimiter = "||"
    with pytest.raises(UsageError):
        preflight.csv_options(given, "csv")


def test_split_keys_are_single_values_of_the_schema():
    assert preflight.data_splits("train=0.5,eval=0.5", "k", SCHEMA) == (("train", 0.5), ("eval", 0.5))
    with pytest.raises(UsageError, match="is not in the schema"):
        preflight.data_splits("train=1", "x", SCHEMA)
    with pytest.raises(UsageError, match="holds lists"):
        preflight.data_splits("train=1", "l", SCHEMA)


def test_run_ids_are_given_or_the_time():
    now = datetime(2024, 5, 1, 12, 0, 0, 7, tzinfo=timezone.utc)
    assert preflight.run_id_of(None, now) == "20240501T120000-000007"
    assert preflight.run_id_of("mine", now) == "mine"
    with pytest.raises(UsageError):
        preflight.run_id_of("../mine", now)


def test_small_files_are_read_or_refused_in_words(tmp_path):
    (tmp_path / "bad").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="there is no schema file"):
        preflight.read_text(str(tmp_path / "none"), "schema")
    with pytest.raises(UsageError, match="cannot be read"):
        preflight.read_text(str(tmp_path / "bad"), "schema")
    with pytest.raises(UsageError, match="cannot be read"):
        preflight.read_text(str(tmp_path), "schema")


def test_code_version_prefers_what_the_image_says(monkeypatch):
    monkeypatch.setenv("HEADRACE_GIT_COMMIT", "abc")
    monkeypatch.setenv("HEADRACE_IMAGE_DIGEST", "sha256:1")
    code = preflight.code_version()
    assert (code.git_commit, code.image_digest) == ("abc", "sha256:1")
    monkeypatch.delenv("HEADRACE_GIT_COMMIT")
    assert preflight.code_version().git_commit != "abc"


def test_required_features_are_required(files_here):
    (files_here / "s").write_text('feature { name: "k" type: INT value_count { min: 1 max: 1 } }')
    given = Namespace(
        input=[str(files_here / "a.jsonl")],
        format="auto",
        schema=str(files_here / "s"),
        environment="TRAINING",
        max_record_bytes=100,
        csv_delimiter=None,
        csv_quote='"',
        csv_header=None,
        csv_null_tokens=("",),
        csv_multiline=False,
    )
    sources = preflight.open_sources(given)
    assert [feature.required for feature in sources.schema.features] == [False]
    assert [feature.required for feature in sources.requiring(["k"]).schema.features] == [True]
    assert sources.requiring(["k"]).schema.fingerprint == sources.schema.fingerprint
    assert sum(split.size_bytes for split in sources.split(1)) == sources.total_bytes == 3
    with pytest.raises(UsageError, match="nothing"):
        sources.requiring(["nothing"])
