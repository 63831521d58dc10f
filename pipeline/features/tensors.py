"""Columns to the tensors of a graph and back, with as few tensors as will do.

A tensor that crosses the border to TensorFlow costs some 20 us whatever it holds, which is most of the time of a small
batch. So all single numbers of one dtype go in as one matrix, a column of the batch a row of it, and all outputs of
fixed width come back as one vector, a column's values after the other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from tfx_bsl.tfxio.tensor_adapter import TensorAdapter, TensorAdapterConfig
from tfx_bsl.tfxio.tensor_to_arrow import TensorsToRecordBatchConverter

from pipeline.core.coded import distinct_of
from pipeline.core.schema import Kind, Schema
from pipeline.features.representation import to_tfxio
from pipeline.features.spec import FeatureSpec

_NUMBERS = {tf.int64: pa.int64(), tf.float32: pa.float32()}

Tensors = dict[str, Any]


@dataclass(frozen=True)
class GroupInputs:
    """Tensors for the graph, how many rows they have, and which of them each row of the batch is (None: the same)."""

    tensors: list[Any]
    count: int
    rows: pa.Array | None


@dataclass(frozen=True)
class _Scalar:
    """A dense tensor of one value a row: its column, and what stands for a missing value (None: nothing may)."""

    column: str
    default: float | int | bytes | None

    def values(self, column: pa.Array) -> npt.NDArray[Any]:
        """Shape (rows,). Raises ValueError for a missing value without a default."""
        if column.null_count:
            if self.default is None:
                raise ValueError(f"{column.null_count} rows lack {self.column!r}, which has no default")
            column = column.fill_null(pa.scalar(self.default, column.type))
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class Group:
    """Columns that go through the graph together: all rows of them, or the different values of one (``distinct``).

    ``names`` are the graph's outputs that come from this group, None for all. ``specs`` are the types of its tensors.
    ``coded`` columns may be given as codes.
    """

    def __init__(self, config: TensorAdapterConfig, *, distinct: bool, names: frozenset[str] | None) -> None:
        self._arrow, self._distinct, self._names = config.arrow_schema, distinct, names
        self.coded = frozenset(config.arrow_schema.names if distinct else ())
        scalars = _scalars(config, words=distinct)
        self._matrices = {
            dtype: {name: scalar for name, (scalar, found) in scalars.items() if found == dtype} for dtype in _NUMBERS
        }
        self._words = {name: scalar for name, (scalar, found) in scalars.items() if found == tf.string}
        rest = {name: rep for name, rep in config.tensor_representations.items() if name not in scalars}
        self._rest = TensorAdapter(TensorAdapterConfig(config.arrow_schema, rest)) if rest else None
        self.specs: list[tf.TypeSpec] = [
            *(tf.TensorSpec([len(found), None], dtype) for dtype, found in self._matrices.items() if found),
            *(tf.TensorSpec([None], tf.string) for _ in self._words),
            *(self._rest.TypeSpecs().values() if self._rest else ()),
        ]

    def inputs(self, batch: pa.RecordBatch) -> GroupInputs:
        """The group's tensors, as ``specs`` say, from a batch of canonical columns."""
        rows = None
        if self._distinct:
            (name,) = self._arrow.names
            words, rows = distinct_of(batch.column(name))
            batch = pa.RecordBatch.from_arrays([words], [name])
        tensors = [
            tf.convert_to_tensor(_matrix(batch, found.values(), dtype))
            for dtype, found in self._matrices.items()
            if found
        ]
        tensors += [tf.constant(word.values(batch.column(word.column)), tf.string) for word in self._words.values()]
        if self._rest:
            given = self._rest.ToBatchTensors(to_tfxio(batch, self._arrow))
            tensors += [given[name] for name in self._rest.TypeSpecs()]
        return GroupInputs(tensors, batch.num_rows, rows)

    def unpack(self, tensors: list[Any]) -> Tensors:
        """Inside the graph: ``inputs`` by name."""
        left, named = list(tensors), Tensors()
        for found in self._matrices.values():
            if found:
                named.update(zip(found, tf.unstack(left.pop(0), num=len(found)), strict=True))
        names = [*self._words, *(self._rest.TypeSpecs() if self._rest else ())]
        return named | dict(zip(names, left, strict=True))

    def pack(self, outputs: Tensors) -> Tensors:
        """Inside the graph: those of ``outputs`` that are this group's, the ones of fixed width put together."""
        mine = {name: tensor for name, tensor in outputs.items() if self._names is None or name in self._names}
        specs = {name: type_spec(tensor) for name, tensor in mine.items()}
        self._widths = {
            dtype: {name: width for name in mine if (width := _fixed_width(specs[name], dtype))} for dtype in _NUMBERS
        }
        fixed = {name for widths in self._widths.values() for name in widths}
        rest = {name: spec for name, spec in specs.items() if name not in fixed}
        self._converter = TensorsToRecordBatchConverter(rest) if rest else None
        packed = {
            dtype.name: tf.concat([tf.reshape(mine[name], [-1]) for name in widths], 0)
            for dtype, widths in self._widths.items()
            if widths
        }
        return {"fixed": packed, "rest": {name: mine[name] for name in rest}}

    def outputs(self, packed: Tensors, given: GroupInputs) -> dict[str, pa.Array]:
        """The columns of what ``pack`` gave for these inputs, spread over the rows of the batch."""
        rows, columns = given.count, dict[str, pa.Array]()
        spread = None if given.rows is None else given.rows.to_numpy(zero_copy_only=False)
        offsets: dict[int, pa.Array] = {}
        for dtype, widths in self._widths.items():
            values = packed["fixed"][dtype.name].numpy() if widths else np.empty(0)
            if len(values) != rows * sum(widths.values()):
                raise ValueError(f"the transform gives {len(values)} values of {', '.join(widths)} for {rows} rows")
            at = 0
            for name, width in widths.items():
                found = values[at : at + rows * width]
                at += rows * width
                if spread is not None:
                    found = found.reshape(rows, width)[spread].reshape(-1)
                if width not in offsets:
                    offsets[width] = pa.array(np.arange(0, len(found) + 1, width))
                columns[name] = pa.LargeListArray.from_arrays(offsets[width], pa.array(found))
        if self._converter:
            batch = self._converter.convert(packed["rest"])
            rest = batch.columns if given.rows is None else [column.take(given.rows) for column in batch.columns]
            columns.update(zip(batch.schema.names, rest, strict=True))
        return columns


def _matrix(batch: pa.RecordBatch, scalars: Iterable[_Scalar], dtype: tf.DType) -> npt.NDArray[Any]:
    """A column of the batch in each row. Raises ValueError for a missing value without a default."""
    chosen = list(scalars)
    matrix = np.empty((len(chosen), batch.num_rows), dtype.as_numpy_dtype)
    for place, scalar in enumerate(chosen):
        column = batch.column(scalar.column)
        if column.null_count and scalar.default is not None:
            matrix[place] = np.frombuffer(column.buffers()[1], matrix.dtype)[
                column.offset : column.offset + len(column)
            ]
            matrix[place][column.is_null().to_numpy(zero_copy_only=False)] = scalar.default
        else:
            matrix[place] = scalar.values(column)
    return matrix


def _scalars(config: TensorAdapterConfig, *, words: bool) -> dict[str, tuple[_Scalar, tf.DType]]:
    """The dense representations of single numbers (and strings, if ``words``), by tensor."""
    dtypes = {arrow: dtype for dtype, arrow in _NUMBERS.items()} | ({pa.large_binary(): tf.string} if words else {})
    found = {}
    for name, representation in config.tensor_representations.items():
        dense = representation.dense_tensor if representation.HasField("dense_tensor") else None
        if dense is None or dense.shape.dim:
            continue
        dtype = dtypes.get(config.arrow_schema.field(dense.column_name).type.value_type)
        which = dense.default_value.WhichOneof("kind") if dense.HasField("default_value") else None
        if dtype is not None:
            found[name] = (_Scalar(dense.column_name, getattr(dense.default_value, which) if which else None), dtype)
    return found


def _fixed_width(spec: tf.TypeSpec, dtype: tf.DType) -> int | None:
    """How many numbers of ``dtype`` a row of the output holds; None where that varies, or where it holds others."""
    if not isinstance(spec, tf.TensorSpec) or spec.dtype != dtype:
        return None
    shape = spec.shape[1:]
    return int(math.prod(shape)) if shape.is_fully_defined() else None


def type_spec(tensor: tf.Tensor) -> tf.TypeSpec:
    """The type of an output with an unknown number of rows, which shape inference can lose or fix."""
    spec = tf.type_spec_from_value(tensor)
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) else spec


def groups_of(config: TensorAdapterConfig, schema: Schema, spec: FeatureSpec | None) -> list[Group]:
    """All columns together; with a spec, whose chains do not look at each other, each string column for itself."""
    if spec is None:
        return [Group(config, distinct=False, names=None)]
    alone = {feature.name for feature in schema.features if feature.kind is Kind.BYTES and feature.scalar}
    tensors = config.tensor_representations
    together = [name for name in tensors if name not in alone]
    parts = ([together] if together else []) + [[name] for name in tensors if name in alone]
    return [
        Group(
            TensorAdapterConfig(
                pa.schema([config.arrow_schema.field(name) for name in part]), {name: tensors[name] for name in part}
            ),
            distinct=part is not together,
            names=frozenset(name for output in spec.outputs if output.source in part for name in output.names),
        )
        for part in parts
    ]
