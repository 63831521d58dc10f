"""What all dead-letter commands share: where the letters are, which of them are meant, and reading them."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from dlq_replay.archives import Damage, read_letters, resolve_archives
from dlq_replay.drain import DrainSettings, pulled_from
from dlq_replay.payloads import View
from dlq_replay.plan import CountedOpener
from dlq_replay.pull import Held, Subscription
from dlq_replay.selection import Filters, attribute_filter, looks_like_ids, read_ids, time_bound
from dlq_replay.topics import SUBSCRIPTION
from dlq_replay.worker import system_clock
from pipeline import preflight
from pipeline.console import watching
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import UsageError
from pipeline.core.progress import Progress
from pipeline.core.records import InputFile
from pipeline.transforms import files

_LOG = logging.getLogger(__name__)
PEEKED = 10_000
"""How many messages of a subscription are looked at unless told otherwise."""

_PULL = 1000


@dataclass(frozen=True)
class Letters:
    """Dead letters to read once, in order; ``of`` says in words what they are from."""

    items: Iterable[DeadLetter | Damage]
    of: str


def subscription_of(sources: Sequence[str]) -> str | None:
    """The subscription that a command line names; None for archives. Raises UsageError for a mixture."""
    named = [source for source in sources if SUBSCRIPTION.fullmatch(source)]
    if named and len(sources) > 1:
        raise UsageError("give one subscription, or archives: not both, and not two subscriptions")
    return named[0] if named else None


def drain_of(arguments: Namespace, subscription: str, *, most: int | None) -> DrainSettings:
    """How far a subscription is read."""
    return DrainSettings(subscription, arguments.max_messages or most, arguments.max_seconds, arguments.idle_seconds)


@contextmanager
def opened(arguments: Namespace, *, title: str) -> Iterator[Letters]:
    """The letters that the arguments name, with progress on stderr while they are read.

    Messages of a subscription are given back when the body is left: none is lost. Raises UsageError where there are no
    archives.
    """
    subscription = subscription_of(arguments.archive)
    if subscription is None:
        found = resolve_archives(arguments.archive, files.list_files)
        with reading(found, title=title) as items:
            yield Letters(items, f"{len(found):,} archive{'' if len(found) == 1 else 's'}")
        return
    with peeking(drain_of(arguments, subscription, most=PEEKED), start=None) as items:
        yield Letters(items, f"{subscription} (peeked; all are given back)")


@contextmanager
def reading(archives: Sequence[InputFile], *, title: str) -> Iterator[Iterator[DeadLetter | Damage]]:
    """The letters of archives, with progress on stderr."""
    progress = Progress()
    with watching(progress, title=title, total_bytes=sum(file.size_bytes for file in archives)):
        yield read_letters([file.uri for file in archives], CountedOpener(files.open_read, progress))


@contextmanager
def peeking(settings: DrainSettings, *, start: datetime | None) -> Iterator[Iterator[DeadLetter]]:
    """The letters of a subscription, each once, none acknowledged; those newer than ``start`` are left out."""
    clock = system_clock()
    subscription = Subscription(settings.subscription, wait_seconds=settings.idle_seconds)
    if limit := subscription.delivery_limit():
        _LOG.warning(
            "%s has a dead-letter policy: a message that was delivered %d times is moved to its topic, and each look "
            "counts as a delivery",
            settings.subscription,
            limit,
        )
    with Held(subscription, clock) as held:
        yield _peeked(held, settings, start or clock.now())


def _peeked(held: Held, settings: DrainSettings, start: datetime) -> Iterator[DeadLetter]:
    seen: set[str] = set()  # a message whose lease was lost comes a second time
    for found in pulled_from(held, settings, start=start, clock=held.clock, most=_PULL):
        for one in found:
            if one.published <= start and one.message_id not in seen:
                seen.add(one.message_id)
                yield one.letter


def filters_of(arguments: Namespace, now: datetime) -> Filters:
    """The selection that the arguments ask for. Raises UsageError for what cannot be read."""
    return Filters(
        reasons=tuple(arguments.reason or ()),
        features=tuple(arguments.feature or ()),
        stages=tuple(arguments.stage or ()),
        sources=tuple(arguments.source or ()),
        since=time_bound(arguments.since, flag="since", now=now) if arguments.since else None,
        until=time_bound(arguments.until, flag="until", now=now) if arguments.until else None,
        attempts=tuple(arguments.attempt or ()),
        attributes=tuple(map(attribute_filter, arguments.attribute or ())),
        ids=_ids(arguments.ids) if arguments.ids else None,
        sample=arguments.sample,
        seed=arguments.sample_seed,
    )


def _ids(text: str) -> frozenset[str]:
    if looks_like_ids(text):
        return read_ids(text, "--ids")
    return read_ids(preflight.read_text(text, "id"), text)


def view_of(arguments: Namespace, chars: int) -> View:
    """How payloads are shown."""
    return View(chars, frozenset(arguments.redact_features), arguments.reveal)
