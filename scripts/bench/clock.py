"""The clock of a measured process and its worker processes: seconds, CPU seconds, memory, imports included."""

from __future__ import annotations

import multiprocessing
import re
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_workers_mb = [0.0]


@dataclass(frozen=True)
class Moment:
    """A moment in a process: wall clock, and CPU seconds of all its threads, and of processes that ended, so far."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.perf_counter(), time.process_time() + ended.ru_utime + ended.ru_stime)


def note_worker_processes() -> None:
    """Remember, for ``peak_mb``, how much the worker processes held at most; to be called while they are there.

    Of each counts its peak, less the pages that it has in common with the process that it was forked from.
    """
    _workers_mb[0] = sum(_own_peak_mb(child.pid) for child in multiprocessing.active_children() if child.pid)


def _own_peak_mb(pid: int) -> float:
    status = _fields(Path(f"/proc/{pid}/status"))
    memory = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    shared = memory["Rss"] - memory["Private_Clean"] - memory["Private_Dirty"]
    return (status["VmHWM"] - shared) * 1024 / 1e6


def _fields(path: Path) -> dict[str, int]:
    """The lines ``Name:  123 kB`` of a file of /proc."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: int(size) for name, size in found}


def peak_mb() -> float:
    """The most memory that this process and its workers ever held, in MB (10**6 bytes)."""
    return _workers_mb[0] + _own_mb()


def _own_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # ru_maxrss is in kB on Linux and in bytes on macOS.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
