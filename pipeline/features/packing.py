"""Where each feature lies in a packed record: the column map, as written to the manifest and read back from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.core.errors import UsageError
from pipeline.core.records import Json

_VECTORS = {"float32": "floats", "int64": "ints"}


def width_of(described: Json) -> int | None:
    """How many values a row has of a feature described as ``{"dtype", "shape"}``; None where that varies."""
    return None if described["shape"] is None else math.prod(described["shape"])


@dataclass(frozen=True)
class Vector:
    """A vector of ``length`` values in every record: features of one dtype, one behind the other."""

    name: str
    dtype: str
    length: int


@dataclass(frozen=True)
class Column:
    """A feature inside a vector: ``length`` values from ``offset`` on, row-major in ``shape``."""

    name: str
    vector: str
    offset: int
    length: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ColumnMap:
    """The vectors of a record, and the features in them, in the order in which they lie there."""

    vectors: tuple[Vector, ...]
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, features: Json) -> ColumnMap:
        """All numeric features of fixed shape, by dtype, in the order of their names."""
        vectors, columns = [], []
        for dtype, wanted in _VECTORS.items():
            offset, name = 0, _free_name(wanted, features)
            for feature, described in sorted(features.items()):
                width = width_of(described)
                if described["dtype"] != dtype or not width:  # what holds no value needs no place
                    continue
                columns.append(Column(feature, name, offset, width, tuple(described["shape"])))
                offset += width
            if offset:
                vectors.append(Vector(name, dtype, offset))
        return cls(tuple(vectors), tuple(columns))

    def columns_of(self, vector: Vector) -> tuple[Column, ...]:
        """The features in ``vector``, in their order."""
        return tuple(column for column in self.columns if column.vector == vector.name)

    @property
    def names(self) -> frozenset[str]:
        """The names of all features that lie in a vector."""
        return frozenset(column.name for column in self.columns)

    def to_json(self) -> Json:
        """The map for the manifest; ``from_json`` reads it back."""
        return {
            "vectors": {vector.name: {"dtype": vector.dtype, "length": vector.length} for vector in self.vectors},
            "columns": {
                column.name: {
                    "vector": column.vector,
                    "offset": column.offset,
                    "length": column.length,
                    "shape": list(column.shape),
                }
                for column in self.columns
            },
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> ColumnMap:
        """The map that ``to_json`` wrote. Raises UsageError for one that does not fit together."""
        try:
            vectors = tuple(Vector(name, v["dtype"], v["length"]) for name, v in described["vectors"].items())
            columns = tuple(
                Column(name, c["vector"], c["offset"], c["length"], tuple(c["shape"]))
                for name, c in described["columns"].items()
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the manifest's map of packed columns is damaged ({error!r})") from error
        found = cls(vectors, tuple(sorted(columns, key=_place)))
        found._check()
        return found

    def _check(self) -> None:
        """Raise UsageError unless the features fill their vectors exactly."""
        for vector in self.vectors:
            end = 0
            for column in self.columns_of(vector):
                if column.offset != end or column.length != math.prod(column.shape):
                    raise UsageError(f"the manifest's map of packed columns is damaged at '{column.name}'")
                end += column.length
            if end != vector.length:
                raise UsageError(f"the manifest's map of packed columns is damaged: '{vector.name}' has gaps")
        strays = {column.vector for column in self.columns} - {vector.name for vector in self.vectors}
        if strays:
            raise UsageError(f"the manifest's map of packed columns is damaged: no vector {sorted(strays)}")


def _place(column: Column) -> tuple[str, int]:
    return column.vector, column.offset


def _free_name(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, with as many underscores behind it as it takes to be no feature's name."""
    while wanted in taken:
        wanted += "_"
    return wanted
