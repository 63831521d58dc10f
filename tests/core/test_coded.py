"""Coded columns: the same values for less, and no trace of rows that were cut off."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.coded import coded, distinct_of, is_coded, missing_in, with_codes
from pipeline.core.statistics import BatchStatistics

WORDS = st.lists(
    st.none() | st.sampled_from([b"", b"a", b"b", b"\xff", b"x" * 300]) | st.binary(max_size=3), max_size=30
)


def column_of(words) -> pa.Array:
    return pa.array(words, pa.large_binary())


@given(WORDS, st.data())
def test_different_values_are_those_of_the_rows_that_are_left(words, data):
    rows = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=30)) if words else []
    plain = column_of(words).take(pa.array(rows, pa.int64()))
    for column in (plain, coded(column_of(words)).take(pa.array(rows, pa.int64())), coded(plain)):
        assert missing_in(column) == plain.null_count
        values, places = distinct_of(column)
        assert sorted(map(repr, values.to_pylist())) == sorted(map(repr, set(plain.to_pylist())))
        assert values.take(places).to_pylist() == plain.to_pylist()


@given(WORDS, st.lists(st.integers(-3, 3), max_size=30))
def test_codes_make_no_difference_to_statistics(words, numbers):
    count = min(len(words), len(numbers))
    columns = {
        "w": column_of(words[:count]),
        "n": pa.array(numbers[:count], pa.int64()),
        "l": pa.array([[word, word] if word else None for word in words[:count]], pa.large_list(pa.large_binary())),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    assert BatchStatistics.of(with_codes(batch)).to_bytes() == BatchStatistics.of(batch).to_bytes()
    half = with_codes(batch).slice(0, count // 2)
    assert BatchStatistics.of(half).to_bytes() == BatchStatistics.of(batch.slice(0, count // 2)).to_bytes()


@pytest.mark.parametrize("column", [pa.array([1]), pa.array([1.5], pa.float32()), pa.array([[b"x"]])])
def test_other_columns_are_left_alone(column):
    assert coded(column) is column
    assert not is_coded(column)
