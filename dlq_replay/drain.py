"""Emptying a dead-letter subscription as far as was asked: so many messages, so long, or until nothing more comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_replay.ledger import Clock
from dlq_replay.pull import Held, Pulled
from dlq_replay.replayer import Replayer

NEWER = "published after the replay began"


@dataclass(frozen=True)
class DrainSettings:
    """``subscription`` is its whole name. The end comes with the first of these that is met.

    ``idle_seconds`` without a message that is older than the start is taken for empty.
    """

    subscription: str
    max_messages: int | None = None
    max_seconds: float | None = None
    idle_seconds: float = 15.0


def pulled_from(
    held: Held, settings: DrainSettings, *, start: datetime, clock: Clock, most: int
) -> Iterator[list[Pulled]]:
    """Lists of at most ``most`` messages, until the drain is over. Messages newer than ``start`` are among them."""
    began = last = clock.now()
    taken = 0
    while settings.max_messages is None or taken < settings.max_messages:
        now = clock.now()
        if settings.max_seconds is not None and now - began >= timedelta(seconds=settings.max_seconds):
            return
        found = held.pull(most if settings.max_messages is None else min(most, settings.max_messages - taken))
        if any(one.published <= start for one in found):
            last = clock.now()
        elif clock.now() - last >= timedelta(seconds=settings.idle_seconds):
            return
        taken += sum(one.published <= start for one in found)
        if found:
            yield found


def drain(replayer: Replayer, held: Held, settings: DrainSettings, *, start: datetime, clock: Clock, most: int) -> None:
    """Replay what is in the subscription and older than ``start``; all that is not done is given back.

    What this replay itself causes to be dead-lettered is newer than its start, and is not read: so it ends. Raises
    what sending raises, and OSError.
    """
    with held:
        for found in pulled_from(held, settings, start=start, clock=clock, most=most):
            for one in found:
                if one.published > start:
                    replayer.tally.skipped[NEWER] += 1
                else:
                    replayer.add(one.letter, one.ack)
            replayer.flush()
            if replayer.is_full:
                return
