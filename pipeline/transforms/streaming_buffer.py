"""What a batch key holds back until it is worth a call: a bag, how full it is, and the timer that ends the wait.

Beam holds the watermark for a processing-time timer at the timestamp of the element that set it, and would stamp
what such a timer emits with the processing time. So the timer is set again (to the same moment) for an element that
is older than all before it, and everything is emitted at the oldest timestamp in the buffer: downstream, the watermark
never overtakes what is held back. (Runners that keep no holds, as the local one, only get more and smaller shards.)
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

Now = Callable[[], float]
"""The processing time in seconds since 1970; a test gives the one of its runner."""

_FILL = struct.Struct("<qqqq")  # rows, bytes, oldest timestamp (us), end of the wait (us)


@dataclass(frozen=True)
class Limits:
    """When a buffer is given out: at so many rows or bytes, or so long after the first of them."""

    rows: int
    size_bytes: int
    wait_seconds: float


@dataclass(frozen=True)
class Held:
    """What was held back, in no order, and the oldest timestamp among it."""

    items: list[bytes]
    oldest: Timestamp


class Buffer:
    """The state and timers of one key, as a DoFn's method was handed them; ``last`` fires at the end of time."""

    def __init__(self, bag: Any, fill: Any, *, wait: Any, last: Any, limits: Limits) -> None:
        self._bag, self._fill, self._wait, self._last, self._limits = bag, fill, wait, last, limits

    def add(self, item: bytes, *, rows: int, timestamp: Timestamp, now: Now) -> Held | None:
        """Hold ``item`` back; or, once there is enough, what was held back and ``item``."""
        found = self._fill.read()
        if found is None:
            due = round((now() + self._limits.wait_seconds) * 1_000_000)
            held_rows = held_bytes = 0
            oldest = timestamp.micros
        else:
            held_rows, held_bytes, oldest, due = _FILL.unpack(found)
        held_rows, held_bytes = held_rows + rows, held_bytes + len(item)
        if held_rows >= self._limits.rows or held_bytes >= self._limits.size_bytes:
            before = list(self._bag.read()) if found is not None else []
            self._forget(found is not None)
            return Held([*before, item], Timestamp(micros=min(oldest, timestamp.micros)))
        if found is None or timestamp.micros < oldest:
            self._wait.set(Timestamp(micros=due))
            self._last.set(GlobalWindow().max_timestamp())
        self._bag.add(item)
        self._fill.write(_FILL.pack(held_rows, held_bytes, min(oldest, timestamp.micros), due))
        return None

    def take(self) -> Held | None:
        """All that is held back, if anything."""
        found = self._fill.read()
        if found is None:
            return None
        held = Held(list(self._bag.read()), Timestamp(micros=_FILL.unpack(found)[2]))
        self._forget(True)
        return held

    def _forget(self, anything: bool) -> None:
        if anything:
            self._bag.clear()
            self._fill.clear()
            self._wait.clear()
            self._last.clear()


def wall_clock() -> float:
    """The time of this machine, in seconds since 1970."""
    return time.time()
