"""What people and scripts see: results on stdout, words on stderr, exit codes, nothing hostile on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.cli import headrace, headrace_process

HOSTILE = b'{"a":"\x1b[2J\x1b]0;owned\x07 \xc2\x9b31m \xe2\x80\xae \xff"}'


@pytest.fixture(scope="module")
def made(tmp_path_factory, case_schema):
    """A run with dead letters, one of them hostile to terminals."""
    from fakes.bench import Workbench

    bench = Workbench(tmp_path_factory.mktemp("people"))
    lines = [b'{"a":1}', HOSTILE, b'{"a":"\\u001b[31mred"}', b'{"a":1,"d":"blue"}', b'{"\\u001b[2Ja":1}']
    bench.good_run(bench.write("f.jsonl", lines), schema=case_schema)
    return bench


def test_json_of_a_run_is_one_document_and_nothing_else(made, case_schema):
    flags = made.flags(made.folder / "f.jsonl", schema=case_schema, run_id="json")
    done = headrace_process("run", *flags, "--json")
    assert done.code == 0
    said = done.json
    assert (said["run_id"], said["rows_read"], said["rows_written"]) == ("json", 5, 1)
    assert said["rows_dead_lettered_by_reason"] == {
        "invalid_utf8": 1,
        "missing_feature": 1,
        "not_in_domain": 1,
        "wrong_type": 1,
    }
    assert json.loads(Path(said["manifest"]).read_bytes())["run_id"] == "json"
    for line in done.err.splitlines():
        assert set(json.loads(line)) >= {"severity", "time", "message"}, "off a terminal, logs are structured"


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "out"),
        ("dlq", "summary", "dead"),
        ("dlq", "show", "dead"),
        ("dlq", "show", "dead", "--reason=wrong_type", "--limit=1"),
        ("schema", "infer", "f.jsonl"),
        ("schema", "validate", "SCHEMA"),
    ],
)
def test_json_of_every_command_is_one_document(made, case_schema, words):
    places = {"out": made.output, "dead": made.dead, "f.jsonl": made.folder / "f.jsonl", "SCHEMA": case_schema}
    done = headrace(*(places.get(word, word) for word in words), "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, dict)


@pytest.mark.parametrize("words", [("summary",), ("show",), ("show", "--reason=wrong_type"), ("show", "--json")])
def test_hostile_bytes_do_not_reach_the_terminal(made, words):
    done = headrace("dlq", words[0], made.dead, *words[1:])
    assert done.code == 0
    for text in (done.out, done.err):
        assert not any(ord(char) < 32 and char != "\n" for char in text), repr(text)
        assert not set("\x7f\x9b\u202e") & set(text)


def test_dead_letters_are_shown_with_place_reason_and_bytes(made):
    done = headrace("dlq", "show", made.dead, "--reason=not_in_domain")
    for words in ("not_in_domain", "d", "f.jsonl", "#offset=", '{"a":1,"d":"blue"}', "'blue'"):
        assert words in done.out.replace("\n", " ").replace("  ", " "), words


def test_the_summary_counts(made):
    said = headrace("dlq", "summary", made.dead / "run=r", "--json").json
    assert "4" in json.dumps(said)
    assert {"wrong_type", "not_in_domain", "invalid_utf8", "missing_feature"} <= set(_strings(said))


def _strings(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def test_a_bad_schema_names_file_and_line(bench, rows):
    schema = bench.write("bad.pbtxt", b'feature {\n  name: "a"\n  type: INT\n  typo: 3\n}\n')
    done, _ = bench.run(bench.write("f.jsonl", rows(1)), schema=schema)
    assert done.code == 2
    assert f"{schema}:4" in done.err
    assert headrace("schema", "validate", schema).code == 2


def test_bad_features_name_file_and_line(bench, row_schema, rows):
    features = bench.write("bad.yaml", b"id: {pass_through: {}}\nx: {scale_to_zscore: {}}\n")
    done, _ = bench.run(bench.write("f.jsonl", rows(1)), "--features", features, schema=row_schema)
    assert done.code == 2
    assert f"{features}:2" in done.err
    assert "scale_to_z_score" in done.err


@pytest.mark.parametrize("pattern", ["nothing.jsonl", "*.nothing", "folder/"])
def test_an_input_that_matches_nothing_is_named(bench, row_schema, pattern):
    (bench.folder / "folder").mkdir()
    done, _ = bench.run(bench.folder / pattern, schema=row_schema)
    assert done.code == 2
    assert pattern.rstrip("/") in done.err
    assert "matches no file" in done.err


@pytest.mark.parametrize("flag", ["output", "dead_letters"])
def test_a_folder_that_cannot_be_written_is_told_before_any_work(bench, row_schema, rows, flag):
    in_the_way = bench.write("file", b"")
    done, run = bench.run(bench.write("f.jsonl", rows(1)), f"--{flag}={in_the_way / 'below'}", schema=row_schema)
    assert done.code == 2
    assert f"--{flag} {in_the_way / 'below'} cannot be written to" in done.err
    assert not run.folder.exists()


def test_output_and_dead_letters_must_be_two_folders(bench, row_schema, rows):
    done, _ = bench.run(bench.write("f.jsonl", rows(1)), f"--dead_letters={bench.output}/", schema=row_schema)
    assert done.code == 2
    assert "one folder" in done.err


def test_missing_schema_and_missing_run(bench, rows):
    done, _ = bench.run(bench.write("f.jsonl", rows(1)), schema=bench.folder / "nothing.pbtxt")
    assert (done.code, "there is no schema file" in done.err) == (2, True)
    done = headrace("verify", bench.folder)
    assert (done.code, "no committed run" in done.err) == (2, True)
    done = headrace("verify", bench.folder / "f.jsonl")
    assert (done.code, "no committed run" in done.err) == (2, True)
    done = headrace("dlq", "show", bench.folder / "nothing")
    assert (done.code, "no dead-letter archive" in done.err) == (2, True)


def test_verify_of_a_damaged_run_is_exit_3_and_names_the_file(bench, row_schema, rows):
    run = bench.good_run(bench.write("f.jsonl", rows(10)), schema=row_schema)
    (shard,) = run.shards()
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    done = headrace("verify", run.folder)
    assert done.code == 3
    assert f"{run.manifest['shards'][0]['name']} at byte " in done.out


def test_a_damaged_archive_is_exit_3_with_the_good_part_shown(made, tmp_path):
    (archive,) = (made.dead / "run=r").rglob("*.avro")
    cut = tmp_path / "cut.avro"
    cut.write_bytes(archive.read_bytes()[:-9])
    done = headrace("dlq", "summary", cut)
    assert done.code == 3
    assert "cut.avro" in done.out + done.err


def test_beam_options_reach_beam(bench, row_schema, rows):
    flags = ("--direct_num_workers=1", "--runner=FnApiRunner", "--job_name=from-beam")
    run = bench.good_run(bench.write("f.jsonl", rows(3)), *flags, schema=row_schema)
    assert run.manifest["job"]["name"] == "from-beam"


def test_manifest_says_what_was_asked_and_read(bench, row_schema, rows):
    source = bench.write("f.jsonl", rows(3))
    manifest = bench.good_run(source, "--seed=7", schema=row_schema).manifest
    assert manifest["options"]["seed"] == 7
    assert manifest["inputs"][0]["uri"] == str(source)
    assert manifest["inputs"][0]["bytes"] == source.stat().st_size
    assert manifest["inputs"][0]["version"] == f"mtime={source.stat().st_mtime_ns}"
    assert manifest["code"]["version"]


def test_without_a_run_id_the_time_is_the_name(bench, row_schema, rows):
    source = bench.write("f.jsonl", rows(3))
    where = ("--input", source, "--schema", row_schema, "--output", bench.output, "--dead_letters", bench.dead)
    first, second = (headrace("run", *where, "--threads=1", "--json").json["run_id"] for _ in range(2))
    assert first < second
    assert (bench.output / "LATEST").read_text() == f"{second}\n"
