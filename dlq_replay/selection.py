"""Which dead letters are meant: one filter language for summary, show, export and replay. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import TypeVar

from pipeline.core.dead_letter import DeadLetter, parse_source
from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.core.text import printable

_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_AGO = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ID = re.compile(r"[0-9a-f]{64}")
_Other = TypeVar("_Other")


@dataclass(frozen=True)
class Filters:
    """What a dead letter must be to be selected; an empty tuple (or None) asks for nothing.

    Values of one kind are alternatives, different kinds must all hold. ``reasons`` and ``stages`` are compared with the
    first fault, ``features`` with any fault; ``sources`` are globs over the whole position and over the file (or
    subscription) alone; ``since`` (inclusive) and ``until`` (exclusive) bound ``failed_at``; ``ids`` are dlq_ids;
    ``sample`` is a share in [0, 1], by a hash of the id and ``seed``: the same letters in every run, and a
    smaller sample is part of a larger one.
    """

    reasons: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempts: tuple[int, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    ids: frozenset[str] | None = None
    sample: float | None = None
    seed: int = 0

    def matches(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` is selected."""
        return (
            _allows(self.reasons, letter.reason)
            and _allows(self.stages, letter.stage)
            and _allows(self.attempts, letter.attempt)
            and (self.ids is None or letter.dlq_id in self.ids)
            and (not self.features or any(fault.feature in self.features for fault in letter.faults))
            and (not self.sources or self._from_source(letter.source))
            and (not self.attributes or set(self.attributes) <= set(letter.attributes))
            and ((self.since is None and self.until is None) or self._in_time(letter.failed_at))
            and (self.sample is None or share_of(letter.dlq_id, self.seed) < self.sample)
        )

    def _from_source(self, source: str) -> bool:
        places = {source, place_of(source)}
        return any(fnmatchcase(place, glob) for glob in self.sources for place in places)

    def _in_time(self, text: str) -> bool:
        """Whether a time lies in the range; one that cannot be read lies in none."""
        moment = read_time(text)
        if moment is None:
            return False
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def as_json(self) -> Json:
        """The filters that are set, for a report; of an id list its length and digest."""
        found: Json = {
            name: list(values)
            for name, values in (
                ("reason", self.reasons),
                ("feature", self.features),
                ("stage", self.stages),
                ("source", self.sources),
                ("attempt", self.attempts),
            )
            if values
        }
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                found[name] = moment.isoformat()
        if self.attributes:
            found["attribute"] = dict(self.attributes)
        if self.ids is not None:
            digest = hashlib.sha256("\n".join(sorted(self.ids)).encode()).hexdigest()
            found["ids"] = {"count": len(self.ids), "sha256": digest}
        if self.sample is not None:
            found |= {"sample": self.sample, "sample_seed": self.seed}
        return found


ALL = Filters()
"""Selects every dead letter."""


def _allows(wanted: Sequence[object], value: object) -> bool:
    return not wanted or value in wanted


def place_of(source: str) -> str:
    """The file of a row, or the subscription of a message."""
    in_file = parse_source(source)
    return in_file[0] if in_file else source.partition("#")[0]


def share_of(dlq_id: str, seed: int) -> float:
    """Where an id falls in [0, 1): the same for ever, for one seed."""
    digest = hashlib.sha256(f"headrace sample {seed}\n{dlq_id}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def read_time(text: str) -> datetime | None:
    """A date, or date and time (RFC 3339, any precision; UTC where no zone is given); None for anything else."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), min(int(second or 0), 59),
            int(((fraction or "") + "000000")[:6]),
            timezone.utc,
        )  # fmt: skip
        if zone and zone not in "Zz":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            moment -= -offset if zone[0] == "-" else offset
    except (ValueError, OverflowError):
        return None
    return moment


def time_bound(text: str, *, flag: str, now: datetime) -> datetime:
    """The time that ``--since`` or ``--until`` names: a time (see ``read_time``), or how long ago (``90m 6h 2d``).

    Raises UsageError for anything else.
    """
    if ago := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            pass
    elif (moment := read_time(text)) is not None:
        return moment
    raise UsageError(
        f"--{flag} {printable(text, 60)!r} is no time; write 2024-05-01, 2024-05-01T12:00:00Z, or 90m, 6h, 2d for so "
        "long ago"
    )


def attribute_filter(text: str) -> tuple[str, str]:
    """``name=value`` as a pair. Raises UsageError without the equals sign or the name."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--attribute {printable(text, 60)!r}: write name=value")
    return name, value


def read_ids(text: str, where: str) -> frozenset[str]:
    """Ids separated by commas, spaces or line ends; ``#`` begins a comment. Raises UsageError for what is no id."""
    words = [word for line in text.splitlines() for word in re.split(r"[,\s]+", line.partition("#")[0]) if word]
    for word in words:
        if _ID.fullmatch(word) is None:
            raise UsageError(
                f"{where}: {printable(word, 80)!r} is no dlq_id (64 hexadecimal digits, see 'headrace dlq show')"
            )
    if not words:
        raise UsageError(f"{where}: there is no dlq_id in it")
    return frozenset(words)


def looks_like_ids(text: str) -> bool:
    """Whether ``--ids`` holds the ids themselves, rather than the name of a file of them."""
    return all(_ID.fullmatch(word) for word in text.split(","))


def take(items: Iterable[DeadLetter | _Other], filters: Filters, *, limit: int | None) -> Iterator[DeadLetter | _Other]:
    """The selected letters, at most ``limit``; whatever else is among ``items`` (damage) passes."""
    left = limit
    for item in items:
        if not isinstance(item, DeadLetter):
            yield item
        elif filters.matches(item):
            if left is not None:
                if not left:
                    return
                left -= 1
            yield item
