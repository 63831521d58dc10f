"""The feature spec: features.yaml as frozen dataclasses, checked against the schema.

    default: drop                 # schema features that are not named: drop (the default) or pass_through
    fare: {scale_to_z_score: {}}
    company: {vocabulary: {top_k: 500, num_oov_buckets: 1}}
    tips: [{fill_missing: {value: 0}}, log1p, {scale_to_z_score: {}}]     # a chain, left to right
    tips_bucket: {from: tips, ops: [{fill_missing: {value: 0}}, {bucketize: {buckets: 10}}]}   # a second output
    trip_total: label             # a row without its label is refused (missing_feature)

Missing values: a feature that can be missing (the schema does not require it) needs ``fill_missing``
before any op but pass_through and drop; the fill is part of the artefact, so serving does the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from pipeline.core.schema import Feature, Schema
from pipeline.core.schema_text import nearest
from pipeline.features import yaml_lines
from pipeline.features.op import Op, Value
from pipeline.features.ops import Drop, FillMissing, Label, PassThrough, TimeParts, make_op
from pipeline.features.params import Refusal
from pipeline.features.yaml_lines import Document

_DEFAULT = "default"


@dataclass(frozen=True)
class Output:
    """One chain: the schema feature ``source`` through ``ops`` into the output(s) called ``name``."""

    name: str
    source: str
    ops: tuple[Op, ...]

    @property
    def label(self) -> Label | None:
        """The label op, where this is a label."""
        return next((op for op in self.ops if isinstance(op, Label)), None)

    @property
    def fill(self) -> FillMissing | None:
        """How missing values are filled, if they are."""
        return next((op for op in self.ops if isinstance(op, FillMissing)), None)

    @property
    def indicator(self) -> str | None:
        """The name of the output that is 1 where the value was missing, if there is one."""
        return f"{self.name}_missing" if self.fill and self.fill.missing_indicator else None

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the outputs that hold values: one, or one for each part of a time."""
        parts = next((op.parts for op in self.ops if isinstance(op, TimeParts)), None)
        return tuple(f"{self.name}_{part}" for part in parts) if parts else (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all outputs."""
        return (*self.value_names, *((self.indicator,) if self.indicator else ()))


@dataclass(frozen=True)
class FeatureSpec:
    """All outputs in the order of the file; plain values inside, so that it pickles anywhere."""

    outputs: tuple[Output, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the outputs that are labels."""
        return tuple(name for output in self.outputs if output.label for name in output.value_names)

    @property
    def sources(self) -> tuple[str, ...]:
        """The schema features that are used, sorted."""
        return tuple(sorted({output.source for output in self.outputs}))

    @property
    def label_sources(self) -> frozenset[str]:
        """The schema features that only labels use: absent in serving."""
        labels = {output.source for output in self.outputs if output.label}
        return frozenset(labels - {output.source for output in self.outputs if not output.label})

    def to_json(self) -> list[dict[str, Any]]:
        """The spec as plain JSON values; ``from_json`` reads it back."""
        return [
            {"name": output.name, "from": output.source, "ops": [op.to_json() for op in output.ops]}
            for output in self.outputs
        ]

    @classmethod
    def from_json(cls, document: Iterable[dict[str, Any]]) -> FeatureSpec:
        """The spec that ``to_json`` wrote. Raises Refusal, KeyError or ValueError if it was changed since."""
        return cls(
            tuple(
                Output(
                    entry["name"], entry["from"], tuple(make_op(*item) for op in entry["ops"] for item in op.items())
                )
                for entry in document
            )
        )

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the spec: comments, spacing and defaults that are written out make no difference."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def required_features(spec: FeatureSpec) -> frozenset[str]:
    """Schema features without which a row is not trainable: the labels that may not be missing."""
    return frozenset(o.source for o in spec.outputs if o.label and o.label.missing == "reject")


def with_required(schema: Schema, names: Iterable[str]) -> Schema:
    """The schema with ``names`` required, so that validation refuses a row without them."""
    wanted = frozenset(names)
    features = tuple(replace(f, required=True) if f.name in wanted else f for f in schema.features)
    return replace(schema, features=features)


def value_of(feature: Feature) -> Value:
    """What enters a chain from ``feature``: shape () for a scalar, None for a list of varying length."""
    shape = () if feature.scalar else feature.shape
    return Value(feature.kind, shape, missing=not feature.required)


def parse_features(text: str, schema: Schema, *, where: str = "features.yaml") -> FeatureSpec:
    """Read and check the text of a features.yaml; ``where`` names it in errors.

    Raises UsageError that says file, line, what is wrong and how to fix it.
    """
    return _Parser(yaml_lines.read_yaml(text, where), schema).spec()


class _Parser:
    def __init__(self, document: Document, schema: Schema) -> None:
        self._document = document
        self._features = {feature.name: feature for feature in schema.features}
        self._paths: dict[str, list[yaml_lines.Path]] = {}

    def spec(self) -> FeatureSpec:
        value = self._document.value
        if not isinstance(value, dict):
            self._document.fail((), "expected a mapping from features to ops, such as `fare: {scale_to_z_score: {}}`")
        entries = cast(dict[str, Any], value)
        default = entries.get(_DEFAULT, "drop")
        if default not in ("drop", "pass_through"):
            self._document.fail((_DEFAULT,), f"`default` is drop or pass_through, not {default!r}")
        outputs = [self._output(name, entry) for name, entry in entries.items() if name != _DEFAULT]
        required = required_features(FeatureSpec(tuple(outputs)))
        for output in outputs:
            self._check_chain(output, required)
        if default == "pass_through":
            outputs += [Output(name, name, (PassThrough(),)) for name in self._features if name not in entries]
        kept = tuple(output for output in outputs if not any(isinstance(op, Drop) for op in output.ops))
        self._check_names(kept)
        return FeatureSpec(kept)

    def _output(self, name: str, entry: Any) -> Output:
        path: yaml_lines.Path = (name,)
        source = name
        if isinstance(entry, dict) and "from" in entry:
            source, entry, path = self._derived(name, entry)
        if source not in self._features:
            hint = nearest(str(source), self._features)
            extra = "" if source != name else f" (a new output is written `{name}: {{from: <feature>, ops: [...]}}`)"
            self._document.fail((name,), f"the schema has no feature '{source}'; {hint}{extra}")
        steps = entry if isinstance(entry, list) else [entry]
        step_paths = [(*path, i) if isinstance(entry, list) else path for i in range(len(steps))]
        if not steps:
            self._document.fail(path, f"'{name}' has an empty list of ops; write drop or pass_through")
        self._paths[name] = step_paths
        return Output(name, source, tuple(self._op(step, at) for step, at in zip(steps, step_paths, strict=True)))

    def _derived(self, name: str, entry: dict[str, Any]) -> tuple[str, Any, yaml_lines.Path]:
        for key in entry:
            if key not in ("from", "ops"):
                self._document.fail((name, key), f"'{key}' is not known beside `from`; {nearest(key, ('from', 'ops'))}")
        if name in self._features:
            self._document.fail((name,), f"'{name}' is a feature of the schema; give the output another name")
        return entry["from"], entry.get("ops", "pass_through"), (name, "ops")

    def _op(self, step: Any, path: yaml_lines.Path) -> Op:
        if isinstance(step, str):
            step = {step: None}
        if not isinstance(step, dict) or len(step) != 1:
            self._document.fail(
                path,
                "an op is a name or one `name: {parameters}`; chain several as a list: [{fill_missing: ...}, log1p]",
            )
        ((name, given),) = step.items()
        if given is not None and not isinstance(given, dict):
            self._document.fail((*path, name), f"the parameters of {name} are a mapping, such as `{name}: {{...}}`")
        try:
            return make_op(name, given or {})
        except Refusal as error:
            return self._document.fail((*path, name), str(error))

    def _check_chain(self, output: Output, required: frozenset[str]) -> None:
        value = value_of(self._features[output.source])
        value = replace(value, missing=value.missing and output.source not in required)
        for index, (op, path) in enumerate(zip(output.ops, self._paths[output.name], strict=True)):
            try:
                _check_order(op, index, output.ops)
                value = op.result(value)
            except Refusal as error:
                self._document.fail((*path, op.name), f"'{output.source}': {error}")

    def _check_names(self, outputs: tuple[Output, ...]) -> None:
        if not outputs:
            self._document.fail((), "no feature is left: every one is dropped")
        seen: dict[str, str] = {}
        for output in outputs:
            for name in output.names:
                if name in seen:
                    self._document.fail(
                        (output.name,), f"'{output.name}' and '{seen[name]}' both give an output '{name}'"
                    )
                seen[name] = output.name


def _check_order(op: Op, index: int, ops: tuple[Op, ...]) -> None:
    before = ops[:index]
    after_label = all(isinstance(earlier, Label) for earlier in before)
    if isinstance(op, Drop) and len(ops) > 1:
        raise Refusal("drop stands alone")
    if isinstance(op, Label):
        if before:
            raise Refusal("label stands first: `[label, {cast: {to: float}}]`")
        fills = any(isinstance(later, FillMissing) for later in ops)
        if fills and op.missing == "reject":
            raise Refusal("a label is never invented in silence: write `label: {missing: fill}` to fill it")
        if op.missing == "fill" and not fills:
            raise Refusal("`label: {missing: fill}` needs `fill_missing` after it")
    if isinstance(op, FillMissing) and not after_label:
        raise Refusal("fill_missing stands first (or right after label): nothing is missing later")
    if isinstance(op, PassThrough) and not (after_label and index == len(ops) - 1):
        raise Refusal("pass_through stands alone (or right after label)")
    if isinstance(op, TimeParts) and any(isinstance(earlier, TimeParts) for earlier in before):
        raise Refusal("time_parts stands once in a chain")
