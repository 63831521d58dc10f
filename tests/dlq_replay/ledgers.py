"""Ledgers in memory, with a clock that stands until somebody sleeps, and faults where they are asked for."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

from dlq_replay.ledger import Clock, Lane, Owner

START = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


class Killed(BaseException):
    """The process ends here: nothing catches it, as nothing catches SIGKILL."""


class Deaths:
    """Points at which the process may die; it does at number ``at`` (from 1)."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.passed, self.fired = at, 0, ""

    def point(self, what: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.fired = what
            raise Killed(what)


class MemoryStore:
    """Files in a dict; ``deaths`` may strike before and after each creation."""

    def __init__(self, files: dict[str, bytes] | None = None, deaths: Deaths | None = None) -> None:
        self.files = {} if files is None else files
        self._deaths = deaths or Deaths()
        self._lock = threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        self._deaths.point(f"before create {name}")
        with self._lock:
            if name in self.files:
                return False
            self.files[name] = data
        self._deaths.point(f"after create {name}")
        return True

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(folder + "/"))


class Ticking:
    """A clock that moves when somebody sleeps on it; ``on_sleep`` is called then."""

    def __init__(self, on_sleep=None) -> None:
        self.time = START
        self.slept = 0.0
        self._on_sleep = on_sleep

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.time += timedelta(seconds=seconds)
        if self._on_sleep:
            self._on_sleep()

    @property
    def clock(self) -> Clock:
        return Clock(self._now, self.sleep)

    def _now(self) -> datetime:
        return self.time


def lane(store, worker, *, replay=None, clock=None, lease=100.0, **options):
    return Lane(
        store,
        3,
        owner=Owner(replay or f"replay-{worker}", worker, lease, options.pop("shared", False)),
        clock=clock or Ticking().clock,
        **options,
    )
