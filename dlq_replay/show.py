"""Dead letters for people and programs to look at: where each came from, what is wrong with it, and its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlq_replay.archives import Damage, read_letters
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Json, Opener
from pipeline.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

PAYLOAD_SHOWN = 2_000
"""How many characters of a payload are shown unless told otherwise."""

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

    def as_json(self, *, payload_chars: int = PAYLOAD_SHOWN) -> Json:
        """The selection for ``--json``."""
        return {
            "dead_letters": [letter_as_json(letter, payload_chars=payload_chars) for letter in self.letters],
            "seen": self.seen,
            "more": self.more,
            "damage": [{"archive": d.uri, "offset": d.offset, "what": d.what} for d in self.damage],
        }

    def lines(self, *, payload_chars: int = PAYLOAD_SHOWN) -> list[str]:
        """The selection as lines that are safe to print."""
        lines = [f"DAMAGED: {damage} (the rest was read)" for damage in self.damage]
        for number, letter in enumerate(self.letters, start=1):
            lines += [*letter_lines(letter, number, payload_chars=payload_chars), ""]
        return [*lines, self._tail()]

    def render(self, console: Console, *, payload_chars: int = PAYLOAD_SHOWN) -> None:
        """Prints the selection; the line that names a letter is bold on a terminal."""
        for line in self.lines(payload_chars=payload_chars):
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


def select(
    uris: Iterable[str], open_file: Opener, *, reason: str | None = None, feature: str | None = None, limit: int = 20
) -> Selection:
    """The first ``limit`` dead letters with ``reason`` in which ``feature`` is at fault; None asks for any.

    Reads no further than the limit. Raises only storage faults (OSError).
    """
    letters: list[DeadLetter] = []
    damage: list[Damage] = []
    reasons: set[str] = set()
    seen, more = 0, False
    for item in read_letters(uris, open_file):
        if isinstance(item, Damage):
            damage.append(item)
            continue
        if len(letters) == limit:
            more = True
            break
        seen += 1
        if len(reasons) < 1000:
            reasons.add(item.reason)
        if _matches(item, reason, feature):
            letters.append(item)
    return Selection(tuple(letters), seen, more, tuple(sorted(reasons)), tuple(damage))


def _matches(letter: DeadLetter, reason: str | None, feature: str | None) -> bool:
    wanted = reason is None or letter.reason == reason
    return wanted and (feature is None or any(fault.feature == feature for fault in letter.faults))


def letter_as_json(letter: DeadLetter, *, payload_chars: int = PAYLOAD_SHOWN) -> Json:
    """All of a dead letter but a payload's end: ``payload`` is text where it is UTF-8, else hexadecimal.

    ``payload_encoding`` says which; ``payload_cut`` whether more than ``payload_chars`` characters were there.
    """
    encoding, payload = _encoded(letter.payload)
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
        "payload": None if payload is None else payload[:payload_chars],
        "payload_encoding": encoding,
        "payload_cut": payload is not None and len(payload) > payload_chars,
        "payload_length": letter.payload_length,
        "payload_sha256": letter.payload_sha256,
        "payload_uri": letter.payload_uri,
    }


def letter_lines(letter: DeadLetter, number: int, *, payload_chars: int = PAYLOAD_SHOWN) -> list[str]:
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
    return [*lines, f"   payload  {letter.payload_length:,} bytes{_payload_text(letter, payload_chars)}"]


def _payload_text(letter: DeadLetter, limit: int) -> str:
    """Text where most of the bytes are, with the others escaped (a Latin-1 é in a JSON line); else hexadecimal."""
    payload = letter.payload
    if payload is None:
        return f", kept in {_safe(letter.payload_uri or '(nowhere)')}"
    if not payload:
        return ""
    start = payload[: 4 * limit]
    good = sum(char.isprintable() or char in "\t\r\n" for char in start.decode("utf-8", "replace") if char != "\ufffd")
    if 4 * good >= 3 * len(start.decode("utf-8", "replace")):
        return f": {printable(payload, limit)}"
    return f", in hexadecimal: {printable(payload[: limit // 2 + 1].hex(), limit)}"


def _encoded(payload: bytes | None) -> tuple[str | None, str | None]:
    if payload is None:
        return None, None
    try:
        return "utf-8", payload.decode("utf-8")
    except UnicodeDecodeError:
        return "hex", payload.hex()


def _safe(text: str) -> str:
    return printable(text, _TEXT_SHOWN)
