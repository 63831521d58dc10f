"""Every kind of JSON line that this job meets in the wild, through the real command line."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest
from fakes.bench import Workbench
from fakes.runs import Run, assert_whole


class Case(NamedTuple):
    line: bytes
    reason: str
    feature: str | None = None


REFUSED = [
    Case(b'{"x":1.5}', "missing_feature", "a"),
    Case(b"{}", "missing_feature", "a"),
    Case(b'{"a":null}', "null_feature", "a"),
    Case(b'{"a":"1"}', "wrong_type", "a"),
    Case(b'{"a":1.5}', "wrong_type", "a"),
    Case(b'{"a":true}', "wrong_type", "a"),
    Case(b'{"a":{"b":1}}', "wrong_type", "a"),
    Case(b'{"a":1,"s":5}', "wrong_type", "s"),
    Case(b'{"a":1,"x":"1.5"}', "wrong_type", "x"),
    Case(b'{"a":9223372036854775808}', "int_overflow", "a"),
    Case(b'{"a":-9223372036854775809}', "int_overflow", "a"),
    Case(b'{"a":' + b"7" * 5000 + b"}", "int_overflow", "a"),
    Case(b'{"a":1,"x":NaN}', "non_finite", "x"),
    Case(b'{"a":1,"x":Infinity}', "non_finite", "x"),
    Case(b'{"a":1,"x":-Infinity}', "non_finite", "x"),
    Case(b'{"a":1,"x":1e400}', "non_finite", "x"),
    Case(b'{"a":1,"x":1e300}', "float_overflow", "x"),
    Case(b'{"a":1,"a":2}', "duplicate_key", "a"),
    Case(b'{"a":1}{"a":2}', "invalid_json"),
    Case(b'{"a":1} null', "invalid_json"),
    Case(b'{"a":1', "invalid_json"),
    Case(b'{"a":1,}', "invalid_json"),
    Case(b"{'a':1}", "invalid_json"),
    Case(b"hello", "invalid_json"),
    Case(b"[1]", "not_an_object"),
    Case(b"null", "not_an_object"),
    Case(b"7", "not_an_object"),
    Case(b'"a"', "not_an_object"),
    Case(b'{"a":1,"z":' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
    Case(b"\xff\xfe\x80\x81", "invalid_utf8"),
    Case(b'{"a":1,"s":"caf\xe9"}', "invalid_utf8"),
    Case(b'{"a":1,"z":"caf\xe9"}', "invalid_utf8"),
    Case(b'{"a":1,"s":"\xed\xa0\x80"}', "invalid_utf8"),
    Case(b'{"a":1,"s":"\\ud800"}', "invalid_json"),
    Case(b'{"a":1,"s":"a\x00b"}', "invalid_json"),
    Case(b'{"a":1,"l":[1,2]}', "too_few_values", "l"),
    Case(b'{"a":1,"l":[1,2,3,4]}', "too_many_values", "l"),
    Case(b'{"a":1,"l":[1,null,3]}', "null_feature", "l"),
    Case(b'{"a":1,"l":[]}', "too_few_values", "l"),
    Case(b'{"a":1,"l":7}', "too_few_values", "l"),
    Case(b'{"a":1,"d":"blue"}', "not_in_domain", "d"),
    Case(b'{"a":1,"d":""}', "not_in_domain", "d"),
]
ACCEPTED: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"a":1}', {"a": (1,)}),
    (b'{"a":1,"z":9}', {"a": (1,)}),
    (b'{"a":1.0}', {"a": (1,)}),
    (b'{"a":1e2}', {"a": (100,)}),
    (b' {"a" : -0 } ', {"a": (0,)}),
    (b'{"a":9223372036854775807}', {"a": (2**63 - 1,)}),
    (b'{"a":-9223372036854775808}', {"a": (-(2**63),)}),
    (b'{"a":2,"x":null,"s":null,"l":null,"d":null}', {"a": (2,)}),
    (b'{"a":3,"x":16777217}', {"a": (3,), "x": (16777216.0,)}),
    (b'{"a":4,"s":"caf\xc3\xa9 \\u00e9 \\ud83d\\ude00"}', {"a": (4,), "s": ("café é 😀".encode(),)}),
    (b'{"a":5,"s":"a\\u0000\\nb"}', {"a": (5,), "s": (b"a\x00\nb",)}),
    (b'{"a":6,"s":""}', {"a": (6,), "s": (b"",)}),
    (b'{"a":7,"l":[1,2.5,3]}', {"a": (7,), "l": (1.0, 2.5, 3.0)}),
    (b'{"a":8,"d":"red"}', {"a": (8,), "d": (b"red",)}),
    (b'{"a":9,"x":1.1}', {"a": (9,), "x": (struct.unpack("f", struct.pack("f", 1.1))[0],)}),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, case_schema) -> Run:
    """One run over all lines, good and bad by turns, in three files."""
    bench = Workbench(tmp_path_factory.mktemp("json"))
    good = [line for line, _ in ACCEPTED]
    lines = [line for n, case in enumerate(REFUSED) for line in (good[n % len(good)], case.line)] + good
    for part in range(3):
        bench.write(f"in/{part}.jsonl", lines[part::3])
    return bench.good_run(bench.folder / "in", "--shuffle", "none", schema=case_schema)


def test_nothing_is_lost_and_every_payload_is_exact(mixed):
    assert_whole(mixed)
    assert len(mixed.letters()) == len(REFUSED)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: repr(case.line[:40]))
def test_refused_line(mixed, case):
    letter = next(letter for letter in mixed.letters() if letter["payload"] == case.line)
    assert (letter["dlq_reason"], letter["dlq_feature"]) == (case.reason, case.feature)
    assert letter["faults"][0]["reason"] == case.reason
    assert len(letter["errorMessage"]) < 1000, "what a line says of itself is bounded"


def test_accepted_lines(mixed):
    written = mixed.rows()
    assert all(row in written for _, row in ACCEPTED)
    assert len(written) == len(REFUSED) + len(ACCEPTED)
    assert all(row in [expected for _, expected in ACCEPTED] for row in written)


def test_all_faults_of_a_row_are_listed(bench, case_schema):
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"x":"no","l":[1],"d":"blue"}'])
    (letter,) = bench.good_run(source, schema=case_schema).letters()
    assert {(fault["reason"], fault["feature"]) for fault in letter["faults"]} == {
        ("missing_feature", "a"),
        ("wrong_type", "x"),
        ("too_few_values", "l"),
        ("not_in_domain", "d"),
    }


def test_unknown_features_are_refused_when_the_run_is_strict(bench, case_schema):
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":2,"z":9}'])
    run = bench.good_run(source, "--unknown_features=reject", schema=case_schema)
    assert [(letter["dlq_reason"], letter["dlq_feature"]) for letter in run.letters()] == [("unknown_feature", "z")]
    assert_whole(run)


@pytest.mark.parametrize("line", [b"null", b"[1]", b"7"])
def test_a_file_of_nothing_but_a_bad_line_beside_a_good_file(bench, case_schema, line):
    bench.write("in/bad.jsonl", line)
    bench.write("in/good.jsonl", [b'{"a":1}', line])
    run = bench.good_run(bench.folder / "in", schema=case_schema)
    assert run.rows() == [{"a": (1,)}]
    assert [letter["dlq_reason"] for letter in run.letters()] == ["not_an_object"] * 2
    assert_whole(run)


def test_redacted_features_are_in_the_payload_and_nowhere_else(bench, case_schema):
    secret = b"s3cr3t-colour"
    source = bench.write("f.jsonl", [b'{"a":1}', b'{"a":2,"d":"' + secret + b'"}', b'{"a":3,"d":"' + secret + b'"'])
    done, run = bench.run(source, "--redact_features=d", schema=case_schema)
    assert done.code == 0
    assert secret.decode() not in done.out + done.err
    for letter in run.letters():
        assert secret in letter["payload"]
        assert secret.decode() not in repr([letter["errorMessage"], letter["faults"]])
