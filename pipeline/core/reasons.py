"""Why a row was refused, and at which stage: the codes that dashboards and replays depend on.

The codes are an API. Adding one is free; renaming one breaks other people's alerts.
"""

from __future__ import annotations

from enum import Enum


class Stage(str, Enum):
    """The step of the pipeline that refused a row."""

    READ = "read"
    DECODE = "decode"
    VALIDATE = "validate"
    TRANSFORM = "transform"
    ENCODE = "encode"
    SHARD = "shard"


class Reason(str, Enum):
    """The code of a refusal, as it travels in ``dlq_reason``."""

    CORRUPT_FILE = "corrupt_file"
    RECORD_TOO_LARGE = "record_too_large"
    INVALID_UTF8 = "invalid_utf8"
    INVALID_JSON = "invalid_json"
    INVALID_AVRO = "invalid_avro"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "too_deep"
    RAGGED_ROW = "ragged_row"
    UNBALANCED_QUOTE = "unbalanced_quote"
    NON_FINITE = "non_finite"
    MISSING_FEATURE = "missing_feature"
    NULL_FEATURE = "null_feature"
    WRONG_TYPE = "wrong_type"
    INT_OVERFLOW = "int_overflow"
    FLOAT_OVERFLOW = "float_overflow"
    OUT_OF_RANGE = "out_of_range"
    NOT_IN_DOMAIN = "not_in_domain"
    TOO_FEW_VALUES = "too_few_values"
    TOO_MANY_VALUES = "too_many_values"
    UNKNOWN_FEATURE = "unknown_feature"
    LATE_DATA = "late_data"
    TRANSFORM_ERROR = "transform_error"
    ENCODE_ERROR = "encode_error"
    INTERNAL = "internal"

    @property
    def stage(self) -> Stage:
        """The stage at which this reason arises (``internal`` is told by its raiser: decode here)."""
        return _STAGES[self]


_STAGES = {
    Reason.CORRUPT_FILE: Stage.READ,
    Reason.RECORD_TOO_LARGE: Stage.READ,
    Reason.LATE_DATA: Stage.SHARD,
    Reason.TRANSFORM_ERROR: Stage.TRANSFORM,
    Reason.ENCODE_ERROR: Stage.ENCODE,
    **dict.fromkeys(
        (
            Reason.INVALID_UTF8,
            Reason.INVALID_JSON,
            Reason.INVALID_AVRO,
            Reason.NOT_AN_OBJECT,
            Reason.DUPLICATE_KEY,
            Reason.TOO_DEEP,
            Reason.RAGGED_ROW,
            Reason.UNBALANCED_QUOTE,
            Reason.INTERNAL,
        ),
        Stage.DECODE,
    ),
    **dict.fromkeys(
        (
            Reason.NON_FINITE,
            Reason.MISSING_FEATURE,
            Reason.NULL_FEATURE,
            Reason.WRONG_TYPE,
            Reason.INT_OVERFLOW,
            Reason.FLOAT_OVERFLOW,
            Reason.OUT_OF_RANGE,
            Reason.NOT_IN_DOMAIN,
            Reason.TOO_FEW_VALUES,
            Reason.TOO_MANY_VALUES,
            Reason.UNKNOWN_FEATURE,
        ),
        Stage.VALIDATE,
    ),
}
