"""What a local run has done so far: counters that worker threads raise and the terminal reads.

The counters live in the process. On a distributed runner the workers' own processes count into
copies that nobody reads; there, Beam's metrics tell.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


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


_BOARD: dict[str, Progress] = {}
_BOARD_LOCK = threading.Lock()


def progress_of(key: str) -> Progress:
    """The counters under ``key`` in this process, made when first asked for."""
    with _BOARD_LOCK:
        return _BOARD.setdefault(key, Progress())


def forget(key: str) -> None:
    """Drop the counters under ``key``."""
    with _BOARD_LOCK:
        _BOARD.pop(key, None)
