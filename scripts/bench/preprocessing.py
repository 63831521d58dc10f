"""features.yaml as a TFT preprocessing_fn, the way users of tensorflow-transform write one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

Z_SCORES = (
    "year",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "flight",
    "air_time",
    "distance",
)
TO_0_1 = ("month", "day", "hour", "minute")
VOCABULARIES = {"carrier": None, "origin": None, "dest": None, "tailnum": 2000}


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Raw flights in, model features out; a missing number becomes 0, a missing tail number ``unknown``."""
    outputs = {}
    for name in Z_SCORES:
        outputs[name] = tft.scale_to_z_score(tf.cast(_filled(inputs[name], 0), tf.float32))
    for name in TO_0_1:
        outputs[name] = tft.scale_to_0_1(tf.cast(inputs[name], tf.float32))
    for name, top_k in VOCABULARIES.items():
        outputs[name] = tft.compute_and_apply_vocabulary(
            _filled(inputs[name], "unknown"), top_k=top_k, num_oov_buckets=1, vocab_filename=name
        )
    outputs["time_hour"] = tft.hash_strings(inputs["time_hour"], 1000)
    outputs["arr_delay"] = tf.cast(_filled(inputs["arr_delay"], 0), tf.float32)
    return outputs


def _filled(x: Any, default: int | str) -> tf.Tensor:
    """The tensor dense, as TFX's own taxi example does it."""
    if not isinstance(x, tf.sparse.SparseTensor):
        return x
    one_column = tf.SparseTensor(x.indices, x.values, [x.dense_shape[0], 1])
    return tf.squeeze(tf.sparse.to_dense(one_column, tf.constant(default, x.dtype)), axis=1)
