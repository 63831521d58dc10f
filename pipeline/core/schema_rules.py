"""One feature of a Schema proto read into flat rules, or into findings that say why it cannot be.

What happens to each construct of the proto (``name``, ``type`` and everything that could limit a value):

| construct | what happens |
|---|---|
| ``type`` INT, FLOAT, BYTES | checked for each row |
| ``type`` STRUCT or missing, ``struct_domain`` | refused: there is no column for it |
| ``presence.min_fraction`` 1 | checked for each row (``required``) |
| ``presence.min_fraction`` below 1, ``presence.min_count`` | judged over the run (``core.quality``) |
| ``group_presence`` required | refused: it is a rule inside structs |
| ``value_count``; ``value_counts`` of one level | checked for each row |
| ``value_counts`` of more levels | refused: nested lists have no column |
| ``shape`` with all sizes known | checked for each row: the product of the sizes is the count |
| ``int_domain``, ``float_domain``, ``string_domain``, ``bool_domain``, ``domain`` | checked for each row |
| ``distribution_constraints.min_domain_mass`` below 1 | noted: the domain is kept row by row, which is stricter |
| ``unique_constraints``, ``dataset_constraints`` example counts | judged over the run |
| ``image_``, ``audio_``, ``video_``, ``content_chunk_``, ``mid_``, ``url_``, ``natural_language_``, ``time_``, \
``time_of_day_domain`` | noted: they describe, and TFDV checks no row against them either |
| ``skew_comparator``, ``drift_comparator``, example-count comparators | noted: they compare two data sets, not rows |
| ``sequence_metadata`` | noted |
| ``sparse_feature``, ``weighted_feature`` | refused: ignoring them would let misaligned values through |
| ``annotation``, ``tensor_representation_group``, ``represent_variable_length_as_ragged`` | limit no value |
| ``lifecycle_stage`` (see ``is_live``), ``deprecated`` | the feature is left out, as TFDV does |
| environments (``core.schema``) | the feature is left out where it does not belong |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FLOAT32_MAX = 3.4028234663852886e38
MAX_SHAPE_VALUES = 2**31 - 1


class Kind(Enum):
    """The three types that a training feature can have."""

    INT = "int"
    FLOAT = "float"
    BYTES = "bytes"


_VALUE_TYPES = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float32(), Kind.BYTES: pa.large_binary()}
_KINDS = {schema_pb2.INT: Kind.INT, schema_pb2.FLOAT: Kind.FLOAT, schema_pb2.BYTES: Kind.BYTES}
_LIVE_STAGES = (schema_pb2.UNKNOWN_STAGE, schema_pb2.BETA, schema_pb2.PRODUCTION)


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


def is_live(feature: schema_pb2.Feature | schema_pb2.SparseFeature | schema_pb2.WeightedFeature) -> bool:
    """Whether the (plain, sparse or weighted) feature is validated at all.

    As in TFDV, ``lifecycle_stage`` PLANNED, ALPHA, DEPRECATED, DISABLED and DEBUG_ONLY stand for
    ``deprecated``, and decide alone when set. VALIDATION_DERIVED features are never in raw data.
    """
    if feature.HasField("lifecycle_stage"):
        return feature.lifecycle_stage in _LIVE_STAGES
    return not getattr(feature, "deprecated", False)  # weighted features have no such field


class FeatureReader:
    """Reads one live feature of ``schema``; ``findings`` then says what is wrong, each with its remedy."""

    def __init__(self, proto: schema_pb2.Feature, schema: schema_pb2.Schema) -> None:
        self._proto = proto
        self._schema = schema
        self._rules: dict[str, Any] = {}
        self.findings: list[str] = []

    def read(self) -> Feature | None:
        """The rules, or None when there are findings."""
        kind = self._kind()
        if kind is None:
            return None
        self._presence()
        self._counts()
        self._domain(kind)
        return None if self.findings else Feature(name=self._proto.name, kind=kind, **self._rules)

    def _kind(self) -> Kind | None:
        kind = _KINDS.get(self._proto.type)
        if self._proto.type == schema_pb2.STRUCT or self._proto.HasField("struct_domain"):
            self.findings.append("structs (STRUCT, struct_domain) are not supported; flatten it into plain features")
            return None
        if kind is None:
            self.findings.append("has no type; add type: INT, FLOAT or BYTES")
        return kind

    def _presence(self) -> None:
        if self._proto.group_presence.required:
            self.findings.append("group_presence is a rule inside structs; use presence { min_fraction: 1 }")
        fraction, count = self._proto.presence.min_fraction, self._proto.presence.min_count
        if not 0 <= fraction <= 1:
            self.findings.append(f"presence.min_fraction is {fraction:g}; it must lie between 0 and 1")
        if count < 0:
            self.findings.append(f"presence.min_count is {count}; it must not be negative")
        self._rules.update(required=fraction == 1, min_fraction=fraction, min_count=count)

    def _counts(self) -> None:
        which = self._proto.WhichOneof("shape_type")
        if which == "shape":
            self._shape()
        elif which == "value_count":
            self._value_count(self._proto.value_count)
        elif which == "value_counts":
            levels = self._proto.value_counts.value_count
            if len(levels) == 1:
                self._value_count(levels[0])
            elif levels:
                self.findings.append("value_counts of nested lists are not supported; flatten it to one value_count")

    def _value_count(self, count: schema_pb2.ValueCount) -> None:
        if count.min < 0:
            self.findings.append(f"value_count.min is {count.min}; it must not be negative")
        if count.HasField("max") and count.max < max(1, count.min):
            self.findings.append(
                f"value_count.max is {count.max}; it must be at least 1 and not below min ({count.min}): leave it out "
                "for no limit"
            )
        self._rules.update(min_values=count.min, max_values=count.max if count.HasField("max") else None)

    def _shape(self) -> None:
        sizes = tuple(dim.size for dim in self._proto.shape.dim)
        if any(size < 1 for size in sizes):
            self.findings.append(f"shape {sizes} has a dim without a size of 1 or more; use value_count instead")
            return
        values = math.prod(sizes)
        if values > MAX_SHAPE_VALUES:
            self.findings.append(f"shape {sizes} holds {values} values; at most {MAX_SHAPE_VALUES} are supported")
        self._rules.update(shape=sizes, min_values=values, max_values=values)

    def _domain(self, kind: Kind) -> None:
        which = self._proto.WhichOneof("domain_info")
        domain = getattr(self._proto, which) if which else None
        if which == "domain":
            which, domain = self._shared_domain(self._proto.domain)
        reader = _DOMAIN_READERS.get(which or "")
        if reader is None or domain is None:
            return
        kinds, read = reader
        if kind in kinds:
            read(self, domain)
        else:
            wanted = " or ".join(k.name for k in kinds)
            self.findings.append(f"{which} needs type {wanted}, but the type is {kind.name}; change one of them")

    def _shared_domain(self, name: str) -> tuple[str | None, Any]:
        found = [
            (which, domain)
            for which in ("string_domain", "int_domain", "float_domain")
            for domain in getattr(self._schema, which)
            if domain.name == name
        ]
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} domains" if found else "no domain"
        self.findings.append(f'domain "{name}": the schema has {what} of that name; it must have one')
        return None, None

    def _int_domain(self, domain: schema_pb2.IntDomain) -> None:
        self._range("int", domain)

    def _float_domain(self, domain: schema_pb2.FloatDomain) -> None:
        if math.isnan(domain.min) or math.isnan(domain.max):
            self.findings.append("float_domain has NaN as a bound; write a number or leave the bound out")
        self._rules.update(disallow_nan=domain.disallow_nan, disallow_inf=domain.disallow_inf)
        self._range("float", domain)

    def _range(self, kind: str, domain: Any) -> None:
        low = domain.min if domain.HasField("min") else None
        high = domain.max if domain.HasField("max") else None
        if low is not None and high is not None and low > high:
            self.findings.append(f"{kind}_domain has min {low} above max {high}; no value can satisfy it")
        self._rules.update({f"{kind}_min": low, f"{kind}_max": high})

    def _string_domain(self, domain: schema_pb2.StringDomain) -> None:
        if not domain.value:
            self.findings.append("string_domain has no values; list them, or leave the domain out to allow any")
        self._rules["domain"] = tuple(dict.fromkeys(value.encode() for value in domain.value))

    def _bool_domain(self, domain: schema_pb2.BoolDomain) -> None:
        pair = BoolDomain(
            domain.true_value.encode() if domain.HasField("true_value") else b"true",
            domain.false_value.encode() if domain.HasField("false_value") else b"false",
        )
        if pair.true_value == pair.false_value:
            self.findings.append("bool_domain spells true and false alike; make true_value and false_value differ")
        self._rules["bool_domain"] = BoolDomain() if self._proto.type == schema_pb2.INT else pair


_DOMAIN_READERS: dict[str, tuple[tuple[Kind, ...], Callable[[FeatureReader, Any], None]]] = {
    "int_domain": ((Kind.INT,), FeatureReader._int_domain),
    "float_domain": ((Kind.FLOAT,), FeatureReader._float_domain),
    "string_domain": ((Kind.BYTES,), FeatureReader._string_domain),
    "bool_domain": ((Kind.INT, Kind.BYTES), FeatureReader._bool_domain),
}
