"""What the rows of a JSON lines file have in common: the text between their values, learned from some of them.

Most files come from one program, which writes the same keys in the same order, with the same spaces. A
row that has a template's text between values of the right form is JSON, and has the template's keys.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.core.decoding import UnknownFeatures
from pipeline.core.schema import Feature, Kind, Schema

SlotKind = Literal["int", "float", "string", "word"]

_TOKEN = re.compile(
    rb'(?P<string>"(?:[^"\\]|\\.)*")|(?P<int>-?\d+(?![\d.eE]))|(?P<float>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)'
    rb"|(?P<word>true|false|null)|(?P<mark>[{}\[\],:])|\s+",
    re.DOTALL,
)
_MOST_SLOTS = 1024
_LEAST_SHARE = 4  # a template for less than a fourth of the rows is none


@dataclass(frozen=True)
class Slot:
    """A value of each row: how it is read, and the feature (its place in the schema) that it belongs to, if any.

    ``truth``: an integer may be written as a truth value. Values in the list of a feature are not ``nullable``.
    """

    kind: SlotKind
    feature: int | None
    truth: bool = False
    nullable: bool = True


@dataclass(frozen=True)
class Template:
    """``literals`` with a value between each two. ``values`` names the slots of each feature in the schema's order.

    A feature is None where the rows do not have it; ``listed`` says which are written as lists.
    """

    literals: tuple[bytes, ...]
    slots: tuple[Slot, ...]
    values: tuple[tuple[int, ...] | None, ...]
    listed: tuple[bool, ...]


def learn_template(
    rows: Sequence[bytes], schema: Schema, *, unknown: UnknownFeatures, max_depth: int
) -> Template | None:
    """The template that most of ``rows`` have; None where they have little in common, or none of them is acceptable."""
    outlines = [outline for row in rows if (outline := _outline_of(row)) is not None]
    if not outlines:
        return None
    ((literals, number),) = Counter(outline.literals for outline in outlines).most_common(1)
    if number * _LEAST_SHARE < len(rows):
        return None
    alike = [outline for outline in outlines if outline.literals == literals]
    kinds = [_usual_kind(found) for found in zip(*(outline.kinds for outline in alike), strict=True)]
    return _Maker(alike[0], kinds, schema).template(unknown, max_depth)


@dataclass(frozen=True)
class _Outline:
    """One row, its values taken out: ``owners`` are the keys of the outermost object that hold each value.

    ``flat`` says of each key's value whether it is a value or a list of values, and which: "value", "list", or "deep".
    """

    literals: tuple[bytes, ...]
    kinds: tuple[str, ...]
    owners: tuple[int, ...]
    keys: tuple[str, ...]
    forms: tuple[str, ...]


def _outline_of(row: bytes) -> _Outline | None:
    """The outline of ``row``, if it is JSON and an object."""
    try:
        text = row.decode("utf-8")
        if not isinstance(json.loads(text, parse_constant=_refuse, parse_int=len, parse_float=len), dict):
            return None
    except (ValueError, RecursionError):
        return None
    return _Reader(row).outline()


def _refuse(word: str) -> Any:
    raise ValueError(word)


class _Reader:
    """Takes a row that is known to be a JSON object apart."""

    def __init__(self, row: bytes) -> None:
        self._row = row
        self._literals: list[bytes] = []
        self._kinds: list[str] = []
        self._owners: list[int] = []
        self._keys: list[str] = []
        self._forms: list[str] = []
        self._end = 0  # of the last value

    def outline(self) -> _Outline | None:
        open_marks, before = b"", b""
        for token in _TOKEN.finditer(self._row):
            kind, text = token.lastgroup, token.group()
            if kind is None:  # white space
                continue
            if kind == "mark":
                open_marks = self._mark(text, open_marks)
            elif open_marks.endswith(b"{") and before != b":":
                if len(open_marks) == 1:
                    self._keys.append(json.loads(text))
                    self._forms.append("value")
            elif len(self._kinds) == _MOST_SLOTS:
                return None
            else:
                self._value(str(kind), token.start(), token.end())
            before = text
        literals = (*self._literals, self._row[self._end :])
        return _Outline(literals, tuple(self._kinds), tuple(self._owners), tuple(self._keys), tuple(self._forms))

    def _mark(self, text: bytes, open_marks: bytes) -> bytes:
        if text in b"{[":
            if len(open_marks) >= 1:
                self._forms[-1] = "list" if (text, len(open_marks)) == (b"[", 1) else "deep"
            return open_marks + text
        return open_marks[:-1] if text in b"}]" else open_marks

    def _value(self, kind: str, start: int, end: int) -> None:
        self._literals.append(self._row[self._end : start])
        self._kinds.append("null" if self._row[start:end] == b"null" else kind)
        self._owners.append(len(self._keys) - 1)
        self._end = end


def _usual_kind(found: Sequence[str]) -> str:
    """The most frequent kind among values that are not null."""
    counts = Counter(kind for kind in found if kind != "null")
    return counts.most_common(1)[0][0] if counts else "null"


class _Maker:
    """Turns the outline of many rows into a template, if rows like it can be acceptable."""

    def __init__(self, outline: _Outline, kinds: Sequence[str], schema: Schema) -> None:
        self._outline = outline
        self._kinds = kinds
        self._schema = schema
        self._places = {feature.name: place for place, feature in enumerate(schema.features)}

    def template(self, unknown: UnknownFeatures, max_depth: int) -> Template | None:
        outline, text = self._outline, b"".join(self._outline.literals)
        used = [key for key in outline.keys if key in self._places]
        if (
            len(set(used)) < len(used)
            or (unknown == "reject" and len(used) < len(outline.keys))
            or any(feature.required and feature.name not in used for feature in self._schema.features)
            or text.count(b"{") + text.count(b"[") > max_depth
            or b"\\u" in text  # may be a lone surrogate
        ):
            return None
        slots = [self._slot(owner, kind) for owner, kind in zip(outline.owners, self._kinds, strict=True)]
        values, listed = [], []
        for feature in self._schema.features:
            key = outline.keys.index(feature.name) if feature.name in used else None
            own = () if key is None else tuple(place for place, owner in enumerate(outline.owners) if owner == key)
            values.append(None if key is None else own)
            listed.append(key is not None and outline.forms[key] == "list")
            if key is not None and (outline.forms[key] == "deep" or (feature.scalar and len(own) != 1)):
                return None
        if None in slots:
            return None
        return Template(outline.literals, tuple(slot for slot in slots if slot), tuple(values), tuple(listed))

    def _slot(self, owner: int, kind: str) -> Slot | None:
        """How to read a value; None where the plain way of reading its feature will not do."""
        place = self._places.get(self._outline.keys[owner])
        if place is None:
            return Slot({"string": "string", "int": "float", "float": "float"}.get(kind, "word"), None)  # type: ignore[arg-type]
        feature = self._schema.features[place]
        if kind not in _TAKEN[feature.kind] and not (kind == "word" and _holds_truth(feature)):
            return None
        nullable = self._outline.forms[owner] == "value"
        return Slot(_READ_AS[feature.kind], place, truth=_holds_truth(feature), nullable=nullable)


_READ_AS: dict[Kind, SlotKind] = {Kind.INT: "int", Kind.FLOAT: "float", Kind.BYTES: "string"}
_TAKEN = {Kind.INT: ("int", "null"), Kind.FLOAT: ("int", "float", "null"), Kind.BYTES: ("string", "null")}


def _holds_truth(feature: Feature) -> bool:
    return feature.kind is Kind.INT and feature.bool_domain is not None
