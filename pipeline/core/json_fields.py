"""Typed reading of JSON documents: what is missing or of the wrong type is named by its path."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.core.text import printable


class Fields:
    """One JSON object being read; ``where`` is its path for messages, as in ``manifest.json: shards[3]``.

    Each method raises UsageError where the value is missing or is not what was asked for.
    """

    def __init__(self, value: object, where: str):
        self._where = where
        if not isinstance(value, dict):
            self._refuse("", value, "an object")
        self.value: Json = value

    def text(self, key: str) -> str:
        """A string."""
        value = self.value.get(key)
        return value if isinstance(value, str) else self._refuse(key, value, "a string")

    def optional_text(self, key: str) -> str | None:
        """A string, or None where it is null or absent."""
        return None if self.value.get(key) is None else self.text(key)

    def count(self, key: str) -> int:
        """An integer of at least 0."""
        value = self.value.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self._refuse(key, value, "an integer of at least 0")

    def switch(self, key: str) -> bool:
        """True or false."""
        value = self.value.get(key)
        return value if isinstance(value, bool) else self._refuse(key, value, "true or false")

    def number(self, key: str) -> float:
        """A number that a float can hold."""
        value = self.value.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
        self._refuse(key, value, "a number")

    def crc(self, key: str) -> int:
        """A CRC32C, written as 8 hexadecimal digits."""
        text = self.text(key)
        try:
            crc = int(text, 16)
        except ValueError:
            crc = -1
        return crc if crc_text(max(crc, 0)) == text else self._refuse(key, text, "8 hexadecimal digits")

    def optional_crc(self, key: str) -> int | None:
        """A CRC32C as above, or None where it is null or absent."""
        return None if self.value.get(key) is None else self.crc(key)

    def json(self, key: str) -> Json:
        """An object of any content."""
        return self.object(key).value

    def object(self, key: str) -> Fields:
        """An object, to be read in turn."""
        value = self.value.get(key)
        return Fields(value, self._path(key)) if isinstance(value, dict) else self._refuse(key, value, "an object")

    def objects(self, key: str) -> Iterator[Fields]:
        """A list of objects, each to be read in turn."""
        value = self.value.get(key)
        items = value if isinstance(value, list) else self._refuse(key, value, "a list")
        for index, item in enumerate(items):
            yield Fields(item, f"{self._path(key)}[{index}]")

    def counts(self, key: str) -> tuple[tuple[str, int], ...]:
        """An object whose values are counts, as pairs sorted by name."""
        inner = self.object(key)
        return tuple((name, inner.count(name)) for name in sorted(inner.value))

    def _path(self, key: str) -> str:
        return f"{self._where}{'.' if ']' in self._where or ': ' in self._where else ': '}{key}" if key else self._where

    def _refuse(self, key: str, value: Any, wanted: str) -> NoReturn:
        met = "nothing" if value is None else printable(json.dumps(value)[:400], 80)
        raise UsageError(
            f"{self._path(key)}: expected {wanted}, found {met}. The file is damaged or was not written by us"
        )


def crc_text(crc: int) -> str:
    """A CRC32C as 8 lower-case hexadecimal digits."""
    return f"{crc:08x}"


def load_json(data: bytes, where: str) -> Json:
    """Strict JSON: an object in UTF-8 without NaN or duplicate keys. Raises UsageError naming ``where``."""
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON ({printable(str(error), 200)}). The file is damaged") from error
    return Fields(value, where).value


def dump_json(value: Json) -> bytes:
    """The one serialisation of a value: sorted keys, two spaces, ASCII, a final line end. Raises ValueError for NaN."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key appears twice in one object")
    return made
