"""fixes.yaml: a list of repairs, read strictly; what is wrong with it is told by its line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dlq_replay.casts import CASTS, Unapplied
from dlq_replay.fix_ops import (
    Cast,
    Default,
    Drop,
    Keep,
    Op,
    Regex,
    Rename,
    Replace,
    SetAttribute,
    replaced_by_regex,
)
from dlq_replay.fixes import Fix
from dlq_replay.json_members import text_of
from pipeline.core.dead_letter import MAX_KEY_BYTES, MAX_VALUE_BYTES, OWN_NAMES
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason
from pipeline.features.yaml_lines import Document, Path, read_yaml

_MAX_PATTERN = 1000


def parse_fixes(text: str, where: str) -> tuple[Fix, ...]:
    """The fixes in ``text``; ``where`` names the file in errors. Raises UsageError with the line of what is wrong."""
    document = read_yaml(text, where)
    fixes = document.value.get("fixes") if isinstance(document.value, dict) else None
    if not isinstance(fixes, list) or not fixes or set(document.value) != {"fixes"}:
        document.fail(("fixes",), "a fix file is one list: 'fixes:', and below it an entry for each repair")
    return tuple(_fix(document, ("fixes", index), entry) for index, entry in enumerate(fixes))


def digest_of(text: str) -> str:
    """What names a fix file or module in a report: sha256 of its text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fix(document: Document, path: Path, entry: Any) -> Fix:
    if not isinstance(entry, dict) or not set(entry) - {"when"}:
        document.fail(path, f"a fix is one or more of: {', '.join(_OPS)}; and 'when' if it is for some letters only")
    when = entry.get("when", {})
    if not isinstance(when, dict) or set(when) - {"reason", "feature"}:
        document.fail((*path, "when"), "'when' has a reason, a feature, or both; each one name or a list of names")
    reasons = _names(document, (*path, "when", "reason"), when.get("reason", []))
    known = {reason.value for reason in Reason}
    for reason in reasons:
        if reason not in known:
            document.fail((*path, "when", "reason"), f"{reason!r} is no reason; give one of {', '.join(sorted(known))}")
    ops: list[Op] = []
    for name, given in entry.items():
        if name == "when":
            continue
        if name not in _OPS:
            document.fail((*path, name), f"{name!r} is no repair; give one of {', '.join(_OPS)}")
        ops += _OPS[name](document, (*path, name), given)
    features = _names(document, (*path, "when", "feature"), when.get("feature", []))
    return Fix(tuple(ops), frozenset(reasons), frozenset(features))


def _names(document: Document, path: Path, given: Any) -> list[str]:
    """One name or a list of names."""
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) and name for name in names):
        document.fail(path, "give a name or a list of names (in quotes where YAML would take it for a number)")
    return list(names)


def _pairs(document: Document, path: Path, given: Any, example: str) -> Iterator[tuple[str, Any]]:
    """The entries of a mapping that must have some."""
    if not isinstance(given, dict) or not given:
        document.fail(path, f"write it as {example}")
    yield from given.items()


def _renames(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for old, new in _pairs(document, path, given, "rename: {old_key: new_key}"):
        if not isinstance(new, str) or not new or new == old:
            document.fail((*path, old), "the new name must be a text other than the old one")
        yield Rename(old, new)


def _casts(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for key, to in _pairs(document, path, given, "cast: {key: int}"):
        if not isinstance(to, str) or to not in CASTS:
            document.fail((*path, key), f"cast to one of {', '.join(CASTS)}")
        yield Cast(key, to)


def _defaults(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for key, value in _pairs(document, path, given, "default: {key: value}"):
        yield Default(key, _json(document, (*path, key), value))


def _drops(document: Document, path: Path, given: Any) -> Iterator[Op]:
    names = _names(document, path, given)
    if not names:
        document.fail(path, "write it as drop: [key, other_key]")
    yield from map(Drop, names)


def _keeps(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for key, which in _pairs(document, path, given, "keep: {key: first}"):
        if which not in ("first", "last"):
            document.fail((*path, key), "keep the first or the last")
        yield Keep(key, which == "first")


def _replaces(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for key, pairs in _pairs(document, path, given, "replace: {key: {old: new}}"):
        if isinstance(pairs, list):
            yield Replace(key, tuple(_listed(document, (*path, key), pairs)))
            continue
        texts = _pairs(document, (*path, key), pairs, "replace: {key: {old: new}}")
        yield Replace(key, tuple((text_of(old), _json(document, (*path, key, old), new)) for old, new in texts))


def _listed(document: Document, path: Path, given: list[Any]) -> Iterator[tuple[str, str]]:
    """``[{from: -1, to: null}]``: for values that are no strings, which YAML's keys cannot hold."""
    for index, entry in enumerate(given):
        if not isinstance(entry, dict) or set(entry) != {"from", "to"}:
            document.fail((*path, index), "write it as {from: -1, to: null}")
        yield _json(document, (*path, index), entry["from"]), _json(document, (*path, index), entry["to"])


def _regexes(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for key, rule in _pairs(document, path, given, "regex: {key: {pattern: '^[$]', with: ''}}"):
        at = (*path, key)
        if not isinstance(rule, dict) or set(rule) != {"pattern", "with"}:
            document.fail(at, "a regex has a pattern and 'with': what each match becomes")
        pattern, replacement = rule["pattern"], rule["with"]
        if not isinstance(pattern, str) or not isinstance(replacement, str) or not 0 < len(pattern) <= _MAX_PATTERN:
            document.fail(
                at, f"pattern and 'with' are texts (in quotes), the pattern of at most {_MAX_PATTERN} characters"
            )
        try:
            replaced_by_regex("", pattern, replacement)
        except (pa.ArrowInvalid, Unapplied, UnicodeError) as error:
            document.fail(at, f"{error} (the syntax is RE2's: no look-around, no back-references in the pattern)")
        yield Regex(key, pattern, replacement)


def _set_attributes(document: Document, path: Path, given: Any) -> Iterator[Op]:
    for name, value in _pairs(document, path, given, "set_attribute: {name: value}"):
        at = (*path, name)
        if not isinstance(value, str):
            document.fail(at, "an attribute is a text (in quotes where YAML would take it for something else)")
        if name in OWN_NAMES or name.startswith(("goog", "orig_")) or not name:
            document.fail(at, f"the attribute {name!r} is reserved")
        if _has_surrogate(name) or _has_surrogate(value):
            document.fail(at, "an attribute is text that UTF-8 can hold, without lone surrogates")
        if len(name.encode()) > MAX_KEY_BYTES or len(value.encode()) > MAX_VALUE_BYTES:
            document.fail(at, f"a name has at most {MAX_KEY_BYTES} bytes, a value {MAX_VALUE_BYTES}")
        yield SetAttribute(name, value)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _json(document: Document, path: Path, value: Any) -> str:
    try:
        return text_of(value)
    except ValueError:
        document.fail(path, "JSON has no such number")


_OPS: dict[str, Callable[[Document, Path, Any], Iterator[Op]]] = {
    "rename": _renames,
    "cast": _casts,
    "default": _defaults,
    "drop": _drops,
    "keep": _keeps,
    "replace": _replaces,
    "regex": _regexes,
    "set_attribute": _set_attributes,
}


def read_fix_text(data: bytes, where: str) -> str:
    """The text of a fix file. Raises UsageError where it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text: {error}") from error
