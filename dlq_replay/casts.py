"""Values of JSON cast as text: what a number or string becomes, where nothing is lost by it."""

from __future__ import annotations

import re
from collections.abc import Callable

from dlq_replay.json_members import is_number, string_of

_WHOLE = re.compile(r"\s*(?:\+|(-?))0*([0-9]+)(?:\.0*)?\s*", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})


class Unapplied(Exception):
    """An operation that cannot do its work here; the message says why, without data."""


def to_int(value: str) -> str:
    """JSON text as a whole number: a number or string without a fraction, a bool. Raises Unapplied for the rest."""
    text = string_of(value)
    if value in ("true", "false"):
        return "1" if value == "true" else "0"
    match = _WHOLE.fullmatch(value if text is None else text)
    if match is None or (text is None and not is_number(value)):
        raise Unapplied("the value is no whole number")
    sign, digits = match.groups()
    return "0" if digits == "0" else (sign or "") + digits


def to_float(value: str) -> str:
    """JSON text as a number: a number as it is, a string that holds a finite one. Raises Unapplied for the rest."""
    text = string_of(value)
    if text is None and is_number(value):
        return value
    if text is not None and is_number(text.strip()):
        return text.strip()
    try:
        number = float(text or "")
    except ValueError:
        number = float("inf")
    if "_" in (text or "") or not abs(number) < float("inf"):
        raise Unapplied("the value is no finite number")
    return repr(number)


def to_string(value: str) -> str:
    """JSON text as a string: a number or bool as it was written. Raises Unapplied for null and objects."""
    if value[:1] == '"':
        return value
    if value in ("true", "false") or is_number(value):
        return f'"{value}"'
    raise Unapplied("null or an object cannot become a string")


def to_bool(value: str) -> str:
    """JSON text as a bool: true, false, 1, 0, and the strings true, false, yes, no, 1, 0. Raises Unapplied else."""
    text = string_of(value)
    word = (value if text is None else text).strip().lower()
    if word not in _TRUE | _FALSE:
        raise Unapplied("the value is neither true nor false")
    return "true" if word in _TRUE else "false"


CASTS: dict[str, Callable[[str], str]] = {"int": to_int, "float": to_float, "string": to_string, "bool": to_bool}
"""What a value can be cast to."""
