"""Laws of the judgement: each rule is broken on one side of its bound only, and says which numbers broke it."""

import json

import pyarrow as pa
import pytest

from pipeline.core.quality import RunCounts, Verdict, judge
from pipeline.core.schema import Schema, load_schema
from pipeline.core.statistics import BatchStatistics


def schema_with(rules: str, extra: str = "") -> Schema:
    return load_schema(f'feature {{ name: "s" type: BYTES value_count {{ min: 1 max: 1 }} {rules} }} {extra}')


def judged(schema: Schema, values: list[bytes | None], *, refused: int = 0, most_refused: float = 1.0) -> Verdict:
    batch = pa.RecordBatch.from_pydict({"s": pa.array(values, pa.large_binary())})
    counts = RunCounts(len(values) + refused, len(values), (("wrong_type", refused),) if refused else ())
    return judge(BatchStatistics.of(batch), schema, counts=counts, max_rejected_fraction=most_refused)


def rules(verdict: Verdict) -> list[str]:
    return [finding.rule for finding in verdict.findings]


@pytest.mark.parametrize(
    ("rule", "extra", "good", "bad", "name"),
    [
        ("presence { min_fraction: 0.5 }", "", [b"a", None], [b"a", None, None], "presence.min_fraction"),
        ("presence { min_count: 2 }", "", [b"a", b"b"], [b"a", None], "presence.min_count"),
        ("unique_constraints { min: 2 max: 2 }", "", [b"a", b"b"], [b"a", b"a"], "unique_constraints.min"),
        ("unique_constraints { min: 1 max: 2 }", "", [b"a", b"b"], [b"a", b"b", b"c"], "unique_constraints.max"),
        ("", "dataset_constraints { min_examples_count: 2 }", [b"a", b"b"], [b"a"], "min_examples_count"),
        ("", "dataset_constraints { max_examples_count: 1 }", [b"a"], [b"a", b"b"], "max_examples_count"),
    ],
)
def test_each_rule_of_the_schema_has_two_sides(
    rule: str, extra: str, good: list[bytes | None], bad: list[bytes | None], name: str
) -> None:
    schema = schema_with(rule, extra)
    assert judged(schema, good).ok
    assert rules(judged(schema, bad)) == [name]


def test_a_finding_says_what_was_expected_and_met() -> None:
    (finding,) = judged(schema_with("presence { min_fraction: 0.5 }"), [b"a", None, None, None]).findings
    assert (finding.feature, finding.expected, finding.actual) == ("s", 0.5, 0.25)
    assert "25.00%" in finding.message


@pytest.mark.parametrize(("most", "ok"), [(1.0, True), (0.5, True), (0.49, False), (0.0, False)])
def test_the_share_of_refused_rows_is_guarded(most: float, ok: bool) -> None:
    verdict = judged(schema_with(""), [b"a"], refused=1, most_refused=most)
    assert verdict.ok is ok
    assert rules(verdict) == ([] if ok else ["max_rejected_fraction"])


def test_no_refusals_satisfy_the_strictest_guard() -> None:
    assert judged(schema_with(""), [b"a"], most_refused=0.0).ok


def test_nothing_read_and_nothing_written_are_told_apart() -> None:
    schema = schema_with("presence { min_count: 1 min_fraction: 0.1 }")
    assert rules(judge(BatchStatistics(), schema, counts=RunCounts(0, 0))) == ["rows_read"]
    (finding,) = judge(BatchStatistics(), schema, counts=RunCounts(2, 0, (("wrong_type", 2),))).findings
    assert finding.rule == "rows_written"
    assert "2 wrong_type" in finding.message


def test_a_feature_that_no_batch_had_is_absent() -> None:
    schema = load_schema('feature { name: "x" type: INT presence { min_count: 1 } }')
    assert rules(judge(BatchStatistics(3), schema, counts=RunCounts(3, 3))) == ["presence.min_count"]


def test_an_estimated_number_of_values_needs_a_clear_miss() -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(20_000)]
    assert judged(schema_with("unique_constraints { min: 20000 max: 20000 }"), values).ok
    assert rules(judged(schema_with("unique_constraints { min: 30000 max: 40000 }"), values)) == [
        "unique_constraints.min"
    ]
    assert rules(judged(schema_with("unique_constraints { min: 1 max: 15000 }"), values)) == ["unique_constraints.max"]


def test_the_verdict_is_json() -> None:
    verdict = judged(schema_with("presence { min_count: 2 }"), [b"a"])
    read = json.loads(json.dumps(verdict.as_json()))
    assert read["ok"] is False
    assert read["findings"][0]["rule"] == "presence.min_count"
    assert Verdict().as_json() == {"ok": True, "findings": []}
