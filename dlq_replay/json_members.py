"""A JSON object as its members' own text, so that what a repair does not touch keeps every byte: numbers, escapes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(
    r'[ \t\r\n]*("([^"\\\x00-\x1f]*)")[ \t\r\n]*:[ \t\r\n]*'
    r'(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|"[^"\\\x00-\x1f]*"|true|false|null)[ \t\r\n]*([,}])'
)
"""A member without escapes whose value is no list and no object, and what follows it: nearly all that there are."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class NotJson(ValueError):
    """The text is no JSON object; says why, in a few words without data."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its ``key``, the key as it was written, and the ``value`` as it was written."""

    key: str
    written: str
    value: str


def members_of(payload: bytes) -> list[Member]:
    """The members of the object that ``payload`` is, in order; a key given twice is there twice.

    Joined again (``joined``) they are the same object. Raises NotJson for anything but one JSON object in UTF-8.
    """
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson("it is not UTF-8") from None
    at = _skip(text, 1 if text[:1] == "\ufeff" else 0)
    if text[at : at + 1] != "{":
        raise NotJson("it is no JSON object")
    found, at = _members(text, at)
    if _skip(text, at) != len(text):
        raise NotJson("there is more after the JSON object")
    return found


def joined(members: list[Member]) -> bytes:
    """The object of the members, without spaces between them."""
    return ("{" + ",".join(f"{member.written}:{member.value}" for member in members) + "}").encode()


def member(key: str, value: str) -> Member:
    """A new member; ``value`` is JSON text."""
    return Member(key, text_of(key), value)


def items_of(value: str) -> list[str] | None:
    """The items of a JSON list as they were written; None where ``value`` (JSON text) is no list."""
    if value[:1] != "[":
        return None
    found, at = [], _skip(value, 1)
    if value[at] == "]":
        return []
    while True:
        end = _value_end(value, at)
        found.append(value[at:end])
        at = _skip(value, end)
        if value[at] == "]":
            return found
        at = _skip(value, at + 1)


def is_number(value: str) -> bool:
    """Whether ``value`` is a number as JSON writes them."""
    return _NUMBER.fullmatch(value) is not None


def string_of(value: str) -> str | None:
    """The string that ``value`` (JSON text) is; None where it is none."""
    return str(json.loads(value, strict=False)) if value[:1] == '"' else None


def text_of(value: Any) -> str:
    """A plain value (from YAML) as JSON text. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can stand for
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


def _members(text: str, at: int) -> tuple[list[Member], int]:
    found: list[Member] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if plain := _PLAIN.match(text, at):
            written, key, value, after = plain.groups()
            found.append(Member(key, written, value))
            at = plain.end()
            if after == "}":
                return found, at
            continue
        at = _skip(text, at)
        match = _STRING.match(text, at)
        if match is None:
            raise NotJson("a key is not a string")
        colon = _skip(text, match.end())
        if text[colon : colon + 1] != ":":
            raise NotJson("a key has no value")
        start = _skip(text, colon + 1)
        end = _value_end(text, start)
        found.append(Member(_read_string(match[0]), match[0], text[start:end]))
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise NotJson("members are not separated by commas")
        at += 1


def _read_string(written: str) -> str:
    try:
        return str(json.loads(written))
    except ValueError:
        raise NotJson("a key is not a JSON string") from None


def _value_end(text: str, start: int) -> int:
    """Where the value at ``start`` ends; it is parsed, with numbers left as text (5,000 digits cost nothing)."""
    try:
        _, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise NotJson("it is nested too deep") from None
    except ValueError:
        raise NotJson("a value is not JSON") from None
    return end


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _no_constant(word: str) -> Any:
    """NaN and Infinity stay as they were written: a repair may replace them."""
    return word


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
