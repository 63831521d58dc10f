"""Every kind of CSV that this job meets in the wild, through the real command line."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from fakes.bench import Workbench
from fakes.runs import Run, assert_payloads_exact, assert_whole


class Case(NamedTuple):
    line: bytes
    reason: str
    feature: str | None = None


HEADER = b"a,s,x,d"
REFUSED = [
    Case(b"1", "ragged_row"),
    Case(b"1,b,2.5", "ragged_row"),
    Case(b"1,b,2.5,red,more", "ragged_row"),
    Case(b",b,2.5,red", "null_feature", "a"),
    Case(b"NA,b,2.5,red", "null_feature", "a"),
    Case(b"one,b,2.5,red", "wrong_type", "a"),
    Case(b"1.5,b,2.5,red", "wrong_type", "a"),
    Case(b"9223372036854775808,b,,", "int_overflow", "a"),
    Case(b"1,b,1e300,", "float_overflow", "x"),
    Case(b"1,b,nan,", "non_finite", "x"),
    Case(b"1,b,inf,", "non_finite", "x"),
    Case(b"1,b,2.5,blue", "not_in_domain", "d"),
    Case(b"1,caf\xe9,2.5,red", "invalid_utf8"),
    Case(b'1,"x"y,2.5,red', "unbalanced_quote"),
    Case(b'1,"xy,2.5,red', "unbalanced_quote"),
]
ACCEPTED = [
    (b"7,plain,2.5,red", {"a": (7,), "s": (b"plain",), "x": (2.5,), "d": (b"red",)}),
    (b'8,"a,b ""c""",,green', {"a": (8,), "s": (b'a,b "c"',), "d": (b"green",)}),
    (b'9,"",NA,', {"a": (9,), "s": (b"",)}),
    (b"10,NA,,NA", {"a": (10,)}),
    (b'11,"NA",,', {"a": (11,), "s": (b"NA",)}),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, case_schema) -> Run:
    """One run over all lines, good and bad by turns, in two files."""
    bench = Workbench(tmp_path_factory.mktemp("csv"))
    good = [line for line, _ in ACCEPTED]
    lines = [line for n, case in enumerate(REFUSED) for line in (good[n % len(good)], case.line)] + good
    for part in range(2):
        bench.write(f"in/{part}.csv", [HEADER, *lines[part::2]])
    return bench.good_run(bench.folder / "in", "--shuffle", "none", schema=case_schema)


def test_nothing_is_lost_and_every_payload_is_exact(mixed):
    assert_whole(mixed)
    assert sorted(letter["payload"] for letter in mixed.letters()) == sorted(case.line for case in REFUSED)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: repr(case.line))
def test_refused_row(mixed, case):
    letter = next(letter for letter in mixed.letters() if letter["payload"] == case.line)
    assert (letter["dlq_reason"], letter["dlq_feature"]) == (case.reason, case.feature)


def test_accepted_rows(mixed):
    written = mixed.rows()
    assert len(written) == len(REFUSED) + len(ACCEPTED)
    assert all(row in written for _, row in ACCEPTED)
    assert all(row in [expected for _, expected in ACCEPTED] for row in written)


def test_a_ragged_row_says_how_many_cells_it_has_and_should_have(mixed):
    messages = {letter["payload"]: letter["errorMessage"] for letter in mixed.letters()}
    assert "1" in messages[b"1"]
    assert "4" in messages[b"1"]
    assert "5" in messages[b"1,b,2.5,red,more"]


def test_a_quoted_newline_is_one_row_with_csv_multiline(bench, case_schema):
    source = bench.write("f.csv", b'a,s\n1,"a\nb"\n2,c\n3,"x\r\ny"\nbad,"p\nq"\n')
    run = bench.good_run(source, "--csv_multiline", "--shuffle=none", schema=case_schema)
    assert run.column("s") == [b"a\nb", b"c", b"x\r\ny"]
    assert [letter["payload"] for letter in run.letters()] == [b'bad,"p\nq"']
    assert_whole(run)


def test_a_quoted_newline_is_refused_and_named_without_csv_multiline(bench, case_schema):
    source = bench.write("f.csv", b'a,s\n1,"a\nb"\n2,c\n')
    run = bench.good_run(source, schema=case_schema)
    assert run.rows() == [{"a": (2,), "s": (b"c",)}], "never two wrong rows"
    letters = run.letters()
    assert letters[0]["dlq_reason"] == "unbalanced_quote"
    assert "--csv_multiline" in letters[0]["errorMessage"]
    assert b'1,"a' in letters[0]["payload"]
    assert_payloads_exact(letters)


@pytest.mark.parametrize("multiline", [False, True])
def test_an_unclosed_quote_in_the_middle_does_not_swallow_the_rest(bench, case_schema, multiline):
    lines = [b"%d,ok" % n for n in range(50)]
    source = bench.write("f.csv", [b"a,s", *lines[:25], b'99,"open', *lines[25:]])
    run = bench.good_run(source, *["--csv_multiline"] * multiline, schema=case_schema)
    assert sorted(run.column("a")) == list(range(50))
    assert [letter["dlq_reason"] for letter in run.letters()] == ["unbalanced_quote"]
    assert_whole(run)


def test_bom_belongs_to_no_header_name(bench, case_schema):
    source = bench.write("f.csv", b"\xef\xbb\xbfa,s\n1,b\n")
    assert bench.good_run(source, schema=case_schema).rows() == [{"a": (1,), "s": (b"b",)}]


@pytest.mark.parametrize(
    ("header", "named"), [(b"a,a", "'a'"), (b"", "header"), (b'"a,s', "quote"), (b"caf\xe9,a", "UTF-8")]
)
def test_a_bad_header_is_refused_before_any_work(bench, case_schema, header, named):
    source = bench.write("f.csv", header + b"\n1,2\n")
    done, run = bench.run(source, schema=case_schema)
    assert done.code == 2
    assert str(source) in done.err
    assert named in done.err
    assert not run.committed
    assert not bench.dead.exists() or not any(bench.dead.iterdir())


def test_files_with_their_columns_in_another_order(bench, case_schema):
    bench.write("in/1.csv", b"a,s\n1,b\n")
    bench.write("in/2.csv", b"s,a,extra\nc,2,z\n")
    run = bench.good_run(bench.folder / "in", "--shuffle=none", schema=case_schema)
    assert run.rows() == [{"a": (1,), "s": (b"b",)}, {"a": (2,), "s": (b"c",)}]


def test_dialect_flags(bench, case_schema):
    source = bench.write("f.csv", b"1;'x;y';-\n2;z;0.5\n")
    flags = ("--csv_delimiter=;", "--csv_quote='", "--csv_header=a,s,x", "--csv_null_tokens=-", "--shuffle=none")
    run = bench.good_run(source, *flags, schema=case_schema)
    assert run.rows() == [{"a": (1,), "s": (b"x;y",)}, {"a": (2,), "s": (b"z",), "x": (0.5,)}]


def test_tab_separated(bench, case_schema):
    source = bench.write("f.tsv", b"a\ts\n1\tb,c\n\t\n\n")
    run = bench.good_run(source, schema=case_schema)
    assert run.rows() == [{"a": (1,), "s": (b"b,c",)}]
    assert [letter["payload"] for letter in run.letters()] == [b"\t"]
    assert run.manifest["counts"]["blank"] == 1


def test_endings_blank_lines_and_no_last_newline(bench, case_schema):
    source = bench.write("f.csv", b"a,s\r\n1,b\r\n\r\n\n2,c\nbad,d\r\n3,e")
    run = bench.good_run(source, "--shuffle=none", schema=case_schema)
    assert run.column("a") == [1, 2, 3]
    assert run.manifest["counts"]["blank"] == 2
    assert [letter["payload"] for letter in run.letters()] == [b"bad,d"]


def test_an_empty_file_among_others(bench, case_schema):
    bench.write("in/1.csv", b"a\n1\n")
    bench.write("in/2.csv", b"")
    done, run = bench.run(bench.folder / "in", schema=case_schema)
    assert done.code in (0, 2), done.err
    assert run.rows() == [{"a": (1,)}] if done.code == 0 else "2.csv" in done.err
