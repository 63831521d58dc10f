"""Canonical columns as lists, the identity transform, and the sample features of the flights."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.features.layouts import RowsLayout
from pipeline.features.representation import as_lists
from pipeline.features.spec import parse_features, required_features
from pipeline.features.transformer import IdentityTransformer, load_transformer
from tests.features.helpers import make_batch, make_schema

CELLS = st.sampled_from([pa.int64(), pa.float32(), pa.large_binary()])


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_lists_hold_what_the_column_held_in_any_slice(data: st.DataObject) -> None:
    kind = data.draw(CELLS)
    value = {pa.int64(): st.integers(-9, 9), pa.float32(): st.integers(0, 3).map(float), pa.large_binary(): st.binary()}
    listed = data.draw(st.booleans())
    cell = st.lists(value[kind], max_size=3) if listed else value[kind]
    cells = data.draw(st.lists(st.none() | cell, max_size=6))
    column = pa.array(cells, pa.large_list(kind) if listed else kind)
    start = data.draw(st.integers(0, len(cells)))
    length = data.draw(st.integers(0, len(cells) - start))
    lists = as_lists(column.slice(start, length))
    expected = [None if c is None else c if listed else [c] for c in cells[start : start + length]]
    assert lists.to_pylist() == expected
    # tfx_bsl looks at neither offsets nor validity of what lies below
    assert lists.offset == 0
    assert len(lists.values) == sum(len(c or []) for c in expected)


def test_without_features_rows_are_written_as_they_are() -> None:
    schema = make_schema()
    transformer = load_transformer(
        None, schema, list_folder=lambda uri: [], open_file=lambda uri: io.BytesIO(uri.encode())
    )
    assert isinstance(transformer, IdentityTransformer)
    rows = [
        {"i": 1, "f": 0.5, "s": b"x", "fl": [1.0, 2.0, 3.0], "t": b"t", "oi": 4, "rs": [b"a", b"b"]},
        {"i": 2, "f": 1.5, "s": b"", "fl": [4.0, 5.0, 6.0], "t": b"u", "rs": []},
    ]
    batch = make_batch(schema, rows)
    assert transformer.faults(batch) == {}
    output = transformer.transform(batch)
    assert output.schema.names == sorted(output.schema.names) == list(transformer.features)
    assert transformer.features["fl"] == {"dtype": "float32", "shape": [3]}
    assert transformer.features["i"] == {"dtype": "int64", "shape": []}
    assert transformer.features["oi"] == {"dtype": "int64", "shape": None}
    first, second = (tf.train.Example.FromString(record) for record in RowsLayout().encode(output))
    assert set(first.features.feature) == {"i", "f", "s", "fl", "t", "oi", "rs"}
    assert set(second.features.feature) == {"i", "f", "s", "fl", "t", "rs"}, "what is missing is left out"


FLIGHTS = {
    "INT": "year month day sched_dep_time sched_arr_time flight distance hour minute",
    "FLOAT": "dep_time? dep_delay? arr_time? arr_delay? air_time?",
    "BYTES": "carrier tailnum? origin dest time_hour",
}


def test_the_sample_features_of_the_flights_fit_their_schema() -> None:
    text = "".join(
        f'feature {{ name: "{name.rstrip("?")}" type: {kind} value_count {{ min: 1 max: 1 }} '
        f"presence {{ min_fraction: {0 if name.endswith('?') else 1} }} }}\n"
        for kind, names in FLIGHTS.items()
        for name in names.split()
    )
    path = Path(__file__).parents[2] / "scripts" / "flights_features.yaml"
    spec = parse_features(path.read_text(), make_schema(text))
    assert spec.labels == ("arr_delay",)
    assert required_features(spec) == {"arr_delay"}
    assert not {"arr_time", "air_time", "dep_time"} & set(spec.sources), "known only after the flight"
