"""Row conditions: the columns say what the graph would say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.core.coded import with_codes
from pipeline.features.checks import RowChecks, bad_floats, bad_integers, bad_times
from pipeline.features.params import TIME_PARTS
from pipeline.features.spec import parse_features
from pipeline.features.times import time_parts
from tests.features.helpers import make_batch, make_schema

SCHEMA = make_schema()

NEAR_TIMES = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}".format,
    st.integers(0, 9999),
    st.integers(0, 13),
    st.integers(0, 32),
    st.sampled_from("Tt x"),
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 61),
    st.sampled_from(["Z", "z", "+05:30", "-23:59", "+24:00", ".5Z", ".Z", "", "ZZ", "\n"]),
).map(str.encode)


def binary(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.large_binary())


def graph_fails(values: list[bytes]) -> list[bool]:
    """The oracle: does the graph itself take the value?"""
    verdicts = []
    for value in values:
        try:
            time_parts(tf.constant([value]), parts=TIME_PARTS, utc=True)
            verdicts.append(False)
        except tf.errors.InvalidArgumentError:
            verdicts.append(True)
    return verdicts


@given(st.lists(st.one_of(NEAR_TIMES, st.binary(max_size=24)), max_size=4))
@settings(max_examples=60, deadline=None)
@example([b"2012-02-29T00:00:00Z", b"2013-02-29T00:00:00Z", b"1900-02-29T00:00:00Z", b"2000-02-29T00:00:00Z"])
@example([b"2013-04-31T00:00:00Z", b"2013-00-10T00:00:00Z", b"2013-01-00T00:00:00Z", b"2013-01-01T24:00:00Z"])
@example([b"2016-12-31T23:59:60Z", b"2016-12-31T23:59:59+00:00"])
def test_a_time_is_bad_exactly_if_the_graph_fails_on_it(values: list[bytes]) -> None:
    assert bad_times(binary(values)).tolist() == graph_fails(values)
    for value in values:  # the way of the strings that all look alike
        assert bad_times(binary([value])).tolist() == graph_fails([value])


def test_slices_of_times() -> None:
    values = binary([b"?", b"2013-01-01T10:00:00Z", b"2013-13-01T10:00:00Z", b"2013-01-01T10:00:00+01:00"])
    assert bad_times(values.slice(1, 2)).tolist() == [False, True]
    assert bad_times(values.slice(1)).tolist() == [False, True, False]


def test_numbers_in_strings() -> None:
    words = [b"1", b" 2 ", b"-3.5e2", b"x", b"", b"nan", b"inf", b"1e39", b"9223372036854775808"]
    assert bad_floats(binary(words)).tolist() == [False, False, False, True, True, True, True, True, False]
    assert bad_integers(binary(words)).tolist() == [False, False, True, True, True, True, True, True, True]


@pytest.mark.parametrize(
    ("spec", "values", "bad"),
    [
        ("f: log1p", {"f": [0.0, -1.0, -0.9, float("nan"), float("inf")]}, [1, 3, 4]),
        ("f: {cast: {to: int}}", {"f": [1e18, 9.3e18, -9.3e18, float("nan")]}, [1, 2, 3]),
        ("f: {bucketize: {buckets: 2}}", {"f": [1.0, float("nan"), float("-inf")]}, [1, 2]),
        ("f: pass_through", {"f": [float("nan")]}, []),
        ("i: {one_hot: {depth: 3}}", {"i": [0, 2, 3, -1]}, [2, 3]),
        ("os: [{fill_missing: {value: '0'}}, {cast: {to: float}}]", {"os": [b"1", None, b"one"]}, [2]),
        ("ofl: [{fill_missing: {value: 0}}, log1p]", {"ofl": [[0.0, 0.0], None, [0.0, -2.0]]}, [2]),
    ],
)
def test_the_rows_at_fault_are_found(spec: str, values: dict[str, list[object]], bad: list[int]) -> None:
    (name,) = values
    rows = [{name: value} for value in values[name]]
    batch = make_batch(SCHEMA, rows)
    checks = RowChecks(parse_features(spec, SCHEMA), SCHEMA)
    assert sorted(checks.faults(batch)) == bad
    assert {fault.feature for fault in checks.faults(batch).values()} <= {name}
    later = [row - 1 for row in bad if row]
    assert sorted(checks.faults(batch.slice(1))) == later, "a slice is judged like its rows"
    assert np.array_equal(sorted(checks.faults(batch.slice(0, 0))), [])


def test_coded_columns_have_the_faults_of_plain_ones() -> None:
    spec = parse_features("t: {time_parts: {parts: [month]}}\n", SCHEMA)
    checks = RowChecks(spec, SCHEMA)
    good, bad = b"2013-01-01T10:00:00Z", b"soon"
    batch = pa.RecordBatch.from_pydict({"t": binary([good, bad, good, None, bad, b"2013-13-01T10:00:00Z"])})
    assert sorted(checks.faults(batch)) == [1, 4, 5]
    assert checks.faults(with_codes(batch)) == checks.faults(batch)
    assert sorted(checks.faults(with_codes(batch).slice(2, 3))) == [2]
