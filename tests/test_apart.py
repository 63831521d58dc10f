"""A run must not delete its own dead letters or input, nor read what runs have written."""

from __future__ import annotations

import pytest
from fakes.runs import assert_whole

from pipeline.apart import check_apart
from pipeline.core.errors import UsageError


@pytest.mark.parametrize(
    ("output", "dead_letters"),
    [
        ("out", "out"),
        ("out", "./out"),
        ("out", "other/../out/"),
        ("out", "link"),
        ("out", "out/run=r"),
        ("out", "out/run=another/below"),
        ("out", "link/.staging-r"),
        ("dead/run=r", "dead"),
        ("gs://b/out", "gs://b/out/"),
        ("gs://b/out", "gs://b/out/run=r"),
        ("", "dead"),
        ("out", ""),
        ("out", " "),
    ],
)
def test_folders_that_clear_one_another_are_refused(tmp_path, monkeypatch, output, dead_letters):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(UsageError):
        check_apart(output, dead_letters, read=[])


@pytest.mark.parametrize(
    ("output", "dead_letters"),
    [("out", "dead"), ("out", "out/dead"), ("dead/out", "dead"), ("out", "out2"), ("gs://b/o", "gs://b/o/dead")],
)
def test_folders_apart_are_fine(tmp_path, monkeypatch, output, dead_letters):
    monkeypatch.chdir(tmp_path)
    check_apart(output, dead_letters, read=["out/day=1/f.jsonl", "f.jsonl", "gs://b/in/f.jsonl"])


@pytest.mark.parametrize("uri", ["out/run=r/f.jsonl", "./out/run=old/train/f", "dead/run=r/f.jsonl", "link/run=r/f"])
def test_input_within_the_folder_of_a_run_is_refused(tmp_path, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(UsageError, match=r"would be read.*run's folder"):
        check_apart("out", "dead", read=["f.jsonl", uri])


def test_dead_letters_within_the_output_are_kept(bench, case_schema):
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":"bad"}'])
    bench.dead = bench.output / "dead"
    for _ in range(2):
        assert_whole(bench.good_run(source, schema=case_schema))


def test_a_rerun_does_not_read_its_own_shards(bench, row_schema, rows):
    bench.write("data/f.jsonl", rows(3))
    bench.output = bench.folder / "data"
    words = ("--format", "jsonl")
    bench.good_run(bench.folder / "data", *words, schema=row_schema)
    done, run = bench.run(bench.folder / "data", *words, schema=row_schema)
    assert (done.code, "would be read" in done.err) == (2, True)
    assert run.committed
