"""The reference trainer learns, and what it exports sees raw rows exactly as training saw them."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from pipeline.core.manifest import Manifest
from pipeline.features.reader import make_dataset
from pipeline.main import main

ROOT = Path(__file__).resolve().parents[2]
LABEL = "arr_delay"

SCHEMA = """
feature { name: "arr_delay" type: INT presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "dep_delay" type: INT presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "hour" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "carrier" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "tailnum" type: BYTES presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "time_hour" type: BYTES presence { min_fraction: 1 } shape {} }
"""
FEATURES = """
arr_delay: [{label: {missing: reject}}, {cast: {to: float}}]
dep_delay: [{fill_missing: {with: mean, missing_indicator: true}}, {scale_to_z_score: {}}]
hour: {scale_to_0_1: {}}
carrier: {vocabulary: {num_oov_buckets: 1}}
tailnum: [{fill_missing: {value: unknown}}, {hash_strings: {hash_buckets: 50}}]
time_hour: {time_parts: {parts: [hour, day_of_week]}}
"""


def raw_rows(count: int) -> list[dict[str, object]]:
    """Rows whose label follows from the features; some lack what may be missing."""
    draw = random.Random(7)
    rows = []
    for number in range(count):
        delay = draw.randrange(-10, 60)
        rows.append(
            {
                "arr_delay": delay + 3,
                "dep_delay": None if number % 7 == 0 else delay,
                "hour": number % 24,
                "carrier": draw.choice(["UA", "AA", "B6"]),
                "tailnum": None if number % 11 == 0 else f"N{number % 90}",
                "time_hour": f"2013-01-{number % 28 + 1:02d}T{number % 24:02d}:00:00Z",
            }
        )
    return rows


def example_of(row: dict[str, object]) -> bytes:
    """A raw row as a client would send it: a tf.Example without the label and without what is missing."""
    features = {}
    for name, value in row.items():
        if value is None or name == LABEL:
            continue
        if isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[str(value).encode()]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_example", ROOT / "scripts" / "train_example.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_serving_sees_what_training_saw(trainer: ModuleType, tmp_path: Path) -> None:
    rows = raw_rows(3000)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    (tmp_path / "features.yaml").write_text(FEATURES)
    flags = [f"--{name}={tmp_path / file}" for name, file in (
        ("input", "rows.jsonl"), ("schema", "schema.pbtxt"), ("features", "features.yaml"),
        ("output", "out"), ("dead_letters", "dead"),
    )]  # fmt: skip
    assert main(["run", *flags, "--run_id=r", "--shuffle=none", "--layout=blocks"]) == 0
    run = str(tmp_path / "out" / "run=r")
    manifest = Manifest.from_json(Path(run, "manifest.json").read_bytes())

    model, history = trainer.train(run, manifest, epochs=3, batch_size=100, steps=None)
    assert history[-1]["loss"] < history[0]["loss"]
    trainer.export(model, run, str(tmp_path / "model"))

    served = tf.saved_model.load(str(tmp_path / "model"))
    examples = tf.constant([example_of(row) for row in rows])
    seen = served.signatures["transform"](examples=examples)
    trained = next(iter(make_dataset(run, len(rows), shuffle=False, label=LABEL)))[0]
    assert sorted(seen) == sorted(trained)
    for name, tensor in trained.items():
        assert seen[name].dtype == tensor.dtype, name
        # floats differ in the last bit with a row's place in its batch; whole numbers must not differ at all
        compare = np.testing.assert_array_equal if tensor.dtype != tf.float32 else np.testing.assert_allclose
        compare(
            seen[name].numpy(),
            tensor.numpy(),
            err_msg=name,
            **({"rtol": 1e-6, "atol": 1e-7} if tensor.dtype == tf.float32 else {}),
        )
    predicted = served.signatures["serving_default"](examples=examples)[LABEL]
    np.testing.assert_allclose(predicted, model(trained), rtol=1e-3, atol=1e-3)
