"""Rejections in, dead-letter archive files out: one Avro file a task, written beside the building of its shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipeline.core.archive import spill, write_archive
from pipeline.core.dead_letter import DeadLetter, from_rejection
from pipeline.core.names import ArchiveName, spill_name
from pipeline.core.records import Rejection
from pipeline.transforms import files
from pipeline.transforms.calling import CallingDoFn
from pipeline.transforms.processes import Parcel


@dataclass(frozen=True)
class ArchiveSettings:
    """Where dead letters go and what they say of their run; ``failed_at`` is the run's start (RFC 3339)."""

    folder: str
    job: str
    schema_fingerprint: str
    failed_at: str
    redact_features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ArchiveFile:
    """The dead letters of one task: how many rows, and the files that hold them (the archive, then spilled rows)."""

    task: int
    rows: int
    uris: tuple[str, ...]


class WriteDeadLetters(CallingDoFn):
    """(task, rejections) -> the archive file that holds them; nothing is written for a task without any.

    A retry writes the same names with the same bytes.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        self._writer = ArchiveWriter(settings)

    def process(self, element: tuple[int, Parcel[Rejection]]) -> Iterator[ArchiveFile]:
        """Write one archive; raises OSError for storage faults."""
        task, rejections = element
        if rejections:
            yield from self.call(self._writer.write, task, rejections)


@dataclass(frozen=True)
class ArchiveWriter:
    """Writes the archives of a run."""

    settings: ArchiveSettings

    def write(self, task: int, rejections: Parcel[Rejection]) -> ArchiveFile:
        """The archive of a task that has refused some rows; raises OSError for storage faults."""
        letters = [self._letter(rejection) for rejection in rejections.open()]
        uri = files.join(self.settings.folder, str(ArchiveName(task)))
        with files.create(uri) as stream:
            rows = write_archive(stream, letters)
        spilled = tuple(letter.payload_uri for letter in letters if letter.payload_uri)
        return ArchiveFile(task, rows, (uri, *spilled))

    def _letter(self, rejection: Rejection) -> DeadLetter:
        settings = self.settings
        letter = from_rejection(
            rejection,
            job=settings.job,
            schema_fingerprint=settings.schema_fingerprint,
            failed_at=settings.failed_at,
            redact_features=settings.redact_features,
        )
        return letter if rejection.payload is not None else self._spilled(rejection, letter)

    def _spilled(self, rejection: Rejection, letter: DeadLetter) -> DeadLetter:
        """Copy a row too large to be held from its source to a file of its own, in bounded memory."""
        uri = files.join(self.settings.folder, spill_name(letter.dlq_id))
        with files.open_read(rejection.uri) as source, files.create(uri) as sink:
            digest = spill(source, rejection.offset, length=rejection.length, sink=sink)
        return replace(letter, payload_uri=uri, payload_sha256=digest)
