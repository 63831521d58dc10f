"""Shards to a tf.data.Dataset of batches of named tensors, the same from any layout; found by manifests alone.

    from pipeline.features.reader import make_dataset
    dataset = make_dataset("gs://bucket/out", 1024, label=True)     # (features, label) of OUTPUT's latest run
    model.fit(dataset, epochs=3)                                    # every epoch in another order

One pipeline for all layouts: units (a block, or a run of 128 records) are read from several shards in turn, shuffled
in a buffer and gathered into groups of about 4,096 rows; a group is parsed by one operation, its rows are
permuted, and it is cut into batches. So nothing is paid for each row, and little for each record.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipeline.core import reading
from pipeline.core.errors import UsageError
from pipeline.core.reading import Portion, Source
from pipeline.core.seeds import seed_of
from pipeline.features import sources
from pipeline.features.parsing import Parser, Tensors, make_parser
from pipeline.features.sources import Times

_UNIT_RECORDS = 128  # 32 cost a fifth more to read (packed), more mix worse; of blocks each record is a unit
_GROUP_ROWS, _GROUP_UNITS = 4096, 4  # at least: large enough to mix, small enough for the processor's cache
_CYCLE_LENGTH = 8
_REMOTE_BUFFER_BYTES = 8 << 20  # a request to object storage has to be worth its latency


@dataclass(frozen=True)
class _Shuffle:
    """How to shuffle: ``rows`` in the buffer, ``shards`` read at a time."""

    seed: int
    rows: int
    shards: int

    def seed_of(self, what: str) -> int:
        """A seed for one of the levels, as tf.data takes it."""
        return seed_of(what, self.seed) % (2**31 - 1)


def make_dataset(
    run_dir_or_manifest: str | os.PathLike[str],
    batch_size: int,
    *,
    split: str = "train",
    shuffle: bool = True,
    seed: int = 0,
    num_readers: int = 1,
    reader_index: int = 0,
    label: str | bool | None = None,
    repeat: bool = False,
    drop_remainder: bool = True,
    windows: Times | None = None,
    defaults: Mapping[str, Any] | None = None,
    shuffle_buffer: int | None = None,
    cycle_length: int = _CYCLE_LENGTH,
    prefetch: int = tf.data.AUTOTUNE,
) -> tf.data.Dataset:
    """Batches of ``{feature: tensor}``, or of ``({feature: tensor}, label tensor)``.

    ``run_dir_or_manifest``: a run's folder, an output folder (its latest run is read), or a manifest.json; local or
    gs://. With ``windows=(start, end)`` it is the output folder of a stream, and all windows committed inside that
    time are read. No file is read that a manifest does not name.

    Tensors are [batch_size, *shape] of float32, int64 or string. Features that can be missing or vary in length
    are ragged, [batch_size, None]; ``defaults`` gives values instead for such as hold one value at most,
    which are then dense, [batch_size].

    ``label``: the feature to predict; True for the one that the manifest calls so.
    ``num_readers``, ``reader_index``: hosts that share the data; every row is read by exactly one of them.
    ``shuffle``: in an order decided by ``seed`` (and TensorFlow's global seed, if that is set), another one each
    epoch; without, in the order of the shards. ``shuffle_buffer`` counts rows (default: 65,536, or what fits
    64 MiB); ``cycle_length`` shards are read at a time.
    ``repeat``: epochs without end; a batch may hold the end of one and the start of the next.
    ``prefetch``: batches made ready ahead.

    Raises UsageError for what cannot be asked for, and HeadraceError for a shard that is missing or not of the size
    that the manifest says. Damage inside a shard raises tf.errors.InvalidArgumentError, which names the file,
    while the dataset is read.
    """
    _check_positive(batch_size=batch_size, cycle_length=cycle_length, shuffle_buffer=shuffle_buffer or 1)
    source = sources.open_source(os.fspath(run_dir_or_manifest), windows)
    parser = make_parser(source.feature_spec, where=source.where, defaults=defaults)
    target = sources.label_of(source, label)
    portions = sources.portions_of(source, split, num_readers=num_readers, reader_index=reader_index)
    batches = None if repeat else _count_batches(portions, parser, batch_size=batch_size, whole=drop_remainder)
    if batches == 0:
        raise UsageError(
            f"{source.where}: too few rows for one batch of {batch_size}; "
            "use a smaller batch_size, or drop_remainder=False"
        )
    order = None
    if shuffle:
        order = _Shuffle(seed, shuffle_buffer or _buffer_rows(source, portions), cycle_length)
    units = _units(portions, parser, compression=sources.compression_of(source), order=order)
    groups = _groups(units, parser, batch_size=batch_size, order=order)
    if repeat:  # here, so that a group holds rows of one epoch
        groups = groups.repeat()
    dataset = _batches(groups, _Finish(parser, target, shuffled=shuffle), batch_size=batch_size, whole=drop_remainder)
    if batches is not None or repeat:
        count = tf.data.INFINITE_CARDINALITY if batches is None else batches
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(prefetch).with_options(_options())


def _check_positive(**given: int) -> None:
    for name, value in given.items():
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # num_readers divides the data; tf.distribute must not divide it a second time.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _buffer_rows(source: Source, portions: tuple[Portion, ...]) -> int:
    shards = [portion.shard for portion in portions]
    return reading.buffer_rows(shards, compressed=source.compression != "none")


def _count_batches(portions: tuple[Portion, ...], parser: Parser, *, batch_size: int, whole: bool) -> int | None:
    """How many batches an epoch has; None where that is known only by reading, and not yet known to be 0."""
    counts = [portion.rows(parser.rows_per_record) for portion in portions]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        most = sum(portion.records for portion in portions) * parser.rows_per_record
        return 0 if whole and most < batch_size else None
    return sum(known) // batch_size if whole else math.ceil(sum(known) / batch_size)


def _unit_records(parser: Parser) -> int:
    return max(1, _UNIT_RECORDS // parser.rows_per_record)


def _units(
    portions: tuple[Portion, ...], parser: Parser, *, compression: str, order: _Shuffle | None
) -> tf.data.Dataset:
    """Serialised records, [up to unit] at a time, in the order of an epoch: shards shuffled, units shuffled."""
    size = _unit_records(parser)
    uris = [portion.shard.uri for portion in portions]
    counts = [math.ceil(portion.records / size) for portion in portions]
    files = tf.data.Dataset.from_tensor_slices((uris, tf.constant(counts, tf.int64)))
    if order:
        files = files.shuffle(len(uris), seed=order.seed_of("shards"))
    read = _ReadShard(size, compression, part=(portions[0].index, portions[0].of), remote="://" in uris[0])
    units = files.interleave(
        read, cycle_length=min(order.shards, len(uris)) if order else 1, num_parallel_calls=tf.data.AUTOTUNE
    )
    if order:
        buffered = math.ceil(order.rows / (size * parser.rows_per_record))
        units = units.shuffle(max(2, buffered), seed=order.seed_of("units"))
    return units


@dataclass(frozen=True)
class _ReadShard:
    """The units of one shard. Where records are damaged or missing, the last unit is a text that is no record.

    Parsing it fails, and TensorFlow's error quotes it. (Its error for the damage itself names no file; it is logged.)
    """

    unit_records: int
    compression: str
    part: tuple[int, int]
    remote: bool

    def __call__(self, uri: tf.Tensor, units: tf.Tensor) -> tf.data.Dataset:
        """Exactly ``units`` units of the file."""
        buffer = _REMOTE_BUFFER_BYTES if self.remote else None
        records = tf.data.TFRecordDataset(uri, compression_type=self.compression, buffer_size=buffer)
        index, of = self.part
        if of > 1:
            records = records.shard(of, index)
        # An "f" is no beginning of a protocol buffer: it would be a field of wire type 6, which there is not.
        told = tf.strings.join(
            [
                "file ",
                uri,
                " is damaged or cut short: fewer records can be read than the manifest says; headrace verify",
            ]
        )
        end = tf.data.Dataset.from_tensors(told[tf.newaxis])
        return records.batch(self.unit_records).ignore_errors(log_warning=True).concatenate(end).take(units)


def _groups(units: tf.data.Dataset, parser: Parser, *, batch_size: int, order: _Shuffle | None) -> tf.data.Dataset:
    """(serialised records, seed): the records of a batch at least, and a random number to permute their rows by."""
    rows = max(_GROUP_ROWS, batch_size)
    records = max(_GROUP_UNITS * _unit_records(parser), math.ceil(rows / parser.rows_per_record))
    if order:
        seeds = tf.data.Dataset.random(order.seed_of("rows"), rerandomize_each_iteration=True)
    else:
        seeds = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat()
    return tf.data.Dataset.zip((units.rebatch(records), seeds))


@dataclass(frozen=True)
class _Finish:
    """What is done to records on their way to a batch: parsing, permuting rows, setting the label apart."""

    parser: Parser
    label: str | None
    shuffled: bool

    def permute(self, records: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The records of a group in another order."""
        return tf.gather(records, self._order(tf.shape(records)[0], seed)) if self.shuffled else records

    def parse(self, records: tf.Tensor) -> Any:
        """Records to features, or to (features, label)."""
        return self._apart(self.parser.parse(records))

    def parse_and_permute(self, records: tf.Tensor, seed: tf.Tensor) -> Any:
        """The records of a group to features, or to (features, label), of all their rows in another order."""
        tensors = self.parser.parse(records)
        if self.shuffled:
            order = self._order(tf.shape(next(iter(tensors.values())))[0], seed)
            tensors = {name: tf.gather(tensor, order) for name, tensor in tensors.items()}
        return self._apart(tensors)

    def _order(self, rows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(tf.range(rows), tf.stack([seed, 0]))

    def _apart(self, tensors: Tensors) -> Any:
        return (tensors, tensors.pop(self.label)) if self.label else tensors


def _batches(groups: tf.data.Dataset, finish: _Finish, *, batch_size: int, whole: bool) -> tf.data.Dataset:
    """Parse groups and cut them into batches. Ragged tensors cannot be cut, so there it is the other way round."""
    if finish.parser.ragged:
        permuted = groups.map(finish.permute, num_parallel_calls=tf.data.AUTOTUNE)
        records = permuted.rebatch(batch_size, drop_remainder=whole)
        return records.map(finish.parse, num_parallel_calls=tf.data.AUTOTUNE)
    rows = groups.map(finish.parse_and_permute, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.rebatch(batch_size, drop_remainder=whole)
