"""The archives that a replay reads: listed once, kept in a file, so that the list is never in a graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from pipeline.core.progress import Progress
from pipeline.core.records import Opener
from pipeline.transforms import files


def write_archives(uri: str, archives: Sequence[str]) -> None:
    """Write the list, one name a line. Raises OSError."""
    files.write_bytes(uri, "".join(json.dumps(archive) + "\n" for archive in archives).encode())


def read_archives(uri: str) -> list[str]:
    """The list that ``write_archives`` wrote. Raises OSError."""
    return [json.loads(line) for line in files.read_bytes(uri).splitlines()]


class CountedOpener:
    """Opens files whose bytes are counted as they are read."""

    def __init__(self, open_file: Opener, progress: Progress) -> None:
        self._open, self._progress = open_file, progress

    def __call__(self, uri: str) -> BinaryIO:
        """Open ``uri``. Raises OSError."""
        return cast(BinaryIO, _Counted(self._open(uri), self._progress))


class _Counted:
    def __init__(self, stream: BinaryIO, progress: Progress) -> None:
        self._stream, self._progress, self._furthest = stream, progress, 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        at = self._stream.tell()
        if at > self._furthest:  # what is read a second time is not counted twice
            self._progress.add(bytes_done=at - self._furthest)
            self._furthest = at
        return data

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:  # seek, tell, close
        return getattr(self._stream, name)
