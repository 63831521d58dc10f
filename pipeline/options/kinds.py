"""What an option is: its type, its help, how argparse and Beam's pipeline options are both made from it."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.errors import UsageError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?"
_SIZE = r"([0-9]+(\.[0-9]+)?) ?([bB]|[kKmMgG][iI]?[bB]|)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"0|([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)"
_COUNT, _SEED = "[0-9]{1,18}", "[0-9]{1,19}"


def byte_size(text: str) -> int:
    """Bytes in ``text``: a number with an optional unit, e.g. ``134217728``, ``128MiB``, ``1.5GB``.

    Raises argparse.ArgumentTypeError for anything else, and for less than one byte.
    """
    match = re.fullmatch(_SIZE, text)
    size = float(match[1]) * _UNITS[match[3].upper()] if match else 0.0
    if not 1 <= size < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a size; write for example 134217728, 128MiB or 1.5GB")
    return int(size)


def duration(text: str) -> float:
    """Seconds in ``text``: a number with a unit, e.g. ``500ms``, ``90s``, ``10m``, ``1.5h``, ``7d``, and ``0``.

    Raises argparse.ArgumentTypeError for anything else, and for centuries, which no clock of a runner can add.
    """
    match = re.fullmatch(_DURATION, text)
    seconds = (float(match[1]) * _SECONDS[match[2]] if match[1] else 0.0) if match else -1.0
    if not 0 <= seconds < 2**33:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a duration; write for example 90s, 10m, 1h or 7d")
    return seconds


def count(text: str) -> int:
    """A whole number of at least 1; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(_COUNT, text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def positive(text: str) -> float:
    """A finite number above 0; raises argparse.ArgumentTypeError otherwise."""
    value = float(text) if re.fullmatch(_NUMBER, text) else 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1; raises argparse.ArgumentTypeError otherwise."""
    value = float(text) if re.fullmatch(_NUMBER, text) else -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; write a number from 0 to 1")
    return value


def named(text: str) -> str:
    """``text``, which names something; raises argparse.ArgumentTypeError for nothing but white space."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "it is empty; give a value, or leave the flag out (is a shell variable unset?)"
        )
    return text


def words(text: str) -> tuple[str, ...]:
    """Comma-separated words; an empty word is kept, so that ``--csv_null_tokens=,NA`` holds the empty token."""
    return tuple(text.split(","))


def seed_number(text: str) -> int:
    """A seed from 0 to 2**63 - 1; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(_SEED, text) or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; write a whole number from 0 to 2**63-1")
    return int(text)


PATTERNS: dict[Callable[[str], Any], str] = {
    byte_size: _SIZE,
    duration: _DURATION,
    count: _COUNT,
    positive: _NUMBER,
    fraction: _NUMBER,
    seed_number: _SEED,
}
"""A regular expression for each type of text that has one; what does not match it is refused."""


@dataclass(frozen=True)
class Option:
    """One flag: ``--name``, its type, default and help; ``flag`` options take no value, ``many`` may be repeated.

    ``pattern`` is a regular expression for the texts that it takes, where a template should check them beforehand.
    """

    name: str
    help: str
    type: Callable[[str], Any] = named
    default: Any = None
    choices: tuple[str, ...] | None = None
    required: bool = False
    many: bool = False
    flag: bool = False
    metavar: str | None = None
    pattern: str | None = None


def add_options(parser: Any, options: Iterable[Option], *, enforce: bool = True) -> None:
    """Add ``options`` to an argparse parser; ``enforce=False`` leaves required ones optional (for Beam's views)."""
    for option in options:
        arguments: dict[str, Any] = {"dest": option.name, "default": option.default, "help": _help(option)}
        if option.flag:
            parser.add_argument(f"--{option.name}", action="store_true", **{**arguments, "default": False})
            continue
        arguments |= {"type": option.type, "metavar": option.metavar}
        if option.choices:
            arguments |= {"choices": option.choices, "metavar": None}
        if option.many:
            arguments["action"] = "append"
        parser.add_argument(f"--{option.name}", required=option.required and enforce, **arguments)


def _help(option: Option) -> str:
    text = option.help.replace("%", "%%")
    shown = option.default not in (None, (), False) and not option.flag and "default" not in text
    return f"{text} Default: {option.default}." if shown else text


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError, so that a bad flag is reported like every other bad setting."""

    def error(self, message: str) -> Any:
        """Raise UsageError with the command's own help named."""
        raise UsageError(f"{message}\nSee: {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        """Leave after --help, flushing so that a closed pipe is seen here."""
        sys.stdout.flush()
        super().exit(status, message)


def refuse_unknown(prog: str, unknown: Sequence[str], known: Iterable[str]) -> None:
    """Raise UsageError for each argument left over, with the nearest known flag."""
    if not unknown:
        return
    names = sorted(set(known))
    lines = []
    for argument in unknown:
        flag = argument.split("=", 1)[0]
        nearest = difflib.get_close_matches(flag, names, n=1, cutoff=0.6) if flag.startswith("-") else []
        lines.append(f"unknown argument {argument!r}" + (f"; did you mean {nearest[0]}?" if nearest else ""))
    raise UsageError("\n".join([*lines, f"See: {prog} --help"]))
