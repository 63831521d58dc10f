"""What a local run has done so far: counters that its workers raise and the terminal reads.

The counters live in the process, or in memory that forked processes share. On a distributed runner the
workers' own processes count into copies that nobody reads; there, Beam's metrics tell.
"""

from __future__ import annotations

import threading
from ctypes import c_int64
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray


@dataclass(frozen=True)
class Snapshot:
    """Counts at one moment: input bytes and rows read, rows refused."""

    bytes_done: int = 0
    rows_read: int = 0
    rows_rejected: int = 0


class Progress:
    """Thread-safe counters of one phase of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Snapshot()

    def add(self, *, bytes_done: int = 0, rows_read: int = 0, rows_rejected: int = 0) -> None:
        """Raise the counters."""
        with self._lock:
            now = self._now
            self._now = Snapshot(
                now.bytes_done + bytes_done, now.rows_read + rows_read, now.rows_rejected + rows_rejected
            )

    def bytes_only(self) -> Progress:
        """A view that counts bytes here and rows nowhere: for a pass that reads rows which another pass counts."""
        return _BytesOnly(self)

    def snapshot(self) -> Snapshot:
        """The counters now."""
        with self._lock:
            return self._now


class _BytesOnly(Progress):
    def __init__(self, whole: Progress) -> None:
        super().__init__()
        self._whole = whole

    def add(self, *, bytes_done: int = 0, rows_read: int = 0, rows_rejected: int = 0) -> None:
        self._whole.add(bytes_done=bytes_done)


class SharedProgress(Progress):
    """Counters that ``processes`` forked processes raise too, each in a place of its own.

    No lock is shared, so that a process that is killed leaves none behind. To be made before the fork.
    """

    def __init__(self, processes: int) -> None:
        super().__init__()
        self._counts = RawArray(c_int64, 3 * (processes + 1))
        self._place = 0

    def take_place(self, place: int) -> None:
        """Count in ``place`` (1 to ``processes``) from now on; no two forked processes take the same."""
        self._place = place

    def add(self, *, bytes_done: int = 0, rows_read: int = 0, rows_rejected: int = 0) -> None:
        """Raise the counters."""
        with self._lock:
            for at, count in enumerate((bytes_done, rows_read, rows_rejected), 3 * self._place):
                self._counts[at] += count

    def snapshot(self) -> Snapshot:
        """The counters of all processes now."""
        return Snapshot(*(sum(self._counts[kind::3]) for kind in range(3)))


_BOARD: dict[str, Progress] = {}
_BOARD_LOCK = threading.Lock()


def progress_of(key: str) -> Progress:
    """The counters under ``key`` in this process, made when first asked for."""
    with _BOARD_LOCK:
        return _BOARD.setdefault(key, Progress())


def share(key: str, *, processes: int) -> SharedProgress:
    """Counters under ``key`` for this process and for so many that are about to be forked from it."""
    shared = SharedProgress(processes)
    with _BOARD_LOCK:
        _BOARD[key] = shared
    return shared


def forget(key: str) -> None:
    """Drop the counters under ``key``."""
    with _BOARD_LOCK:
        _BOARD.pop(key, None)
