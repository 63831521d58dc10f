"""How payloads are shown to people and programs: how much of them, and what is kept back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_replay.json_members import Member, NotJson, joined, members_of
from pipeline.core.dead_letter import DeadLetter

PAYLOAD_SHOWN = 2_000
"""How many characters of a payload are shown unless told otherwise."""

WITHHELD_MARK = "details withheld because of --redact_features"
"""How the message of a fault ends whose details a job kept back."""

_REDACTED = '"(redacted)"'


@dataclass(frozen=True)
class View:
    """``chars`` of a payload are shown, the values of ``redact`` never, a withheld letter's only with ``reveal``."""

    chars: int = PAYLOAD_SHOWN
    redact: frozenset[str] = frozenset()
    reveal: bool = False

    def payload(self, letter: DeadLetter) -> tuple[bytes | None, str]:
        """The bytes to show (None where they are not in the letter), and why they are kept back; empty where not."""
        if letter.payload is None:
            return None, ""
        if not self.reveal and any(fault.message.endswith(WITHHELD_MARK) for fault in letter.faults):
            return None, "withheld, as the job's --redact_features asked; --reveal shows it"
        if not self.redact:
            return letter.payload, ""
        try:
            members = members_of(letter.payload)
        except NotJson as error:
            return None, f"withheld, since {error} and could hold a value of --redact_features"
        return joined([self._shown(one) for one in members]), ""

    def _shown(self, one: Member) -> Member:
        return Member(one.key, one.written, _REDACTED) if one.key in self.redact else one


OPEN = View()
"""Nothing is kept back but what a job withheld."""
