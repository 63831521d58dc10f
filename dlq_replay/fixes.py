"""Repairs of dead letters: which operations concern a letter, and what comes of them. The letter is not altered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlq_replay.casts import Unapplied
from dlq_replay.fix_ops import Attributes, Op, draft_of
from dlq_replay.json_members import joined
from pipeline.core.dead_letter import DeadLetter


@dataclass(frozen=True)
class Fix:
    """Operations in order, for the dead letters whose reason and faulty features are named; empty means any."""

    ops: tuple[Op, ...]
    reasons: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()

    def concerns(self, letter: DeadLetter) -> bool:
        """Whether one fault of the letter has a named reason and a named feature."""
        return any(
            (not self.reasons or fault.reason in self.reasons) and (not self.features or fault.feature in self.features)
            for fault in letter.faults
        )


@dataclass(frozen=True)
class Repaired:
    """What a repair made of a dead letter: bytes and attributes to send; or ``parked``, to be kept instead of sent.

    ``changed`` says that payload or attributes are not as they were; ``unapplied`` says what could not be done and why.
    """

    payload: bytes
    attributes: Attributes
    changed: bool = False
    parked: bool = False
    unapplied: tuple[str, ...] = ()


UserFix = Callable[[bytes, dict[str, str]], Any]
"""``--fix_module``: payload and attributes in; payload and attributes out, or None to park the letter."""


class BadFixModule(Exception):
    """The user's function failed, or gave what cannot be sent; the letter is left as it is."""


@dataclass(frozen=True)
class Repair:
    """All repairs of a replay: the fixes in order, then the user's function."""

    fixes: tuple[Fix, ...] = ()
    user: UserFix | None = None

    def __call__(self, letter: DeadLetter, payload: bytes) -> Repaired:
        """The repaired payload and attributes of ``letter``, whose bytes are ``payload``. The letter is not altered.

        Raises BadFixModule where the user's function fails.
        """
        repaired = self._fixed(letter, payload)
        return repaired if self.user is None else _by_user(self.user, repaired)

    def _fixed(self, letter: DeadLetter, payload: bytes) -> Repaired:
        ops = [op for fix in self.fixes if fix.concerns(letter) for op in fix.ops]
        if not ops:
            return Repaired(payload, letter.attributes)
        start = draft = draft_of(payload, letter.attributes)
        unapplied = []
        for op in ops:
            try:
                draft = op(draft)
            except Unapplied as why:
                unapplied.append(f"{op.what}: {why}")
        changed = payload if draft.members == start.members else joined(list(draft.members or ()))
        return Repaired(changed, draft.attributes, draft != start, False, tuple(unapplied))


def _by_user(function: UserFix, repaired: Repaired) -> Repaired:
    try:
        result = function(repaired.payload, dict(repaired.attributes))
    except (Exception, SystemExit) as error:  # the user's code may raise anything; it is theirs to fix
        raise BadFixModule(f"the fix module failed: {type(error).__name__}: {_words(error)}") from error
    if result is None:
        return replace(repaired, parked=True)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise BadFixModule(f"the fix module gave {type(result).__name__}, not (bytes, attributes) or None")
    payload, attributes = result
    if not isinstance(payload, bytes) or not _is_text_map(attributes):
        raise BadFixModule("the fix module must give bytes, and a dict of attributes whose names and values are text")
    pairs = tuple(sorted(attributes.items()))
    changed = repaired.changed or payload != repaired.payload or pairs != repaired.attributes
    return replace(repaired, payload=payload, attributes=pairs, changed=changed)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # even this is the user's code
        return "(it cannot be shown)"


def _is_text_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)
