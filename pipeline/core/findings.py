"""What a check before a launch found: how bad it is, what it is about, what is so, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from pipeline.core.records import Json
from pipeline.core.text import printable

_SHOWN = 2000  # characters of a line: names and messages may come from anywhere


class Level(str, Enum):
    """How bad a finding is. UNKNOWN is what could not be seen from here; only a PROBLEM refuses the launch."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``about`` names the thing (``subscription``, ``dead-letter topic``, ``--output`` ...).

    ``todo`` is what to do, usually a command to copy; empty where there is nothing to do.
    """

    level: Level
    about: str
    what: str
    todo: str = ""

    def as_json(self) -> Json:
        """Plain values."""
        return {"level": self.level.value, "about": self.about, "what": self.what, "todo": self.todo}

    def lines(self) -> list[str]:
        """For a person: one line, and one more for what to do. Control characters are shown, not obeyed."""
        first = printable(f"{self.level.value:<8} {self.about}: {self.what}", _SHOWN)
        return [first] + [printable(f"{'':<8} -> {self.todo}", _SHOWN)] * bool(self.todo)


def ok(about: str, what: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, about, what)


def unknown(about: str, what: str, todo: str = "") -> Finding:
    """It cannot be seen from here."""
    return Finding(Level.UNKNOWN, about, what, todo)


def warning(about: str, what: str, todo: str = "") -> Finding:
    """It works, and will hurt one day."""
    return Finding(Level.WARNING, about, what, todo)


def problem(about: str, what: str, todo: str = "") -> Finding:
    """It cannot work, or would lose messages."""
    return Finding(Level.PROBLEM, about, what, todo)


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Those that refuse the launch."""
    return [finding for finding in findings if finding.level is Level.PROBLEM]
