"""Dead letters for people and programs to look at: where each came from, what is wrong with it, and its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlq_replay.archives import Damage
from dlq_replay.payloads import OPEN, View
from dlq_replay.selection import ALL, Filters
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Json
from pipeline.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

_FAULTS_SHOWN, _TEXT_SHOWN = 20, 500


@dataclass(frozen=True)
class Selection:
    """The dead letters that were asked for, up to the limit.

    ``seen`` counts those looked at; ``more`` says that reading stopped at the limit. ``reasons`` are the codes met,
    sorted: what to ask for instead where nothing matched.
    """

    letters: tuple[DeadLetter, ...]
    seen: int
    more: bool
    reasons: tuple[str, ...]
    damage: tuple[Damage, ...]

    def as_json(self, view: View = OPEN) -> Json:
        """The selection for ``--json``."""
        return {
            "dead_letters": [letter_as_json(letter, view) for letter in self.letters],
            "seen": self.seen,
            "more": self.more,
            "damage": [{"archive": d.uri, "offset": d.offset, "what": d.what} for d in self.damage],
        }

    def lines(self, view: View = OPEN) -> list[str]:
        """The selection as lines that are safe to print."""
        lines = [f"DAMAGED: {damage} (the rest was read)" for damage in self.damage]
        for number, letter in enumerate(self.letters, start=1):
            lines += [*letter_lines(letter, number, view), ""]
        return [*lines, self._tail()]

    def render(self, console: Console, view: View = OPEN) -> None:
        """Prints the selection; the line that names a letter is bold on a terminal."""
        for line in self.lines(view):
            style = "bold" if line[:1].isdigit() else None
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def _tail(self) -> str:
        if self.letters:
            more = "; there may be more (--limit)" if self.more else ""
            return f"shown: {len(self.letters):,} of {self.seen:,} dead letters looked at{more}"
        if not self.seen:
            return "there are no dead letters here"
        reasons = ", ".join(printable(reason, 60) for reason in self.reasons[:30])
        return f"none of {self.seen:,} dead letters matches; their reasons are: {reasons}"


def select(items: Iterable[DeadLetter | Damage], filters: Filters = ALL, *, limit: int = 20) -> Selection:
    """The first ``limit`` selected dead letters among ``items``.

    Reads no further than the limit. Raises only storage faults (OSError).
    """
    letters: list[DeadLetter] = []
    damage: list[Damage] = []
    reasons: set[str] = set()
    seen, more = 0, False
    for item in items:
        if isinstance(item, Damage):
            damage.append(item)
            continue
        if len(letters) == limit:
            more = True
            break
        seen += 1
        if len(reasons) < 1000:
            reasons.add(item.reason)
        if filters.matches(item):
            letters.append(item)
    return Selection(tuple(letters), seen, more, tuple(sorted(reasons)), tuple(damage))


def letter_as_json(letter: DeadLetter, view: View = OPEN) -> Json:
    """All of a dead letter but a payload's end: ``payload`` is text where it is UTF-8, else hexadecimal.

    ``payload_encoding`` says which; ``payload_cut`` whether more than the view's characters were there;
    ``payload_withheld`` why it is not there, or null.
    """
    payload, withheld = view.payload(letter)
    encoding, text = encoded(payload)
    return {
        "dlq_id": letter.dlq_id,
        "reason": letter.reason,
        "stage": letter.stage,
        "feature": letter.feature,
        "message": letter.message,
        "source": letter.source,
        "failed_at": letter.failed_at,
        "event_time": letter.event_time,
        "attempt": letter.attempt,
        "job": letter.job,
        "schema": letter.schema,
        "faults": [
            {"reason": f.reason, "stage": f.stage, "feature": f.feature, "message": f.message} for f in letter.faults
        ],
        "attributes": dict(letter.attributes),
        "ordering_key": letter.ordering_key,
        "payload": None if text is None else text[: view.chars],
        "payload_encoding": encoding,
        "payload_cut": text is not None and len(text) > view.chars,
        "payload_withheld": withheld or None,
        "payload_length": letter.payload_length,
        "payload_sha256": letter.payload_sha256,
        "payload_uri": letter.payload_uri,
    }


def letter_lines(letter: DeadLetter, number: int, view: View = OPEN) -> list[str]:
    """A dead letter as lines that are safe to print, the first one starting with ``number``."""
    feature = "" if letter.feature is None else f" in {_safe(letter.feature)}"
    times = f"{_safe(letter.failed_at)}, attempt {letter.attempt}, job {_safe(letter.job)}"
    lines = [
        f"{number}  {_safe(letter.reason)}{feature}",
        f"   source   {_safe(letter.source)}",
        f"   failed   {times}",
        f"   id       {_safe(letter.dlq_id)}",
    ]
    for fault in letter.faults[:_FAULTS_SHOWN]:
        at = "" if fault.feature is None else f" in {_safe(fault.feature)}"
        lines.append(f"   fault    {_safe(fault.reason)} ({_safe(fault.stage)}){at}: {_safe(fault.message)}")
    if len(letter.faults) > _FAULTS_SHOWN:
        lines.append(f"   fault    ... and {len(letter.faults) - _FAULTS_SHOWN} more")
    lines += [f"   with     {_safe(name)} = {_safe(value)}" for name, value in letter.attributes]
    return [*lines, f"   payload  {letter.payload_length:,} bytes{_payload_text(letter, view)}"]


def _payload_text(letter: DeadLetter, view: View) -> str:
    """Text where most of the bytes are, with the others escaped (a Latin-1 é in a JSON line); else hexadecimal."""
    payload, withheld = view.payload(letter)
    limit = view.chars
    if withheld:
        return f", {withheld}"
    if payload is None:
        return f", kept in {_safe(letter.payload_uri or '(nowhere)')}"
    if not payload:
        return ""
    start = payload[: 4 * limit]
    good = sum(char.isprintable() or char in "\t\r\n" for char in start.decode("utf-8", "replace") if char != "\ufffd")
    if 4 * good >= 3 * len(start.decode("utf-8", "replace")):
        return f": {printable(payload, limit)}"
    return f", in hexadecimal: {printable(payload[: limit // 2 + 1].hex(), limit)}"


def encoded(payload: bytes | None) -> tuple[str | None, str | None]:
    """(encoding, text) of a payload: UTF-8 where it is, else hexadecimal."""
    if payload is None:
        return None, None
    try:
        return "utf-8", payload.decode("utf-8")
    except UnicodeDecodeError:
        return "hex", payload.hex()


def _safe(text: str) -> str:
    return printable(text, _TEXT_SHOWN)
