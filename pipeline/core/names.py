"""Names of files and folders of a run: each formats and parses, and what parses formats back to itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from pipeline.core.errors import UsageError

MANIFEST = "manifest.json"
"""The file of a run that is written last: no manifest, no run."""

LATEST = "LATEST"
"""The file of an output that names the last committed run."""

OWNER = "owner"
"""The file of a staging folder that says which attempt works in it."""

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SPLIT = re.compile(r"[a-z][a-z0-9_]{0,99}")
_SHARD = re.compile(r"([a-z][a-z0-9_]*)/part-([0-9]{5,19})-of-([0-9]{5,19})\.tfrecord")
_PART = re.compile(r"task-([0-9]{5,19})\.([a-z][a-z0-9_]*)\.([0-9]{3,19})\.tfrecord")
_WINDOW = re.compile(r"window=([0-9]{8}T[0-9]{6}Z)_([0-9]{8}T[0-9]{6}Z)")
_BASIC = "%Y%m%dT%H%M%SZ"  # ISO 8601 basic: no space, colon or bracket in a path
_ARCHIVE = re.compile(r"task-([0-9]{5,19})\.avro")
_WINDOW_SHARD = re.compile(r"part-([0-9]{5,19})-([0-9a-f]{16})\.tfrecord")
_LETTERS = re.compile(r"letters-([0-9a-f]{16})\.avro")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_RUN_PREFIX, _STAGING_PREFIX, _ATTEMPT_PREFIX = "run=", ".staging-", "attempt="
_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """A published shard, relative to its run: ``train/part-00000-of-00008.tfrecord``; 0 <= index < of."""

    split: str
    index: int
    of: int

    def __post_init__(self) -> None:
        check_split_name(self.split)
        if not 0 <= self.index < self.of:
            raise ValueError(f"shard {self.index} of {self.of}: the index must lie in [0, {self.of})")

    def __str__(self) -> str:
        return f"{self.split}/part-{self.index:05d}-of-{self.of:05d}.tfrecord"

    @classmethod
    def parse(cls, name: str) -> ShardName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _SHARD.fullmatch(name)
        if match is None:
            raise ValueError(f"not a shard's name: {name!r}")
        return _exactly(cls(match[1], int(match[2]), int(match[3])), name)


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """A part written aside by one task: ``task-00012.train.000.tfrecord``."""

    task: int
    split: str
    sequence: int

    def __post_init__(self) -> None:
        check_split_name(self.split)
        if self.task < 0 or self.sequence < 0:
            raise ValueError(f"task {self.task}, sequence {self.sequence}: neither may be negative")

    def __str__(self) -> str:
        return f"task-{self.task:05d}.{self.split}.{self.sequence:03d}.tfrecord"

    @classmethod
    def parse(cls, name: str) -> PartName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _PART.fullmatch(name)
        if match is None:
            raise ValueError(f"not a part's name: {name!r}")
        return _exactly(cls(int(match[1]), match[2], int(match[3])), name)


@dataclass(frozen=True, slots=True, order=True)
class ArchiveName:
    """The dead letters of one task: ``task-00012.avro``."""

    task: int

    def __post_init__(self) -> None:
        if self.task < 0:
            raise ValueError(f"task {self.task}: may not be negative")

    def __str__(self) -> str:
        return f"task-{self.task:05d}.avro"

    @classmethod
    def parse(cls, name: str) -> ArchiveName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _ARCHIVE.fullmatch(name)
        if match is None:
            raise ValueError(f"not an archive's name: {name!r}")
        return _exactly(cls(int(match[1])), name)


@dataclass(frozen=True, slots=True, order=True)
class WindowName:
    """The folder of a stream's window: ``window=20240501T000000Z_20240501T010000Z``; start < end, whole seconds UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for moment in (self.start, self.end):
            if moment.utcoffset() != timedelta(0) or moment.microsecond:
                raise ValueError(f"{moment.isoformat()}: a window begins and ends on a whole second in UTC")
        if self.start >= self.end:
            raise ValueError(f"a window from {self.start.isoformat()} to {self.end.isoformat()} is empty")

    def __str__(self) -> str:
        return f"window={self.start:{_BASIC}}_{self.end:{_BASIC}}"

    @classmethod
    def parse(cls, name: str) -> WindowName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _WINDOW.fullmatch(name)
        if match is None:
            raise ValueError(f"not a window's name: {name!r}")
        start, end = (datetime.strptime(text, _BASIC).replace(tzinfo=timezone.utc) for text in match.groups())
        return _exactly(cls(start, end), name)


@dataclass(frozen=True, slots=True, order=True)
class WindowShardName:
    """A shard of a stream's window: ``part-00003-0a1b2c3d4e5f6071.tfrecord``, after what is in it.

    ``shard`` is the shard key; ``digest`` are 16 hexadecimal digits of a sha256 over the file and the messages in it.
    So two attempts at one shard either give the same file, or two files that do not touch each other.
    """

    shard: int
    digest: str

    def __post_init__(self) -> None:
        if self.shard < 0:
            raise ValueError(f"shard {self.shard}: may not be negative")
        _check_digest(self.digest)

    def __str__(self) -> str:
        return f"part-{self.shard:05d}-{self.digest}.tfrecord"

    @classmethod
    def parse(cls, name: str) -> WindowShardName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _WINDOW_SHARD.fullmatch(name)
        if match is None:
            raise ValueError(f"not the name of a window's shard: {name!r}")
        return _exactly(cls(int(match[1]), match[2]), name)


@dataclass(frozen=True, slots=True, order=True)
class LettersName:
    """Dead letters of a stream: ``letters-0a1b2c3d4e5f6071.avro``, after what is in it."""

    digest: str

    def __post_init__(self) -> None:
        _check_digest(self.digest)

    def __str__(self) -> str:
        return f"letters-{self.digest}.avro"

    @classmethod
    def parse(cls, name: str) -> LettersName:
        """The reverse of ``str``. Raises ValueError for anything that ``str`` cannot have made."""
        match = _LETTERS.fullmatch(name)
        if match is None:
            raise ValueError(f"not the name of a stream's dead letters: {name!r}")
        return cls(match[1])


def _check_digest(digest: str) -> None:
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError(f"digest {digest[:40]!r}: must be 16 hexadecimal digits in lower case")


def aside_name(name: str) -> str:
    """The name, in the same folder, under which a file is written before it is renamed: hidden, and no shard's."""
    return f".{name}.aside"


def check_split_name(name: str) -> str:
    """The name of a data split, as given. Raises UsageError unless it is ``[a-z][a-z0-9_]*``, up to 100 letters."""
    if _SPLIT.fullmatch(name) is None:
        raise UsageError(
            f"split name {name[:120]!r}: it becomes a folder and must be a lower-case letter "
            "followed by lower-case letters, digits or '_' (for example 'train' or 'eval_2')"
        )
    return name


def check_run_id(run_id: str) -> str:
    """The run id, as given. Raises UsageError unless it is 1 to 100 of ``[A-Za-z0-9._-]`` and has no dot in front."""
    if _RUN_ID.fullmatch(run_id) is None:
        raise UsageError(
            f"run id {run_id[:120]!r}: it becomes a folder and must be 1 to 100 letters, digits, '.', '_' or '-', "
            "not starting with '.' (for example '2024-05-01_flights')"
        )
    return run_id


def run_folder(run_id: str) -> str:
    """The folder of a committed run inside OUTPUT: ``run=<run_id>``. Raises UsageError for a bad id."""
    return _RUN_PREFIX + check_run_id(run_id)


def parse_run_folder(name: str) -> str:
    """The run id of a folder named by ``run_folder``. Raises ValueError for any other name."""
    return _after_prefix(name, _RUN_PREFIX)


def staging_folder(run_id: str) -> str:
    """The folder inside OUTPUT where a run's parts are written aside: hidden, so that no glob meets it."""
    return _STAGING_PREFIX + check_run_id(run_id)


def parse_staging_folder(name: str) -> str:
    """The run id of a folder named by ``staging_folder``. Raises ValueError for any other name."""
    return _after_prefix(name, _STAGING_PREFIX)


def attempt_folder(attempt: str) -> str:
    """The folder inside a run's dead letters that holds those of one attempt: ``attempt=<id>``; ids as run ids.

    An attempt that fails must not touch the dead letters of the run that is committed.
    """
    return _ATTEMPT_PREFIX + check_run_id(attempt)


def spill_name(dlq_id: str) -> str:
    """The file beside an archive that holds a row too large for it: ``oversized-<dlq_id>.bin``."""
    return f"oversized-{dlq_id}.bin"


def _after_prefix(name: str, prefix: str) -> str:
    run_id = name[len(prefix) :]
    if not name.startswith(prefix) or _RUN_ID.fullmatch(run_id) is None:
        raise ValueError(f"not a folder '{prefix}<run id>': {name!r}")
    return run_id


def _exactly(parsed: _Name, name: str) -> _Name:
    """Refuses spellings with superfluous zeros, so that one file has one name."""
    if str(parsed) != name:
        raise ValueError(f"{name!r} should be spelt {str(parsed)!r}")
    return parsed
