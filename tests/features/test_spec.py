"""features.yaml: what is read, what is refused and how it is said."""

from __future__ import annotations

import pickle

import pytest

from pipeline.core.errors import UsageError
from pipeline.features.ops import OPS, Vocabulary
from pipeline.features.spec import (
    FeatureSpec,
    Output,
    parse_features,
    required_features,
    with_required,
)
from tests.features.helpers import make_schema

SCHEMA = make_schema()


def parse(text: str) -> FeatureSpec:
    return parse_features(text, SCHEMA)


def test_reads_ops_chains_and_derived_outputs() -> None:
    spec = parse(
        """
i: {scale_to_z_score: {}}
s: {vocabulary: {top_k: 500, num_oov_buckets: 1}}
of: [{fill_missing: {value: 0}}, log1p, {scale_to_z_score: {}}]
of_bucket: {from: of, ops: [{fill_missing: {value: 0}}, {bucketize: {buckets: 10}}]}
f: drop
y: label
"""
    )
    assert [output.name for output in spec.outputs] == ["i", "s", "of", "of_bucket", "y"]
    assert spec.outputs[1] == Output("s", "s", (Vocabulary(top_k=500),))
    assert [op.name for op in spec.outputs[2].ops] == ["fill_missing", "log1p", "scale_to_z_score"]
    assert spec.outputs[3].source == "of"
    assert spec.labels == ("y",)
    assert spec.sources == ("i", "of", "s", "y")
    assert spec.label_sources == {"y"}


def test_outputs_of_time_parts_and_of_the_indicator_are_named_after_the_feature() -> None:
    spec = parse(
        "t: {time_parts: {parts: [hour, month]}}\noi: [{fill_missing: {with: mean, missing_indicator: true}}]\n"
    )
    assert spec.outputs[0].names == ("t_hour", "t_month")
    assert spec.outputs[1].names == ("oi", "oi_missing")


def test_features_not_named_are_dropped_unless_default_says_pass_through() -> None:
    assert parse("i: pass_through").sources == ("i",)
    everything = parse("default: pass_through\ni: drop\n")
    assert set(everything.sources) == {feature.name for feature in SCHEMA.features} - {"i"}


def test_a_label_must_be_there_unless_it_says_how_it_is_filled() -> None:
    assert required_features(parse("y: label")) == {"y"}
    filled = parse("y: [{label: {missing: fill}}, {fill_missing: {value: 0}}]")
    assert required_features(filled) == frozenset()
    required = with_required(SCHEMA, {"y"})
    assert next(feature for feature in required.features if feature.name == "y").required


def test_a_second_output_of_a_label_needs_no_fill() -> None:
    spec = parse("y: label\ny_log: {from: y, ops: [label, log1p]}\n")
    assert spec.labels == ("y", "y_log")


def test_keys_are_names_even_where_yaml_sees_a_truth_value() -> None:
    schema = make_schema('feature { name: "no" type: INT shape {} presence { min_fraction: 1.0 } }')
    assert parse_features("no: pass_through", schema).sources == ("no",)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "mapping"),
        ("- i", 1, "mapping"),
        ("i: drop", 1, "every one is dropped"),
        ("i: [", 1, "not valid YAML"),
        ("i: pass_through\ni: drop\n", 2, "'i' is given twice (first on line 1)"),
        ("i: {cast: {to: int, to: float}}", 1, "'to' is given twice"),
        ("i: drop\nfare: drop\n", 2, "no feature 'fare'"),
        ("i: pass_through\nx: {from: ff, ops: log1p}\n", 2, "did you mean"),
        ("i: {from: f}", 1, "is a feature of the schema"),
        ("x: {from: f, op: log1p}", 1, "did you mean ops?"),
        ("default: keep\ni: drop\n", 1, "drop or pass_through"),
        ("i: []", 1, "empty list"),
        ("i: 5", 1, "an op is a name or one"),
        ("i: {log1p: {}, cast: {to: int}}", 1, "chain several as a list"),
        ("i: scale_to_zscore", 1, "did you mean scale_to_z_score?"),
        ("i: {log1p: 3}", 1, "are a mapping"),
        ("i:\n  - log1p\n  - {bucketize: {bucket: 3}}\n", 3, "did you mean buckets?"),
        ("i: {log1p: {base: 2}}", 1, "it takes none"),
        ("i: bucketize", 1, "needs the parameter 'buckets'"),
        ("i: {bucketize: {buckets: 1}}", 1, "from 2 to"),
        ("i: {bucketize: {buckets: true}}", 1, "whole number"),
        ("i: {bucketize: {buckets: 4, epsilon: 2}}", 1, "between 0 and 1"),
        ("i: {apply_buckets: {boundaries: []}}", 1, "list of numbers"),
        ("i: {apply_buckets: {boundaries: [2, 1]}}", 1, "increase"),
        ("i: {apply_buckets: {boundaries: [16777216, 16777217]}}", 1, "as float32"),
        ("i: {apply_buckets: {boundaries: [.nan]}}", 1, "finite"),
        ("i: {cast: {to: integer}}", 1, "did you mean int?"),
        ("i: {scale_to_z_score: {elementwise: 1}}", 1, "true or false"),
        ("i: {scale_by_min_max: {output_min: 1, output_max: 1}}", 1, "less than"),
        ("s: {hash_strings: {hash_buckets: 5, key: [1]}}", 1, "two whole numbers"),
        ("t: {time_parts: {parts: []}}", 1, "must be a list of"),
        ("t: {time_parts: {parts: [hours]}}", 1, "did you mean hour?"),
        ("t: {time_parts: {parts: [hour, hour]}}", 1, "twice"),
        ("s: {scale_to_z_score: {}}", 1, "cannot take strings"),
        ("s: log1p", 1, "cannot take strings"),
        ("s: one_hot", 1, "ids first"),
        ("i: {one_hot: {}}", 1, "needs `depth: n`"),
        ("i: [{bucketize: {buckets: 9}}, {one_hot: {depth: 3}}]", 1, "ids go up to 8"),
        ("i: {hash_strings: {hash_buckets: 5}}", 1, "cast: {to: string}"),
        ("i: {time_parts: {parts: [hour]}}", 1, "a time is a string"),
        ("f: vocabulary", 1, "floats"),
        ("f: {cast: {to: string}}", 1, "not stable"),
        ("of: log1p", 1, "put `fill_missing: {value: ...}` first"),
        ("os: vocabulary", 1, "can be missing"),
        ("ofl: {scale_to_z_score: {}}", 1, "can be missing"),
        ("of: fill_missing", 1, "either `value: ...` or `with: mean`"),
        ("of: {fill_missing: {value: 1, with: mean}}", 1, "either"),
        ("oi: {fill_missing: {value: 1.5}}", 1, "whole number"),
        ("oi: {fill_missing: {value: 9223372036854775808}}", 1, "whole number"),
        ("of: {fill_missing: {value: 1e39}}", 1, "float32"),
        ("os: {fill_missing: {value: 3}}", 1, "value: '3'"),
        ("os: {fill_missing: {with: mean}}", 1, "cannot take strings"),
        ("of: [{scale_to_z_score: {}}, {fill_missing: {value: 1}}]", 1, "can be missing"),
        ("f: [log1p, {fill_missing: {value: 1}}]", 1, "stands first"),
        ("ri: log1p", 1, "varying length"),
        ("ri: {fill_missing: {value: 1}}", 1, "varying length"),
        ("i: [log1p, drop]", 1, "stands alone"),
        ("i: [log1p, pass_through]", 1, "stands alone"),
        ("y: [log1p, label]", 1, "label stands first"),
        ("y: [label, {fill_missing: {value: 0}}]", 1, "never invented in silence"),
        ("y: {label: {missing: fill}}", 1, "needs `fill_missing`"),
        ("t: {time_parts: {parts: [hour]}}\nt_hour: {from: i}\n", 2, "both give an output 't_hour'"),
        ("i: &a [*a]", 1, "too deep"),
    ],
)
def test_refuses_with_file_line_and_a_way_out(text: str, line: int, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse(text)
    assert str(refusal.value).startswith(f"features.yaml:{line}: ")
    assert words in str(refusal.value)


EVERY_OP = """
i: [{cast: {to: string}}, {hash_strings: {hash_buckets: 5, key: [1, 18446744073709551615]}}, one_hot]
f: [log1p, {scale_to_z_score: {elementwise: true}}, {scale_to_0_1: {}}, {scale_by_min_max: {output_max: 2}}]
s: {vocabulary: {frequency_threshold: 2, num_oov_buckets: 0, default_value: -5}}
oi: [{fill_missing: {with: mean, missing_indicator: true}}, {apply_buckets: {boundaries: [1, 2.5]}}]
of: [{fill_missing: {value: 1e-3}}, {bucketize: {buckets: 3, epsilon: 0.1}}]
os: pass_through
t: {time_parts: {parts: [hour], utc: true}}
y: [{label: {missing: fill}}, {fill_missing: {value: 1}}]
"""


def test_round_trips_through_json_and_pickle() -> None:
    spec = parse(EVERY_OP)
    used = {op.name for output in spec.outputs for op in output.ops}
    assert used == set(OPS) - {"drop"}, "the sample must hold every op"
    assert FeatureSpec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_fingerprint_ignores_how_it_is_written_and_nothing_else() -> None:
    base = parse("s: vocabulary").fingerprint
    assert base == parse("# words\ns: [{vocabulary: {num_oov_buckets: 1}}]\nf: drop\n").fingerprint
    assert base != parse("s: {vocabulary: {num_oov_buckets: 2}}").fingerprint
