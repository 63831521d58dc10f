"""Which archives a command line means, and their dead letters one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlq_replay.places import OWN, is_own
from pipeline.core.archive_reader import ArchiveDamage, read_archive
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import UsageError
from pipeline.core.records import InputFile, Opener
from pipeline.core.text import printable

ARCHIVE_SUFFIX = ".avro"


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the archive ``uri`` that could not be read, from byte ``offset`` on."""

    uri: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{printable(self.uri, 300)} at byte {self.offset}: {self.what}"


def resolve_archives(patterns: Sequence[str], list_files: Callable[[str], Iterable[InputFile]]) -> list[InputFile]:
    """The archives that files, folders (looked through recursively) or globs name, each once, sorted.

    ``list_files`` gives the files that one pattern names. A file given by its own name is taken whatever it is
    called; of a folder or glob only ``*.avro``, since spilled rows lie beside archives, and nothing that replays wrote
    (``_replay``) unless the pattern names that folder. Raises UsageError for a pattern that names none.
    """
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        own = OWN in pattern.split("/")
        names = [file for file in list_files(pattern) if own or not is_own(file.uri)]
        archives = [file for file in names if file.uri == pattern or file.uri.endswith(ARCHIVE_SUFFIX)]
        if not archives:
            met = f"{len(names)} files, none of which ends in {ARCHIVE_SUFFIX}" if names else "no file at all"
            raise UsageError(
                f"no dead-letter archive at {printable(pattern, 300)!r}: it names {met}. "
                "Give the folder that was --dead_letters of a run, or a file or glob in it"
            )
        found.update((file.uri, file) for file in archives)
    return sorted(found.values())


def read_letters(uris: Iterable[str], open_file: Opener) -> Iterator[DeadLetter | Damage]:
    """The dead letters of all archives in order, with a ``Damage`` in the place of each part that cannot be read.

    Raises only storage faults (OSError).
    """
    for uri in uris:
        with open_file(uri) as stream:
            for item in read_archive(stream):
                yield Damage(uri, item.offset, item.what) if isinstance(item, ArchiveDamage) else item
