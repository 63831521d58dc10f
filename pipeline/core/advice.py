"""Advice that follows from measuring a reader: what to change so that the accelerator does not wait. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from pipeline.core.records import Json

KEEPS_UP = 0.02
"""A wait share below this is noise: an accelerator that waits 2% of the time is kept busy."""

SMALL_SHARD_BYTES = 16 << 20
LARGE_SHARD_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """One reader, measured: ``seconds`` for ``rows`` in ``batches``, ``first_batch_seconds`` until the first was there.

    ``file_bytes`` are those of the shards that stand for the rows read.
    """

    rows: int
    batches: int
    seconds: float
    first_batch_seconds: float
    file_bytes: int

    @property
    def rows_per_second(self) -> float:
        """Rows a second, the time to the first batch left out."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> Json:
        """The reading and its rates."""
        rate = 1 / self.seconds if self.seconds > 0 else 0.0
        return asdict(self) | {
            "rows_per_second": round(self.rows_per_second),
            "batches_per_second": round(self.batches * rate, 1),
            "megabytes_per_second": round(self.file_bytes * rate / 1e6, 1),
        }


@dataclass(frozen=True, slots=True)
class Shape:
    """What was read: layout, compression, shards of the split and their bytes, cores of this machine."""

    layout: str
    compression: str
    shards: int
    shard_bytes: int
    cores: int
    packable: bool = True
    """Whether every feature has a fixed shape, so that ``blocks`` would take it."""


def wait_share(wait_seconds: float, step_seconds: float) -> float:
    """The share of its time that an accelerator waits: wait / (wait + step)."""
    total = wait_seconds + step_seconds
    return wait_seconds / total if total > 0 else 0.0


def advise(shape: Shape, *, share: float | None, compute_share: float | None = None) -> list[str]:
    """Sentences, the most useful first. ``share`` is the measured wait share with a step, or None without one.

    ``compute_share`` is the part of the reading time in which all cores were busy, where it was measured.
    """
    if share is not None and share < KEEPS_UP:
        return [f"The input keeps up: an accelerator with this step waits {share:.1%} of the time. Change nothing."]
    return [*_layout_advice(shape), *_compression_advice(shape, compute_share), *_shard_advice(shape)] or [
        "The layout is the fastest there is and shards are of a good size: read on more hosts (num_readers) or cores."
    ]


def _layout_advice(shape: Shape) -> Iterator[str]:
    if shape.layout == "rows" and shape.packable:
        yield "Write with --layout=blocks: a record a row costs most of this time, and every shape is fixed."
    elif shape.layout == "rows":
        yield "Write with --layout=packed: numbers of fixed shape become two vectors, the rest stays as it is."
    elif shape.layout == "packed" and shape.packable:
        yield "Write with --layout=blocks: 256 rows a record are parsed in one go."


def _compression_advice(shape: Shape, compute_share: float | None) -> Iterator[str]:
    if shape.compression != "none" and (compute_share is None or compute_share > 0.5):
        yield f"Write with --compression=none: decompressing {shape.compression} is work for the cores that parse."


def _shard_advice(shape: Shape) -> Iterator[str]:
    mean = shape.shard_bytes / shape.shards if shape.shards else 0
    if shape.shards < shape.cores:
        yield (
            f"Write at least {shape.cores} shards a split (--min_shards={shape.cores}): there are {shape.shards}, "
            f"and {shape.cores} cores read one each."
        )
    elif mean and mean < SMALL_SHARD_BYTES:
        yield f"Write fewer, larger shards (--target_shard_bytes=128MiB): a mean of {mean / 1e6:.1f} MB is many opens."
    elif mean > LARGE_SHARD_BYTES:
        yield f"Write smaller shards (--target_shard_bytes=128MiB): a mean of {mean / 1e6:.0f} MB shuffles coarsely."
