"""Replays without Beam, storage or a network: everything in memory, and deaths between any two steps."""

from __future__ import annotations

import io

from dlq_replay.archives import Damage, read_letters
from dlq_replay.replayer import Ports, Replayer
from dlq_replay.settings import ReplaySettings, Target
from tests.dlq_replay.helpers import opener
from tests.dlq_replay.ledgers import START, Deaths, MemoryStore, Ticking


class Sent:
    """A topic and a parking lot: what was sent and parked, in order, over all replays of a test."""

    max_bytes = 1000

    def __init__(self) -> None:
        self.outgoing, self.parked, self.kept, self.acked = [], [], [], []
        self.batches = []
        self.deaths = Deaths()

    def refuses(self, outgoing):
        return "too long for this topic" if len(outgoing.payload) > self.max_bytes else ""

    def send(self, name, batch):
        self.deaths.point(f"before send {name}")
        self.batches.append((name, len(batch)))
        for one in batch:
            self.outgoing.append(one)
        self.deaths.point(f"after send {name}")
        return {}

    def park(self, name, letters):
        self.deaths.point(f"before park {name}")
        self.parked += letters
        self.deaths.point(f"after park {name}")

    def acknowledge(self, acks):
        self.deaths.point("before acknowledge")
        self.acked += acks
        self.deaths.point("after acknowledge")

    @property
    def ids(self):
        return [one.dlq_id for one in self.outgoing]


class Keeping:
    def __init__(self, sent):
        self._sent = sent

    def park(self, name, letters):
        self._sent.deaths.point(f"before keep {name}")
        self._sent.kept += letters
        self._sent.deaths.point(f"after keep {name}")


def settings_of(replay_id="r", **options):
    return ReplaySettings(
        replay_id, "dead", options.pop("start", START), options.pop("target", Target("null")), **options
    )


def ports_of(sent, files, *, deaths=None, clock=None, archives=None):
    sent.deaths = deaths or Deaths()
    return Ports(
        sender=sent,
        parking=sent,
        archive=Keeping(sent),
        store=MemoryStore(files, sent.deaths),
        open_file=opener(archives or {}),
        clock=(clock or Ticking()).clock,
        acknowledge=sent.acknowledge,
    )


def replay(letters, sent, files, *, worker="w", deaths=None, clock=None, archives=None, **options):
    """One replay of ``letters``; returns its accounts."""
    settings = settings_of(**options)
    ports = ports_of(sent, files, deaths=deaths, clock=clock, archives=archives)
    tally = None
    for sender in range(settings.senders):
        one = Replayer(settings, ports, worker=f"{worker}-{sender}", sender=sender)
        for number, letter in enumerate(letters):
            if isinstance(letter, Damage):
                one.tally.damage_at(letter)
            else:
                one.add(letter, f"ack-{number}")
        one.flush()
        if tally is None:
            tally = one.tally
        else:
            tally.merge(one.tally)
    return tally


def letters_of(files):
    return list(read_letters(files, opener(files)))


__all__ = ["Deaths", "Sent", "io", "letters_of", "replay", "settings_of"]
