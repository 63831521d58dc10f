"""One task, from its bytes to parts written aside, without Beam: what BuildShard does, here or in another process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np

from pipeline.core.compression import compressor
from pipeline.core.framing import frame
from pipeline.core.names import PartName
from pipeline.core.progress import progress_of
from pipeline.core.records import Rejection, ShardPart, Task, TaskReport
from pipeline.core.settings import BuildSettings
from pipeline.features.build import DecodedTask, EncodedChunk, Encoder, decode_task
from pipeline.transforms import files
from pipeline.transforms.loading import layout_of, load_ahead, shared_transformer
from pipeline.transforms.processes import Parcel

_FRAMED_RECORDS = 2048  # headers, payloads and footers of as many records stay in the processor's cache


class PartWriter:
    """Writes the framed records of one (task, split) aside, rolling to a new part at 1.5 times the target size.

    Use as a context manager: parts appear whole when it is left without an exception.
    """

    def __init__(self, settings: BuildSettings, *, task: int, split: str) -> None:
        self._folder, self._compression = settings.staging, settings.compression
        self._task, self._split = task, split
        # Half as much again: parts near the target are published by a rename, without being copied.
        self._roll_bytes = settings.target_shard_bytes * 3 // 2
        self._stack = contextlib.ExitStack()
        self._stream: Any = None
        self._rows = self._records = self._size = self._crc = 0
        self.parts: list[ShardPart] = []

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._finish()
        else:
            self._stack.__exit__(*error)

    def add(self, framed: memoryview, *, rows: int, records: int) -> None:
        """Append ``records`` framed records that hold ``rows`` rows."""
        if not records:
            return
        if self._stream is None:
            self._stream = self._stack.enter_context(files.create(self._uri()))
            self._compressor = compressor(self._compression)
        self._write(self._compressor.compress(framed))
        self._rows, self._records = self._rows + rows, self._records + records
        if self._size >= self._roll_bytes:
            self._finish()

    def _write(self, data: bytes | memoryview) -> None:
        if data:
            self._stream.write(data)
            self._crc = google_crc32c.extend(self._crc, np.frombuffer(data, np.uint8))
            self._size += len(data)

    def _uri(self) -> str:
        return files.join(self._folder, str(PartName(self._task, self._split, len(self.parts))))

    def _finish(self) -> None:
        if self._stream is None:
            return
        uri = self._uri()
        self._write(self._compressor.flush())
        self._stack.close()
        self.parts.append(
            ShardPart(self._split, self._task, len(self.parts), uri, self._rows, self._records, self._size, self._crc)
        )
        self._stream = None
        self._rows = self._records = self._size = self._crc = 0


def write_parts(chunks: Iterable[EncodedChunk], settings: BuildSettings, task: int) -> list[ShardPart]:
    """Frame the chunks (grouped by split) and write them aside; no part for a split without rows."""
    parts: list[ShardPart] = []
    with contextlib.ExitStack() as stack:
        writers: dict[str, PartWriter] = {}
        for chunk in chunks:
            if chunk.split not in writers:
                writer = PartWriter(settings, task=task, split=chunk.split)
                writers[chunk.split] = stack.enter_context(writer)
            for piece in chunk.pieces(_FRAMED_RECORDS):
                writers[chunk.split].add(frame(piece.records), rows=piece.rows, records=len(piece.records))
    for writer in writers.values():
        parts.extend(writer.parts)
    return parts


def report_of(task: Task, decoded: DecodedTask, *, rows_written: int, parts: Iterable[ShardPart] = ()) -> TaskReport:
    """The accounts of a finished task."""
    reasons: dict[str, int] = {}
    for rejection in decoded.rejections:
        reasons[rejection.reason.value] = reasons.get(rejection.reason.value, 0) + 1
    return TaskReport(
        task=task.index,
        bytes_read=decoded.bytes_read,
        rows_read=decoded.rows_read,
        rows_blank=decoded.rows_blank,
        rows_written=rows_written,
        rejected=tuple(sorted(reasons.items())),
        parts=tuple(parts),
    )


@dataclass(frozen=True)
class BuiltTask:
    """What a task comes to, but for its parts: its accounts, the state of its statistics, the rows refused."""

    report: TaskReport
    statistics: bytes
    rejections: Parcel[Rejection]

    @classmethod
    def of(cls, decoded: DecodedTask, report: TaskReport) -> BuiltTask:
        """From the rows; rejections in the order of the input."""
        return cls(report, decoded.statistics.to_bytes(), Parcel(sorted(decoded.rejections, key=_place)))


def _place(rejection: Rejection) -> tuple[str, int]:
    return rejection.uri, rejection.offset


class TaskWork:
    """The steps of a task, with what they need loaded. Shared by threads."""

    def __init__(self, settings: BuildSettings, progress_key: str) -> None:
        self.settings = settings
        self.schema = settings.input.load_schema()
        self._decoder = settings.input.make_decoder(self.schema)
        self._progress_key = progress_key

    def decode(self, task: Task, *, count: bool = True) -> DecodedTask:
        """Read and decode; raises OSError for storage faults."""
        progress = progress_of(self._progress_key)
        return decode_task(
            task,
            self._decoder,
            self.schema.arrow_schema,
            open_file=files.open_read,
            progress=progress if count else progress.bytes_only(),
        )

    def encoder(self, artefact: str | None) -> Encoder:
        """The encoder of the transform in ``artefact``."""
        transformer = shared_transformer(self.settings, artefact)
        return Encoder(self.settings, transformer=transformer, layout=layout_of(self.settings, transformer))

    def encode(self, task: Task, decoded: DecodedTask, artefact: str | None) -> Iterator[EncodedChunk]:
        """Transform and encode."""
        before = len(decoded.rejections)
        yield from self.encoder(artefact).encode(decoded, seed=task.seed)
        progress_of(self._progress_key).add(rows_rejected=len(decoded.rejections) - before)


@lru_cache(1)
def work_of(settings: BuildSettings, progress_key: str) -> TaskWork:
    """The same ``TaskWork`` for all tasks of a run in this process."""
    return TaskWork(settings, progress_key)


def build_task(settings: BuildSettings, progress_key: str, task: Task, artefact: str | None) -> BuiltTask:
    """Build one task, its parts written aside; raises OSError for storage faults."""
    load_ahead(settings, artefact)
    work = work_of(settings, progress_key)
    decoded = work.decode(task)
    parts = write_parts(work.encode(task, decoded, artefact), settings, task.index)
    return BuiltTask.of(decoded, report_of(task, decoded, rows_written=sum(part.rows for part in parts), parts=parts))
