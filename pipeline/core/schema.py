"""The schema: a tensorflow_metadata Schema proto read into flat, frozen rules for one environment.

``core.schema_rules`` holds the table of what is checked, judged, noted or refused. Environments: a
feature belongs to an environment E if E is in its ``in_environment`` or in the schema's
``default_environment``, and not in its ``not_in_environment``. Where a schema has no
``default_environment``, a feature without ``in_environment`` belongs to every environment.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.errors import UsageError
from pipeline.core.schema_rules import (
    FLOAT32_MAX,
    INT64_MAX,
    INT64_MIN,
    BoolDomain,
    Feature,
    FeatureReader,
    Kind,
    is_live,
)
from pipeline.core.schema_text import feature_lines, nearest, parse_schema, schema_text

__all__ = [
    "FLOAT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "BoolDomain",
    "Feature",
    "Kind",
    "Schema",
    "ignored_rules",
    "load_schema",
    "parse_schema",
    "schema_of",
    "schema_text",
    "validate_schema",
]

_MAX_FINDINGS_SHOWN = 20
_DESCRIPTIVE_DOMAINS = frozenset(
    f"{kind}_domain"
    for kind in (
        *("image", "audio", "video", "content_chunk", "mid", "url"),
        *("natural_language", "time", "time_of_day"),
    )
)


@dataclass(frozen=True)
class Schema:
    """The features of one environment in the order of the proto, and the whole proto they came from."""

    features: tuple[Feature, ...]
    proto: schema_pb2.Schema
    environment: str = "TRAINING"

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the deterministic serialisation of the proto."""
        return hashlib.sha256(self.proto.SerializeToString(deterministic=True)).hexdigest()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The canonical columns of a decoded batch."""
        return pa.schema([(feature.name, feature.arrow_type) for feature in self.features])

    @property
    def notes(self) -> list[str]:
        """Rules of the proto that a run does not apply, to be shown as warnings (see ``ignored_rules``)."""
        return ignored_rules(self.proto)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is wrong, with ``index`` the place in ``proto.feature``, or None for the schema as a whole."""

    index: int | None
    message: str


def schema_of(proto: schema_pb2.Schema, *, environment: str = "TRAINING") -> Schema:
    """The rules of ``proto`` for one environment.

    Raises UsageError naming each feature and construct that contradicts itself or that cannot be
    honoured, and for an environment that the schema does not know.
    """
    return _schema_of(proto, environment=environment, origin="schema", lines=[])


def load_schema(text: str, *, environment: str = "TRAINING", origin: str = "schema.pbtxt") -> Schema:
    """The rules written in ``text`` (protobuf text form) for one environment.

    Raises UsageError with lines ``origin:line: what is wrong, and how to fix it``.
    """
    proto = parse_schema(text, origin=origin)
    return _schema_of(proto, environment=environment, origin=origin, lines=feature_lines(text))


def validate_schema(text: str, origin: str = "schema.pbtxt") -> list[str]:
    """Everything wrong with ``text`` in any environment, as ``origin:line: …`` lines; empty when it is sound."""
    try:
        proto = parse_schema(text, origin=origin)
    except UsageError as error:
        return [str(error)]
    findings = _schema_findings(proto)
    for index, feature in enumerate(proto.feature):
        if is_live(feature):
            findings += _read(proto, index)[1]
    return _located(findings, proto=proto, origin=origin, lines=feature_lines(text))


def ignored_rules(proto: schema_pb2.Schema) -> list[str]:
    """Sentences on rules that limit data but that a run does not apply, in the order of the proto."""
    notes = []
    for feature in proto.feature:
        if not is_live(feature):
            continue
        notes += [f'feature "{feature.name}": {note}' for note in _feature_notes(feature)]
    constraints = proto.dataset_constraints
    for name in ("num_examples_drift_comparator", "num_examples_version_comparator"):
        if constraints.HasField(name):
            notes.append(f"dataset_constraints.{name} compares two runs; a run alone does not judge it")
    return notes


def _feature_notes(feature: schema_pb2.Feature) -> list[str]:
    notes = []
    domain = feature.WhichOneof("domain_info")
    if domain in _DESCRIPTIVE_DOMAINS:
        notes.append(f"{domain} describes the values; no row is checked against it")
    if feature.HasField("distribution_constraints") and feature.distribution_constraints.min_domain_mass < 1:
        notes.append("min_domain_mass below 1 is not applied: every value outside the domain refuses its row")
    for name in ("skew_comparator", "drift_comparator"):
        if feature.HasField(name):
            notes.append(f"{name} compares two data sets; a run alone does not judge it")
    if feature.HasField("sequence_metadata"):
        notes.append("sequence_metadata is not applied")
    if feature.HasField("unique_constraints") and feature.type != schema_pb2.BYTES:
        notes.append("unique_constraints are judged for BYTES only")
    return notes


def _schema_of(proto: schema_pb2.Schema, *, environment: str, origin: str, lines: list[int]) -> Schema:
    findings = _schema_findings(proto) + _environment_findings(proto, environment)
    features = []
    for index, feature in enumerate(proto.feature):
        if is_live(feature) and _in_environment(feature, proto, environment):
            rules, faults = _read(proto, index)
            findings += faults
            if rules is not None:
                features.append(rules)
    if not findings and not features:
        findings.append(_Finding(None, f"no feature is left in environment {environment}; a run needs one"))
    if findings:
        messages = _located(findings, proto=proto, origin=origin, lines=lines)
        more = len(messages) - _MAX_FINDINGS_SHOWN
        tail = [f"{origin}: and {more} more"] if more > 0 else []
        raise UsageError("\n".join(messages[:_MAX_FINDINGS_SHOWN] + tail))
    copy = schema_pb2.Schema()
    copy.CopyFrom(proto)  # the caller may go on editing its own
    return Schema(tuple(features), copy, environment)


def _read(proto: schema_pb2.Schema, index: int) -> tuple[Feature | None, list[_Finding]]:
    reader = FeatureReader(proto.feature[index], proto)
    rules = reader.read()
    return rules, [_Finding(index, message) for message in reader.findings]


def _schema_findings(proto: schema_pb2.Schema) -> list[_Finding]:
    """Findings on names and environments of all features, and on what spans several of them."""
    findings = [] if proto.feature else [_Finding(None, "holds no feature; add at least one feature { … } block")]
    names = Counter(feature.name for feature in proto.feature)
    for index, feature in enumerate(proto.feature):
        if not feature.name:
            findings.append(_Finding(index, "has no name; add name: …"))
        elif any(unicodedata.category(char) == "Cc" for char in feature.name):
            findings.append(_Finding(index, "has a control character in its name; rename it"))
        elif names[feature.name] > 1:
            findings.append(_Finding(index, f"is defined {names[feature.name]} times; keep one"))
        for both in sorted(set(feature.in_environment) & set(feature.not_in_environment)):
            findings.append(_Finding(index, f"is both in and not in environment {both}; keep one"))
    for which in ("sparse_feature", "weighted_feature"):
        for group in getattr(proto, which):
            if is_live(group):
                message = f'{which} "{group.name}" is not supported; remove it and keep its plain features'
                findings.append(_Finding(None, message))
    return findings


def _environment_findings(proto: schema_pb2.Schema, environment: str) -> list[_Finding]:
    if not proto.default_environment:
        return []
    known = set(proto.default_environment).union(*(feature.in_environment for feature in proto.feature))
    if environment in known:
        return []
    return [_Finding(None, f'has no environment "{environment}"; {nearest(environment, known)}')]


def _in_environment(feature: schema_pb2.Feature, proto: schema_pb2.Schema, environment: str) -> bool:
    if environment in feature.not_in_environment:
        return False
    if proto.default_environment:
        return environment in feature.in_environment or environment in proto.default_environment
    return not feature.in_environment or environment in feature.in_environment


def _located(findings: list[_Finding], *, proto: schema_pb2.Schema, origin: str, lines: list[int]) -> list[str]:
    located = []
    for finding in findings:
        if finding.index is None:
            located.append((0, f"{origin}: {finding.message}"))
            continue
        line = lines[finding.index] if len(lines) == len(proto.feature) else 0
        name = proto.feature[finding.index].name or f"number {finding.index + 1}"
        place = f"{origin}:{line}" if line else origin
        located.append((line, f"{place}: feature {name!r} {finding.message}"))
    return [message for _, message in sorted(located, key=lambda pair: pair[0])]
