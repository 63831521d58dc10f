"""Records back to named tensors, by what the manifest says of features and layout: TensorFlow operations only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.features.packing import ColumnMap, width_of

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Parser:
    """Parses records of one layout. The tensors are the same whatever the layout:

    dense [rows, *shape], or ragged [rows, None] for a feature whose number of values varies (a row without the
    feature has none). ``defaults`` makes such features dense [rows], for rows that hold one value or none.
    """

    features: Json
    rows_per_record: int = 1
    column_map: ColumnMap | None = None
    blocks: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ragged(self) -> bool:
        """Whether any tensor is ragged."""
        return any(d["shape"] is None and name not in self.defaults for name, d in self.features.items())

    def parse(self, records: tf.Tensor) -> Tensors:
        """Serialised records, shape [records], to tensors of all their rows, in order. Works eagerly and in graphs."""
        parsed = tf.io.parse_example(records, self.record_spec())
        if self.blocks:
            return self._from_blocks(parsed)
        rows = tf.shape(records)[0]
        tensors = {name: parsed[name] for name in self.features if name in parsed}
        for vector in self.column_map.vectors if self.column_map else ():
            columns = self.column_map.columns_of(vector) if self.column_map else ()
            parts = tf.split(parsed[vector.name], [column.length for column in columns], axis=1)
            for column, part in zip(columns, parts, strict=True):
                tensors[column.name] = tf.reshape(part, [-1, *column.shape])
        return self._complete(tensors, rows)

    def record_spec(self) -> dict[str, Any]:
        """The parsing spec of one record, as ``tf.io.parse_example`` takes it."""
        packed = self.column_map.names if self.column_map else frozenset()
        own = {name: self._feature(name, d) for name, d in self.features.items() if name not in packed and _holds(d)}
        vectors = self.column_map.vectors if self.column_map else ()
        return own | {v.name: tf.io.FixedLenFeature([v.length], tf.as_dtype(v.dtype)) for v in vectors}

    def _feature(self, name: str, described: Json) -> Any:
        dtype = tf.as_dtype(described["dtype"])
        if name in self.defaults:
            return tf.io.FixedLenFeature([], dtype, self.defaults[name])
        if described["shape"] is None or self.blocks:
            return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
        return tf.io.FixedLenFeature(described["shape"], dtype)

    def _from_blocks(self, parsed: Tensors) -> Tensors:
        """Each feature's values lie row by row, record by record, so that they are all rows' values already."""
        first = next(iter(parsed))
        rows = tf.size(parsed[first].flat_values) // (width_of(self.features[first]) or 1)
        tensors = {
            name: tf.reshape(values.flat_values, [rows, *self.features[name]["shape"]])
            for name, values in parsed.items()
        }
        return self._complete(tensors, rows)

    def _complete(self, tensors: Tensors, rows: tf.Tensor) -> Tensors:
        """The tensors in the order of the features; those that hold no value are not in the records."""
        for name, described in self.features.items():
            if name not in tensors:
                tensors[name] = tf.zeros([rows, *described["shape"]], tf.as_dtype(described["dtype"]))
        return {name: tensors[name] for name in self.features}


def _holds(described: Json) -> bool:
    """Whether rows hold values of the feature at all: a shape may have a zero in it."""
    return width_of(described) != 0


def make_parser(feature_spec: Json, *, where: str, defaults: Mapping[str, Any] | None = None) -> Parser:
    """The parser for the shards of a manifest with this ``feature_spec``; ``where`` names it in errors.

    Raises UsageError for a layout that this version does not know, for a damaged description, and for
    ``defaults`` of features that need none.
    """
    try:
        features, layout = feature_spec["features"], feature_spec["layout"]
        name, rows_per_record = layout["name"], int(layout["rows_per_record"])
        for described in features.values():
            tf.as_dtype(described["dtype"])
            width_of(described)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where}: feature_spec is damaged ({error!r})") from error
    if name not in ("rows", "packed", "blocks"):
        raise UsageError(
            f"{where}: layout {str(name)[:50]!r} is not known to this headrace; install the one that wrote it"
        )
    for feature in defaults or {}:
        if feature not in features or features[feature]["shape"] is not None:
            optional = sorted(n for n, described in features.items() if described["shape"] is None)
            raise UsageError(
                f"defaults: '{feature}' is no feature that can be missing; "
                + (f"those that can: {', '.join(optional)}" if optional else "there is none")
            )
    column_map = ColumnMap.from_json(layout) if name == "packed" else None
    return Parser(
        dict(sorted(features.items())), rows_per_record, column_map, blocks=name == "blocks", defaults=defaults or {}
    )
