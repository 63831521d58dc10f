"""Measuring readers on a committed run: ours, and the one that most people write, on the same files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipeline.core.advice import Reading, wait_share
from pipeline.features.parsing import Parser


@dataclass(frozen=True)
class Limits:
    """When to stop: the end of an epoch, or so many seconds, whichever comes first."""

    seconds: float = 10.0
    batch_size: int = 1024


def measure(dataset: tf.data.Dataset, limits: Limits, *, bytes_per_row: float) -> Reading:
    """Read ``dataset`` (batches) as fast as it goes; the time to the first batch is told apart."""
    start = time.perf_counter()
    batches = iter(dataset)
    first = next(batches, None)
    begun = time.perf_counter()
    if first is None:
        return Reading(0, 0, 0.0, begun - start, 0)
    rows, count = rows_of(first), 1
    counted = 0
    for batch in batches:
        counted += rows_of(batch)
        count += 1
        if time.perf_counter() - begun > limits.seconds:
            break
    seconds = time.perf_counter() - begun
    if not counted:  # all there is fits into one batch
        return Reading(rows, count, begun - start, begun - start, round(rows * bytes_per_row))
    return Reading(counted, count - 1, seconds, begun - start, round(counted * bytes_per_row))


def measure_waits(dataset: tf.data.Dataset, limits: Limits, *, step_seconds: float) -> float:
    """The wait share of an accelerator that works ``step_seconds`` on each batch and then asks for the next.

    The first batch (start-up) is left out: a training run pays it once.
    """
    batches = iter(dataset)
    if next(batches, None) is None:
        return 0.0
    waited = steps = 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < limits.seconds:
        _sleep(step_seconds)
        asked = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            break
        waited += time.perf_counter() - asked
        steps += step_seconds
    return wait_share(waited, steps)


def _sleep(seconds: float) -> None:
    """Stand in for the accelerator's step: this host's processor is free meanwhile, as it is in training."""
    time.sleep(seconds)


def rows_of(batch: Any) -> int:
    """Rows in a batch: the first dimension of any of its tensors."""
    features = batch[0] if isinstance(batch, tuple) else batch
    tensor = next(iter(features.values()))
    return int(tensor.shape[0] if tensor.shape[0] is not None else tf.shape(tensor)[0])


def naive_dataset(uris: list[str], parser: Parser, *, batch_size: int, compression: str) -> tf.data.Dataset:
    """The reader most people write: one file after the other, one record at a time is parsed, then batched.

    Records of several rows are parsed one by one and taken apart row by row. Ragged features are made dense per batch.
    """
    kind = "" if compression == "none" else compression.upper()
    rows = tf.data.TFRecordDataset(uris, compression_type=kind).map(_Single(parser))
    if parser.blocks:
        rows = rows.flat_map(tf.data.Dataset.from_tensor_slices)
    return rows.ragged_batch(batch_size) if parser.ragged else rows.batch(batch_size)


@dataclass(frozen=True)
class _Single:
    parser: Parser

    def __call__(self, record: tf.Tensor) -> dict[str, tf.Tensor]:
        """One record to its features; to all rows of each feature where a record holds several."""
        if self.parser.blocks:
            return dict(self.parser.parse(record[tf.newaxis]))
        return dict(tf.io.parse_single_example(record, self.parser.record_spec()))
