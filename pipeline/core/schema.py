"""The schema: a tensorflow_metadata Schema proto read into flat, frozen rules for one environment."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FLOAT32_MAX = 3.4028234663852886e38


class Kind(Enum):
    """The three types that a training feature can have."""

    INT = "int"
    FLOAT = "float"
    BYTES = "bytes"


_VALUE_TYPES = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.large_binary()}


@dataclass(frozen=True, slots=True)
class BoolDomain:
    """A feature that holds truth values: 0/1 for INT, these two spellings for BYTES."""

    true_value: bytes = b"true"
    false_value: bytes = b"false"


@dataclass(frozen=True, slots=True)
class Feature:
    """The rules for one column.

    ``min_values``/``max_values`` count the values of a row in which the feature is present
    (``max_values`` None: no limit). ``shape`` is the fixed shape, or None where the count may vary.
    ``scalar`` features hold exactly one value and may be written bare; all others are lists.
    Ranges are inclusive; None means no bound. ``required`` is presence.min_fraction == 1: judged
    row by row; a smaller ``min_fraction`` and ``min_count`` are judged over the whole run.
    """

    name: str
    kind: Kind
    required: bool = False
    min_fraction: float = 0.0
    min_count: int = 0
    shape: tuple[int, ...] | None = None
    min_values: int = 0
    max_values: int | None = None
    int_min: int | None = None
    int_max: int | None = None
    float_min: float | None = None
    float_max: float | None = None
    disallow_nan: bool = False
    disallow_inf: bool = False
    domain: tuple[bytes, ...] | None = None
    bool_domain: BoolDomain | None = None

    @property
    def scalar(self) -> bool:
        """Whether a row holds exactly one value (value_count 1..1, or a shape of one element)."""
        return self.min_values == 1 and self.max_values == 1

    @property
    def arrow_type(self) -> pa.DataType:
        """Canonical column type: int64, float32 or large_binary; a large_list of it unless ``scalar``."""
        value_type = _VALUE_TYPES[self.kind]
        return value_type if self.scalar else pa.large_list(value_type)


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
