"""The clock of a measured process: seconds and CPU seconds since its start, imports included."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """A moment in a process: wall clock, and CPU seconds of all its threads so far."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(time.perf_counter(), time.process_time())


def peak_mb() -> float:
    """The most memory that this process ever held, in MB (10**6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # ru_maxrss is in kB on Linux and in bytes on macOS.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
