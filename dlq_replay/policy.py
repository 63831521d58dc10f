"""What becomes of a dead letter in a replay, and the message that it is sent as. Pure.

A letter of attempt n is sent as attempt n + 1, at most ``max_attempts`` times; then it is parked. The message carries
the attributes that it first came with (under ``orig_<name>`` where ours have the name), its ordering key and event
time, and ``dlq_id`` and ``dlq_attempt``, by which a second failure is told as the same story. What else is known of the
failure (``dlq_reason`` and so on) stays in the archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dlq_replay.fixes import Repaired
from dlq_replay.selection import place_of
from pipeline.core.dead_letter import (
    MAX_ATTRIBUTES,
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    OWN_NAMES,
    DeadLetter,
    carried_name,
)

MAX_ATTEMPTS = 3
"""How often a dead letter is replayed unless told otherwise."""


class Fate(str, Enum):
    """What is done with a dead letter. Those left stay where they are, to be replayed when that can be done."""

    REPLAY = "replayed"
    PARK = "parked"
    LEAVE = "left"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A repaired dead letter as a message; ``attempt`` is the one that it makes. Attributes are sorted by name.

    ``place`` is the file or subscription that the letter was refused from; it is not sent.
    """

    dlq_id: str
    attempt: int
    payload: bytes
    attributes: tuple[tuple[str, str], ...]
    ordering_key: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of a letter, and why where it is not sent; ``outgoing`` where it is."""

    fate: Fate
    why: str = ""
    outgoing: Outgoing | None = None


@dataclass(frozen=True)
class Policy:
    """How replays are made. ``timestamp_attribute`` is the one that the live job takes event times from, if it does."""

    max_attempts: int = MAX_ATTEMPTS
    timestamp_attribute: str | None = None

    def is_used_up(self, letter: DeadLetter) -> bool:
        """Whether the letter was replayed as often as it may be, and failed each time."""
        return letter.attempt >= self.max_attempts

    def decide(self, letter: DeadLetter, repaired: Repaired) -> Decision:
        """What becomes of ``letter``, whose repair is ``repaired``."""
        if self.is_used_up(letter):
            return Decision(Fate.PARK, f"replayed {letter.attempt} times, and it failed each time")
        if repaired.parked:
            return Decision(Fate.PARK, "the fix module parked it")
        outgoing = self._outgoing(letter, repaired)
        why = _unsendable(outgoing)
        return Decision(Fate.LEAVE, why) if why else Decision(Fate.REPLAY, "", outgoing)

    def _outgoing(self, letter: DeadLetter, repaired: Repaired) -> Outgoing:
        attributes = {carried_name(name): value for name, value in repaired.attributes}
        attempt = letter.attempt + 1
        attributes |= {"dlq_id": letter.dlq_id, "dlq_attempt": str(attempt)}
        for name, value in self._if_there_is_room(letter, repaired):
            if name not in attributes and len(attributes) < MAX_ATTRIBUTES:
                attributes[name] = value
        return Outgoing(
            letter.dlq_id,
            attempt,
            repaired.payload,
            tuple(sorted(attributes.items())),
            letter.ordering_key,
            place_of(letter.source),
        )

    def _if_there_is_room(self, letter: DeadLetter, repaired: Repaired) -> Iterator[tuple[str, str]]:
        """Attributes that are good to have, the most needed first."""
        if letter.event_time:
            if self.timestamp_attribute:
                yield self.timestamp_attribute, letter.event_time
            yield "dlq_event_time", letter.event_time
        # Ours that is not sent with a replay: then other consumers find theirs under its own name too.
        yield from ((name, value) for name, value in repaired.attributes if name in OWN_NAMES and name[:4] != "dlq_")


def _unsendable(outgoing: Outgoing) -> str:
    """Why Pub/Sub would refuse the attributes; empty where it would not."""
    if len(outgoing.attributes) > MAX_ATTRIBUTES:
        return (
            f"{len(outgoing.attributes)} attributes with dlq_id and dlq_attempt; a message has at most {MAX_ATTRIBUTES}"
        )
    for name, value in outgoing.attributes:
        try:
            sizes = len(name.encode()), len(value.encode())
        except UnicodeEncodeError:
            return "an attribute is no text that UTF-8 can hold"
        if not 0 < sizes[0] <= MAX_KEY_BYTES or sizes[1] > MAX_VALUE_BYTES:
            return f"an attribute's name is over {MAX_KEY_BYTES} bytes (or empty), or its value over {MAX_VALUE_BYTES}"
    return ""
