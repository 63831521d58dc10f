"""Layouts: bytes fixed for ever, ordinary Examples, nothing lost, and refusals that say what to do."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from features.shards import ARROW, flights, lists, with_optional
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.features.layouts import BlocksLayout, PackedLayout, RowsLayout, estimate_row_bytes, make_layout
from pipeline.features.packing import ColumnMap
from pipeline.features.parsing import make_parser

LAYOUTS = ("rows", "packed", "blocks")
INT, FLOAT, TEXT = ({"dtype": dtype, "shape": []} for dtype in ("int64", "float32", "string"))


def batch_of(features: dict[str, Any], **rows: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([lists(features[n]["dtype"], v) for n, v in rows.items()], list(rows))


def example(record: bytes) -> dict[str, list[Any]]:
    found = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in found.items()}


def test_packed_golden_bytes() -> None:
    """By hand from the protocol buffer encoding: floats b, d (two values) in one vector, ints a, e in another."""
    features = {"a": INT, "b": FLOAT, "c": TEXT, "d": {"dtype": "float32", "shape": [2]}, "e": INT}
    batch = batch_of(features, a=[[1]], b=[[1.0]], c=[[b"hi"]], d=[[2.0, -2.0]], e=[[300]])
    assert make_layout("packed", features=features).encode(batch) == [
        b"\x0a\x3a"
        b"\x0a\x0b\x0a\x01c\x12\x06\x0a\x04\x0a\x02hi"
        b"\x0a\x1a\x0a\x06floats\x12\x10\x12\x0e\x0a\x0c\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x00\xc0"
        b"\x0a\x0f\x0a\x04ints\x12\x07\x1a\x05\x0a\x03\x01\xac\x02"
    ]


def test_blocks_golden_bytes() -> None:
    """By hand: three rows, two in a record; the last record is short and says so by its lengths alone."""
    features = {"a": INT, "b": FLOAT, "c": TEXT, "d": {"dtype": "int64", "shape": [2]}}
    columns = {"a": [[1], [2], [300]], "b": [[1.0], [2.0], [-2.0]], "c": [[b"hi"], [b""], [b"x"]]}
    batch = batch_of(features, **columns, d=[[1, 2], [3, 4], [5, 6]])
    assert make_layout("blocks", features=features, rows_per_record=2).encode(batch) == [
        b"\x0a\x3e"
        b"\x0a\x0b\x0a\x01a\x12\x06\x1a\x04\x0a\x02\x01\x02"
        b"\x0a\x11\x0a\x01b\x12\x0c\x12\x0a\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"
        b"\x0a\x0d\x0a\x01c\x12\x08\x0a\x06\x0a\x02hi\x0a\x00"
        b"\x0a\x0d\x0a\x01d\x12\x08\x1a\x06\x0a\x04\x01\x02\x03\x04",
        b"\x0a\x35"
        b"\x0a\x0b\x0a\x01a\x12\x06\x1a\x04\x0a\x02\xac\x02"
        b"\x0a\x0d\x0a\x01b\x12\x08\x12\x06\x0a\x04\x00\x00\x00\xc0"
        b"\x0a\x0a\x0a\x01c\x12\x05\x0a\x03\x0a\x01x"
        b"\x0a\x0b\x0a\x01d\x12\x06\x1a\x04\x0a\x02\x05\x06",
    ]


@pytest.mark.parametrize(
    ("layout", "digest"), [("rows", "c15d098f8f52fbe7"), ("packed", "3cf5a559d9c2f1da"), ("blocks", "880ad6404f75bb5a")]
)
def test_golden_digests(layout: str, digest: str) -> None:
    """Shards of the same rows must have the same bytes in every version; recipe: ``flights(1000)``."""
    batch, features = flights(1000)
    records = make_layout(layout, features=features).encode(batch)
    assert hashlib.sha256(b"".join(records)).hexdigest()[:16] == digest


def test_descriptions_are_as_documented() -> None:
    features = {"a": INT, "b": FLOAT, "c": TEXT, "d": {"dtype": "float32", "shape": [2, 1]}}
    assert make_layout("rows", features=features).describe() == {"name": "rows", "rows_per_record": 1}
    assert make_layout("packed", features=features).describe() == {
        "name": "packed",
        "rows_per_record": 1,
        "vectors": {"floats": {"dtype": "float32", "length": 3}, "ints": {"dtype": "int64", "length": 1}},
        "columns": {
            "b": {"vector": "floats", "offset": 0, "length": 1, "shape": []},
            "d": {"vector": "floats", "offset": 1, "length": 2, "shape": [2, 1]},
            "a": {"vector": "ints", "offset": 0, "length": 1, "shape": []},
        },
    }
    assert make_layout("blocks", features=features).describe() == {"name": "blocks", "rows_per_record": 256}


VALUES = {
    "float32": st.floats(width=32, allow_nan=False),
    "int64": st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1)),
    "string": st.binary(max_size=4),
}
SHAPES = ([], [], [1], [3], [2, 2], [0], None)


@st.composite
def tables(draw: st.DrawFn, *, shapes: tuple[Any, ...] = SHAPES) -> tuple[pa.RecordBatch, dict[str, Any]]:
    """Rows and what their features are; one feature at least holds a value in every row."""
    names = draw(st.lists(st.sampled_from(["a", "b", "floats", "ints", "floats_", "z\u00e4"]), unique=True, min_size=1))
    rows = draw(st.integers(1, 9))
    features, columns = {}, []
    for place, name in enumerate(sorted(names)):
        dtype, shape = draw(st.sampled_from(sorted(VALUES))), draw(st.sampled_from(shapes if place else ([], [2])))
        features[name] = {"dtype": dtype, "shape": shape}
        width = None if shape is None else math.prod(shape)
        lists_of = st.lists(VALUES[dtype], min_size=width or 0, max_size=3 if width is None else width)
        if width is None:
            lists_of = st.none() | st.lists(VALUES[dtype], min_size=1, max_size=3)
        columns.append(lists(dtype, draw(st.lists(lists_of, min_size=rows, max_size=rows))))
    return pa.RecordBatch.from_arrays(columns, sorted(names)), features


def expected(batch: pa.RecordBatch, features: dict[str, Any]) -> dict[str, list[Any]]:
    """Row by row, the flat values of each feature."""
    return {name: [value or [] for value in batch.column(name).to_pylist()] for name in features}


def unpacked(records: list[bytes], description: dict[str, Any], features: dict[str, Any]) -> dict[str, list[Any]]:
    """What the records hold, read as the documentation says, with nothing but the message's own class."""
    rows: dict[str, list[Any]] = {name: [] for name in features}
    for found in map(example, records):
        for name, described in features.items():
            width = math.prod(described["shape"] or [1])
            at = description.get("columns", {}).get(name)
            if at:
                rows[name].append(found[at["vector"]][at["offset"] : at["offset"] + at["length"]])
            elif description["name"] != "blocks":
                rows[name].append(found.get(name, []))
            elif width:
                values = found[name]
                rows[name] += [values[start : start + width] for start in range(0, len(values), width)]
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_rows_come_back(layout: str, data: st.DataObject) -> None:
    batch, features = data.draw(tables(shapes=SHAPES[:-1] if layout == "blocks" else SHAPES))
    how = make_layout(layout, features=features, rows_per_record=data.draw(st.integers(1, 4)))
    cut = data.draw(st.integers(0, batch.num_rows))  # a part ends here: in blocks, with a short record
    records = how.encode(batch.slice(0, cut)) + how.encode(batch.slice(cut))
    wanted = expected(batch, features)
    read = unpacked(records, how.describe(), features)
    assert {n: v for n, v in read.items() if v} == {n: v for n, v in wanted.items() if read[n]}
    spec = {"features": features, "labels": [], "layout": how.describe()}
    tensors = make_parser(spec, where="here").parse(tf.constant(records))
    for name, described in features.items():
        if described["shape"] is None:
            assert tensors[name].to_list() == wanted[name]
        else:
            assert tensors[name].dtype.name == described["dtype"]
            assert tensors[name].shape == [batch.num_rows, *described["shape"]]
            assert tensors[name].numpy().reshape(batch.num_rows, -1).tolist() == wanted[name] or 0 in described["shape"]


def test_plain_tensorflow_reads_every_layout() -> None:
    """What the documentation shows to people who do not use our reader."""
    batch, features = flights(10)
    rows, packed, blocks = (make_layout(name, features=features, rows_per_record=4).encode(batch) for name in LAYOUTS)
    one = tf.io.parse_example(rows, {"place": tf.io.FixedLenFeature([2], tf.float32)})
    column = make_layout("packed", features=features).describe()["columns"]["place"]
    vector = tf.io.parse_example(packed, {"floats": tf.io.FixedLenFeature([3], tf.float32)})["floats"]
    three = tf.io.parse_example(blocks, {"place": tf.io.RaggedFeature(tf.float32)})["place"]
    wanted = np.array([[row, -row] for row in range(10)], np.float32)
    assert np.array_equal(one["place"], wanted)
    assert np.array_equal(vector[:, column["offset"] : column["offset"] + column["length"]], wanted)
    assert np.array_equal(tf.reshape(three.flat_values, [-1, 2]), wanted)


def test_blocks_refuse_what_varies_and_name_it() -> None:
    batch, features = with_optional(*flights(5))
    with pytest.raises(UsageError, match=r"'maybe', 'words'.*fill_missing.*--layout=packed"):
        BlocksLayout(features)
    assert PackedLayout(features).encode(batch)
    assert RowsLayout().encode(batch)


@pytest.mark.parametrize(("features", "rows", "what"), [({}, 1, "one feature"), ({"a": INT}, 0, "at least 1")])
def test_blocks_need_values_and_rows(features: dict[str, Any], rows: int, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        make_layout("blocks", features=features, rows_per_record=rows)


@pytest.mark.parametrize("layout", ["packed", "blocks"])
@pytest.mark.parametrize("bad", [None, [], [1.0], [1.0, 2.0, 3.0]])
def test_a_row_of_another_width_is_an_error(layout: str, bad: Any) -> None:
    features = {"v": {"dtype": "float32", "shape": [2]}}
    with pytest.raises(ValueError, match=r"'v' has \d values in a row, and should have 2"):
        make_layout(layout, features=features).encode(batch_of(features, v=[[1.0, 2.0], bad]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_rows_give_no_records(layout: str) -> None:
    batch, features = flights(3)
    assert make_layout(layout, features=features).encode(batch.slice(3)) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_size_of_a_row_is_about_right(layout: str) -> None:
    batch, features = flights(2000)
    records = make_layout(layout, features=features).encode(batch)
    real = sum(len(record) + 16 for record in records) / batch.num_rows
    assert real / 2 < estimate_row_bytes(layout, features=features) < real * 2


@given(tables())
@settings(max_examples=40, deadline=None)
def test_the_column_map_is_read_back(table: tuple[pa.RecordBatch, dict[str, Any]]) -> None:
    found = ColumnMap.of(table[1])
    read = ColumnMap.from_json(found.to_json())
    assert set(read.columns) == set(found.columns)
    assert set(read.vectors) == set(found.vectors)
    assert not {vector.name for vector in found.vectors} & set(table[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["columns"]["a"].update(offset=1),
        lambda m: m["columns"]["a"].update(vector="other"),
        lambda m: m["columns"]["v"].update(length=3),
        lambda m: m["vectors"]["floats"].update(length=9),
        lambda m: m["columns"].pop("v"),
        lambda m: m.pop("vectors"),
        lambda m: m["columns"].update(a=None),
    ],
)
def test_a_damaged_column_map_is_refused(change: Any) -> None:
    described = ColumnMap.of({"a": FLOAT, "v": {"dtype": "float32", "shape": [2]}}).to_json()
    change(described)
    with pytest.raises(UsageError, match="packed columns is damaged"):
        ColumnMap.from_json(described)


def test_arrow_types_cover_all_dtypes() -> None:
    assert set(ARROW) == set(VALUES)
