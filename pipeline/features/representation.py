"""How columns become tensors: the effective schema, and canonical batches in the layout that tfx_bsl reads."""

from __future__ import annotations

import math
from collections.abc import Container

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio import tensor_representation_util
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from pipeline.core.errors import UsageError
from pipeline.core.records import BoolArray, Int64Array
from pipeline.core.schema import Feature, Kind, Schema
from pipeline.features.spec import FeatureSpec, Output, required_features, value_of

_ARROW_VALUES = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.large_binary()}
_DEFAULT_FIELD = {Kind.INT: "int_value", Kind.FLOAT: "float_value", Kind.BYTES: "bytes_value"}


def effective_schema(schema: Schema, spec: FeatureSpec | None) -> schema_pb2.Schema:
    """The schema's proto, with the tensors that enter the graph as its only tensor representations.

    With a spec: one tensor a source feature, named like it. Never missing: dense. Missing and
    filled with one constant in all its chains: dense with that default. Else sparse ([rows, n]).
    Without a spec (a preprocessing module): as TFX infers them, so that its code runs unchanged.
    """
    proto = schema_pb2.Schema()
    proto.CopyFrom(schema.proto)
    if spec is None:
        names = {feature.name for feature in schema.features}
        inferred = _inferred(proto)
        kept = {name: tensor for name, tensor in inferred.items() if _columns(tensor) <= names}
    else:
        features = {feature.name: feature for feature in schema.features}
        kept = {name: _representation(features[name], spec) for name in spec.sources if name in features}
        _keep_only(proto, kept)
    tensor_representation_util.SetTensorRepresentationsInSchema(proto, kept)
    return proto


def _keep_only(proto: schema_pb2.Schema, names: Container[str]) -> None:
    """Leave the features that the spec reads, so that a client need not send others."""
    used = [feature for feature in proto.feature if feature.name in names]
    for field in ("feature", "sparse_feature", "weighted_feature", "tensor_representation_group"):
        proto.ClearField(field)
    proto.feature.extend(used)
    for feature in proto.feature:
        # TFX refuses to look at a shape of what can be missing; the tensor representation says it anyway.
        if feature.HasField("shape") and feature.presence.min_fraction != 1:
            count = math.prod(dim.size for dim in feature.shape.dim)
            feature.value_count.min = feature.value_count.max = count


def _inferred(proto: schema_pb2.Schema) -> dict[str, schema_pb2.TensorRepresentation]:
    try:
        inferred = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(proto)
    except ValueError as error:
        message = " ".join(str(error).split())
        raise UsageError(f"the schema does not say which tensors a preprocessing module gets: {message}") from error
    return dict(inferred)


def _columns(tensor: schema_pb2.TensorRepresentation) -> set[str]:
    paths = tensor_representation_util.GetSourceColumnsFromTensorRepresentation(tensor)
    return {path.initial_step() for path in paths}


def _representation(feature: Feature, spec: FeatureSpec) -> schema_pb2.TensorRepresentation:
    tensor = schema_pb2.TensorRepresentation()
    value = value_of(feature)
    chains = [output for output in spec.outputs if output.source == feature.name]
    may_miss = value.missing and feature.name not in required_features(spec)
    constant = _common_constant(chains, feature.kind) if may_miss else None
    if value.shape is None or (may_miss and constant is None):
        tensor.varlen_sparse_tensor.column_name = feature.name
        return tensor
    tensor.dense_tensor.column_name = feature.name
    tensor.dense_tensor.shape.SetInParent()
    for size in value.shape:
        tensor.dense_tensor.shape.dim.add().size = size
    if constant is not None:
        setattr(tensor.dense_tensor.default_value, _DEFAULT_FIELD[feature.kind], constant)
    return tensor


def _common_constant(chains: list[Output], kind: Kind) -> int | float | bytes | None:
    """The constant that all chains fill with, or None where they differ or need to see what was missing."""
    fills = {chain.fill for chain in chains}
    fill = fills.pop()
    if fills or fill is None or fill.statistic or fill.missing_indicator:
        return None
    return fill.constant(kind)


def adapter_config(schema: Schema, effective: schema_pb2.Schema) -> TensorAdapterConfig:
    """What TFT and TensorAdapter need to read ``to_tfxio`` batches: only features that ``schema`` has."""
    names = {feature.name for feature in schema.features}
    tensors = tensor_representation_util.GetTensorRepresentationsFromSchema(effective) or {}
    kept = {name: tensor for name, tensor in sorted(tensors.items()) if _columns(tensor) <= names}
    used = sorted(set().union(*map(_columns, kept.values()))) if kept else []
    kinds = {feature.name: feature.kind for feature in schema.features}
    arrow = pa.schema([(name, pa.large_list(_ARROW_VALUES[kinds[name]])) for name in used])
    return TensorAdapterConfig(arrow, kept)


def to_tfxio(batch: pa.RecordBatch, arrow: pa.Schema) -> pa.RecordBatch:
    """Canonical columns of ``batch`` as the large_list columns of ``arrow``; missing is a null list. Copies no values.

    Columns that ``arrow`` does not name are left out. Slices are welcome.
    """
    return pa.RecordBatch.from_arrays([as_lists(batch.column(name)) for name in arrow.names], schema=arrow)


def as_lists(column: pa.Array) -> pa.LargeListArray:
    """A canonical column as lists of values: [v] for a scalar v, null for missing; null lists are empty inside."""
    rows = len(column)
    if pa.types.is_large_list(column.type):
        if not column.null_count:
            # offset 0 and no spare values, for tfx_bsl does not look at either
            offsets = column.offsets.to_numpy() if rows else np.zeros(1, np.int64)
            return pa.LargeListArray.from_arrays(offsets - offsets[0], column.flatten())
        lengths = column.value_lengths().fill_null(0).to_numpy()
        present = column.is_valid().to_numpy(zero_copy_only=False)
        return _lists(lengths, column.flatten(), present)
    if not column.null_count:
        return pa.LargeListArray.from_arrays(np.arange(rows + 1), column)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return _lists(present.astype(np.int64), column.drop_null(), present)


def _lists(lengths: Int64Array, values: pa.Array, present: BoolArray) -> pa.LargeListArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(~present))
