"""What is in the dead letters: counts by reason, feature, stage, source, attempt and hour, and examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlq_replay.archives import Damage
from dlq_replay.selection import ALL, Filters, place_of, read_time
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Json
from pipeline.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

Counts = tuple[tuple[str, int], ...]

OTHER = "(other)"
"""Stands for all values beyond the first 10,000 distinct ones, so that memory stays bounded."""

_MAX_DISTINCT, _ROWS_SHOWN, _TEXT_SHOWN = 10_000, 10, 200


@dataclass(frozen=True, slots=True)
class Example:
    """The first dead letter met with a reason; its text is safe to print."""

    reason: str
    source: str
    message: str


@dataclass(frozen=True)
class Summary:
    """Counts over dead letters, as pairs, most frequent first (then by name).

    ``by_reason`` and ``by_stage`` count each letter once, by its first fault, as a run's manifest does;
    ``by_feature`` counts the letters in which a feature is at fault at all. ``by_source`` is by file or
    subscription, ``by_hour`` by the hour (UTC) of the failure, in the order of time. ``first_failed_at`` and
    ``last_failed_at`` are RFC 3339 as found, empty where there are no letters. ``of`` says what was summed up:
    ``3 archives``, or a subscription. ``read`` counts letters looked at, selected or not.
    """

    of: str
    read: int
    letters: int
    payload_bytes: int
    spilled: int
    by_reason: Counts
    by_feature: Counts
    by_stage: Counts
    by_source: Counts
    by_attempt: Counts
    by_hour: Counts
    first_failed_at: str
    last_failed_at: str
    examples: tuple[Example, ...]
    damage: tuple[Damage, ...]

    def as_json(self) -> Json:
        """The summary for ``--json``."""
        return {
            "of": self.of,
            "read": self.read,
            "dead_letters": self.letters,
            "payload_bytes": self.payload_bytes,
            "spilled": self.spilled,
            "by_reason": dict(self.by_reason),
            "by_feature": dict(self.by_feature),
            "by_stage": dict(self.by_stage),
            "by_source": dict(self.by_source),
            "by_attempt": dict(self.by_attempt),
            "by_hour": dict(self.by_hour),
            "first_failed_at": self.first_failed_at,
            "last_failed_at": self.last_failed_at,
            "examples": [{"reason": e.reason, "source": e.source, "message": e.message} for e in self.examples],
            "damage": [{"archive": d.uri, "offset": d.offset, "what": d.what} for d in self.damage],
        }

    def lines(self) -> list[str]:
        """The summary as plain lines, safe to print; long tables are cut to ten rows."""
        lines = self._head()
        for title, counts in self._tables():
            lines += ["", f"{title}:", *(f"  {count:>12,}  {name}" for name, count in _shown(counts))]
        if self.examples:
            lines += ["", "for example:"]
        for example in self.examples[:_ROWS_SHOWN]:
            lines += [f"  {example.reason}: {example.message}", f"    {example.source}"]
        return lines

    def render(self, console: Console) -> None:
        """Prints the summary: tables on a terminal, plain lines elsewhere."""
        if not console.is_terminal:
            for line in self.lines():
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        for line in self._head():
            console.print(Text(line))
        for title, counts in self._tables():
            table = Table(title, "dead letters", "share", box=box.SIMPLE_HEAD, header_style="bold")
            for name, count in _shown(counts):
                table.add_row(Text(name), Text(f"{count:,}"), Text(f"{count / self.letters:.1%}"))
            console.print(table)
        if self.examples:
            examples = Table("reason", "example", "where", box=box.SIMPLE_HEAD, header_style="bold")
            for example in self.examples[:_ROWS_SHOWN]:
                examples.add_row(Text(example.reason), Text(example.message), Text(example.source))
            console.print(examples)

    def _head(self) -> list[str]:
        head = [f"{self.letters:,} dead letters in {self.of}, {self.payload_bytes:,} bytes refused"]
        if self.read != self.letters:
            head.append(f"{self.read:,} were looked at, and these are those that were asked for")
        if self.spilled:
            head.append(f"{self.spilled:,} of them too large for the archive: their bytes lie beside it")
        if self.letters:
            head.append(
                f"failed between {printable(self.first_failed_at, 40)} and {printable(self.last_failed_at, 40)}"
            )
        return head + [f"DAMAGED: {damage} (the rest was read)" for damage in self.damage]

    def _tables(self) -> list[tuple[str, Counts]]:
        tables = [
            ("reason", self.by_reason),
            ("feature", self.by_feature),
            ("stage", self.by_stage),
            ("source", self.by_source),
            ("attempt", self.by_attempt),
            ("hour", _latest(self.by_hour)),
        ]
        return [(title, counts) for title, counts in tables if counts]


def summarise(
    items: Iterable[DeadLetter | Damage], filters: Filters = ALL, *, of: str, limit: int | None = None
) -> Summary:
    """Sums up the selected letters among ``items``, at most ``limit``, in one pass and bounded memory.

    Damaged parts are listed and the rest is counted. Raises only storage faults (OSError).
    """
    tally = _Tally()
    for item in items:
        if isinstance(item, Damage):
            tally.damage.append(item)
            continue
        if tally.letters == limit:
            break
        tally.read += 1
        if filters.matches(item):
            tally.add(item)
    return tally.summary(of)


class _Tally:
    """Counts under way."""

    def __init__(self) -> None:
        self.damage: list[Damage] = []
        self.read = self.letters = 0
        self._bytes = self._spilled = 0
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("reason", "feature", "stage", "source", "attempt", "hour")
        }
        self._first = self._last = ""
        self._examples: dict[str, Example] = {}

    def add(self, letter: DeadLetter) -> None:
        self.letters += 1
        self._bytes += letter.payload_length
        self._spilled += letter.payload is None
        self._count("reason", letter.reason)
        self._count("stage", letter.stage)
        self._count("source", place_of(letter.source))
        self._count("hour", _hour(letter.failed_at))
        self._count("attempt", str(letter.attempt))
        for feature in sorted({fault.feature for fault in letter.faults if fault.feature is not None}):
            self._count("feature", feature)
        self._first = min(self._first or letter.failed_at, letter.failed_at)
        self._last = max(self._last, letter.failed_at)
        if letter.reason not in self._examples and len(self._examples) < _MAX_DISTINCT:
            texts = (printable(text, _TEXT_SHOWN) for text in (letter.reason, letter.source, letter.message))
            self._examples[letter.reason] = Example(*texts)

    def _count(self, table: str, name: str) -> None:
        counts = self._counts[table]
        counts[name if name in counts or len(counts) < _MAX_DISTINCT else OTHER] += 1

    def summary(self, of: str) -> Summary:
        tables = {name: _ordered(counts) for name, counts in self._counts.items()}
        return Summary(
            of=of,
            read=self.read,
            letters=self.letters,
            payload_bytes=self._bytes,
            spilled=self._spilled,
            by_reason=tables["reason"],
            by_feature=tables["feature"],
            by_stage=tables["stage"],
            by_source=tables["source"],
            by_attempt=tables["attempt"],
            by_hour=tuple(sorted(tables["hour"])),
            first_failed_at=self._first,
            last_failed_at=self._last,
            examples=tuple(self._examples[name] for name, _ in tables["reason"] if name in self._examples),
            damage=tuple(self.damage),
        )


def _ordered(counts: Counter[str]) -> Counts:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _hour(failed_at: str) -> str:
    """The hour in which a letter failed, in UTC; ``(unknown)`` where its time cannot be read."""
    moment = read_time(failed_at)
    return moment.strftime("%Y-%m-%dT%H:00Z") if moment else "(unknown)"


def _latest(hours: Counts) -> Counts:
    """The last hours, as many as are shown, and one line for all before."""
    if len(hours) <= _ROWS_SHOWN:
        return hours
    before, shown = hours[: 1 - _ROWS_SHOWN], hours[1 - _ROWS_SHOWN :]
    return ((f"({len(before):,} hours before)", sum(count for _, count in before)), *shown)


def _shown(counts: Counts) -> Counts:
    """The first ten rows, made safe to print, and one that sums up the rest."""
    shown = tuple((printable(name, _TEXT_SHOWN), count) for name, count in counts[:_ROWS_SHOWN])
    rest = counts[_ROWS_SHOWN:]
    return (*shown, (f"({len(rest):,} more)", sum(count for _, count in rest))) if rest else shown
