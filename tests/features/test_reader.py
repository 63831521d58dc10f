"""The reader: the same tensors from any layout, every row once, another order each epoch, faults that name the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from features.shards import flights, with_optional, write_run, write_shard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.features.layouts import make_layout
from pipeline.features.reader import make_dataset

LAYOUTS = ("rows", "packed", "blocks")
ROWS = 500


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of 500 flights in 3 shards."""
    output = tmp_path_factory.mktemp(request.param)
    write_run(output, *flights(ROWS), layout=request.param)
    return output


def ids(dataset: tf.data.Dataset) -> list[int]:
    """The ids of all rows, in order; the other features must be of the same row."""
    found = []
    for batch in dataset.as_numpy_iterator():
        features = batch[0] if isinstance(batch, tuple) else batch
        assert set(features) >= {"carrier", "day", "id", "place"}
        assert (features["day"] == features["id"] * 37 % 365).all()
        assert (features["place"] == np.stack([features["id"], -features["id"]], 1)).all()
        assert [word[0] - 65 for word in features["carrier"]] == list(features["id"] % 7)
        delay = batch[1] if isinstance(batch, tuple) else features["delay"]
        assert (delay == features["id"] / 4).all()
        found += features["id"].tolist()
    return found


def test_without_shuffling_rows_come_in_order(run: Path) -> None:
    dataset = make_dataset(run, 64, shuffle=False, drop_remainder=False)
    assert ids(dataset) == list(range(ROWS))
    assert dataset.cardinality() == len(list(dataset)) == 8
    assert ids(make_dataset(run, 64, shuffle=False)) == list(range(448))


def test_tensors_are_the_same_whatever_the_layout(run: Path) -> None:
    spec = make_dataset(run, 64).element_spec
    assert spec == {
        "carrier": tf.TensorSpec([64], tf.string),
        "day": tf.TensorSpec([64], tf.int64),
        "delay": tf.TensorSpec([64], tf.float32),
        "id": tf.TensorSpec([64], tf.int64),
        "place": tf.TensorSpec([64, 2], tf.float32),
    }
    assert list(spec) == sorted(spec)
    loose = make_dataset(run, 64, drop_remainder=False).element_spec
    assert loose["place"] == tf.TensorSpec([None, 2], tf.float32)


def test_shuffled_epochs_hold_every_row_once_each_in_another_order(run: Path) -> None:
    dataset = make_dataset(run, 64, drop_remainder=False)
    epochs = [ids(dataset) for _ in range(3)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    for one, other in itertools.combinations([*epochs, list(range(ROWS))], 2):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < ROWS / 10


def test_a_seed_is_an_order(run: Path) -> None:
    same = [make_dataset(run, 64, seed=7) for _ in range(2)]
    assert [ids(same[0]), ids(same[0])] == [ids(same[1]), ids(same[1])]
    assert ids(make_dataset(run, 64, seed=8)) != ids(make_dataset(run, 64, seed=7))


def test_rows_move_away_from_their_neighbours(run: Path) -> None:
    """Rows that were neighbours in a shard are no neighbours in a batch, but for chance (2 in 500)."""
    order = ids(make_dataset(run, 64, drop_remainder=False))
    assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(order)) < 20
    first = order[:64]
    assert len({row * 3 // ROWS for row in first}) == 3, "the first batch has rows of every shard"


def test_each_level_shuffles_by_itself(tmp_path: Path) -> None:
    """12,000 rows are three groups; each level is seen where the two others can do nothing."""
    many, one = tmp_path / "many", tmp_path / "one"
    batch, features = flights(12_000)
    write_run(many, batch, features, layout="blocks", rows_per_record=256, shards=6)
    write_run(one, batch, features, layout="blocks", rows_per_record=256, shards=1)
    narrow = make_dataset(many, 1000, cycle_length=1, shuffle_buffer=1)
    begun = [{row // 2000 for row in ids(narrow.take(1))} for _ in range(4)]
    assert len(set().union(*begun)) > max(map(len, begun)), "shards: epochs begin in different ones"
    assert all(len(shards) <= 4 for shards in begun)
    first = ids(make_dataset(one, 1000).take(1))
    assert max(first) - min(first) > 8000, "records: the first batch comes from all over its shard"


@pytest.mark.parametrize("ragged", [False, True])
def test_rows_of_one_unit_are_permuted_anew_each_epoch(tmp_path: Path, ragged: bool) -> None:
    batch, features = with_optional(*flights(100)) if ragged else flights(100)
    write_run(tmp_path, batch, features, shards=1)
    dataset = make_dataset(tmp_path, 100)
    epochs = [tuple(read["id"].numpy().tolist()) for _ in range(3) for read in dataset]
    assert len({*epochs, tuple(range(100))}) == 4


def test_repeating_goes_on_and_loses_nothing(run: Path) -> None:
    dataset = make_dataset(run, 64, repeat=True)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    read = ids(dataset.take(-(-3 * ROWS // 64)))
    epochs = [read[start : start + ROWS] for start in range(0, 3 * ROWS, ROWS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    plain = ids(make_dataset(run, 64, repeat=True, shuffle=False).take(16))
    assert plain == [row % ROWS for row in range(1024)]


@pytest.mark.parametrize("readers", [2, 4, 60])
def test_readers_share_the_rows_without_overlap_or_loss(run: Path, readers: int) -> None:
    read = [
        ids(make_dataset(run, 16, drop_remainder=False, num_readers=readers, reader_index=reader))
        for reader in (range(readers) if readers < 9 else (0, 1, readers - 1))
    ]
    together = sorted(itertools.chain(*read))
    assert len(set(together)) == len(together)
    if readers < 9:
        assert together == list(range(ROWS))
    assert all(read)


def test_labels_are_set_apart(run: Path) -> None:
    for label in (True, "delay"):
        features, delay = make_dataset(run, 50, label=label).element_spec
        assert "delay" not in features
        assert delay == tf.TensorSpec([50], tf.float32)
    assert sorted(ids(make_dataset(run, 50, label=True))) == list(range(ROWS))
    assert "delay" in make_dataset(run, 50, label=None).element_spec
    with pytest.raises(UsageError, match="no feature 'dela'; did you mean delay"):
        make_dataset(run, 50, label="dela")


def test_keras_trains_on_it(tmp_path: Path) -> None:
    write_run(tmp_path, *flights(ROWS), layout="blocks")
    inputs = {name: tf.keras.Input([], name=name, dtype="float32") for name in ("day", "id")}
    joined = tf.keras.layers.Concatenate()([tf.keras.layers.Reshape([1])(value) for value in inputs.values()])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(joined))
    model.compile("sgd", "mse")
    dataset = make_dataset(tmp_path, 64, label=True).map(
        lambda features, label: ({name: tf.cast(features[name], tf.float32) / 500 for name in inputs}, label)
    )
    history = model.fit(dataset, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_a_strategy_gets_batches_of_a_known_size(tmp_path: Path) -> None:
    write_run(tmp_path, *flights(ROWS), layout="packed")
    cpu = tf.config.list_logical_devices("CPU")[0].name
    strategy = tf.distribute.MirroredStrategy([cpu])
    found = []
    for batch in strategy.experimental_distribute_dataset(make_dataset(tmp_path, 50)):
        local = strategy.experimental_local_results(batch["id"])
        assert [part.shape[0] for part in local] == [50]
        found += np.concatenate(local).tolist()
    assert sorted(found) == list(range(ROWS))

    def of_context(context: tf.distribute.InputContext) -> tf.data.Dataset:
        readers, index = context.num_input_pipelines, context.input_pipeline_id
        return make_dataset(tmp_path, 50, num_readers=readers, reader_index=index)

    distributed = strategy.distribute_datasets_from_function(of_context)
    assert sorted(row for batch in distributed for row in batch["id"].numpy()) == list(range(ROWS))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compressed_shards_are_read(tmp_path: Path, layout: str, compression: Any) -> None:
    write_run(tmp_path, *flights(100), layout=layout, compression=compression)
    assert sorted(ids(make_dataset(tmp_path, 10))) == list(range(100))


@pytest.mark.parametrize("layout", ["rows", "packed"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_what_may_be_missing_is_ragged_or_filled(tmp_path: Path, layout: str, shuffle: bool) -> None:
    batch, features = with_optional(*flights(100))
    write_run(tmp_path, batch, features, layout=layout)
    found = {}
    for read in make_dataset(tmp_path, 8, shuffle=shuffle, drop_remainder=False):
        assert isinstance(read["maybe"], tf.RaggedTensor)
        for place, row in enumerate(read["id"].numpy()):
            found[int(row)] = (read["maybe"][place].numpy().tolist(), read["words"][place].numpy().tolist())
    assert found == {row: ([row / 2] * (row % 3 > 0), [b"w%d" % row] * (row % 3)) for row in range(100)}
    filled = make_dataset(tmp_path, 100, shuffle=shuffle, defaults={"maybe": -1.0})
    assert filled.element_spec["maybe"] == tf.TensorSpec([100], tf.float32)
    (read,) = filled
    wanted = np.where(read["id"] % 3 > 0, read["id"] / 2, -1)
    assert np.array_equal(read["maybe"], wanted.astype(np.float32))


def test_features_that_are_always_there_need_no_default(run: Path) -> None:
    with pytest.raises(UsageError, match="'day' is no feature that can be missing"):
        make_dataset(run, 8, defaults={"day": 0})


def test_the_manifest_is_believed_and_nothing_else(tmp_path: Path) -> None:
    batch, features = flights(50)
    folder = write_run(tmp_path, batch, features)
    stranger = folder / "train" / "part-00003-of-00004.tfrecord"
    write_shard(stranger, make_layout("rows", features=features).encode_array(batch))
    for place in (tmp_path, str(tmp_path), folder, f"{folder}/", folder / "manifest.json"):
        assert sorted(ids(make_dataset(place, 50))) == list(range(50))


def test_what_is_not_there_is_named(tmp_path: Path, run: Path) -> None:
    with pytest.raises(UsageError, match=r"no committed run .* and no output folder"):
        make_dataset(tmp_path, 8)
    (tmp_path / "LATEST").write_text("gone\n")
    with pytest.raises(UsageError, match=r"run=gone is no committed run"):
        make_dataset(tmp_path, 8)
    with pytest.raises(UsageError, match=r"no shard of split 'evl'"):
        make_dataset(run, 8, split="evl")
    with pytest.raises(UsageError, match=r"too few rows for one batch of 501"):
        make_dataset(run, 501)
    assert len(ids(make_dataset(run, 501, drop_remainder=False))) == ROWS
    assert len(ids(make_dataset(run, 501, repeat=True).take(1))) == 501
    with pytest.raises(UsageError, match="batch_size must be at least 1"):
        make_dataset(run, 0)


def test_a_label_must_be_the_only_one(tmp_path: Path) -> None:
    write_run(tmp_path, *flights(9), labels=("day", "delay"))
    with pytest.raises(UsageError, match=r"names 2 labels: day, delay; say label='<feature>'"):
        make_dataset(tmp_path, 8, label=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, layout: str, compression: Any) -> None:
    folder = write_run(tmp_path, *flights(ROWS), layout=layout, compression=compression)
    path = folder / "train" / "part-00001-of-00003.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    for shuffle in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"file {path} is damaged or cut short"):
            ids(make_dataset(tmp_path, 8, shuffle=shuffle))


def test_files_are_checked_before_reading(tmp_path: Path) -> None:
    folder = write_run(tmp_path, *flights(30))
    path = folder / "train" / "part-00001-of-00003.tfrecord"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(HeadraceError, match=rf"{path} has {len(data) - 1} bytes, and should have {len(data)} \(man"):
        make_dataset(tmp_path, 8)
    path.unlink()
    with pytest.raises(HeadraceError, match=rf"{path} is missing, and the manifest names it"):
        make_dataset(tmp_path, 8)
    one = make_dataset(tmp_path, 8, num_readers=3, reader_index=0)
    assert len(ids(one)) == 8, "a reader looks at its own shards only"


def test_manifests_of_the_unknown_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, *flights(30))
    kept = json.loads((folder / "manifest.json").read_bytes())
    spec = kept["feature_spec"]
    for change, what in (
        ({"compression": "zstd"}, "compression 'zstd' is not known"),
        ({"feature_spec": spec | {"layout": {"name": "cubes", "rows_per_record": 1}}}, "layout 'cubes' is not known"),
        ({"feature_spec": spec | {"features": {"a": {"dtype": "int7", "shape": []}}}}, "feature_spec is damaged"),
    ):
        (folder / "manifest.json").write_text(json.dumps(kept | change))
        with pytest.raises(UsageError, match=what):
            make_dataset(tmp_path, 8)


def test_a_run_without_a_described_layout_holds_rows(tmp_path: Path) -> None:
    folder = write_run(tmp_path, *flights(30))
    kept = json.loads((folder / "manifest.json").read_bytes())
    del kept["feature_spec"]["layout"]
    (folder / "manifest.json").write_text(json.dumps(kept))
    assert sorted(ids(make_dataset(tmp_path, 10))) == list(range(30))


def write_window(output: Path, hour: int, batch: pa.RecordBatch, features: Any, *, committed: bool = True) -> None:
    """A window of a stream, by hand: two shards in blocks."""
    folder = output / f"window=20240501T{hour:02}0000Z_20240501T{hour + 1:02}0000Z"
    how = make_layout("blocks", features=features, rows_per_record=4)
    shards = []
    for index, (start, stop) in enumerate([(0, 5), (5, batch.num_rows)]):
        records = how.encode_array(batch.slice(start, stop - start))
        data = write_shard(folder / f"part-{index}-abc.tfrecord", records)
        name = f"part-{index}-abc.tfrecord"
        shards.append({"name": name, "rows": stop - start, "records": len(records), "bytes": len(data)})
    spec = {"features": features, "labels": ["delay"], "layout": how.describe()}
    if committed:
        manifest = {"feature_spec": spec, "compression": "none", "shards": shards}
        (folder / "manifest.json").write_text(json.dumps(manifest))


def test_windows_of_a_stream_are_read_by_time(tmp_path: Path) -> None:
    batch, features = flights(60)
    for hour in range(6):
        write_window(tmp_path, hour, batch.slice(hour * 10, 10), features, committed=hour != 3)

    def read(start: str, end: str, **how: Any) -> list[int]:
        windows = (f"2024-05-01T{start}Z", f"2024-05-01T{end}Z")
        return ids(make_dataset(tmp_path, 5, windows=windows, drop_remainder=False, **how))

    assert read("01:00", "03:00", shuffle=False) == list(range(10, 30))
    assert sorted(read("00:30", "05:59")) == [*range(10, 30), *range(40, 50)], "3 is not committed, 0 and 5 stick out"
    shared = [read("00:00", "06:00", num_readers=3, reader_index=reader) for reader in range(3)]
    assert sorted(itertools.chain(*shared)) == [*range(30), *range(40, 60)]
    with pytest.raises(UsageError, match=r"holds no committed window inside .*1 without a manifest"):
        read("03:00", "04:00")
    with pytest.raises(UsageError, match="there is no folder"):
        make_dataset(tmp_path / "no", 5, windows=("2024-05-01T00:00Z", "2024-05-02T00:00Z"))


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_raw_rows_come_back_as_a_multiset(
    layout: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any number of rows, shards, rows a record, rows a batch, readers."""
    rows = data.draw(st.integers(1, 700), label="rows")
    shards = data.draw(st.integers(1, min(4, rows)), label="shards")
    size = data.draw(st.integers(1, 300), label="rows_per_record")
    batch_size = data.draw(st.integers(1, 800), label="batch_size")
    output = tmp_path_factory.mktemp("run")
    folder = write_run(output, *flights(rows), layout=layout, shards=shards, rows_per_record=size)
    records = sum(s["records"] for s in json.loads((folder / "manifest.json").read_bytes())["shards"])
    readers = data.draw(st.integers(1, min(4, records)), label="readers")
    read = [
        ids(make_dataset(output, batch_size, drop_remainder=False, num_readers=readers, reader_index=reader))
        for reader in range(readers)
    ]
    assert sorted(itertools.chain(*read)) == list(range(rows))
