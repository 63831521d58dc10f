"""The ops of features.yaml: the parameters of each, what it accepts, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

from pipeline.core.schema import INT64_MAX, INT64_MIN, Kind
from pipeline.core.schema_text import nearest
from pipeline.features import params
from pipeline.features.op import KIND_NAMES, Op, Value, yaml_name
from pipeline.features.params import Refusal

_NUMBERS = (Kind.INT, Kind.FLOAT)
_TO_NUMBERS = "cast it to a number first, or use vocabulary or hash_strings"


@dataclass(frozen=True)
class PassThrough(Op):
    """The value as it is. A feature that can be missing stays so: its output has varying length, 0 or 1."""

    name: ClassVar[str] = "pass_through"


@dataclass(frozen=True)
class Drop(Op):
    """Not in the output."""

    name: ClassVar[str] = "drop"


@dataclass(frozen=True)
class Label(Op):
    """What is to be predicted. A row without it is refused, unless ``missing: fill`` and fill_missing says how."""

    name: ClassVar[str] = "label"
    missing: str = params.param(params.one_of("reject", "fill"), default="reject")

    def result(self, value: Value) -> Value:
        """A label that rejects missing rows is never missing."""
        return replace(value, missing=False) if self.missing == "reject" else value


@dataclass(frozen=True)
class FillMissing(Op):
    """A constant, or the mean of the values present (from the analysis), where the feature is missing."""

    name: ClassVar[str] = "fill_missing"
    value: int | float | str | None = params.param(params.any_scalar, default=None)
    statistic: str | None = params.param(params.one_of("mean"), default=None, key="with")
    missing_indicator: bool = params.param(params.boolean, default=False)

    def result(self, value: Value) -> Value:
        """The same kind, never missing; the mean of whole numbers is a float."""
        if (self.value is None) == (self.statistic is None):
            raise Refusal("fill_missing needs either `value: ...` or `with: mean`")
        filled = self.dense(replace(value, missing=False), *Kind, fix="")
        if self.statistic:
            self.dense(filled, *_NUMBERS, fix="fill strings with `value: ...`")
            return replace(filled, kind=Kind.FLOAT)
        self.constant(value.kind)
        return filled

    def constant(self, kind: Kind) -> int | float | bytes:
        """``value`` as a value of ``kind``. Raises Refusal where it does not fit."""
        if kind is Kind.BYTES:
            if not isinstance(self.value, str):
                raise Refusal(f"a string feature is filled with a string: write value: '{self.value}'")
            return self.value.encode()
        if kind is Kind.INT:
            if not isinstance(self.value, int):
                raise Refusal(f"a feature of whole numbers is filled with a whole number, not {self.value!r}")
            return params.integer(INT64_MIN, INT64_MAX)(self.value)
        return params.number(self.value)


@dataclass(frozen=True)
class Cast(Op):
    """To int (towards zero), float or string. A string that is no number makes its row a transform_error."""

    name: ClassVar[str] = "cast"
    to: str = params.param(params.one_of("int", "float", "string"))

    def result(self, value: Value) -> Value:
        """The same shape in the other kind."""
        kind = {"int": Kind.INT, "float": Kind.FLOAT, "string": Kind.BYTES}[self.to]
        if value.kind is Kind.FLOAT and kind is Kind.BYTES:
            raise Refusal("cast cannot write floats as strings (their text is not stable); bucketize or cast to int")
        return replace(self.dense(value, *Kind, fix=""), kind=kind, classes=None)


@dataclass(frozen=True)
class _ToFloat(Op):
    def result(self, value: Value) -> Value:
        """Floats of the same shape."""
        return replace(self.dense(value, *_NUMBERS, fix=_TO_NUMBERS), kind=Kind.FLOAT, classes=None)


@dataclass(frozen=True)
class Log1p(_ToFloat):
    """log(1 + x); a value of -1 or less makes its row a transform_error."""

    name: ClassVar[str] = "log1p"


@dataclass(frozen=True)
class ScaleToZScore(_ToFloat):
    """(x - mean) / standard deviation; what never varies becomes 0. ``elementwise``: each list element apart."""

    name: ClassVar[str] = "scale_to_z_score"
    elementwise: bool = params.param(params.boolean, default=False)


@dataclass(frozen=True)
class ScaleTo01(_ToFloat):
    """The minimum to 0, the maximum to 1; a feature that never varies goes through a sigmoid, as in TFT."""

    name: ClassVar[str] = "scale_to_0_1"
    elementwise: bool = params.param(params.boolean, default=False)


@dataclass(frozen=True)
class ScaleByMinMax(_ToFloat):
    """The minimum to ``output_min``, the maximum to ``output_max``; otherwise as scale_to_0_1."""

    name: ClassVar[str] = "scale_by_min_max"
    output_min: float = params.param(params.number, default=0.0)
    output_max: float = params.param(params.number, default=1.0)
    elementwise: bool = params.param(params.boolean, default=False)

    def result(self, value: Value) -> Value:
        """Floats of the same shape."""
        if self.output_min >= self.output_max:
            raise Refusal(f"output_min ({self.output_min}) must be less than output_max ({self.output_max})")
        return _ToFloat.result(self, value)


@dataclass(frozen=True)
class Vocabulary(Op):
    """Ids by falling frequency, then ``num_oov_buckets`` ids for words outside (``default_value`` where that is 0).

    TFT keeps '' and words with a line break out of every vocabulary: they get an out-of-vocabulary id.
    """

    name: ClassVar[str] = "vocabulary"
    top_k: int | None = params.param(params.integer(1, 2**31 - 1), default=None)
    frequency_threshold: int | None = params.param(params.integer(1, INT64_MAX), default=None)
    num_oov_buckets: int = params.param(params.integer(0, 2**31 - 1), default=1)
    default_value: int = params.param(params.integer(INT64_MIN, INT64_MAX), default=-1)

    def result(self, value: Value) -> Value:
        """Ids of the same shape; lists of varying length stay such."""
        if value.shape is not None:
            self.dense(value, Kind.BYTES, Kind.INT, fix="bucketize them first")
        elif value.kind is Kind.FLOAT:
            raise Refusal("vocabulary cannot take floats")
        known = self.top_k is not None and self.num_oov_buckets > 0
        return replace(value, kind=Kind.INT, classes=(self.top_k or 0) + self.num_oov_buckets if known else None)


@dataclass(frozen=True)
class HashStrings(Op):
    """Ids in [0, hash_buckets) from a hash of the string: no analysis, and words may share an id."""

    name: ClassVar[str] = "hash_strings"
    hash_buckets: int = params.param(params.integer(1, 2**31 - 1))
    key: tuple[int, ...] | None = params.param(params.hash_key, default=None)

    def result(self, value: Value) -> Value:
        """Ids of the same shape; lists of varying length stay such."""
        if value.kind is not Kind.BYTES:
            raise Refusal(f"hash_strings cannot take {KIND_NAMES[value.kind]}; put `cast: {{to: string}}` before it")
        if value.shape is not None:
            self.dense(value, Kind.BYTES, fix="")
        return replace(value, kind=Kind.INT, classes=self.hash_buckets)


@dataclass(frozen=True)
class Bucketize(Op):
    """Ids of ``buckets`` ranges that hold about equally many rows (quantiles from the analysis)."""

    name: ClassVar[str] = "bucketize"
    buckets: int = params.param(params.integer(2, 1_000_000))
    epsilon: float | None = params.param(params.fraction, default=None)

    def result(self, value: Value) -> Value:
        """Ids of the same shape."""
        return replace(self.dense(value, *_NUMBERS, fix=_TO_NUMBERS), kind=Kind.INT, classes=self.buckets)


@dataclass(frozen=True)
class ApplyBuckets(Op):
    """Ids of the given ranges: x below the first boundary is 0; x equal to a boundary belongs to the range above."""

    name: ClassVar[str] = "apply_buckets"
    boundaries: tuple[float, ...] = params.param(params.boundaries)

    def result(self, value: Value) -> Value:
        """Ids of the same shape."""
        dense = self.dense(value, *_NUMBERS, fix=_TO_NUMBERS)
        return replace(dense, kind=Kind.INT, classes=len(self.boundaries) + 1)


@dataclass(frozen=True)
class OneHot(Op):
    """A vector of ``depth`` floats, 1 at the id; ``depth`` may be left out after an op that knows its ids."""

    name: ClassVar[str] = "one_hot"
    depth: int | None = params.param(params.integer(1, 1_000_000), default=None)

    def result(self, value: Value) -> Value:
        """Floats with one more dimension."""
        dense = self.dense(value, Kind.INT, fix="turn it into ids first (vocabulary, hash_strings, bucketize)")
        depth = self.depth or value.classes
        if depth is None:
            raise Refusal("one_hot needs `depth: n` here: the number of ids is not known before the analysis")
        if value.classes is not None and depth < value.classes:
            raise Refusal(f"one_hot has depth {depth}, but the ids go up to {value.classes - 1}")
        return Value(Kind.FLOAT, (*(dense.shape or ()), depth))


@dataclass(frozen=True)
class TimeParts(Op):
    """Whole numbers from an RFC 3339 time, one output ``<name>_<part>`` each: as written, or with ``utc`` in UTC."""

    name: ClassVar[str] = "time_parts"
    parts: tuple[str, ...] = params.param(params.time_parts)
    utc: bool = params.param(params.boolean, default=False)

    def result(self, value: Value) -> Value:
        """What each part is."""
        return replace(
            self.dense(value, Kind.BYTES, fix="a time is a string such as 2013-01-01T10:00:00Z"), kind=Kind.INT
        )


OPS: dict[str, type[Op]] = {
    op.name: op
    for op in (
        PassThrough,
        Drop,
        Label,
        FillMissing,
        Cast,
        Log1p,
        ScaleToZScore,
        ScaleTo01,
        ScaleByMinMax,
        Vocabulary,
        HashStrings,
        Bucketize,
        ApplyBuckets,
        OneHot,
        TimeParts,
    )
}


def make_op(name: str, given: Mapping[str, Any]) -> Op:
    """The op called ``name``. Raises Refusal for an unknown op or parameter, a missing one, or a bad value."""
    if name not in OPS:
        raise Refusal(f"unknown op '{name}'; {nearest(name, OPS)}")
    declared = {yaml_name(f): f for f in fields(OPS[name])}
    for key in given:
        if key not in declared:
            hint = nearest(key, declared) if declared else "it takes none"
            raise Refusal(f"{name} has no parameter '{key}'; {hint}")
    arguments = {}
    for key, f in declared.items():
        if key in given:
            try:
                arguments[f.name] = f.metadata["check"](given[key])
            except Refusal as error:
                raise Refusal(f"{name}: '{key}' {error}") from None
        elif f.default is MISSING:
            raise Refusal(f"{name} needs the parameter '{key}'")
    return OPS[name](**arguments)
