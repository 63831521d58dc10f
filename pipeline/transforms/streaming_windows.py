"""Chunks in, shards and window manifests out: the two steps of a stream that write what trainers read.

Both may be repeated at any point, and both take whatever comes however late it is: a chunk for a window that has
closed becomes a further shard, and the manifest is written again with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import google_crc32c
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from pipeline.core.codec import decode_chunk, decode_entry, encode_entry, framed_bytes
from pipeline.core.compression import Compression, compressor
from pipeline.core.manifest import Code, ShardEntry
from pipeline.core.messages import WindowedChunk
from pipeline.core.names import MANIFEST, WindowShardName, aside_name
from pipeline.core.records import Json
from pipeline.core.windows import SPLIT, WindowManifest, shard_due, window_name
from pipeline.transforms import files, names
from pipeline.transforms.tally import Tally

_TICK_US = 1000  # timers are kept to the millisecond


@dataclass(frozen=True)
class WindowSettings:
    """Where and how windows are written, and what their manifests say."""

    output: str
    window_seconds: int
    allowed_lateness_seconds: int
    target_shard_bytes: int
    compression: Compression
    layout: str
    job_name: str
    code: Code
    schema_fingerprint: str
    transform_fingerprint: str | None
    feature_spec: Json = field(hash=False)

    @property
    def kind(self) -> int:
        """64 bits of a digest of what chunks and windows must have in common to be written together."""
        said = json.dumps([self.window_seconds, self.layout, self.feature_spec], sort_keys=True)
        return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "big")

    def folder(self, start: int) -> str:
        """The folder of the window from ``start``."""
        return files.join(self.output, str(window_name(start, self.window_seconds)))

    def closing(self, start: int) -> Timestamp:
        """The end of the window from ``start``."""
        return Timestamp(start + self.window_seconds)

    def manifest(self, start: int) -> WindowManifest:
        """The manifest of the window from ``start``, without shards."""
        return WindowManifest(
            window=window_name(start, self.window_seconds),
            job_name=self.job_name,
            code=self.code,
            schema_fingerprint=self.schema_fingerprint,
            transform_fingerprint=self.transform_fingerprint,
            layout=self.layout,
            feature_spec=self.feature_spec,
            compression=self.compression,
        )


class WriteShards(beam.DoFn):  # type: ignore[misc]
    """((window start, shard), chunk) -> (window start, the entry of a shard in the manifest).

    Chunks are held back until they make a shard of ``target_shard_bytes``, or the window ends; those that come later,
    until the window in which they come ends. A retry with the same chunks writes the same file; one with others
    writes another file, and the first is named by no manifest.
    """

    CHUNKS = BagStateSpec(names.BUFFER, BytesCoder())
    FILL = ReadModifyWriteStateSpec(names.FILL, VarIntCoder())
    CLOSE = TimerSpec(names.CLOSE, TimeDomain.WATERMARK)

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._tally = Tally()

    def start_bundle(self) -> None:
        """Count anew."""
        self._tally.begin()

    def finish_bundle(self) -> None:
        """Let the counts of this bundle count."""
        self._tally.done()

    def process(
        self,
        element: tuple[tuple[int, int], bytes],
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        chunks: Any = beam.DoFn.StateParam(CHUNKS),
        fill: Any = beam.DoFn.StateParam(FILL),
        close: Any = beam.DoFn.TimerParam(CLOSE),
    ) -> Iterator[tuple[int, bytes]]:
        """Hold a chunk back, or write it with all that were held back. Raises OSError for storage faults."""
        key, data = element
        before = fill.read()
        total = (before or 0) + framed_bytes(data)
        if total >= self._settings.target_shard_bytes:
            held = [*chunks.read(), data] if before is not None else [data]
            yield self._write(key, held)
            _forget(chunks, fill)
            close.clear()
            return
        if before is None:
            due = shard_due(key[0], stamped_us=timestamp.micros, window_seconds=self._settings.window_seconds)
            close.set(Timestamp(due))
        chunks.add(data)
        fill.write(total)

    @on_timer(CLOSE)  # type: ignore[untyped-decorator]
    def on_close(
        self,
        key: tuple[int, int] = beam.DoFn.KeyParam,
        chunks: Any = beam.DoFn.StateParam(CHUNKS),
        fill: Any = beam.DoFn.StateParam(FILL),
    ) -> Iterator[tuple[int, bytes]]:
        """The time is over: write what was held back. Emitted at the window's end, before its manifest is due."""
        if fill.read() is not None:
            yield self._write(key, list(chunks.read()))
            _forget(chunks, fill)

    def _write(self, key: tuple[int, int], held: Sequence[bytes]) -> tuple[int, bytes]:
        entry = write_shard(self._settings, key, held)
        self._tally.add(names.SHARDS_WRITTEN)
        self._tally.add(names.BYTES_WRITTEN, entry.size_bytes)
        return key[0], encode_entry(entry, kind=self._settings.kind)


def _forget(*states: Any) -> None:
    for state in states:
        state.clear()


def write_shard(settings: WindowSettings, key: tuple[int, int], held: Sequence[bytes]) -> ShardEntry:
    """Write the chunks as one shard; the same chunks, in whatever order, give the same file of the same name.

    Raises OSError for storage faults.
    """
    chunks = [decode_chunk(key, data, kind=settings.kind) for data in sorted(held)]
    squeeze = compressor(settings.compression)
    pieces = [squeeze.compress(memoryview(chunk.framed)) for chunk in chunks]
    data = b"".join([*pieces, squeeze.flush()])
    name = str(WindowShardName(key[1], _digest(chunks, data)))
    folder = settings.folder(key[0])
    if files.size_of(files.join(folder, name)) != len(data):  # else an earlier attempt wrote just this
        write_aside(folder, name, data)
    rows, records = sum(chunk.rows for chunk in chunks), sum(chunk.records for chunk in chunks)
    return ShardEntry(name, SPLIT, rows, records, len(data), google_crc32c.value(data))


def _digest(chunks: Sequence[WindowedChunk], data: bytes) -> str:
    """64 bits in hexadecimal: over the bytes, and over whose rows they are.

    Without the latter, two shards of equal rows of other messages would have one name, and the manifest, which holds
    each name once, would lose one of them.
    """
    digest = hashlib.sha256(b"".join(chunk.origin.to_bytes(8, "big") for chunk in chunks))
    digest.update(data)
    return digest.hexdigest()[:16]


def write_aside(folder: str, name: str, data: bytes) -> None:
    """Write a file under another name, then rename it: under its own name it is whole or not there.

    Where two attempts do so at once, one finds that the other was first, with the same bytes. Raises OSError.
    """
    aside, target = files.join(folder, aside_name(name)), files.join(folder, name)
    files.write_bytes(aside, data)
    try:
        files.rename(aside, target)
    except FileNotFoundError:
        if files.size_of(target) != len(data):
            raise OSError(f"{aside} was taken away before it could become {target}") from None


class CommitWindow(beam.DoFn):  # type: ignore[misc]
    """(window start, entry of a shard) -> the URI of the window's manifest, each time that it was written.

    Written when the window ends, and again after each later shard. Entries are kept until allowed lateness and one
    window more have passed, when the manifest is read once again: an attempt that Dataflow had given up,
    and that went on to write its older manifest all the same, has not the last word.
    """

    ENTRIES = BagStateSpec(names.ENTRIES, BytesCoder())
    PANE = TimerSpec(names.PANE, TimeDomain.WATERMARK)
    SETTLED = TimerSpec(names.SETTLED, TimeDomain.WATERMARK)

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._tally = Tally()

    def start_bundle(self) -> None:
        """Count anew."""
        self._tally.begin()

    def finish_bundle(self) -> None:
        """Let the counts of this bundle count."""
        self._tally.done()

    def process(
        self,
        element: tuple[int, bytes],
        entries: Any = beam.DoFn.StateParam(ENTRIES),
        pane: Any = beam.DoFn.TimerParam(PANE),
        settled: Any = beam.DoFn.TimerParam(SETTLED),
    ) -> None:
        """Keep an entry; a window that has ended is committed at once, by a timer that lies in the past."""
        start, entry = element
        settings = self._settings
        entries.add(entry)
        closing = settings.closing(start).micros
        pane.set(Timestamp(micros=closing + _TICK_US))  # one tick later than the shards of the window are emitted
        rest = settings.allowed_lateness_seconds + settings.window_seconds
        settled.set(Timestamp(micros=closing + rest * 1_000_000 + 2 * _TICK_US))

    @on_timer(PANE)  # type: ignore[untyped-decorator]
    def on_pane(self, start: int = beam.DoFn.KeyParam, entries: Any = beam.DoFn.StateParam(ENTRIES)) -> Iterator[str]:
        """The window ended, or more came for it. Raises OSError for storage faults."""
        yield from self._commit(start, list(entries.read()))

    @on_timer(SETTLED)  # type: ignore[untyped-decorator]
    def on_settled(
        self, start: int = beam.DoFn.KeyParam, entries: Any = beam.DoFn.StateParam(ENTRIES)
    ) -> Iterator[str]:
        """Nothing more is expected: see that the manifest is whole, and forget."""
        yield from self._commit(start, list(entries.read()))
        entries.clear()

    def _commit(self, start: int, entries: Sequence[bytes]) -> Iterator[str]:
        if not entries:
            return
        uri = files.join(self._settings.folder(start), MANIFEST)
        manifest = self._settings.manifest(start).with_shards(
            decode_entry(entry, kind=self._settings.kind) for entry in entries
        )
        there = None
        with contextlib.suppress(FileNotFoundError):
            there = files.read_bytes(uri)
            manifest = manifest.taking_over(WindowManifest.from_json(there, uri))
        data = manifest.to_json()
        if data != there:
            write_aside(self._settings.folder(start), MANIFEST, data)
            self._tally.add(names.WINDOWS_COMMITTED)
            yield uri
