"""Can a graph take the place of the running job's? Dataflow's rules, judged before anything is launched.

The service compares step by step and moves state by step name. It refuses a step that is gone without a mapping,
another coder, a side input that comes or goes, and what held state and does not any more; it takes new steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipeline.core.records import Json
from pipeline.ops.mapping import applicable, below, mapped, propose_deletions, propose_renames

VerdictKind = Literal["compatible", "needs mapping", "incompatible"]
JOB = "the job"


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its graph (``graph.snapshot``), the region or zone of its workers, its options."""

    graph: Json
    region: str = ""
    streaming_engine: bool = True
    update_compatibility_version: str = ""

    @property
    def steps(self) -> dict[str, Json]:
        """Steps by full name."""
        return {step["name"]: step for step in self.graph["steps"]}


@dataclass(frozen=True)
class Reason:
    """Why an update is refused, or what it should be known for: a step (or "the job") and a sentence."""

    step: str
    text: str

    def __str__(self) -> str:
        return f"{self.step}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What is said of an update.

    ``mapping`` is given or known and goes with the launch; ``proposal`` is what more it would take, for a person to
    confirm: with both, the update is compatible.
    """

    reasons: tuple[Reason, ...] = ()
    cautions: tuple[Reason, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
    proposal: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> VerdictKind:
        """The verdict in a word."""
        return "incompatible" if self.reasons else "needs mapping" if self.proposal else "compatible"

    def as_json(self) -> Json:
        """Plain values."""
        return {
            "verdict": self.kind,
            "because": [{"step": reason.step, "reason": reason.text} for reason in self.reasons],
            "cautions": [{"step": reason.step, "caution": reason.text} for reason in self.cautions],
            "transform_name_mapping": dict(self.mapping),
            "proposed_mapping": dict(self.proposal),
        }


def compare(
    old: Side, new: Side, *, mapping: Mapping[str, str] | None = None, known: Mapping[str, str] | None = None
) -> Verdict:
    """Judge whether ``new`` can replace the running ``old``.

    ``mapping`` is what the user gave, ``known`` are renames that were made on purpose (name_mapping.json).
    """
    before, after = old.steps, new.steps
    given = dict(mapping or {})
    certain = {**applicable(known or {}, before, after), **given}
    missing = {name: step for name, step in before.items() if _is_missing(mapped(name, certain), after)}
    taken = {mapped(name, certain) for name in before}
    added = {name: step for name, step in after.items() if name not in taken}
    renames = propose_renames(missing, added, before)
    lost = {name: step for name, step in missing.items() if mapped(name, renames) not in after}
    holding = {name for name, step in lost.items() if step["stateful"] or step["source"]}
    proposal = {**renames, **propose_deletions(set(lost) - holding, before)}
    whole = {**certain, **proposal}
    reasons = [
        *_of_job(old, new),
        *_of_mapping(given, before, after),
        *_of_deletions(certain, before),
        *(_gone(name, before[name]) for name in sorted(holding)),
        *_of_pairs(before, after, whole),
    ]
    return Verdict(tuple(reasons), tuple(_cautions(old, new, whole)), certain, proposal)


def _is_missing(name: str, after: Mapping[str, Json]) -> bool:
    return name != "" and name not in after


def _of_job(old: Side, new: Side) -> Iterator[Reason]:
    if _is_elsewhere(old.region, new.region):
        yield Reason(JOB, f"it runs in {old.region}, the update is for {new.region}; an update cannot move a job")
    if old.streaming_engine != new.streaming_engine:
        yield Reason(JOB, "Streaming Engine cannot be turned on or off by an update")
    if _version(new.graph["sdk"]) < _version(old.graph["sdk"]):
        yield Reason(JOB, f"Beam would go back from {old.graph['sdk']} to {new.graph['sdk']}; updates go forward only")


def _is_elsewhere(old: str, new: str) -> bool:
    """Whether two places exclude each other; a region and a zone in it do not."""
    return bool(old and new) and not (f"{old}-".startswith(f"{new}-") or f"{new}-".startswith(f"{old}-"))


def _of_mapping(given: Mapping[str, str], before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[Reason]:
    for old, new in sorted(given.items()):
        if not any(below(name, old) for name in before):
            yield Reason(old, "the mapping names it, but the running job has no such step")
        elif new and not any(below(name, new) for name in after):
            yield Reason(old, f"it is mapped to {new}, which the new graph does not have")


def _of_deletions(certain: Mapping[str, str], before: Mapping[str, Json]) -> Iterator[Reason]:
    """A mapping to "" may not throw away state."""
    for name, step in sorted(before.items()):
        if mapped(name, certain) == "" and (step["stateful"] or step["source"]):
            yield _gone(name, step)


def _gone(name: str, step: Json) -> Reason:
    if step["stateful"]:
        held = _held(step)
        return Reason(name, f"it is stateful and gone: {held} would be lost. Drain the job, or keep the step")
    return Reason(name, "it is a source and gone: what it has read and not yet handed on would be lost. Drain the job")


def _held(step: Json) -> str:
    names = [*(f"state {name!r}" for name in step["states"]), *(f"timer {name!r}" for name in step["timers"])]
    return ", ".join(names) or "the elements that it has gathered"


def _of_pairs(before: Mapping[str, Json], after: Mapping[str, Json], whole: Mapping[str, str]) -> Iterator[Reason]:
    takers: dict[str, str] = {}
    for name in sorted(before):
        target = mapped(name, whole)
        if target not in after:
            continue
        if target in takers:
            yield Reason(name, f"it and {takers[target]} would both become {target}")
            continue
        takers[target] = name
        for text in _changes(before[name], after[target]):
            yield Reason(name, text if target == name else f"{text} (it becomes {target})")


def _changes(old: Json, new: Json) -> Iterator[str]:
    """What changes between a step and its successor that the service does not take."""
    if old["urn"] != new["urn"]:
        yield f"it becomes another kind of step ({old['urn']} to {new['urn']})"
        return
    for what in ("input", "output"):
        yield from _changed_coders(what, old[f"{what}s"], new[f"{what}s"])
    yield from _changed(old["side_inputs"], new["side_inputs"], "side input", may_come=False)
    yield from _changed(old["states"], new["states"], "state", may_come=True)
    yield from _changed(old["timers"], new["timers"], "timer", may_come=True)
    if old["stateful"] and not new["stateful"]:
        yield "it was stateful and is not any more"
    if _window_kind(old) != _window_kind(new):
        yield f"windowing changes from {_window_kind(old)} to {_window_kind(new)}; what is buffered has other windows"


def _changed_coders(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """By tag; where there is one on both sides its tag does not matter."""
    if len(old) == len(new) == 1:
        pairs = [("", next(iter(old.values())), next(iter(new.values())))]
    else:
        pairs = [(f" {tag!r}", old[tag], new[tag]) for tag in sorted(old.keys() & new.keys())]
    for tag, before, after in pairs:
        if before != after:
            yield f"the coder of its {what}{tag} changes from {before} to {after}"


def _changed(old: Mapping[str, str], new: Mapping[str, str], what: str, *, may_come: bool) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{what} {name!r} ({old[name]}) goes"
        elif name not in old:
            if not may_come:
                yield f"{what} {name!r} ({new[name]}) is new"
        elif old[name] != new[name]:
            yield f"{what} {name!r} changes from {old[name]} to {new[name]}"


def _window_kind(step: Json) -> str:
    return str(step["windowing"]).split(",", 1)[0].split("#", 1)[0]


def _cautions(old: Side, new: Side, whole: Mapping[str, str]) -> Iterator[Reason]:
    before, after = old.steps, new.steps
    was, will = old.graph["sdk"], new.graph["sdk"]
    if _version(will) > _version(was) and not new.update_compatibility_version:
        yield Reason(
            JOB,
            f"Beam goes from {was} to {will}: put update_compatibility_version={was} into the launch spec's "
            "environment.additional_pipeline_options",
        )
    for name, step in sorted(before.items()):
        other = after.get(mapped(name, whole))
        if other and step["windowing"] != other["windowing"] and _window_kind(step) == _window_kind(other):
            yield Reason(name, f"windowing changes for new elements only, from {step['windowing']}")


def _version(text: str) -> tuple[int, ...]:
    """``2.77.0`` as numbers; what is not a number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))
