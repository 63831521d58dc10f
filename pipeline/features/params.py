"""Checks of the parameters of the ops: each takes a YAML value and returns it clean, or raises Refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any

import numpy as np

from pipeline.core.schema import FLOAT32_MAX
from pipeline.core.schema_text import nearest

TIME_PARTS = ("year", "month", "day", "hour", "minute", "second", "day_of_week", "day_of_year")
"""What ``time_parts`` can take from a time; Monday is day_of_week 0, the first of January day_of_year 1."""


class Refusal(ValueError):
    """An op or a parameter that cannot stand where it stands; the message says why and how to fix it."""


def param(check: Callable[[Any], Any], *, default: Any = MISSING, key: str | None = None) -> Any:
    """A dataclass field for a parameter: its check, its default, and its name in YAML where that is a Python word."""
    return field(default=default, metadata={"check": check, "key": key})


def integer(low: int, high: int) -> Callable[[Any], int]:
    """A check for whole numbers in [low, high]."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Refusal(f"must be a whole number from {low} to {high}, but is {value!r}")
        return value

    return check


def number(value: Any) -> float:
    """A check for numbers that fit float32."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= FLOAT32_MAX:
        raise Refusal(f"must be a finite float32 number, but is {value!r}")
    return float(value)


def fraction(value: Any) -> float:
    """A check for numbers in (0, 1)."""
    checked = number(value)
    if not 0 < checked < 1:
        raise Refusal(f"must lie between 0 and 1, but is {value!r}")
    return checked


def boolean(value: Any) -> bool:
    """A check for true and false."""
    if not isinstance(value, bool):
        raise Refusal(f"must be true or false, but is {value!r}")
    return value


def one_of(*names: str) -> Callable[[Any], str]:
    """A check for one of ``names``."""

    def check(value: Any) -> str:
        if value not in names:
            hint = nearest(value, names) if isinstance(value, str) else f"use one of {', '.join(names)}"
            raise Refusal(f"cannot be {value!r}: {hint}")
        return str(value)

    return check


def any_scalar(value: Any) -> int | float | str:
    """A check for a number or a string."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Refusal(f"must be a number or a string, but is {value!r}")
    return value


def boundaries(value: Any) -> tuple[float, ...]:
    """A check for numbers that increase strictly as float32."""
    if not isinstance(value, list | tuple) or not value:
        raise Refusal(f"must be a list of numbers, but is {value!r}")
    numbers = tuple(number(item) for item in value)
    if any(np.diff(np.array(numbers, np.float32)) <= 0):
        raise Refusal(f"must increase from each number to the next (as float32), but is {value!r}")
    return numbers


def hash_key(value: Any) -> tuple[int, ...]:
    """A check for the two 64-bit numbers of a hash key."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise Refusal(f"must be a list of two whole numbers, but is {value!r}")
    return tuple(integer(0, 2**64 - 1)(item) for item in value)


def time_parts(value: Any) -> tuple[str, ...]:
    """A check for a list of different ``TIME_PARTS``."""
    if not isinstance(value, list | tuple) or not value:
        raise Refusal(f"must be a list of {', '.join(TIME_PARTS)}, but is {value!r}")
    names = tuple(one_of(*TIME_PARTS)(item) for item in value)
    if len(set(names)) < len(names):
        raise Refusal(f"names a part twice: {value!r}")
    return names
