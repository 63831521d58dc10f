"""Storage that fails: each operation of pipeline.transforms.files is a point of failure before it and one after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.transforms import files

OPERATIONS = (
    "open_read",
    "write_bytes",
    "read_bytes",
    "size_of",
    "list_files",
    "list_folder",
    "rename",
    "delete",
    "delete_folder",
)


class StorageFault(OSError):
    """The fault that was asked for."""


class FaultyStorage:
    """Fails once, at point ``at`` (from 1). ``points`` counts those passed; ``fired`` is the one that failed."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0
        self.fired = ""

    def point(self, what: str) -> None:
        """Pass a point of failure."""
        self.points += 1
        if self.points == self.at:
            self.fired = what
            raise StorageFault(f"storage fault at point {self.at}: {what}")


@contextlib.contextmanager
def faulty_storage(at: int) -> Iterator[FaultyStorage]:
    """Make storage fail at point ``at`` while the body runs; 0 only counts the points."""
    storage = FaultyStorage(at)
    real = {name: getattr(files, name) for name in (*OPERATIONS, "create")}
    for name in OPERATIONS:
        setattr(files, name, _around(storage, name, real[name]))
    files.create = _creating(storage, real["create"])
    try:
        yield storage
    finally:
        for name, function in real.items():
            setattr(files, name, function)


def _around(storage: FaultyStorage, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def faulty(*arguments: Any) -> Any:
        storage.point(f"before {name}{arguments}")
        result = function(*arguments)
        storage.point(f"after {name}{arguments}")
        return result

    return faulty


def _creating(storage: FaultyStorage, create: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def faulty(uri: str) -> Iterator[Any]:
        storage.point(f"before create {uri}")
        with create(uri) as stream:
            yield stream
            storage.point(f"before close {uri}")
        storage.point(f"after close {uri}")

    return faulty
