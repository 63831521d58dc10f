"""Keeping to a rate: waiting before a batch until it is due. Pure but for the clock that is given."""

from __future__ import annotations

from datetime import datetime, timedelta

from dlq_replay.ledger import Clock


class Pacer:
    """Lets ``rate`` letters a second pass; None lets all pass at once."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._rate, self._clock = rate, clock
        self._due: datetime | None = None

    def wait(self, letters: int) -> None:
        """Sleep until ``letters`` more may be sent. What was not used is not saved up: there are no bursts later."""
        if self._rate is None or not letters:
            return
        now = self._clock.now()
        due = now if self._due is None else max(self._due, now)
        if due > now:
            self._clock.sleep((due - now).total_seconds())
        self._due = due + timedelta(seconds=letters / self._rate)
