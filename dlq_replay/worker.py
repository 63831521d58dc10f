"""A sender at work on a real machine: its ports, its source, its accounts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from dlq_replay.archives import Damage, read_letters
from dlq_replay.drain import DrainSettings, drain
from dlq_replay.ledger import Clock
from dlq_replay.plan import CountedOpener, read_archives
from dlq_replay.pull import Held, Subscription
from dlq_replay.replayer import Ports, Replayer
from dlq_replay.senders import ArchiveParking, NullSender, Parking, RowsSender, Sender
from dlq_replay.settings import ReplaySettings
from dlq_replay.store import open_store
from dlq_replay.tally import Tally
from dlq_replay.topics import OriginalTopics, TopicParking, TopicSender
from pipeline.core.progress import progress_of
from pipeline.transforms import files

_PULL = 1000


@dataclass(frozen=True)
class Source:
    """Where the letters are: the plan that names archives, or a subscription."""

    plan_uri: str = ""
    subscription: DrainSettings | None = None


def system_clock() -> Clock:
    """The time of this machine."""
    return Clock(_now, time.sleep)


def _now() -> datetime:
    return datetime.now(timezone.utc)


def make_ports(settings: ReplaySettings, acknowledge: Callable[[Sequence[str]], None], clock: Clock) -> Ports:
    """The ports that the settings name. Raises UsageError for a ledger that cannot be."""
    places = settings.places
    return Ports(
        sender=sender_of(settings),
        parking=_parking_of(settings),
        archive=ArchiveParking(places.letters(settings.replay_id)),
        store=open_store(places.ledger),
        open_file=files.open_read,
        clock=clock,
        acknowledge=acknowledge,
    )


def sender_of(settings: ReplaySettings) -> Sender:
    """Where repaired letters go."""
    if settings.target.kind == "original":
        return OriginalTopics()
    if settings.target.kind == "topic":
        return TopicSender(settings.target.where)
    if settings.target.kind == "rows":
        return RowsSender(settings.places.rows(settings.replay_id))
    return NullSender()


def _parking_of(settings: ReplaySettings) -> Parking:
    if settings.parking_topic:
        return TopicParking(settings.parking_topic, spill_folder=settings.places.parked)
    return ArchiveParking(files.join(settings.places.parked, f"replay={settings.replay_id}"))


def work(settings: ReplaySettings, source: Source, sender: int) -> Tally:
    """Replay the share of one sender; its accounts. Raises what sending raises, and OSError."""
    clock = system_clock()
    worker = f"{sender}-{uuid.uuid4().hex[:12]}"
    if source.subscription is not None:
        wanted = source.subscription
        held = Held(Subscription(wanted.subscription, wait_seconds=wanted.idle_seconds), clock)
        replayer = Replayer(settings, make_ports(settings, held.acknowledge, clock), worker=worker, sender=sender)
        most = min(_PULL, 5 * settings.batch_rows)
        drain(replayer, held, wanted, start=settings.start, clock=clock, most=most)
        return replayer.tally
    replayer = Replayer(settings, make_ports(settings, _nothing, clock), worker=worker, sender=sender)
    open_file = CountedOpener(files.open_read, progress_of(settings.replay_id)) if sender == 0 else files.open_read
    for item in read_letters(read_archives(source.plan_uri), open_file):
        if not isinstance(item, Damage):
            replayer.add(item)
        elif sender == 0:  # every sender reads all archives; one tells of their damage
            replayer.tally.damage_at(item)
        if replayer.is_full:
            break
    replayer.flush()
    return replayer.tally


def _nothing(acks: Sequence[str]) -> None:
    """Letters of an archive are not acknowledged."""
