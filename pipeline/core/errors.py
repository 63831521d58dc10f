"""Failures of a whole command, each with the exit code that its user's scripts see."""

from __future__ import annotations


class HeadraceError(Exception):
    """The run failed (exit code 1). The message says what, where, why and how to fix it."""

    exit_code = 1


class UsageError(HeadraceError):
    """Bad usage or configuration (exit code 2): nothing was started."""

    exit_code = 2


class GuardError(HeadraceError):
    """The data failed a guard (exit code 3): nothing was committed, dead letters are kept."""

    exit_code = 3


class RefusedError(HeadraceError):
    """Refused for safety (exit code 4), for example an incompatible update."""

    exit_code = 4
