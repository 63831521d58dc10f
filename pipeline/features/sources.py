"""What there is to read, through TensorFlow's own file systems: manifests, windows, and whether shards are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

import tensorflow as tf

from pipeline.core import reading
from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.manifest import Manifest
from pipeline.core.names import MANIFEST
from pipeline.core.reading import Portion, Source
from pipeline.core.schema_text import nearest
from pipeline.core.verify import window_in

Times = tuple[str | datetime, str | datetime]
"""A time range: RFC 3339 texts, or datetimes with a time zone; the end is not in it."""

_THREADS = 16  # requests to object storage take 20 to 50 ms each
_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def open_source(location: str, windows: Times | None = None) -> Source:
    """The run or window at ``location`` (its folder, its manifest, an output folder), or windows of a stream's output.

    Raises UsageError where there is none, or where its manifest is damaged.
    """
    if windows is not None:
        return _open_windows(location, *windows)
    folder = location.removesuffix(MANIFEST).rstrip("/") or "/" if location.endswith("/" + MANIFEST) else location
    if location == MANIFEST:
        folder = "."
    if window_in(folder) and (window := _open_window(folder.rstrip("/"))):
        return window
    run = reading.find_run(folder, exists=_exists, read_bytes=_read_bytes)
    uri = f"{run.rstrip('/')}/{MANIFEST}"
    try:
        return Source.of_run(Manifest.from_json(_read_bytes(uri), uri), run)
    except FileNotFoundError:
        raise UsageError(f"{run} is no committed run: {MANIFEST} is missing") from None


def _open_windows(folder: str, start: str | datetime, end: str | datetime) -> Source:
    try:
        names = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        raise UsageError(f"there is no folder {folder}") from None
    folders = [f"{folder.rstrip('/')}/{name}" for name in reading.windows_inside(names, start, end)]
    found = [source for source in _at_once(_open_window, folders) if source]
    if not found:
        raise UsageError(
            f"{folder} holds no committed window inside {start} to {end} "
            f"({len(folders)} without a manifest); a window counts if all of it lies inside"
        )
    return reading.merged(found, folder)


def _open_window(folder: str) -> Source | None:
    """The window in ``folder``; None for one that is not committed yet."""
    try:
        return Source.of_window(_read_bytes(f"{folder}/{MANIFEST}"), folder)
    except FileNotFoundError:
        return None


def label_of(source: Source, label: str | bool | None) -> str | None:
    """The name of the label that is asked for. Raises UsageError for one that there is not."""
    if label is None or label is False:
        return None
    known = list(source.feature_spec.get("labels", ()))
    if label is True:
        if len(known) != 1:
            raise UsageError(
                f"{source.where} names {len(known)} labels{': ' if known else ''}{', '.join(known)}; "
                "say label='<feature>' instead of label=True"
            )
        return str(known[0])
    if label not in source.feature_spec["features"]:
        raise UsageError(f"{source.where}: no feature '{label}'; {nearest(label, source.feature_spec['features'])}")
    return label


def compression_of(source: Source) -> str:
    """The compression of the shards as TFRecordDataset takes it. Raises UsageError for one that it does not."""
    if source.compression not in _TYPES:
        raise UsageError(f"{source.where}: compression {source.compression[:50]!r} is not known to this headrace")
    return _TYPES[source.compression]


def portions_of(source: Source, split: str, *, num_readers: int, reader_index: int) -> tuple[Portion, ...]:
    """What one reader reads of a data split, every file there and of the right size.

    Raises UsageError for a split without rows or a reader that cannot be, HeadraceError naming a file that is wrong.
    """
    shards = source.of_split(split)
    if not shards:
        names = sorted({shard.split for shard in source.shards})
        raise UsageError(f"{source.where}: no shard of split '{split}'; {nearest(split, names)}")
    portions = reading.deal(shards, num_readers=num_readers, reader_index=reader_index)
    problems = [problem for problem in _at_once(_problem, portions) if problem]
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise HeadraceError(f"{problems[0]}{more} (manifest: {source.where})")
    return portions


def _problem(portion: Portion) -> str | None:
    shard = portion.shard
    try:
        size = tf.io.gfile.stat(shard.uri).length
    except tf.errors.NotFoundError:
        return f"{shard.uri} is missing, and the manifest names it"
    return None if size == shard.size_bytes else f"{shard.uri} has {size} bytes, and should have {shard.size_bytes}"


def _exists(uri: str) -> bool:
    return bool(tf.io.gfile.exists(uri))


def _read_bytes(uri: str) -> bytes:
    try:
        with tf.io.gfile.GFile(uri, "rb") as stream:
            return stream.read()  # type: ignore[no-any-return]
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(uri) from error


def _at_once(function: Callable[[_In], _Out], items: Iterable[_In]) -> Sequence[_Out]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))
