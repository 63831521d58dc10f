"""The operations of a repair, on a payload's top-level keys and on attributes. Pure.

What an operation does not touch keeps its text: numbers of any size, ``1.0`` beside ``1``, escapes, the order of keys.
An operation that cannot do its work leaves the value alone and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dlq_replay.casts import CASTS, Unapplied
from dlq_replay.json_members import Member, NotJson, items_of, member, members_of, string_of, text_of

Attributes = tuple[tuple[str, str], ...]
MAX_REGEX_CHARS = 100_000
"""A string longer than this is not given to a regular expression."""


@dataclass(frozen=True)
class Draft:
    """A payload and attributes under repair; ``members`` is None where the payload is no JSON object (see ``why``)."""

    members: tuple[Member, ...] | None
    attributes: Attributes
    why: str = ""

    def keyed(self) -> tuple[Member, ...]:
        """The members. Raises Unapplied where there are none."""
        if self.members is None:
            raise Unapplied(f"the payload cannot be repaired by key: {self.why}")
        return self.members

    def place(self, key: str) -> int | None:
        """The index of the member ``key``; None where there is none. Raises Unapplied where there are several."""
        places = [index for index, one in enumerate(self.keyed()) if one.key == key]
        if len(places) > 1:
            raise Unapplied("the key is given more than once; say which one counts with keep")
        return places[0] if places else None

    def with_value(self, key: str, change: Callable[[str], str]) -> Draft:
        """The value of ``key`` (JSON text) changed; as it is where there is no such key."""
        at = self.place(key)
        if at is None:
            return self
        members = list(self.keyed())
        members[at] = replace(members[at], value=change(members[at].value))
        return replace(self, members=tuple(members))


class Op(Protocol):
    """One operation of a fix."""

    def __call__(self, draft: Draft) -> Draft:
        """The draft after it; raises Unapplied where it cannot be done."""
        ...

    @property
    def what(self) -> str:
        """Its name and key, for a report: ``cast air_time``."""
        ...


@dataclass(frozen=True)
class Rename:
    """The key ``old`` becomes ``new``, in its place, with its value as it was."""

    old: str
    new: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"rename {self.old}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``; a key is not renamed to one that is there."""
        at = draft.place(self.old)
        if at is None:
            return draft
        if any(one.key == self.new for one in draft.keyed()):
            raise Unapplied("there is a key of the new name already; drop it first")
        members = list(draft.keyed())
        members[at] = member(self.new, members[at].value)
        return replace(draft, members=tuple(members))


@dataclass(frozen=True)
class Cast:
    """The value of ``key`` (each item of a list) becomes an int, float, string or bool, where nothing is lost by it."""

    key: str
    to: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"cast {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``."""
        return draft.with_value(self.key, self._cast)

    def _cast(self, value: str) -> str:
        items = items_of(value)
        if items is None:
            return CASTS[self.to](value)
        return f"[{','.join(CASTS[self.to](item) for item in items)}]"


@dataclass(frozen=True)
class Default:
    """``key`` gets ``value`` (JSON text) where it is missing or null."""

    key: str
    value: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"default {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``; a missing key is added at the end."""
        if draft.place(self.key) is None:
            return replace(draft, members=(*draft.keyed(), member(self.key, self.value)))
        return draft.with_value(self.key, self._instead_of_null)

    def _instead_of_null(self, value: str) -> str:
        return self.value if value == "null" else value


@dataclass(frozen=True)
class Drop:
    """The key goes, however often it is given."""

    key: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"drop {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``."""
        return replace(draft, members=tuple(one for one in draft.keyed() if one.key != self.key))


@dataclass(frozen=True)
class Keep:
    """Of a key that is given more than once, the first or the last is kept."""

    key: str
    first: bool

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"keep {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``."""
        places = [index for index, one in enumerate(draft.keyed()) if one.key == self.key]
        kept = places[:1] if self.first else places[-1:]
        members = (one for index, one in enumerate(draft.keyed()) if index not in places or index in kept)
        return replace(draft, members=tuple(members))


@dataclass(frozen=True)
class Replace:
    """A value of ``key`` (each item of a list) that is ``old`` becomes ``new``; pairs of JSON texts."""

    key: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"replace {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``."""
        return draft.with_value(self.key, self._replaced)

    def _replaced(self, value: str) -> str:
        items = items_of(value)
        return self._one(value) if items is None else f"[{','.join(map(self._one, items))}]"

    def _one(self, value: str) -> str:
        text = string_of(value)
        return dict(self.pairs).get(value if text is None else text_of(text), value)


@dataclass(frozen=True)
class Regex:
    r"""In a string value of ``key``, each match of ``pattern`` becomes ``replacement`` (``\1`` is a group).

    RE2 does it, whose time is linear whatever the pattern: no pattern can hang on a hostile value.
    """

    key: str
    pattern: str
    replacement: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"regex {self.key}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``; a value that is no string is left alone."""
        return draft.with_value(self.key, self._replaced)

    def _replaced(self, value: str) -> str:
        text = string_of(value)
        if text is None:
            raise Unapplied("the value is no string")
        if len(text) > MAX_REGEX_CHARS:
            raise Unapplied(f"the string is longer than {MAX_REGEX_CHARS:,} characters")
        changed = replaced_by_regex(text, self.pattern, self.replacement)
        return value if changed == text else text_of(changed)


def replaced_by_regex(text: str, pattern: str, replacement: str) -> str:
    """``text`` with each match replaced. Raises Unapplied for what RE2 cannot take, ValueError for a bad pattern."""
    try:
        array = pa.array([text], pa.string())
    except (UnicodeError, pa.ArrowInvalid):
        raise Unapplied("the string holds a lone surrogate") from None
    try:
        return str(pc.replace_substring_regex(array, pattern, replacement)[0].as_py())
    except UnicodeDecodeError:
        raise Unapplied("the pattern cuts a character in two") from None


@dataclass(frozen=True)
class SetAttribute:
    """The message's attribute ``name`` gets ``value``; the payload need not be JSON."""

    name: str
    value: str

    @property
    def what(self) -> str:
        """See ``Op``."""
        return f"set_attribute {self.name}"

    def __call__(self, draft: Draft) -> Draft:
        """See ``Op``."""
        attributes = {**dict(draft.attributes), self.name: self.value}
        return replace(draft, attributes=tuple(sorted(attributes.items())))


def draft_of(payload: bytes, attributes: Attributes) -> Draft:
    """A payload and attributes as they come."""
    try:
        return Draft(tuple(members_of(payload)), attributes)
    except NotJson as error:
        return Draft(None, attributes, str(error))
