"""Odd files as input: marks, endings, encodings, empty ones, huge lines, very many files."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from fakes.cli import headrace, python
from fakes.runs import assert_whole


def test_byte_order_mark_and_no_last_newline(bench, case_schema):
    source = bench.write("f.jsonl", b'\xef\xbb\xbf{"a":1}\n{"a":2}\n{"a":3}')
    run = bench.good_run(source, "--shuffle=none", schema=case_schema)
    assert run.column("a") == [1, 2, 3]


def test_carriage_returns_and_blank_lines(bench, case_schema):
    source = bench.write("f.jsonl", b'{"a":1}\r\n\r\n\n  \t \n{"a":"no"}\r\n{"a":2}\r\n')
    run = bench.good_run(source, "--shuffle=none", schema=case_schema)
    assert run.column("a") == [1, 2]
    assert run.manifest["counts"]["blank"] == 3
    assert [letter["payload"] for letter in run.letters()] == [b'{"a":"no"}'], "without its line ending"
    assert_whole(run)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_text_is_refused_beside_good_files(bench, case_schema, encoding):
    wide = '{"a":1}\n{"a":2}\n'.encode(encoding)
    bench.write("in/wide.jsonl", wide)
    bench.write("in/good.jsonl", [b'{"a":3}'])
    run = bench.good_run(bench.folder / "in", schema=case_schema)
    assert run.column("a") == [3]
    assert {letter["dlq_reason"] for letter in run.letters()} == {"invalid_utf8"}
    assert b"\n".join(letter["payload"] for letter in run.letters()) == wide.rstrip(b"\n")
    assert_whole(run)


def test_a_file_that_is_all_null_does_not_end_the_process(bench, case_schema):
    bench.write("in/null.jsonl", b"null")
    bench.write("in/nulls.jsonl", [b"null"] * 100)
    bench.write("in/good.jsonl", [b'{"a":1}'])
    run = bench.good_run(bench.folder / "in", schema=case_schema)
    assert run.manifest["counts"]["dead_lettered_by_reason"] == {"not_an_object": 101}
    assert_whole(run)


def test_a_row_over_the_limit_is_spilled_whole(bench, case_schema):
    just_fits = b'{"a":1,"s":"' + b"x" * 986 + b'"}'
    over = b'{"a":1,"s":"' + b"x" * 987 + b'"}'
    assert (len(just_fits), len(over)) == (1000, 1001)
    huge = b'{"a":2,"s":"' + b"y" * 3_000_000 + b'"}'
    source = bench.write("f.jsonl", [b'{"a":3}', just_fits, over, huge, b'{"a":4}'])
    run = bench.good_run(source, "--max_record_bytes=1000", schema=case_schema)
    assert sorted(run.column("a")) == [1, 3, 4]
    assert [letter["dlq_reason"] for letter in run.letters()] == ["record_too_large"] * 2
    assert [Path(letter["dlq_payload_uri"]).read_bytes() for letter in run.letters()] == [over, huge]
    assert_whole(run)


@pytest.mark.slow
def test_a_line_of_300_megabytes_is_refused_in_bounded_memory(bench, case_schema):
    digest = hashlib.sha256()
    with (bench.folder / "f.jsonl").open("wb") as stream:
        stream.write(b'{"a":1}\n')
        for piece in (b'{"a":1,"s":"', *[b"z" * 1_000_000] * 300, b'"}'):
            stream.write(piece)
            digest.update(piece)
        stream.write(b'\n{"a":2}\n')
    small = bench.write("small.jsonl", [b'{"a":1}'])
    peaks = []
    for name in (small, bench.folder / "f.jsonl"):
        argv = json.dumps(["run", *map(str, bench.flags(name, schema=case_schema))])
        code = f"import resource; from pipeline.main import main; assert main({argv}) == 0"
        done = python("-c", code + "; print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
        assert done.code == 0, done.err
        peaks.append(int(done.out.split()[-1]) / 1000)
    (letter,) = _letters(bench)
    assert letter["dlq_payload_sha256"] == digest.hexdigest()
    assert letter["payload_length"] == 300_000_014
    assert len(letter["errorMessage"]) < 1000
    assert peaks[1] - peaks[0] < 150, f"megabytes at peak: {peaks}"


def _letters(bench):
    from fakes.runs import Run

    run = Run(bench.output, bench.dead, "r")
    assert_whole(run)
    assert sorted(run.column("a")) == [1, 2]
    return run.letters()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_small_files_become_few_shards(bench, row_schema, rows, count):
    lines = rows(count * 3)
    for n in range(count):
        bench.write(f"in/{n % 10}/{n:05d}.jsonl", [*lines[3 * n : 3 * n + 3], b" " * 800])
    run = bench.good_run(bench.folder / "in", schema=row_schema)
    assert len(run.manifest["shards"]) == 1
    assert sorted(run.column("id")) == list(range(count * 3))
    assert run.manifest["counts"]["blank"] == count


def test_several_inputs_globs_and_folders_are_read_once(bench, row_schema, rows):
    lines = rows(4)
    for n, name in enumerate(("a/1.jsonl", "a/2.jsonl", "b/3.jsonl", "c [x]*.jsonl")):
        bench.write(name, [lines[n]])
    bench.write("a/_temporary/9.jsonl", rows(1, start=99))
    bench.write("a/.hidden.jsonl", rows(1, start=98))
    more = ["--input", bench.folder / "a/1.jsonl", "--input", bench.folder / "c [x]*.jsonl"]
    more += ["--input", bench.folder / "?/3.jsonl"]
    run = bench.good_run(bench.folder / "a", *more, schema=row_schema)
    assert sorted(run.column("id")) == [0, 1, 2, 3]
    assert len(run.manifest["inputs"]) == 4


def test_empty_files_among_others_add_nothing(bench, case_schema):
    for suffix, text in (("jsonl", b'{"a":1}\n'), ("csv", b"a\n1\n")):
        bench.write(f"{suffix}/empty.{suffix}", b"")
        bench.write(f"{suffix}/full.{suffix}", text)
        run = bench.good_run(bench.folder / suffix, schema=case_schema)
        assert run.rows() == [{"a": (1,)}]
        assert run.manifest["counts"]["read"] == 1


def test_mixed_formats_are_refused(bench, case_schema):
    bench.write("in/f.jsonl", [b'{"a":1}'])
    bench.write("in/f.csv", b"a\n1\n")
    done, _ = bench.run(bench.folder / "in", schema=case_schema)
    assert done.code == 2
    assert "mixes formats" in done.err


@pytest.mark.parametrize("name", ["f.jsonl", "f.jsonl.gz", "f.csv"])
def test_compressed_input_is_refused_in_words(bench, case_schema, name):
    source = bench.write("plain", [b'{"a":1}'])
    packed = bench.folder / name
    packed.write_bytes(subprocess.run(["gzip", "-c", str(source)], capture_output=True, check=True).stdout)
    done, _ = bench.run(packed, schema=case_schema)
    assert done.code == 2
    assert "compressed" in done.err
    assert str(packed) in done.err


def test_format_by_hand_for_a_name_that_says_nothing(bench, case_schema):
    source = bench.write("data.txt", [b'{"a":1}'])
    done, _ = bench.run(source, schema=case_schema)
    assert done.code == 2
    assert "--format" in done.err
    assert bench.good_run(source, "--format=jsonl", schema=case_schema).column("a") == [1]


def test_schema_inferred_from_the_input_accepts_the_input(bench, rows):
    source = bench.write("f.jsonl", rows(50))
    schema = bench.folder / "inferred.pbtxt"
    assert headrace("schema", "infer", source, "--output", schema).code == 0
    assert headrace("schema", "validate", schema).code == 0
    assert bench.good_run(source, schema=schema).manifest["counts"]["written"] == 50


def test_a_file_is_read_once_whatever_it_is_called(bench, row_schema, rows, monkeypatch):
    source = bench.write("in/f.jsonl", rows(3))
    (bench.folder / "in" / "link.jsonl").symlink_to("f.jsonl")
    monkeypatch.chdir(bench.folder)
    again = ["--input", "./in/f.jsonl", "--input", "in/../in/f.jsonl", "--input", "in"]
    run = bench.good_run(source, *again, schema=row_schema)
    assert run.manifest["counts"]["read"] == 3
    assert len(run.manifest["inputs"]) == 1


def test_a_schema_is_not_inferred_over_its_input(bench, rows, monkeypatch):
    source = bench.write("f.jsonl", rows(3))
    monkeypatch.chdir(bench.folder)
    before = source.read_bytes()
    done = headrace("schema", "infer", source, "--output", "./f.jsonl")
    assert (done.code, "would be replaced" in done.err) == (2, True)
    assert source.read_bytes() == before
