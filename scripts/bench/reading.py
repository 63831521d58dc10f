"""What a trainer pays to read our rows shards with tf.data: an Example at a time, or a batch at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

BATCH_ROWS = 1024


def shards(run_output: str) -> list[str]:
    """The shard files of the run folders under ``run_output``."""
    return sorted(str(path) for path in Path(run_output).glob("run=*/*/*.tfrecord"))


def feature_spec(shard: str) -> dict[str, Any]:
    """A parsing spec for the Examples of ``shard``, from its first one: every feature a scalar."""
    kinds = {"bytes_list": tf.string, "float_list": tf.float32, "int64_list": tf.int64}
    first = next(iter(tf.data.TFRecordDataset(shard).take(1))).numpy()
    features = tf.train.Example.FromString(first).features.feature
    return {name: tf.io.FixedLenFeature([], kinds[value.WhichOneof("kind")]) for name, value in features.items()}


def one_by_one(run_output: str) -> tf.data.Dataset:
    """parse_single_example on every record, then batches: what most people write."""
    found = shards(run_output)
    spec = feature_spec(found[0])
    return tf.data.TFRecordDataset(found).map(lambda record: tf.io.parse_single_example(record, spec)).batch(BATCH_ROWS)


def batchwise(run_output: str) -> tf.data.Dataset:
    """Batches of records, then one parse_example a batch."""
    found = shards(run_output)
    spec = feature_spec(found[0])
    return tf.data.TFRecordDataset(found).batch(BATCH_ROWS).map(lambda records: tf.io.parse_example(records, spec))


class Reading:
    """Reads the shards under ``shards`` in one of the two ways, up to ``limit`` rows; ``rows`` were read."""

    def __init__(self, *, way: str, shards: str, limit: int) -> None:
        self._dataset = {"one_by_one": one_by_one, "batchwise": batchwise}[way](shards)
        self._limit = limit
        self.rows = 0

    def run(self) -> None:
        """Read up to the limit."""
        for batch in self._dataset:
            self.rows += int(next(iter(batch.values())).shape[0])
            if self.rows >= self._limit:
                break
