"""What a feature spec gives, known before any analysis: dtypes and shapes, as an artefact describes them after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipeline.core.records import Json
from pipeline.core.schema import Kind, Schema
from pipeline.features.spec import FeatureSpec, Output, required_features, value_of

DTYPES = {Kind.INT: "int64", Kind.FLOAT: "float32", Kind.BYTES: "string"}
"""The dtype of a kind's values in tensors."""


def features_of_spec(spec: FeatureSpec, schema: Schema) -> Json:
    """``{name: {"dtype", "shape"}}`` of all outputs, sorted by name; a null shape is a list of any length.

    ``spec`` was checked against ``schema``.
    """
    return dict(sorted(item for output in spec.outputs for item in _described(output, spec, schema)))


def _described(output: Output, spec: FeatureSpec, schema: Schema) -> Iterator[tuple[str, Json]]:
    value = value_of(next(feature for feature in schema.features if feature.name == output.source))
    value = replace(value, missing=value.missing and output.source not in required_features(spec))
    for op in output.ops:
        value = op.result(value)
    shape = None if value.missing or value.shape is None else list(value.shape)
    for name in output.value_names:
        yield name, {"dtype": DTYPES[value.kind], "shape": shape}
    if output.indicator:
        yield output.indicator, {"dtype": "int64", "shape": []}
