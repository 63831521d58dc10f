"""Batches through the transform: canonical columns in, large_list columns ready to encode out."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.tfxio.tensor_adapter import TensorAdapter, TensorAdapterConfig
from tfx_bsl.tfxio.tensor_to_arrow import TensorsToRecordBatchConverter

from pipeline.core.errors import UsageError
from pipeline.core.records import BoolArray, Fault, Json, Opener
from pipeline.core.schema import Kind, Schema
from pipeline.features.artefact import Artefact, fetch_artefact, load_artefact
from pipeline.features.checks import RowChecks
from pipeline.features.outputs import DTYPES
from pipeline.features.representation import adapter_config, as_lists, to_tfxio
from pipeline.features.spec import FeatureSpec


class RowTransformer(Protocol):
    """What turns canonical batches into batches to encode. Safe to share between threads.

    ``features`` describes the columns that come out: ``{name: {"dtype": ..., "shape": [...] or null}}``
    (null: any number of values, the feature is absent where there are none); ``labels`` names
    those to predict.
    """

    features: Json
    labels: tuple[str, ...]

    def faults(self, batch: pa.RecordBatch) -> dict[int, Fault]:
        """Rows of a canonical batch that the transform cannot take, and why; most often empty."""
        ...

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Row i of the result is made from row i of the canonical ``batch``; raises what the graph raises."""
        ...


class IdentityTransformer:
    """No transform: every feature of the schema as it is; a missing one is a null list, absent from the record."""

    def __init__(self, schema: Schema) -> None:
        self.labels: tuple[str, ...] = ()
        self.features: Json = {
            feature.name: {
                "dtype": DTYPES[feature.kind],
                "shape": (list(feature.shape or ()) if feature.required else None)
                if feature.scalar or feature.shape
                else None,
            }
            for feature in sorted(schema.features, key=lambda feature: feature.name)
        }

    def faults(self, batch: pa.RecordBatch) -> dict[int, Fault]:
        """No valid row is refused."""
        return {}

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same values as lists, columns sorted by name."""
        return pa.RecordBatch.from_arrays([as_lists(batch.column(name)) for name in self.features], list(self.features))


class Transformer:
    """The TFT graph of an artefact, called through one concrete function (no retracing, whatever the batch size).

    ``schema`` may lack the features that only labels use (serving): those outputs are then left out.
    The chains of a spec do not look at each other, so each string column goes through the graph with
    its different values only, and the outputs are spread over the rows again.
    """

    def __init__(self, artefact: Artefact, schema: Schema) -> None:
        config = adapter_config(schema, artefact.effective)
        _check_inputs(artefact, config.tensor_representations)
        self._groups = _groups(config, schema, artefact.spec)
        # One order of inputs for ever: a concrete function called with a flat list skips the matching of names.
        self._names = [name for group in self._groups for name in group.adapter.TypeSpecs()]
        self._layer = tft.TFTransformOutput(artefact.path).transform_features_layer()
        specs = [spec for group in self._groups for spec in group.adapter.TypeSpecs().values()]
        # The layer is a graph already; autograph would only take time over its Python (0.3 s in place of 0.9 s).
        self._graph = tf.function(self._call, input_signature=specs, autograph=False).get_concrete_function()
        outputs = {name: _type_spec(tensor) for name, tensor in self._graph.structured_outputs.items()}
        for group in self._groups:
            group.expect(outputs)
        self.features: Json = {name: artefact.features[name] for name in sorted(outputs)}
        self.labels = tuple(name for name in artefact.labels if name in outputs)
        self._varlen = frozenset(name for name, feature in self.features.items() if feature["shape"] is None)
        self._checks = RowChecks(artefact.spec, schema) if artefact.spec else None

    def _call(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(self._layer(dict(zip(self._names, tensors, strict=True))))

    def faults(self, batch: pa.RecordBatch) -> dict[int, Fault]:
        """Rows that an op of the spec cannot take (a malformed time, say). A module's needs are not known: none."""
        return self._checks.faults(batch) if self._checks else {}

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Canonical columns in; large_list columns out, sorted by name, as ``features`` describes them."""
        inputs = [group.inputs(batch) for group in self._groups]
        tensors = self._graph(*(tensor for given in inputs for tensor in given.tensors))
        if self._checks is None:  # a module's graph; our own keep to rows
            _check_rows(tensors, batch.num_rows)
        columns: dict[str, pa.Array] = {}
        for group, given in zip(self._groups, inputs, strict=True):
            columns.update(group.outputs(tensors, given.rows))
        for name in self._varlen:
            columns[name] = _empty_as_null(columns[name])
        return pa.RecordBatch.from_arrays([columns[name] for name in self.features], list(self.features))


@dataclass(frozen=True)
class _Inputs:
    """Tensors for the graph, and which of their rows each row of the batch is (None: the same)."""

    tensors: list[Any]
    rows: pa.Array | None


class _Group:
    """Columns that go through the graph together: all rows of them, or the different values of one (``distinct``).

    Single numbers a row are handed over directly, both ways; tfx_bsl takes several times as long over them.
    """

    def __init__(self, config: TensorAdapterConfig, *, distinct: bool, names: frozenset[str] | None) -> None:
        self._arrow, self._distinct, self._names = config.arrow_schema, distinct, names
        self.adapter = TensorAdapter(config)
        self._direct = {} if distinct else _scalars(config)
        rest = {name: rep for name, rep in config.tensor_representations.items() if name not in self._direct}
        self._rest = TensorAdapter(TensorAdapterConfig(config.arrow_schema, rest)) if rest else None
        self._converter: Any = None

    def expect(self, outputs: dict[str, tf.TypeSpec]) -> None:
        """Choose the outputs that come from this group: those among its names, or all."""
        self._outputs = [name for name in outputs if self._names is None or name in self._names]
        self._widths = {name: width for name in self._outputs if (width := _fixed_width(outputs[name]))}
        rest = {name: outputs[name] for name in self._outputs if name not in self._widths}
        self._converter = TensorsToRecordBatchConverter(rest) if rest else None

    def inputs(self, batch: pa.RecordBatch) -> _Inputs:
        """The group's tensors, in the order of its adapter."""
        rows = None
        if self._distinct:
            (name,) = self._arrow.names
            encoded = batch.column(name).dictionary_encode(null_encoding="encode")
            batch, rows = pa.RecordBatch.from_arrays([encoded.dictionary], [name]), encoded.indices
        tensors = {name: scalar.tensor(batch) for name, scalar in self._direct.items()}
        if self._rest:
            tensors.update(self._rest.ToBatchTensors(to_tfxio(batch, self._arrow)))
        return _Inputs([tensors[name] for name in self.adapter.TypeSpecs()], rows)

    def outputs(self, tensors: dict[str, tf.Tensor], rows: pa.Array | None) -> dict[str, pa.Array]:
        """The group's columns, spread over ``rows``."""
        columns = {name: _column(tensors[name].numpy(), width) for name, width in self._widths.items()}
        if self._converter:
            batch = self._converter.convert({n: tensors[n] for n in self._outputs if n not in self._widths})
            columns.update(zip(batch.schema.names, batch.columns, strict=True))
        return columns if rows is None else {name: column.take(rows) for name, column in columns.items()}


@dataclass(frozen=True)
class _Scalar:
    """A dense tensor of one number a row: its column, and what stands for a missing value (None: nothing may)."""

    column: str
    default: float | int | None

    def tensor(self, batch: pa.RecordBatch) -> tf.Tensor:
        """Shape [rows]. Raises ValueError for a missing value without a default."""
        values = batch.column(self.column)
        if values.null_count:
            if self.default is None:
                raise ValueError(f"{values.null_count} rows lack {self.column!r}, which has no default")
            values = values.fill_null(pa.scalar(self.default, values.type))
        return tf.convert_to_tensor(values.to_numpy(zero_copy_only=False))


def _scalars(config: TensorAdapterConfig) -> dict[str, _Scalar]:
    """The dense representations of single numbers, by tensor."""
    found = {}
    for name, representation in config.tensor_representations.items():
        dense = representation.dense_tensor if representation.HasField("dense_tensor") else None
        if (
            dense is None
            or dense.shape.dim
            or pa.types.is_large_binary(config.arrow_schema.field(dense.column_name).type.value_type)
        ):
            continue
        which = dense.default_value.WhichOneof("kind") if dense.HasField("default_value") else None
        found[name] = _Scalar(dense.column_name, getattr(dense.default_value, which) if which else None)
    return found


def _fixed_width(spec: tf.TypeSpec) -> int | None:
    """How many numbers a row of the output holds; None where that varies, or where it holds strings."""
    if not isinstance(spec, tf.TensorSpec) or spec.dtype not in (tf.float32, tf.int64):
        return None
    shape = spec.shape[1:]
    return int(math.prod(shape)) if shape.is_fully_defined() else None


def _column(values: npt.NDArray[Any], width: int) -> pa.LargeListArray:
    """Numbers of shape (rows, ...) as lists of ``width`` values."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return pa.LargeListArray.from_arrays(np.arange(0, len(flat) + 1, width), pa.array(flat))


def _groups(config: TensorAdapterConfig, schema: Schema, spec: FeatureSpec | None) -> list[_Group]:
    if spec is None:
        return [_Group(config, distinct=False, names=None)]
    alone = {feature.name for feature in schema.features if feature.kind is Kind.BYTES and feature.scalar}
    tensors = config.tensor_representations
    together = [name for name in tensors if name not in alone]
    parts = ([together] if together else []) + [[name] for name in tensors if name in alone]
    return [
        _Group(
            TensorAdapterConfig(
                pa.schema([config.arrow_schema.field(name) for name in part]), {name: tensors[name] for name in part}
            ),
            distinct=part is not together,
            names=frozenset(name for output in spec.outputs if output.source in part for name in output.names),
        )
        for part in parts
    ]


def load_transformer(
    artefact: str | None, schema: Schema, *, list_folder: Callable[[str], list[str]], open_file: Opener
) -> RowTransformer:
    """The transform in the folder ``artefact`` (local, or a URI that is copied first); identity for None.

    Raises UsageError where the artefact does not fit; storage faults as they come.
    """
    if artefact is None:
        return IdentityTransformer(schema)
    if "://" not in artefact:
        return Transformer(load_artefact(artefact, schema), schema)
    with tempfile.TemporaryDirectory(prefix="headrace-transform-") as local:
        fetch_artefact(artefact, list_folder=list_folder, open_file=open_file, local_dir=local)
        return Transformer(load_artefact(local, schema), schema)


def _check_rows(tensors: dict[str, Any], rows: int) -> None:
    """A module that drops, adds or broadcasts rows would pair rows with others' values: no row is at fault, all is."""
    for name, tensor in tensors.items():
        found = int((tensor.dense_shape if isinstance(tensor, tf.SparseTensor) else tensor.shape)[0])
        if found != rows:
            raise UsageError(
                f"the transform gives {found} rows of {name!r} for {rows} rows in; a preprocessing_fn must give "
                "one row for each, in order (tf.fill([tf.shape(x)[0], ...], value) makes a constant)"
            )


def non_finite_rows(batch: pa.RecordBatch) -> BoolArray:
    """Which rows of a large_list batch hold NaN or infinity in any float column, shape (rows,)."""
    bad: BoolArray = np.zeros(batch.num_rows, np.bool_)
    for column in batch.columns:
        if not pa.types.is_floating(column.type.value_type):
            continue
        finite = np.isfinite(column.flatten().to_numpy(zero_copy_only=False))
        if not finite.all():
            rows = pc.list_parent_indices(column).to_numpy()
            bad[rows[~finite]] = True
    return bad


def _check_inputs(artefact: Artefact, given: dict[str, object]) -> None:
    optional = artefact.spec.label_sources if artefact.spec else frozenset()
    wanted = artefact.effective.tensor_representation_group[""].tensor_representation
    missing = sorted(name for name in wanted if name not in given and name not in optional)
    if missing and artefact.spec:
        raise UsageError(
            f"the transform in {artefact.path} needs {', '.join(missing)}, which the schema does not have in this "
            "environment; choose --environment, or analyse again"
        )


def _type_spec(tensor: tf.Tensor) -> tf.TypeSpec:
    """The type of an output with an unknown number of rows, which shape inference can lose or fix."""
    spec = tf.type_spec_from_value(tensor)
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) else spec


def _empty_as_null(column: pa.LargeListArray) -> pa.LargeListArray:
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if lengths.all():
        return column
    return pa.LargeListArray.from_arrays(column.offsets, column.values, mask=pa.array(lengths == 0))
