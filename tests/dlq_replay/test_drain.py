"""Draining a subscription: where it ends, what is held and given back, and that leases outlive slow work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dlq_replay.drain import NEWER, DrainSettings, drain
from dlq_replay.pull import LEASE_SECONDS, Held, Pulled
from dlq_replay.replayer import Replayer
from dlq_replay.selection import Filters
from tests.dlq_replay.helpers import letter
from tests.dlq_replay.ledgers import START, Ticking
from tests.dlq_replay.replays import Sent, ports_of, settings_of

BEFORE, AFTER = START - timedelta(seconds=1), START + timedelta(seconds=1)


class Queue:
    """A subscription in memory; a pull takes ten seconds where nothing comes, and two otherwise."""

    def __init__(self, ticking, *, old=0, new=0, endless=False):
        self.ticking, self.endless, self.made = ticking, endless, 0
        self.waiting = [self._message(BEFORE) for _ in range(old)] + [self._message(AFTER) for _ in range(new)]
        self.acked, self.extended = [], []

    def _message(self, published):
        self.made += 1
        return Pulled(letter(self.made), f"ack-{self.made}", f"id-{self.made}", published)

    def pull(self, most):
        found, self.waiting = self.waiting[:most], self.waiting[most:]
        if self.endless:
            self.waiting += [self._message(AFTER) for _ in range(3)]
        self.ticking.sleep(2 if found else 10)
        return found

    def acknowledge(self, acks):
        self.acked += acks

    def extend(self, acks, seconds):
        self.extended.append((len(acks), seconds))


def drained(queue, *, settings=None, **options):
    sent, held = Sent(), Held(queue, queue.ticking.clock)
    ports = ports_of(sent, {}, clock=queue.ticking)
    ports = type(ports)(**{**vars(ports), "acknowledge": held.acknowledge})
    replayer = Replayer(settings or settings_of(), ports, worker="w")
    drain(replayer, held, DrainSettings("s", **options), start=START, clock=queue.ticking.clock, most=10)
    return replayer.tally, sent


def test_it_takes_what_is_there_and_ends_when_nothing_more_comes():
    queue = Queue(Ticking(), old=25)
    tally, sent = drained(queue)
    assert (tally.replayed, len(queue.acked)) == (25, 25)
    assert queue.extended[-1] == (0, 0)  # nothing is left to give back
    assert len(sent.ids) == 25


def test_what_comes_after_its_start_is_given_back_and_does_not_keep_it_going():
    queue = Queue(Ticking(), old=5, endless=True)
    tally, _ = drained(queue, idle_seconds=15)
    assert tally.replayed == 5
    assert tally.skipped[NEWER] > 5
    assert queue.ticking.slept < 30
    assert queue.extended[-1] == (tally.skipped[NEWER] + 3, 0)  # the last pull brought nothing but newer ones
    assert len(queue.acked) == 5


@pytest.mark.parametrize(("options", "most"), [({"max_messages": 12}, 12), ({"max_seconds": 4}, 20)])
def test_it_ends_where_it_was_told_to(options, most):
    queue = Queue(Ticking(), old=100)
    assert drained(queue, **options)[0].replayed == most


def test_what_is_not_selected_is_held_as_long_as_it_takes_and_given_back():
    queue = Queue(Ticking(), old=30)
    slow = settings_of(filters=Filters(attempts=(7,)))
    tally, _ = drained(queue, settings=slow, idle_seconds=1000)
    assert (tally.read, tally.selected, queue.acked) == (30, 0, [])
    held = [count for count, seconds in queue.extended if seconds == LEASE_SECONDS]
    assert held
    assert set(held) == {30}
    assert queue.extended[-1] == (30, 0)


def test_a_failure_gives_all_back():
    queue = Queue(Ticking(), old=5)

    def fail(acks):
        raise OSError("no more")

    queue.acknowledge = fail
    with pytest.raises(OSError, match="no more"):
        drained(queue)
    assert queue.extended[-1] == (5, 0)
