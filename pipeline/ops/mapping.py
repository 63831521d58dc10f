"""Names of a running job's steps and what they are called in its replacement: prefixes, known renames, likeness."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.core.errors import UsageError
from pipeline.core.json_fields import Fields, load_json
from pipeline.core.records import Json

NAME_MAPPING = Path(__file__).with_name("name_mapping.json")
"""Comes with the package; in a clone ``templates/streaming`` shows it too."""

_ALIKE = 0.5  # names of steps that do the same; below it a rename is a guess
_ALIKE_STATELESS = 0.6
_FACTS = ("urn", "inputs", "outputs", "side_inputs", "states", "timers", "windowing")


def mapped(name: str, mapping: Mapping[str, str]) -> str:
    """What ``name`` is called under ``mapping`` (old prefix to new prefix, the longest wins); "" for a deleted step."""
    parts = name.split("/")
    for length in range(len(parts), 0, -1):
        prefix = "/".join(parts[:length])
        if prefix in mapping:
            new = mapping[prefix]
            return "/".join([new, *parts[length:]]) if new else ""
    return name


def below(name: str, prefix: str) -> bool:
    """Whether a step is the one called ``prefix`` or a part of it."""
    return name == prefix or name.startswith(f"{prefix}/")


def load_name_mapping(path: Path = NAME_MAPPING) -> dict[str, str]:
    """Renames that were made on purpose, old prefix to new ("" for a deleted step). Raises UsageError for damage."""
    try:
        data = path.read_bytes()
    except OSError as error:  # not as if there were none: what was renamed would be taken for gone
        raise UsageError(f"{path} cannot be read ({error.strerror}); is the installation complete?") from error
    fields = Fields(load_json(data, str(path)), str(path)).object("renames")
    return {old: fields.text(old) for old in fields.value}


def applicable(known: Mapping[str, str], old: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """The known renames that this pair of graphs has: the old name only there, the new name only here."""
    old, new = list(old), list(new)
    return {
        before: after
        for before, after in known.items()
        if any(below(name, before) for name in old)
        and not any(below(name, before) for name in new)
        and (not after or any(below(name, after) for name in new))
    }


def propose_renames(missing: Mapping[str, Json], added: Mapping[str, Json], old: Iterable[str]) -> dict[str, str]:
    """Old names to new ones, for steps that do the same under a name that is alike (or stand alone in what they do).

    ``old`` are all names of the running job: a prefix is proposed only where all below it are renamed with it.
    """
    pairs: dict[str, str] = {}
    free = dict(added)
    for score, name, new in sorted(_candidates(missing, added), reverse=True):
        if name not in pairs and new in free and score > 0:
            pairs[name] = new
            del free[new]
    return _as_prefixes(pairs, old)


def _candidates(missing: Mapping[str, Json], added: Mapping[str, Json]) -> Iterable[tuple[float, str, str]]:
    for old, before in missing.items():
        alike = [name for name, after in added.items() if _same_work(before, after)]
        for new in alike:
            score = difflib.SequenceMatcher(None, old, new).ratio()
            alone = len(alike) == 1 and sum(_same_work(other, before) for other in missing.values()) == 1
            holds = before["stateful"] or before["source"]
            wanted = _ALIKE_STATELESS if not holds else 0.0 if alone else _ALIKE
            if score >= wanted:
                yield score + 1e-6, old, new


def _same_work(one: Json, other: Json) -> bool:
    return all(one[fact] == other[fact] for fact in _FACTS)


def _as_prefixes(pairs: Mapping[str, str], old: Iterable[str]) -> dict[str, str]:
    """``A/x -> B/x, A/y -> B/y`` said as ``A -> B``, where all of the pairs agree."""
    shorter: dict[str, str] = {}
    for name, new in sorted(pairs.items()):
        before, after = name.split("/"), new.split("/")
        while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
            before, after = before[:-1], after[:-1]
        prefix, target = "/".join(before), "/".join(after)
        if shorter.setdefault(prefix, target) != target:
            return dict(pairs)
    agrees = all(mapped(name, shorter) == pairs.get(name, name) for name in old)
    return shorter if agrees else dict(pairs)


def propose_deletions(deleted: Iterable[str], old: Iterable[str]) -> dict[str, str]:
    """``{prefix: ""}`` for steps that go without a trace, by whole composites where all of one goes."""
    deleted, old = set(deleted), list(old)
    prefixes = set()
    for name in deleted:
        parts = name.split("/")
        for length in range(1, len(parts) + 1):
            prefix = "/".join(parts[:length])
            if all(other in deleted for other in old if below(other, prefix)):
                prefixes.add(prefix)
                break
    return dict.fromkeys(sorted(prefixes), "")


def parse_mapping(text: str) -> dict[str, str]:
    """A mapping given as a JSON object of strings. Raises UsageError for anything else."""
    fields = Fields(load_json(text.encode(), "--transform_name_mapping"), "--transform_name_mapping")
    for name in fields.value:
        if not isinstance(fields.value[name], str):
            raise UsageError(f'--transform_name_mapping: {name!r} must map to a name, or to "" for a deleted step')
    return {name: fields.text(name) for name in fields.value}
