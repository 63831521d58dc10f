"""Batches through the transform: canonical columns in, large_list columns ready to encode out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform as tft

from pipeline.core.errors import UsageError
from pipeline.core.records import BoolArray, Fault, Json, Opener
from pipeline.core.schema import Schema
from pipeline.features.artefact import Artefact, fetch_artefact, load_artefact
from pipeline.features.calls import GraphCall
from pipeline.features.checks import RowChecks
from pipeline.features.outputs import DTYPES
from pipeline.features.representation import adapter_config, as_lists
from pipeline.features.tensors import Tensors, groups_of


class RowTransformer(Protocol):
    """What turns canonical batches into batches to encode. Safe to share between threads.

    ``features`` describes the columns that come out: ``{name: {"dtype": ..., "shape": [...] or null}}``
    (null: any number of values, the feature is absent where there are none); ``labels`` names
    those to predict. ``coded`` names the columns that are welcome as codes (see ``core.coded``).
    """

    features: Json
    labels: tuple[str, ...]
    coded: frozenset[str]

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
        self.coded: frozenset[str] = frozenset()
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
        self._groups = groups_of(config, schema, artefact.spec)
        self._layer = tft.TFTransformOutput(artefact.path).transform_features_layer()
        self.coded: frozenset[str] = frozenset().union(*(group.coded for group in self._groups))
        self._checks = RowChecks(artefact.spec, schema) if artefact.spec else None
        # One order of inputs for ever: the graph is called with a flat list, without any matching of names.
        specs = [spec for group in self._groups for spec in group.specs]
        # The layer is a graph already; autograph would only take time over its Python (0.3 s in place of 0.9 s).
        function = tf.function(self._call, input_signature=specs, autograph=False).get_concrete_function()
        self._graph = GraphCall(function)
        outputs = self._outputs
        self.features: Json = {name: artefact.features[name] for name in sorted(outputs)}
        self.labels = tuple(name for name in artefact.labels if name in outputs)
        self._varlen = frozenset(name for name, feature in self.features.items() if feature["shape"] is None)

    def _call(self, *tensors: tf.Tensor) -> list[Tensors]:
        left, named = list(tensors), Tensors()
        for group in self._groups:
            named.update(group.unpack([left.pop(0) for _ in group.specs]))
        outputs = dict(self._layer(named))
        self._outputs = frozenset(outputs)
        packed = [group.pack(outputs) for group in self._groups]
        if self._checks is None:  # a module's graph; our own keep to rows
            packed.append({name: _row_count(tensor) for name, tensor in outputs.items()})
        return packed

    def faults(self, batch: pa.RecordBatch) -> dict[int, Fault]:
        """Rows that an op of the spec cannot take (a malformed time, say). A module's needs are not known: none."""
        return self._checks.faults(batch) if self._checks else {}

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Canonical columns in; large_list columns out, sorted by name, as ``features`` describes them."""
        inputs = [group.inputs(batch) for group in self._groups]
        packed = self._graph([tensor for given in inputs for tensor in given.tensors])
        if self._checks is None:
            _check_rows(packed[-1], batch.num_rows)
        columns: dict[str, pa.Array] = {}
        for group, given, tensors in zip(self._groups, inputs, packed, strict=False):
            columns.update(group.outputs(tensors, given))
        for name in self._varlen:
            columns[name] = _empty_as_null(columns[name])
        return pa.RecordBatch.from_arrays([columns[name] for name in self.features], list(self.features))


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


def _row_count(tensor: Any) -> tf.Tensor:
    """Inside the graph: how many rows an output has."""
    return tensor.dense_shape[0] if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor, tf.int64)[0]


def _check_rows(counts: dict[str, tf.Tensor], rows: int) -> None:
    """A module that drops, adds or broadcasts rows would pair rows with others' values: no row is at fault, all is."""
    for name, count in counts.items():
        found = int(count)
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
        if np.isfinite(column.values.to_numpy(zero_copy_only=False)).all():  # of other rows too, where it is a slice
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


def _empty_as_null(column: pa.LargeListArray) -> pa.LargeListArray:
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if lengths.all():
        return column
    return pa.LargeListArray.from_arrays(column.offsets, column.values, mask=pa.array(lengths == 0))
