"""Laws of the schema: what each rule of the proto becomes, what is refused, and where errors point."""

import string

import pyarrow as pa
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.errors import UsageError
from pipeline.core.schema import (
    BoolDomain,
    Feature,
    Kind,
    ignored_rules,
    load_schema,
    parse_schema,
    schema_of,
    schema_text,
    validate_schema,
)
from pipeline.core.schema_text import feature_lines


def one(rules: str, *, extra: str = "", environment: str = "TRAINING") -> Feature:
    (feature,) = load_schema(f'feature {{ name: "a" {rules} }} {extra}', environment=environment).features
    return feature


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("type: INT", {"kind": Kind.INT}),
        ("type: FLOAT presence { min_fraction: 1 }", {"kind": Kind.FLOAT, "required": True, "min_fraction": 1.0}),
        ("type: INT presence { min_fraction: 0.5 min_count: 3 }", {"min_fraction": 0.5, "min_count": 3}),
        ("type: INT value_count { min: 1 max: 1 }", {"min_values": 1, "max_values": 1, "shape": None, "scalar": True}),
        ("type: INT value_count { min: 2 }", {"min_values": 2, "max_values": None, "scalar": False}),
        ("type: INT value_counts { value_count { min: 1 max: 4 } }", {"min_values": 1, "max_values": 4}),
        ("type: INT shape {}", {"shape": (), "scalar": True, "arrow_type": pa.int64()}),
        ("type: FLOAT shape { dim { size: 1 } }", {"shape": (1,), "scalar": True, "arrow_type": pa.float32()}),
        (
            "type: BYTES shape { dim { size: 2 } dim { size: 3 } }",
            {"shape": (2, 3), "min_values": 6, "max_values": 6, "arrow_type": pa.large_list(pa.large_binary())},
        ),
        ("type: INT int_domain { min: -1 max: 5 is_categorical: true }", {"int_min": -1, "int_max": 5}),
        ("type: INT int_domain { max: 0 }", {"int_min": None, "int_max": 0}),
        (
            "type: FLOAT float_domain { min: 0.5 disallow_nan: true disallow_inf: true }",
            {"float_min": 0.5, "float_max": None, "disallow_nan": True, "disallow_inf": True},
        ),
        ('type: BYTES string_domain { value: "é" value: "b" value: "é" }', {"domain": ("é".encode(), b"b")}),
        ("type: INT bool_domain { true_value: 'T' }", {"bool_domain": BoolDomain()}),
        ('type: BYTES bool_domain { true_value: "T" }', {"bool_domain": BoolDomain(b"T", b"false")}),
        ('type: BYTES domain: "d"', {"domain": (b"x",)}),
        ('type: INT domain: "i"', {"int_min": 7}),
    ],
)
def test_rules_are_read(rules: str, expected: dict[str, object]) -> None:
    shared = 'string_domain { name: "d" value: "x" } int_domain { name: "i" min: 7 }'
    feature = one(rules, extra=shared)
    assert {name: getattr(feature, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("rules", "fragment"),
    [
        ("", "has no type"),
        ("type: STRUCT", "structs"),
        ("struct_domain {}", "structs"),
        ("type: INT presence { min_fraction: 1.5 }", "between 0 and 1"),
        ("type: INT presence { min_count: -1 }", "negative"),
        ("type: INT group_presence { required: true }", "group_presence"),
        ("type: INT value_count { min: 3 max: 2 }", "value_count.max is 2"),
        ("type: INT value_count { max: 0 }", "at least 1"),
        ("type: INT value_count { min: -1 }", "negative"),
        ("type: INT value_counts { value_count { min: 1 } value_count { min: 1 } }", "nested lists"),
        ("type: INT shape { dim {} }", "without a size"),
        ("type: INT shape { dim { size: -1 } }", "without a size"),
        ("type: INT shape { dim { size: 65536 } dim { size: 65536 } }", "at most"),
        ("type: INT int_domain { min: 2 max: 1 }", "min 2 above max 1"),
        ("type: FLOAT float_domain { min: 2 max: 1 }", "above max"),
        ("type: FLOAT float_domain { max: nan }", "NaN"),
        ("type: FLOAT int_domain { min: 2 }", "int_domain needs type INT, but the type is FLOAT"),
        ("type: INT float_domain { min: 2 }", "float_domain needs type FLOAT"),
        ('type: INT string_domain { value: "x" }', "string_domain needs type BYTES"),
        ("type: FLOAT bool_domain {}", "bool_domain needs type INT or BYTES"),
        ("type: BYTES string_domain {}", "no values"),
        ('type: BYTES bool_domain { true_value: "false" }', "alike"),
        ('type: BYTES domain: "d"', "no domain of that name"),
        ('type: INT in_environment: "X" not_in_environment: "X"', "both in and not in environment X"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_line(rules: str, fragment: str) -> None:
    text = f'# schema\nfeature {{ name: "ok" type: INT }}\nfeature {{\n  name: "bad" {rules} }}'
    with pytest.raises(UsageError, match=f"^s.pbtxt:3: feature 'bad' .*{fragment}"):
        load_schema(text, origin="s.pbtxt")
    (finding,) = validate_schema(text, "s.pbtxt")
    assert fragment in finding


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "holds no feature"),
        ("feature { type: INT }", "s:1: feature 'number 1' has no name"),
        ('feature { name: "a\\n" type: INT }', "control character"),
        ('feature { name: "a" type: INT }\nfeature { name: "a" type: INT }', "s:2: feature 'a' is defined 2 times"),
        ('feature { name: "a" type: INT deprecated: true }', "no feature is left"),
        ('feature { name: "a" type: INT } sparse_feature { name: "x" }', 'sparse_feature "x"'),
        ('feature { name: "a" type: INT } weighted_feature { name: "x" }', 'weighted_feature "x"'),
        ('feature { nme: "x" }', 's:1: a Feature block has no field "nme"; did you mean name?'),
        ("\n\nfeatures {}", 's:3: a schema has no field "features"; did you mean feature?'),
        ("feature {\n type: INTT }", 's:2: there is no FeatureType "INTT"; did you mean INT?'),
        ('feature { name: "a"\n', "s:1: a block is not closed"),
        ("feature { name: }", "s:1: not a schema"),
        ('feature { name: "\ud800" }', "UTF-8"),
        ("feature { struct_domain { " * 3000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_named_with_a_remedy(text: str, fragment: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_schema(text, origin="s")
    assert fragment in str(raised.value)


def test_all_findings_are_told_at_once() -> None:
    text = 'feature { name: "a" }\nfeature { name: "b" type: STRUCT }\nfeature { type: INT }'
    findings = validate_schema(text, "s")
    assert [finding.split(":")[1] for finding in findings] == ["1", "2", "3"]
    with pytest.raises(UsageError) as raised:
        load_schema(text, origin="s")
    assert str(raised.value).splitlines() == findings


ENVIRONMENTS = """
default_environment: "TRAINING" default_environment: "SERVING"
feature { name: "x" type: INT }
feature { name: "label" type: INT not_in_environment: "SERVING" }
feature { name: "extra" type: INT in_environment: "DEBUG" }
"""


@pytest.mark.parametrize(
    ("text", "environment", "names"),
    [
        (ENVIRONMENTS, "TRAINING", ["x", "label", "extra"]),
        (ENVIRONMENTS, "SERVING", ["x", "extra"]),
        (ENVIRONMENTS, "DEBUG", ["extra"]),
        ('feature { name: "x" type: INT } feature { name: "y" in_environment: "TRAINING" }', "SERVING", ["x"]),
    ],
)
def test_environments_select_features(text: str, environment: str, names: list[str]) -> None:
    assert [feature.name for feature in load_schema(text, environment=environment).features] == names


def test_an_unknown_environment_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r'no environment "SERVE"; did you mean SERVING\?'):
        load_schema(ENVIRONMENTS, environment="SERVE")


@pytest.mark.parametrize("stage", schema_pb2.LifecycleStage.keys())
def test_lifecycle_stages_that_tfdv_ignores_are_left_out(stage: str) -> None:
    text = f'feature {{ name: "x" type: INT }} feature {{ name: "y" type: INT lifecycle_stage: {stage} }}'
    live = stage in {"UNKNOWN_STAGE", "BETA", "PRODUCTION"}
    assert len(load_schema(text).features) == 1 + live


def test_a_deprecated_feature_may_hold_anything() -> None:
    text = 'feature { name: "x" type: INT } feature { name: "y" type: STRUCT deprecated: true }'
    assert [feature.name for feature in load_schema(text).features] == ["x"]
    assert validate_schema(text) == []


def test_rules_that_are_not_applied_are_noted() -> None:
    text = """
    feature { name: "img" type: BYTES image_domain {} }
    feature { name: "d" type: BYTES string_domain { value: "x" } distribution_constraints { min_domain_mass: 0.9 } }
    feature { name: "k" type: INT drift_comparator {} skew_comparator {} unique_constraints { min: 1 } }
    feature { name: "gone" type: BYTES image_domain {} deprecated: true }
    dataset_constraints { num_examples_drift_comparator {} }
    """
    notes = load_schema(text).notes
    assert [note.split()[1].strip('":') for note in notes[:-1]] == ["img", "d", "k", "k", "k"]
    assert "num_examples_drift_comparator" in notes[-1]
    assert ignored_rules(parse_schema('feature { name: "a" type: INT }')) == []


def test_the_schema_keeps_its_own_copy_of_the_proto() -> None:
    proto = text_format.Parse('feature { name: "a" type: INT }', schema_pb2.Schema())
    schema = schema_of(proto)
    before = schema.fingerprint
    proto.feature[0].name = "b"
    assert schema.fingerprint == before
    assert schema.arrow_schema.names == ["a"]


NAMES = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1, max_size=8)
PROTO = st.lists(NAMES, min_size=1, max_size=5, unique=True).map(
    lambda names: schema_pb2.Schema(feature=[schema_pb2.Feature(name=n, type=schema_pb2.BYTES) for n in names])
)


@given(PROTO, st.lists(st.text(string.printable), max_size=3))
@settings(max_examples=60, deadline=None)
def test_text_round_trips_under_any_header(proto: schema_pb2.Schema, header: list[str]) -> None:
    text = schema_text(proto, header=header)
    assert parse_schema(text) == proto
    assert schema_text(parse_schema(text)) == schema_text(proto)
    lines = feature_lines(text)
    assert [text.split("\n")[line - 1] for line in lines] == ["feature {"] * len(proto.feature)
    assert [f.name for f in load_schema(text).features] == [f.name for f in proto.feature]


def test_lines_are_found_in_any_spelling() -> None:
    text = "# feature {\n"
    text += "feature: <name: 'feature { }'>\nstring_domain { name: \"feature\" }\n\n feature\n{ name: 'it\\'s' }"
    assert feature_lines(text) == [2, 5]
    assert len(parse_schema(text).feature) == 2
