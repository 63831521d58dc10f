"""What a trainer pays to read our shards with tf.data: as most people write it, a batch at a time, with our reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

BATCH_ROWS = 1024
_BATCHES_A_CALL = 16


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
    records = tf.data.TFRecordDataset(found).repeat()
    return records.map(lambda record: tf.io.parse_single_example(record, spec)).batch(BATCH_ROWS)


def batchwise(run_output: str) -> tf.data.Dataset:
    """Batches of records, then one parse_example a batch."""
    found = shards(run_output)
    spec = feature_spec(found[0])
    records = tf.data.TFRecordDataset(found).repeat()
    return records.batch(BATCH_ROWS).map(lambda batch: tf.io.parse_example(batch, spec))


def ours(run_output: str) -> tf.data.Dataset:
    """Our reader as it comes: shuffled, epoch after epoch."""
    from pipeline.features.reader import make_dataset

    return make_dataset(run_output, BATCH_ROWS, repeat=True)


WAYS = {way.__name__: way for way in (one_by_one, batchwise, ours)}


class Reading:
    """Reads the shards under ``shards`` over and over in one of the ``WAYS``; ``rows`` were read.

    Making one reads for ``warm_up`` seconds from the first batch on; ``run`` then reads for ``seconds``. Batches
    are taken some at a time inside a tf.function, as model.fit does it with steps_per_execution: taking each in
    Python costs more than a batch of the blocks layout does.
    """

    def __init__(self, *, way: str, shards: str, seconds: float, warm_up: float) -> None:
        batches = iter(WAYS[way](shards))
        self._take = tf.function(lambda: _take(batches))
        self._seconds = seconds
        self._take()
        self._read(warm_up)
        self.rows = 0

    def run(self) -> None:
        """Read for the time given."""
        self.rows = self._read(self._seconds)

    def _read(self, seconds: float) -> int:
        end, rows = time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            rows += int(self._take())
        return rows


def _take(batches: Iterator[dict[str, tf.Tensor]]) -> tf.Tensor:
    """Take some batches; the number of their rows."""
    rows = tf.constant(0, tf.int64)
    for _ in range(_BATCHES_A_CALL):
        rows += tf.shape(next(iter(next(batches).values())), tf.int64)[0]
    return rows
