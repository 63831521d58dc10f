"""Quality: the judgement of a whole run, after its rows were judged one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.records import Json
from pipeline.core.schema import Feature, Kind, Schema
from pipeline.core.statistics import BatchStatistics, FeatureStatistics

ESTIMATE_TOLERANCE = 0.05
"""An estimated number of distinct values (standard error 1 %) has to miss its bound by more than this share."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Rows of a run. Blank lines are not among the rows read; ``rejected`` is (reason code, rows), sorted."""

    read: int
    written: int
    rejected: tuple[tuple[str, int], ...] = ()
    blank: int = 0

    @property
    def rejected_total(self) -> int:
        """Rows refused, all reasons together."""
        return sum(rows for _, rows in self.rejected)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that the run breaks: its name, the feature if it is about one, a sentence, bound and measure."""

    rule: str
    feature: str | None
    message: str
    expected: float
    actual: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the run was found to be; it is good when nothing was found."""

    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the run may be committed."""
        return not self.findings

    def as_json(self) -> Json:
        """The verdict for a manifest: ``ok`` and ``findings`` with the fields of ``Finding``."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}


def judge(
    statistics: BatchStatistics, schema: Schema, *, counts: RunCounts, max_rejected_fraction: float = 1.0
) -> Verdict:
    """Judges the run by its counts, then by the rules of ``schema`` that need all rows.

    ``statistics`` are those of the rows that passed row by row. Rules on features are not judged when
    no row was written: then that is the finding. ``max_rejected_fraction`` 1 never finds anything.
    """
    found = [*_count_findings(counts, max_rejected_fraction)]
    if counts.written:
        found += _example_findings(counts.written, schema.proto.dataset_constraints)
        protos = {proto.name: proto for proto in schema.proto.feature}
        for rules in schema.features:
            seen = statistics.feature(rules.name)
            found += _presence_findings(rules, seen, statistics.num_examples)
            if seen is not None and rules.kind is Kind.BYTES and protos[rules.name].HasField("unique_constraints"):
                found += _unique_findings(seen, protos[rules.name].unique_constraints)
    return Verdict(tuple(found))


def _count_findings(counts: RunCounts, max_rejected_fraction: float) -> Iterator[Finding]:
    if not counts.read:
        yield Finding("rows_read", None, "the input holds no rows", 1, 0)
    elif not counts.written:
        reasons = ", ".join(f"{rows} {code}" for code, rows in counts.rejected)
        message = f"every one of the {counts.read} rows read was refused ({reasons})"
        yield Finding("rows_written", None, message, 1, 0)
    if counts.read and counts.rejected_total > max_rejected_fraction * counts.read:
        fraction = counts.rejected_total / counts.read
        message = (
            f"{counts.rejected_total} of {counts.read} rows were refused ({fraction:.2%}), "
            f"more than the {max_rejected_fraction:.2%} allowed"
        )
        yield Finding("max_rejected_fraction", None, message, max_rejected_fraction, fraction)


def _example_findings(written: int, constraints: schema_pb2.DatasetConstraints) -> Iterator[Finding]:
    least, most = constraints.min_examples_count, constraints.max_examples_count
    if written < least:
        yield Finding("min_examples_count", None, f"{written} rows are fewer than {least}", least, written)
    if constraints.HasField("max_examples_count") and written > most:
        yield Finding("max_examples_count", None, f"{written} rows are more than {most}", most, written)


def _presence_findings(rules: Feature, seen: FeatureStatistics | None, rows: int) -> Iterator[Finding]:
    name, present = rules.name, seen.present if seen else 0
    if present < rules.min_count:
        message = f"{name} is present in {present} rows, fewer than {rules.min_count}"
        yield Finding("presence.min_count", name, message, rules.min_count, present)
    if present < rules.min_fraction * rows:
        fraction = present / rows
        message = f"{name} is present in {fraction:.2%} of the rows, less than {rules.min_fraction:.2%}"
        yield Finding("presence.min_fraction", name, message, rules.min_fraction, fraction)


def _unique_findings(seen: FeatureStatistics, bounds: schema_pb2.UniqueConstraints) -> Iterator[Finding]:
    if seen.distinct is None:
        return
    number = seen.distinct.number
    about, slack = ("", 0.0) if seen.distinct.complete else ("about ", ESTIMATE_TOLERANCE)
    if number * (1 + slack) < bounds.min:
        message = f"{seen.name} has {about}{number} distinct values, fewer than {bounds.min}"
        yield Finding("unique_constraints.min", seen.name, message, bounds.min, number)
    if bounds.HasField("max") and number * (1 - slack) > bounds.max:
        message = f"{seen.name} has {about}{number} distinct values, more than {bounds.max}"
        yield Finding("unique_constraints.max", seen.name, message, bounds.max, number)
