"""Validation: each rule's verdict, and the law that the vectorised mask agrees with the row-wise faults."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.reasons import Reason
from pipeline.core.schema import BoolDomain, Feature, Kind, Schema
from pipeline.core.validation import check_values, show, valid_mask

MISSING = object()


def schema_of(*features: Feature) -> Schema:
    return Schema(features, schema_pb2.Schema())


def scalar(kind: Kind, **rules) -> Feature:
    return Feature("f", kind, min_values=1, max_values=1, **rules)


def reasons(feature: Feature, values) -> list[Reason]:
    row = {} if values is MISSING else {"f": values}
    return [fault.reason for fault in check_values(row, schema_of(feature))]


INT, FLOAT, BYTES = Kind.INT, Kind.FLOAT, Kind.BYTES


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        (scalar(INT), MISSING, []),
        (scalar(INT), None, []),
        (scalar(INT, required=True), MISSING, [Reason.MISSING_FEATURE]),
        (scalar(INT, required=True), None, [Reason.NULL_FEATURE]),
        (scalar(INT, required=True), [3], []),
        (scalar(INT), [], [Reason.TOO_FEW_VALUES]),
        (scalar(INT), [1, 2], [Reason.TOO_MANY_VALUES]),
        (scalar(INT), [None], [Reason.NULL_FEATURE]),
        (scalar(INT), [2**63], [Reason.INT_OVERFLOW]),
        (scalar(INT, int_min=0, int_max=9), [0], []),
        (scalar(INT, int_min=0, int_max=9), [9], []),
        (scalar(INT, int_min=0, int_max=9), [-1], [Reason.OUT_OF_RANGE]),
        (scalar(INT, int_min=0, int_max=9), [10], [Reason.OUT_OF_RANGE]),
        (scalar(INT, bool_domain=BoolDomain()), [1], []),
        (scalar(INT, bool_domain=BoolDomain()), [2], [Reason.NOT_IN_DOMAIN]),
        (scalar(FLOAT), [1e300], [Reason.FLOAT_OVERFLOW]),
        (scalar(FLOAT), [-1e300], [Reason.FLOAT_OVERFLOW]),
        (scalar(FLOAT), [10**400], [Reason.FLOAT_OVERFLOW]),
        (scalar(FLOAT), [3.4028235e38], []),
        (scalar(FLOAT), [math.nan], []),
        (scalar(FLOAT, float_min=0.0, float_max=1.0), [math.nan], []),
        (scalar(FLOAT, disallow_nan=True), [math.nan], [Reason.NON_FINITE]),
        (scalar(FLOAT, disallow_nan=True), [math.inf], []),
        (scalar(FLOAT, disallow_inf=True), [-math.inf], [Reason.NON_FINITE]),
        (scalar(FLOAT, float_max=1.0), [math.inf], [Reason.OUT_OF_RANGE]),
        (scalar(FLOAT, float_max=struct.unpack("f", struct.pack("f", 0.1))[0]), [0.1], []),
        (scalar(FLOAT, float_max=0.1), [0.1], [Reason.OUT_OF_RANGE]),  # 0.1 is stored as 0.10000000149
        (scalar(BYTES, domain=(b"red", b"green")), [b"red"], []),
        (scalar(BYTES, domain=(b"red", b"green")), [b"blue"], [Reason.NOT_IN_DOMAIN]),
        (scalar(BYTES, domain=()), [b"blue"], [Reason.NOT_IN_DOMAIN]),
        (scalar(BYTES, bool_domain=BoolDomain(b"y", b"n")), [b"y"], []),
        (scalar(BYTES, bool_domain=BoolDomain(b"y", b"n")), [b"true"], [Reason.NOT_IN_DOMAIN]),
        (Feature("f", FLOAT, shape=(3,)), [1.0, 2.0, 3.0], []),
        (Feature("f", FLOAT, shape=(3,)), [1.0, 2.0], [Reason.TOO_FEW_VALUES]),
        (Feature("f", FLOAT, shape=(3,)), [], [Reason.TOO_FEW_VALUES]),
        (Feature("f", FLOAT, shape=(2, 2)), [1.0] * 5, [Reason.TOO_MANY_VALUES]),
        (Feature("f", FLOAT), [], []),
        (Feature("f", FLOAT, min_values=2), [1.0], [Reason.TOO_FEW_VALUES]),
        (Feature("f", FLOAT, max_values=2), [1.0, None, 3.0], [Reason.TOO_MANY_VALUES, Reason.NULL_FEATURE]),
        (Feature("f", INT, int_max=5), [9, 1, 8], [Reason.OUT_OF_RANGE]),
    ],
)
def test_verdict(feature, values, expected):
    assert reasons(feature, values) == expected


def test_all_faults_in_schema_order():
    schema = schema_of(
        Feature("b", INT, required=True, min_values=1, max_values=1),
        Feature("a", BYTES, min_values=1, max_values=1, domain=(b"x",)),
    )
    faults = check_values({"a": [b"y"]}, schema)
    assert [(f.reason, f.feature) for f in faults] == [(Reason.MISSING_FEATURE, "b"), (Reason.NOT_IN_DOMAIN, "a")]


@pytest.mark.parametrize(
    "value",
    [b"\x1b[31m\x00\xff" * 10_000, "\u202e\x07" * 10_000, 10**5000, -(10**5000)],
    ids=["bytes", "text", "huge", "-huge"],
)
def test_messages_are_bounded_and_printable(value):
    assert len(show(value)) < 600
    assert show(value).isprintable()


def test_message_names_the_feature_and_the_value():
    (fault,) = check_values({"f": [3, 99]}, schema_of(Feature("f", INT, int_max=5)))
    assert "'f'" in fault.message
    assert "99" in fault.message
    assert "value 1" in fault.message


INTS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])
FLOATS = st.floats(width=32) | st.sampled_from([-1.0, 0.0, 1.0, 0.5])
WORDS = st.sampled_from([b"red", b"green", b"true", b"false", b"", b"\xff"])


@st.composite
def features(draw):
    kind = draw(st.sampled_from(list(Kind)))
    rules = {"required": draw(st.booleans())}
    if kind is INT:
        rules |= {"int_min": draw(st.none() | INTS), "int_max": draw(st.none() | INTS)}
        rules["bool_domain"] = draw(st.none() | st.just(BoolDomain()))
    elif kind is FLOAT:
        bounds = st.none() | st.floats(-1.0, 1.0)
        rules |= {"float_min": draw(bounds), "float_max": draw(bounds)}
        rules |= {"disallow_nan": draw(st.booleans()), "disallow_inf": draw(st.booleans())}
    else:
        rules["domain"] = draw(st.none() | st.lists(WORDS, unique=True).map(tuple))
        rules["bool_domain"] = draw(st.none() | st.just(BoolDomain()))
    shape, least, most = draw(st.sampled_from([(None, 1, 1), (None, 0, None), (None, 1, 2), ((2,), 2, 2), ((), 1, 1)]))
    return Feature("f", kind, shape=shape, min_values=least, max_values=most, **rules)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mask_is_the_row_wise_verdict(data):
    feature = data.draw(features())
    value = {INT: INTS, FLOAT: FLOATS, BYTES: WORDS}[feature.kind]
    cell = st.none() | (value if feature.scalar else st.lists(st.none() | value, max_size=3))
    cells = data.draw(st.lists(cell, max_size=8))
    schema = schema_of(feature)
    batch = pa.record_batch([pa.array(cells, feature.arrow_type)], schema=schema.arrow_schema)
    rows = [{"f": [c] if feature.scalar and c is not None else c} for c in cells]
    expected = np.array([not check_values(row, schema) for row in rows], bool)
    np.testing.assert_array_equal(valid_mask(batch, schema), expected)
    cut = data.draw(st.integers(0, len(cells)))
    np.testing.assert_array_equal(valid_mask(batch.slice(cut), schema), expected[cut:])


def test_a_null_list_that_covers_values_is_missing():
    inner = pa.array([1, 2, 3], pa.int64())
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2, 3], pa.int64()), inner, mask=pa.array([True, False]))
    schema = schema_of(Feature("f", INT, max_values=1))
    batch = pa.record_batch([lists], schema=schema.arrow_schema)
    assert valid_mask(batch, schema).tolist() == [True, True]
    assert valid_mask(batch, schema_of(Feature("f", INT, max_values=1, required=True))).tolist() == [False, True]
