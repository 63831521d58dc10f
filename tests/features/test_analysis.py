"""A real analysis with every op: numbers against numpy, and serving against training."""

from __future__ import annotations

import datetime
import io
import json
import math
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.coded import with_codes
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason
from pipeline.features.artefact import HEADER, fetch_artefact, load_artefact
from pipeline.features.preprocessing import load_preprocessing_module, preprocessing_fn_of
from pipeline.features.spec import parse_features
from pipeline.features.transformer import Transformer, load_transformer, non_finite_rows
from tests.features.helpers import SCHEMA_TEXT, analyse, make_batch, make_schema

SCHEMA = make_schema()
SPEC = parse_features(
    """
i: {scale_to_z_score: {}}
i_float: {from: i, ops: [{cast: {to: float}}]}
i_hash: {from: i, ops: [{cast: {to: string}}, {hash_strings: {hash_buckets: 9, key: [1, 2]}}, one_hot]}
f: [log1p, {scale_to_0_1: {}}]
f_int: {from: f, ops: [{cast: {to: int}}]}
f_minmax: {from: f, ops: [{scale_by_min_max: {output_min: -1, output_max: 2}}]}
f_bucket: {from: f, ops: [{bucketize: {buckets: 4}}]}
f_range: {from: f, ops: [{apply_buckets: {boundaries: [1, 5]}}, one_hot]}
s: {vocabulary: {top_k: 3}}
s_hash: {from: s, ops: [{hash_strings: {hash_buckets: 5}}]}
s_raw: {from: s}
oi: [{fill_missing: {with: mean, missing_indicator: true}}, {scale_to_z_score: {}}]
oi_zero: {from: oi, ops: [{fill_missing: {value: 0}}]}
of: [{fill_missing: {value: -1.5}}, {cast: {to: int}}]
os: [{fill_missing: {value: none}}, {vocabulary: {num_oov_buckets: 0, default_value: -7}}]
fl: {scale_to_z_score: {elementwise: true}}
fl_scaled: {from: fl, ops: [{scale_to_0_1: {elementwise: true}}]}
ofl: [{fill_missing: {with: mean, missing_indicator: true}}]
rs: {hash_strings: {hash_buckets: 3}}
ri: pass_through
t: {time_parts: {parts: [year, month, day, hour, minute, second, day_of_week, day_of_year]}}
t_utc: {from: t, ops: [{time_parts: {parts: [day, hour, day_of_week, day_of_year], utc: true}}, {cast: {to: float}}]}
y: [label, log1p]
y_raw: {from: y, ops: [label]}
""",
    SCHEMA,
)


WORDS_SEEN = (b"a", b"b", b"\xff\x00", b"", b"two\nlines", b"c", b" d ")


def make_rows(count: int) -> list[dict[str, Any]]:
    """Rows in which the optional features are missing now and then."""
    rng = np.random.default_rng(3)
    rows = []
    for k in range(count):
        row: dict[str, Any] = {
            "i": int(rng.integers(-50, 100)),
            "f": float(np.float32(rng.exponential() * 3)),
            "s": WORDS_SEEN[int(len(WORDS_SEEN) * rng.random() ** 2)],
            "fl": [float(np.float32(value)) for value in rng.normal([0, 5, -3], 2)],
            "t": (datetime.datetime(2012, 2, 27) + datetime.timedelta(hours=7 * k)).isoformat().encode() + b"-05:30",
            "y": float(k % 7),
        }
        if k % 3:
            row |= {"oi": k, "of": k / 2, "os": b"x%d" % (k % 2)}
        if k % 5:
            row |= {"ofl": [float(k), 2.0], "rs": [b"p", b"q", b"r"][: k % 4], "ri": [k] * (k % 3)}
        rows.append(row)
    return rows


ROWS = make_rows(200)
BATCH = make_batch(SCHEMA, ROWS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    base = tmp_path_factory.mktemp("analysis")
    # two batches of different size, one of them a slice, and an empty one
    batches = [BATCH.slice(0, 70), BATCH.slice(70), BATCH.slice(0, 0)]
    return analyse(preprocessing_fn_of(SPEC, SCHEMA), SCHEMA, batches, str(base / "out"), str(base / "temp"))


@pytest.fixture(scope="module")
def transformer(folder: str) -> Transformer:
    return Transformer(load_artefact(folder, SCHEMA), SCHEMA)


@pytest.fixture(scope="module")
def output(transformer: Transformer) -> pa.RecordBatch:
    return transformer.transform(BATCH)


def column(output: pa.RecordBatch, name: str) -> Any:
    return np.array(output.column(name).to_pylist()).reshape(output.num_rows, -1).squeeze(-1)


def assert_same(got: pa.RecordBatch, expected: pa.RecordBatch) -> None:
    """Equal but for the last bits of floats: Eigen computes whole SIMD packets and the tail of a batch differently."""
    assert got.schema == expected.schema
    for name in got.schema.names:
        a, b = got.column(name), expected.column(name)
        if pa.types.is_floating(a.type.value_type):
            assert a.value_lengths().equals(b.value_lengths())
            np.testing.assert_allclose(a.flatten().to_numpy(), b.flatten().to_numpy(), rtol=1e-6, atol=1e-7)
        else:
            assert a.equals(b), name


def raw(name: str, kind: type = np.float64) -> Any:
    return np.array([row.get(name, np.nan) for row in ROWS], kind)


def z_score(values: Any) -> Any:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def test_numbers_are_those_of_numpy(output: pa.RecordBatch) -> None:
    i, f = raw("i"), raw("f")
    oi = raw("oi")
    filled = np.where(np.isnan(oi), np.nanmean(oi), oi)
    log = np.log1p(f)
    expected = {
        "i": z_score(i),
        "i_float": i,
        "f": (log - log.min()) / (log.max() - log.min()),
        "f_int": np.trunc(f),
        "f_minmax": (f - f.min()) / (f.max() - f.min()) * 3 - 1,
        "oi": z_score(filled),
        "oi_missing": np.isnan(oi),
        "oi_zero": np.nan_to_num(oi),
        "of": np.trunc(np.where(np.isnan(raw("of")), -1.5, raw("of"))),
        "ofl_missing": [k % 5 == 0 for k in range(len(ROWS))],
        "y": np.log1p(raw("y")),
        "y_raw": raw("y"),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(column(output, name), values, rtol=2e-5, atol=2e-6, err_msg=name)


def test_lists_are_scaled_element_by_element_and_filled_as_a_whole(output: pa.RecordBatch) -> None:
    fl = np.array([row["fl"] for row in ROWS])
    np.testing.assert_allclose(np.array(output.column("fl").to_pylist()), z_score(fl), rtol=1e-4, atol=1e-5)
    scaled = (fl - fl.min(axis=0)) / (fl.max(axis=0) - fl.min(axis=0))
    np.testing.assert_allclose(np.array(output.column("fl_scaled").to_pylist()), scaled, rtol=1e-4, atol=1e-5)
    mean = np.mean([row["ofl"] for row in ROWS if "ofl" in row])
    expected = [row.get("ofl", [mean, mean]) for row in ROWS]
    np.testing.assert_allclose(np.array(output.column("ofl").to_pylist()), expected, rtol=1e-5)


def test_ranges_and_buckets(output: pa.RecordBatch) -> None:
    f = raw("f")
    assert np.array_equal(np.array(output.column("f_range").to_pylist()), np.eye(3)[np.digitize(f, [1, 5])])
    counts = np.bincount(column(output, "f_bucket").astype(int), minlength=4)
    assert counts.sum() == len(ROWS)
    assert counts.min() > len(ROWS) / 4 * 0.8, "quantile buckets hold about equally many rows"


def test_vocabularies_order_by_frequency_and_send_the_rest_out(folder: str, output: pa.RecordBatch) -> None:
    # TFT: falling frequency, then falling bytes; '' and line breaks are in no vocabulary
    words = [row["s"] for row in ROWS]
    ranked = sorted((w for w in set(words) if w and b"\n" not in w), key=lambda w: (words.count(w), w), reverse=True)
    assert len(ranked) == len(WORDS_SEEN) - 2
    top = {word: index for index, word in enumerate(ranked[:3])}
    assert [top.get(word, 3) for word in words] == column(output, "s").tolist()
    assert tft.TFTransformOutput(folder).vocabulary_by_name("vocabulary_s") == ranked[:3]
    seen = [row.get("os", b"none") for row in ROWS]
    order = sorted(set(seen), key=lambda w: (seen.count(w), w), reverse=True)
    assert [order.index(word) for word in seen] == column(output, "os").tolist()


def test_hashes_are_those_of_tft_and_stay_in_range(output: pa.RecordBatch) -> None:
    words = [row["s"] for row in ROWS]
    assert column(output, "s_hash").tolist() == tft.hash_strings(tf.constant(words), 5).numpy().tolist()
    keyed = tft.hash_strings(tf.constant([str(row["i"]) for row in ROWS]), 9, key=[1, 2]).numpy()
    assert np.array_equal(np.array(output.column("i_hash").to_pylist()), np.eye(9)[keyed])


def test_times_are_taken_apart_as_written_or_in_utc(output: pa.RecordBatch) -> None:
    written = [datetime.datetime.fromisoformat(row["t"].decode()) for row in ROWS]
    utc = [time.astimezone(datetime.timezone.utc) for time in written]
    parts = {
        "year": lambda t: t.year,
        "month": lambda t: t.month,
        "day": lambda t: t.day,
        "hour": lambda t: t.hour,
        "minute": lambda t: t.minute,
        "second": lambda t: t.second,
        "day_of_week": lambda t: t.weekday(),
        "day_of_year": lambda t: t.timetuple().tm_yday,
    }
    for part, of in parts.items():
        assert column(output, f"t_{part}").tolist() == [of(time) for time in written], part
        if f"t_utc_{part}" in output.schema.names:
            assert column(output, f"t_utc_{part}").tolist() == [of(time) for time in utc], part


def test_lists_of_any_length_stay_so_and_are_left_out_where_empty(output: pa.RecordBatch) -> None:
    assert output.column("ri").to_pylist() == [row.get("ri") or None for row in ROWS]
    assert [len(ids or []) for ids in output.column("rs").to_pylist()] == [len(row.get("rs", [])) for row in ROWS]
    assert output.column("s_raw").to_pylist() == [[row["s"]] for row in ROWS]


def test_the_outputs_are_described(transformer: Transformer, output: pa.RecordBatch) -> None:
    assert transformer.labels == ("y", "y_raw")
    assert list(transformer.features) == sorted(output.schema.names) == output.schema.names
    assert transformer.features["i"] == {"dtype": "float32", "shape": []}
    assert transformer.features["i_hash"] == {"dtype": "float32", "shape": [9]}
    assert transformer.features["s_raw"] == {"dtype": "string", "shape": []}
    assert transformer.features["ri"] == {"dtype": "int64", "shape": None}
    types = {"float32": pa.float32(), "int64": pa.int64(), "string": pa.large_binary()}
    for name, feature in transformer.features.items():
        values = output.column(name)
        assert values.type == pa.large_list(types[feature["dtype"]])
        if feature["shape"] is not None:
            assert values.null_count == 0
            assert set(values.value_lengths().to_pylist()) == {math.prod(feature["shape"])}
    json.dumps(transformer.features)


def raw_example(row: dict[str, Any]) -> bytes:
    """What a client of the model sends: a missing feature is left out."""
    message = tf.train.Example()
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        kind = (
            {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(values[0])] if values else "int64_list"
        )
        getattr(message.features.feature[name], kind).value.extend(values)
    return message.SerializeToString()


FLOATS = st.floats(-0.875, 1000, width=32)
WORDS = st.sampled_from([b"a", b"b", b"new", b"", b"two\nlines", b"none"])
TIMES = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)).map(
    lambda t: t.isoformat(timespec="seconds").encode() + b"Z"
)
ROW = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**40), 2**40),
        "f": FLOATS,
        "s": WORDS,
        "fl": st.lists(FLOATS, min_size=3, max_size=3),
        "t": TIMES,
    },
    optional={
        "oi": st.integers(-9, 9),
        "of": FLOATS,
        "os": WORDS,
        "ofl": st.lists(FLOATS, min_size=2, max_size=2),
        "rs": st.lists(WORDS, min_size=1, max_size=3),
        "ri": st.lists(st.integers(-9, 9), min_size=1, max_size=3),
    },
)


@pytest.fixture(scope="module")
def serve(folder: str) -> Any:
    """The served model's input side: parse raw examples, apply TFT's own layer."""
    spec = load_artefact(folder, SCHEMA).raw_feature_spec()
    assert "y" not in spec, "a label is not asked for in serving"
    layer = tft.TFTransformOutput(folder).transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def call(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(layer(tf.io.parse_example(serialized, spec)))

    return call


def batch_of(name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], [name])


def as_rows(tensor: Any) -> list[Any]:
    if isinstance(tensor, tf.SparseTensor):
        return [row or None for row in tf.RaggedTensor.from_sparse(tensor).to_list()]
    values = tensor.numpy()
    return values.reshape(len(values), -1).tolist()


@given(st.lists(ROW, min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_serving_equals_training(serve: Any, folder: str, transformer: Transformer, rows: list[dict[str, Any]]) -> None:
    served = serve(tf.constant([raw_example(row) for row in rows]))
    trained = transformer.transform(make_batch(SCHEMA, [row | {"y": 1.0} for row in rows]))
    assert set(served) == set(trained.schema.names) - {"y", "y_raw"}
    for name, tensor in served.items():
        kind = trained.column(name).type
        assert_same(batch_of(name, pa.array(as_rows(tensor), kind)), batch_of(name, trained.column(name)))


def test_without_a_label_in_the_schema_the_other_outputs_are_the_same(folder: str, output: pa.RecordBatch) -> None:
    serving = make_schema(environment="SERVING")
    transformer = Transformer(load_artefact(folder, serving), serving)
    assert transformer.labels == ()
    result = transformer.transform(make_batch(serving, [{k: v for k, v in row.items() if k != "y"} for row in ROWS]))
    assert result.schema.names == [name for name in output.schema.names if name not in ("y", "y_raw")]
    assert all(result.column(name).equals(output.column(name)) for name in result.schema.names)


def test_rows_do_not_depend_on_their_batch(transformer: Transformer, output: pa.RecordBatch) -> None:
    for start, length in ((0, 1), (3, 7), (199, 1), (50, 0)):
        assert_same(transformer.transform(BATCH.slice(start, length)), output.slice(start, length))


def test_columns_may_come_coded(transformer: Transformer, output: pa.RecordBatch) -> None:
    coded = with_codes(BATCH)
    names = transformer.coded
    assert {"s", "c"} & names
    columns = [(coded if name in names else BATCH).column(name) for name in BATCH.schema.names]
    batch = pa.RecordBatch.from_arrays(columns, BATCH.schema.names)
    assert_same(transformer.transform(batch), output)
    for start, length in ((0, 1), (5, 30)):
        assert_same(transformer.transform(batch.slice(start, length)), output.slice(start, length))


def test_threads_share_one_graph_and_nothing_is_traced_again(transformer: Transformer, output: pa.RecordBatch) -> None:
    results: list[Any] = [None] * 8

    def work(index: int) -> None:
        results[index] = transformer.transform(BATCH.slice(index * 7, 100 - index))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, result in enumerate(results):
        assert_same(result, output.slice(index * 7, 100 - index))


def test_rows_that_an_op_cannot_take_are_named_before_the_graph_fails(transformer: Transformer) -> None:
    rows = make_rows(6)
    rows[1]["t"] = b"2013-02-29T00:00:00Z"
    rows[2]["t"] = b"yesterday"
    rows[3]["f"] = -1.0
    rows[4]["f"] = float("nan")
    faults = transformer.faults(make_batch(SCHEMA, rows))
    assert {row: (fault.reason, fault.feature) for row, fault in faults.items()} == {
        1: (Reason.TRANSFORM_ERROR, "t"),
        2: (Reason.TRANSFORM_ERROR, "t"),
        3: (Reason.TRANSFORM_ERROR, "f"),
        4: (Reason.TRANSFORM_ERROR, "f"),
    }
    assert "yesterday" not in faults[2].message, "values stay out of messages"
    assert transformer.faults(BATCH) == {}
    with pytest.raises(tf.errors.InvalidArgumentError, match="RFC 3339"):
        transformer.transform(make_batch(SCHEMA, rows[2:3]))


def test_non_finite_rows_are_found() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"a": [1.0], "b": [1]}, {"a": [1.0, math.nan]}, {"a": None, "b": [2]}, {"a": [math.inf], "b": []}],
        pa.schema([("a", pa.large_list(pa.float32())), ("b", pa.large_list(pa.int64()))]),
    )
    assert non_finite_rows(batch).tolist() == [False, True, False, True]
    assert non_finite_rows(batch.slice(1, 2)).tolist() == [True, False]
    assert non_finite_rows(batch.slice(2, 1)).tolist() == [False]


def test_a_transform_made_for_another_schema_is_refused(folder: str) -> None:
    other = make_schema('feature { name: "i" type: INT }')
    with pytest.raises(UsageError, match="made for another schema"):
        load_artefact(folder, other)


def test_a_folder_without_a_whole_transform_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no headrace\.json"):
        load_artefact(str(tmp_path), SCHEMA)
    header = json.loads(Path(folder, HEADER).read_text())
    for text in (
        "{",
        "[]",
        "[" * 100_000,
        json.dumps(header | {"spec": [{"name": "i"}]}),
        json.dumps(header | {"effective_schema": "?"}),
    ):
        (tmp_path / HEADER).write_text(text)
        with pytest.raises(UsageError, match="is damaged"):
            load_artefact(str(tmp_path), SCHEMA)
    (tmp_path / HEADER).write_text(json.dumps(header | {"format": 2}))
    with pytest.raises(UsageError, match="has format 2"):
        load_artefact(str(tmp_path), SCHEMA)


@pytest.mark.parametrize("name", ["saved_model.pb", "vocabulary_s", "transformed_metadata/schema.pbtxt"])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_transform_whose_files_are_not_its_own_is_refused(folder: str, tmp_path: Path, name: str, harm: str) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    load_artefact(str(copy), SCHEMA)
    (file,) = [path for path in copy.rglob("*") if path.as_posix().endswith(f"/{name}")]
    data = file.read_bytes()
    file.write_bytes(data[:-1] if harm == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    if harm == "gone":
        file.unlink()
    with pytest.raises(UsageError, match=r"is damaged: its files are not those"):
        load_artefact(str(copy), SCHEMA)


def test_a_remote_artefact_is_copied_and_works_after_the_copy_is_gone(folder: str, output: pa.RecordBatch) -> None:
    def list_folder(uri: str) -> list[str]:
        assert uri == "mem://bucket/run"
        return [f"{uri}/{path.relative_to(folder)}" for path in sorted(Path(folder).rglob("*")) if path.is_file()]

    def open_file(uri: str) -> Any:
        return open(uri.replace("mem://bucket/run", folder), "rb")

    transformer = load_transformer("mem://bucket/run", SCHEMA, list_folder=list_folder, open_file=open_file)
    assert transformer.transform(BATCH).equals(output)


def test_a_listing_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not lie below"):
        fetch_artefact(
            "mem://b/run",
            list_folder=lambda uri: [f"{uri}/../../evil"],
            open_file=lambda uri: io.BytesIO(b"evil"),
            local_dir=str(tmp_path / "in"),
        )


def test_what_travels_to_workers_pickles() -> None:
    preprocessing = preprocessing_fn_of(SPEC, SCHEMA)
    assert pickle.loads(pickle.dumps(preprocessing)) == preprocessing


MODULE = """
import tensorflow as tf
import tensorflow_transform as tft

def _dense(x):
    return tf.squeeze(tf.sparse.to_dense(tf.SparseTensor(x.indices, x.values, [x.dense_shape[0], 1]), 0), axis=1)

def preprocessing_fn(inputs):
    return {
        "z": tft.scale_to_z_score(_dense(inputs["f"])),
        "ratio": tf.cast(_dense(inputs["i"]), tf.float32) / tf.cast(_dense(inputs["oi"]), tf.float32),
        "words": inputs["rs"],
        "fl": inputs["fl"],
    }
"""


# TFX infers no tensor for a fixed shape that can be missing.
TFX_SCHEMA = make_schema("\n".join(line for line in SCHEMA_TEXT.splitlines() if '"ofl"' not in line))


def test_a_module_written_for_tfx_runs_unchanged_and_again_over_its_old_output(tmp_path: Path) -> None:
    module = load_preprocessing_module(str(tmp_path / "pre.py"), MODULE)  # workers do not have the file
    out = tmp_path / "out"
    stale = out / "transform_fn" / "assets" / "old_vocabulary"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier analysis")
    (out / "mine.txt").write_text("not ours to delete")
    analyse(module, TFX_SCHEMA, [BATCH], str(out), str(tmp_path / "temp"))
    shutil.rmtree(tmp_path / "temp")
    assert not stale.exists()
    assert (out / "mine.txt").exists()
    artefact = load_artefact(str(out), TFX_SCHEMA)
    assert (artefact.spec, artefact.labels) == (None, ())
    transformer = Transformer(artefact, TFX_SCHEMA)
    output = transformer.transform(BATCH)
    np.testing.assert_allclose(column(output, "z"), z_score(raw("f")), rtol=2e-5, atol=2e-6)
    # 0 stands for a missing oi: the quotient is infinite, and its row is found
    assert non_finite_rows(output).tolist() == ["oi" not in row for row in ROWS]
    assert output.column("words").to_pylist() == [row.get("rs") or None for row in ROWS]
    assert transformer.features["words"] == {"dtype": "string", "shape": None}
    assert transformer.faults(BATCH) == {}


@pytest.mark.slow
def test_no_rows_give_a_transform_all_the_same(tmp_path: Path) -> None:
    spec = parse_features("i: {scale_to_0_1: {}}\noi: {fill_missing: {with: mean}}\ns: vocabulary\n", SCHEMA)
    folder = analyse(preprocessing_fn_of(spec, SCHEMA), SCHEMA, [], str(tmp_path / "out"), str(tmp_path / "temp"))
    output = Transformer(load_artefact(folder, SCHEMA), SCHEMA).transform(BATCH)
    assert not non_finite_rows(output).any()
    assert column(output, "oi").tolist() == [row.get("oi", 0) for row in ROWS]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", "has no function preprocessing_fn"),
        ("preprocessing_fn = 3", "has no function preprocessing_fn"),
        ("import no_such_library", "fails on import"),
        ("def preprocessing_fn(:", "fails on import"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(source: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_preprocessing_module("pre.py", source)
