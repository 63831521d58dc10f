"""Encoding: the bytes are tf.train.Examples, canonical, and the same everywhere."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from pipeline.core.errors import UsageError
from pipeline.features.layouts import RowsLayout, make_layout
from pipeline.features.wire import encode_examples, varint

INT, FLOAT, BYTES = pa.int64(), pa.float32(), pa.large_binary()


def lists(kind: pa.DataType, rows: list[Any]) -> pa.Array:
    return pa.array(rows, pa.large_list(kind))


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def example_of(batch: pa.RecordBatch, row: int) -> tf.train.Example:
    """The oracle: one message built feature by feature."""
    message = tf.train.Example()
    message.features.SetInParent()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column[row].as_py()
        if values is None:
            continue
        feature = message.features.feature[name]
        kind = {INT: "int64_list", FLOAT: "float_list", BYTES: "bytes_list"}[column.type.value_type]
        getattr(feature, kind).SetInParent()
        getattr(feature, kind).value.extend(values)
    return message


def assert_encodes(batch: pa.RecordBatch) -> None:
    records = encode_examples(batch)
    assert len(records) == batch.num_rows
    for row, record in enumerate(records.to_pylist()):
        expected = example_of(batch, row)
        parsed = tf.train.Example.FromString(record)
        assert parsed == expected or _has_nan(expected)
        # Canonical: as long as protobuf's own encoding, and the same bits in every float.
        assert len(record) == expected.ByteSize()
        assert parsed.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def _has_nan(message: tf.train.Example) -> bool:
    return any(value != value for feature in message.features.feature.values() for value in feature.float_list.value)


INTS = st.one_of(st.integers(-3, 200), st.integers(-(2**63), 2**63 - 1))
FLOATS = st.floats(width=32)
WORDS = st.one_of(st.sampled_from([b"UA", b"AA"]), st.binary(max_size=4), st.binary(min_size=125, max_size=130))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 6))
    names = draw(st.lists(st.text("abä\n", max_size=3), unique=True, max_size=5))
    columns = {}
    for name in names:
        kind, values = draw(st.sampled_from([(INT, INTS), (FLOAT, FLOATS), (BYTES, WORDS)]))
        shape = draw(st.sampled_from(["one", "three", "any", "any or none", "none"]))
        row = {
            "one": st.lists(values, min_size=1, max_size=1),
            "three": st.lists(values, min_size=3, max_size=3),
            "any": st.lists(values, max_size=3),
            "any or none": st.none() | st.lists(values, max_size=3),
            "none": st.none(),
        }[shape]
        columns[name] = lists(kind, draw(st.lists(row, min_size=rows, max_size=rows)))
    if not columns:
        columns["x"] = lists(INT, [[1]] * rows)
    return batch_of(**columns)


@given(batches())
@settings(max_examples=150, deadline=None)
@example(batch_of(a=lists(INT, [[127], [128]]), b=lists(BYTES, [[b""], [b""]]), c=lists(FLOAT, [[], [0.5]])))
def test_each_record_is_the_example_of_its_row(batch: pa.RecordBatch) -> None:
    assert_encodes(batch)


@given(batches(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_slice_encodes_as_its_rows_do(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    length = data.draw(st.integers(0, batch.num_rows - start))
    whole = encode_examples(batch).to_pylist()
    assert encode_examples(batch.slice(start, length)).to_pylist() == whole[start : start + length]


def test_long_values_need_long_lengths() -> None:
    assert_encodes(
        batch_of(
            b=lists(BYTES, [[b"x" * 70_000], [b"y" * 200, b""], [b""]]),
            f=lists(FLOAT, [[1.0] * 5000, [2.0], []]),
            i=lists(INT, [list(range(3000)), [], [-1]]),
        )
    )


def test_tensorflow_parses_what_tfx_bsl_encodes_and_what_we_encode_alike() -> None:
    rng = np.random.default_rng(7)
    rows = 300
    batch = batch_of(
        f=lists(FLOAT, rng.normal(size=(rows, 1)).astype("f4").tolist()),
        v=lists(FLOAT, rng.normal(size=(rows, 2)).astype("f4").tolist()),
        i=lists(INT, [[int(value)] for value in rng.integers(-(2**40), 2**40, rows)]),
        s=lists(BYTES, [[b"word%d" % value] for value in rng.integers(0, 2000, rows)]),
        o=lists(INT, [None if value == 0 else [int(value)] for value in rng.integers(0, 3, rows)]),
    )
    spec = {
        "f": tf.io.FixedLenFeature([], tf.float32),
        "v": tf.io.FixedLenFeature([2], tf.float32),
        "i": tf.io.FixedLenFeature([], tf.int64),
        "s": tf.io.FixedLenFeature([], tf.string),
        "o": tf.io.FixedLenFeature([], tf.int64, default_value=-9),
    }
    ours = tf.io.parse_example(encode_examples(batch).to_pylist(), spec)
    theirs = tf.io.parse_example(RecordBatchToExamplesEncoder().encode(batch), spec)
    for name in spec:
        assert np.array_equal(ours[name].numpy(), theirs[name].numpy()), name


def test_golden_bytes() -> None:
    """By hand from the format in the module's docstring; features sorted by name whatever the order of columns."""
    batch = batch_of(b=lists(INT, [[300]]), a=lists(BYTES, [[b"hi"]]), c=lists(FLOAT, [[1.0]]), d=lists(INT, [None]))
    assert encode_examples(batch).to_pylist() == [
        b"\x0a\x29"
        b"\x0a\x0b\x0a\x01a\x12\x06\x0a\x04\x0a\x02hi"
        b"\x0a\x0b\x0a\x01b\x12\x06\x1a\x04\x0a\x02\xac\x02"
        b"\x0a\x0d\x0a\x01c\x12\x08\x12\x06\x0a\x04\x00\x00\x80\x3f"
    ]


def test_golden_digest_of_a_batch_with_everything() -> None:
    """Shards of the same input must have the same bytes in every version; recipe: the batch below."""
    rows = 500
    batch = batch_of(
        f=lists(FLOAT, [[row / 7] for row in range(rows)]),
        big=lists(INT, [[row * row * 1_000_003 - 5000] for row in range(rows)]),
        small=lists(INT, [[row % 24] for row in range(rows)]),
        code=lists(BYTES, [[[b"UA", b"AA", b"B6"][row % 3]] for row in range(rows)]),
        word=lists(BYTES, [[b"N%d" % row] for row in range(rows)]),
        maybe=lists(FLOAT, [[row * 0.5] if row % 4 else None for row in range(rows)]),
        ragged=lists(BYTES, [[b"x" * (row % 5)] * (row % 3) for row in range(rows)]),
        vector=lists(FLOAT, [[row, -row, 0.25] for row in range(rows)]),
    )
    data = b"".join(encode_examples(batch).to_pylist())
    assert (len(data), hashlib.sha256(data).hexdigest()[:16]) == (73268, "aeea2350653fda27")


def test_no_rows_and_no_columns() -> None:
    assert encode_examples(batch_of(a=lists(INT, []))).to_pylist() == []


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.large_string()])
def test_a_type_that_an_example_cannot_hold_is_named(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="feature b'x' has type"):
        encode_examples(batch_of(x=lists(kind, [[]])))


@pytest.mark.parametrize(
    ("number", "expected"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (-1, b"\xff" * 9 + b"\x01")]
)
def test_varint(number: int, expected: bytes) -> None:
    assert varint(number) == expected


def test_layouts_are_made_by_name() -> None:
    layout = make_layout("rows", features={"a": {"dtype": "int64", "shape": []}})
    assert isinstance(layout, RowsLayout)
    assert layout.describe() == {"name": "rows", "rows_per_record": 1}
    batch = batch_of(a=lists(INT, [[1], [2]]))
    assert layout.encode(batch) == layout.encode_array(batch).to_pylist()
    with pytest.raises(UsageError, match="did you mean rows"):
        make_layout("row", features={})


@pytest.mark.parametrize("length", [1, 100, 113, 114, 115, 116, 117, 118, 119, 120, 121, 126, 127, 128, 300])
@pytest.mark.parametrize(
    "numbers", [[1, 200], [1, 2**20], [0, 127, 128, 2**14, 2**62, -1], [5, 2**35, 2**63 - 1], [-5, -6], [2**20, 3]]
)
def test_single_integers_of_any_width_under_names_of_any_length(length, numbers):
    name = "x" * length
    offsets = pa.array(range(len(numbers) + 1), pa.int64())
    column = pa.LargeListArray.from_arrays(offsets, pa.array(numbers, pa.int64()))
    records = encode_examples(pa.RecordBatch.from_arrays([column], [name]))
    for record, number in zip(records.to_pylist(), numbers, strict=True):
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        expected = tf.train.Example(features=tf.train.Features(feature={name: feature}))
        assert record == expected.SerializeToString()
