"""What a replay would do, with nothing sent: selection, ledger, repair, policy, and a judge of what would be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlq_replay.archives import Damage
from dlq_replay.fixes import BadFixModule, Repaired
from dlq_replay.keys import LANES, KeySet, key_of, lane_of
from dlq_replay.ledger import Clock, Lane, Owner
from dlq_replay.policy import Decision, Fate, Outgoing
from dlq_replay.senders import Sender
from dlq_replay.settings import ReplaySettings
from dlq_replay.spilled import Unreadable, payload_of
from dlq_replay.store import Store
from dlq_replay.tally import Tally
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault, Json, Opener
from pipeline.core.text import printable

Judge = Callable[[Sequence[Outgoing]], list[tuple[Fault, ...]]]
"""The faults of each message, in order; none where it would pass."""

_JUDGED_AT_ONCE, _JUDGED_BYTES = 1000, 8 << 20
_KINDS, _SHOWN = 1000, 300


@dataclass(frozen=True)
class Failure:
    """The first letter met that would fail in a way; its texts are safe to print."""

    dlq_id: str
    message: str


class DryRun:
    """Takes letters one by one; ``tally`` and ``as_json`` say what would become of them.

    The tally's ``replayed`` are those that would be sent. ``judge`` None: nobody says whether they would pass.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        *,
        store: Store,
        sender: Sender,
        open_file: Opener,
        clock: Clock,
        judge: Judge | None,
    ) -> None:
        self._settings, self._sender, self._open, self._judge = settings, sender, open_file, judge
        owner = Owner(settings.replay_id, "dry-run", settings.lease_seconds)
        self._lanes = [Lane(store, index, owner=owner, clock=clock, force=settings.force) for index in range(LANES)]
        self._seen = KeySet()
        self._repair = settings.repair()
        self._waiting: list[tuple[DeadLetter, Outgoing]] = []
        self._bytes = 0
        self.tally = Tally()
        self.passing = self.late = 0
        self.failing: Counter[tuple[str, str | None]] = Counter()
        self.examples: dict[tuple[str, str | None], Failure] = {}

    @property
    def is_full(self) -> bool:
        """Whether as many letters as the limit allows were taken."""
        taken = self.tally.selected - self.tally.already - sum(self.tally.left.values())
        return self._settings.limit is not None and taken >= self._settings.limit

    def add(self, item: DeadLetter | Damage) -> None:
        """Take a letter (or damage of an archive) into account. Raises OSError for storage faults."""
        if isinstance(item, Damage):
            self.tally.damage_at(item)
            return
        self.tally.read += 1
        if not self._settings.filters.matches(item):
            return
        key = key_of(item)
        self.tally.selected += 1
        lane = self._lanes[lane_of(item)]
        if key in lane or not self._seen.add(key):
            self.tally.already += 1
            return
        self.tally.forced += lane.was_forced(key)
        self._decide(item)

    def finish(self) -> None:
        """Judge what is left to judge."""
        if not self._waiting or self._judge is None:
            self._waiting = []
            return
        verdicts = self._judge([outgoing for _, outgoing in self._waiting])
        for (letter, outgoing), faults in zip(self._waiting, verdicts, strict=True):
            self._count(letter, outgoing, faults)
        self._waiting, self._bytes = [], 0

    def _decide(self, letter: DeadLetter) -> None:
        decision = self._decision(letter)
        if decision.outgoing is not None:
            self.tally.replayed += 1
            self._waiting.append((letter, decision.outgoing))
            self._bytes += len(decision.outgoing.payload)
            if len(self._waiting) >= _JUDGED_AT_ONCE or self._bytes >= _JUDGED_BYTES:
                self.finish()
        elif decision.fate is Fate.PARK:
            self.tally.park(letter.dlq_id)
        else:
            self.tally.leave(decision.why)

    def _decision(self, letter: DeadLetter) -> Decision:
        policy = self._settings.policy
        if policy.is_used_up(letter):
            return policy.decide(letter, Repaired(b"", ()))
        try:
            most, folders = self._sender.max_bytes, self._settings.readable
            payload = payload_of(letter, self._open, max_bytes=most, folders=folders)
            repaired = self._repair(letter, payload)
        except (Unreadable, BadFixModule) as error:
            return Decision(Fate.LEAVE, str(error))
        for what in repaired.unapplied:
            self.tally.could_not(what)
        self.tally.changed += repaired.changed
        decision = policy.decide(letter, repaired)
        why = self._sender.refuses(decision.outgoing) if decision.outgoing else ""
        return Decision(Fate.LEAVE, why) if why else decision

    def _count(self, letter: DeadLetter, outgoing: Outgoing, faults: tuple[Fault, ...]) -> None:
        if not faults:
            if letter.reason == Reason.LATE_DATA.value:
                self.late += 1
            else:
                self.passing += 1
            return
        first = faults[0]
        kind = (first.reason.value, first.feature)
        if kind not in self.failing and len(self.failing) >= _KINDS:
            kind = ("(other)", None)
        self.failing[kind] += 1
        if kind not in self.examples:
            self.examples[kind] = Failure(printable(outgoing.dlq_id, 100), printable(first.message, _SHOWN))

    def as_json(self) -> Json:
        """The result for ``--json``; ``would_pass`` is null where nobody judged."""
        counts = self.tally.as_json()
        judged = self._judge is not None
        return {
            "dry_run": True,
            "read": counts["read"],
            "selected": counts["selected"],
            "already_done": counts["already_done"],
            "would_be_replayed": counts["replayed"],
            "would_pass": self.passing if judged else None,
            "would_pass_unless_late": self.late if judged else None,
            "would_fail": sum(self.failing.values()) if judged else None,
            "failures": [
                {
                    "reason": reason,
                    "feature": feature,
                    "count": count,
                    "example": vars_of(self.examples[reason, feature]),
                }
                for (reason, feature), count in self.failures()
            ],
            "would_be_parked": counts["parked"],
            **{
                name: counts[name]
                for name in (
                    "left",
                    "repaired",
                    "forced",
                    "repairs_not_applied",
                    "not_looked_at",
                    "damaged_parts",
                    "damage",
                )
            },
        }

    def failures(self) -> list[tuple[tuple[str, str | None], int]]:
        """(reason, feature) and how many would fail by it, most frequent first."""
        return sorted(self.failing.items(), key=_most_then_name)

    def lines(self) -> list[str]:
        """The result as lines that are safe to print."""
        tally = self.tally
        lines = [
            f"dry run: nothing was sent. {tally.read:,} dead letters read, {tally.selected:,} selected",
            *(f"DAMAGED: {damage} (the rest was read)" for damage in tally.damage),
            _line("already done", tally.already),
            _line("would be replayed", tally.replayed, f"{tally.changed:,} repaired"),
            *self._verdict(),
            _line("would be parked", tally.parked),
            *listed("would be left", tally.left),
            *listed("repair not applied", tally.unapplied),
            *listed("not looked at", tally.skipped),
        ]
        if tally.forced:
            lines.append(_line("done before", tally.forced, "would be sent again, because of --force"))
        return lines

    def _verdict(self) -> list[str]:
        if self._judge is None:
            return ["  (give --schema, and --transform if there is one, to see how many would pass)"]
        lines = [_line("  would pass", self.passing), _line("  would fail", sum(self.failing.values()))]
        if self.late:
            lines.insert(1, _line("  late", self.late, "pass, unless the live job finds them late again"))
        for (reason, feature), count in self.failures()[:20]:
            where = f" in {printable(feature, 100)}" if feature else ""
            example = self.examples[reason, feature]
            lines += [
                f"    {count:>10,}  {reason}{where}: {example.message}",
                f"                for example {example.dlq_id}",
            ]
        return lines


def vars_of(failure: Failure) -> Json:
    """An example as plain values."""
    return {"dlq_id": failure.dlq_id, "message": failure.message}


def listed(title: str, counts: Counter[str]) -> list[str]:
    """Counts by why, most frequent first; ten at most."""
    return [_line(title, count, why) for why, count in counts.most_common(10)]


def _line(title: str, count: int, more: str = "") -> str:
    return f"{title:<20}{count:>12,}{'  ' + more if more else ''}"


def _most_then_name(item: tuple[tuple[str, str | None], int]) -> tuple[int, str, str]:
    (reason, feature), count = item
    return -count, reason, feature or ""


def run_dry(dry: DryRun, items: Iterable[DeadLetter | Damage]) -> None:
    """Take all ``items``, up to the limit. Raises OSError for storage faults."""
    for item in items:
        if dry.is_full:
            break
        dry.add(item)
    dry.finish()
