"""The accounts of a replay: counts that merge, bounded lists of what a person will ask for. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dlq_replay.archives import Damage
from pipeline.core.records import Json
from pipeline.core.text import printable

_LISTED = 10_000
_KINDS = 1000
_TEXT = 300
OTHER = "(other)"


@dataclass
class Tally:
    """What became of dead letters. ``read`` = not selected + ``selected``; ``selected`` = the four below it.

    ``already`` were done before (or are in the source twice), ``left`` stay where they are, by why. ``unapplied``
    counts repairs that could not be made, ``changed`` letters that a repair changed, ``forced`` those that were done
    before and are done again. Ids of parked letters are listed up to 10,000.
    """

    read: int = 0
    selected: int = 0
    already: int = 0
    replayed: int = 0
    parked: int = 0
    left: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    forced: int = 0
    unapplied: Counter[str] = field(default_factory=Counter)
    parked_ids: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """What was not looked at at all, by why: objects and messages that are newer than the replay."""

    def leave(self, why: str) -> None:
        """Count a letter that stays where it is."""
        _count(self.left, why)

    def could_not(self, what: str) -> None:
        """Count a repair that could not be made."""
        _count(self.unapplied, what)

    def park(self, dlq_id: str) -> None:
        """Count a letter that is parked."""
        self.parked += 1
        if len(self.parked_ids) < _LISTED:
            self.parked_ids.append(printable(dlq_id, 100))

    def damage_at(self, damage: Damage) -> None:
        """Count a part of an archive that cannot be read."""
        self.damaged += 1
        if len(self.damage) < _KINDS:
            self.damage.append(damage)

    def merge(self, other: Tally) -> None:
        """Add the accounts of another sender."""
        for name in ("read", "selected", "already", "replayed", "parked", "changed", "forced", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.left += other.left
        self.unapplied += other.unapplied
        self.skipped += other.skipped
        self.parked_ids = (self.parked_ids + other.parked_ids)[:_LISTED]
        self.damage = (self.damage + other.damage)[:_KINDS]

    @property
    def balances(self) -> bool:
        """Whether every selected letter is accounted for."""
        return self.selected == self.already + self.replayed + self.parked + sum(self.left.values())

    def as_json(self) -> Json:
        """The accounts as plain values."""
        return {
            "read": self.read,
            "selected": self.selected,
            "already_done": self.already,
            "replayed": self.replayed,
            "parked": self.parked,
            "left": dict(self.left.most_common()),
            "repaired": self.changed,
            "forced": self.forced,
            "repairs_not_applied": dict(self.unapplied.most_common()),
            "not_looked_at": dict(self.skipped.most_common()),
            "damaged_parts": self.damaged,
            "damage": [{"archive": d.uri, "offset": d.offset, "what": d.what} for d in self.damage],
            "parked_ids": sorted(self.parked_ids),
            "parked_ids_complete": len(self.parked_ids) == self.parked,
        }


def _count(counts: Counter[str], text: str) -> None:
    shown = printable(text, _TEXT)
    counts[shown if shown in counts or len(counts) < _KINDS else OTHER] += 1
