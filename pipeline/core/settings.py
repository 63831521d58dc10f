"""What a job was asked to do, as frozen values that travel to workers: plain data, validated when made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.compression import Compression
from pipeline.core.decoding import DecoderSettings, make_decoder
from pipeline.core.errors import UsageError
from pipeline.core.records import Decoder
from pipeline.core.schema import Schema, schema_of
from pipeline.core.shards import Shuffle


@dataclass(frozen=True)
class InputSettings:
    """How input is read and judged. ``schema`` is the serialised proto, ``required`` what the transform needs."""

    format: str
    schema: bytes
    environment: str = "TRAINING"
    required: tuple[str, ...] = ()
    decoding: DecoderSettings = field(default_factory=DecoderSettings)

    def load_schema(self) -> Schema:
        """The schema's rules for the environment, with ``required`` features required."""
        schema = schema_of(schema_pb2.Schema.FromString(self.schema), environment=self.environment)
        return with_required(schema, self.required)

    def make_decoder(self, schema: Schema) -> Decoder:
        """The decoder of the format, judging rows by ``schema``."""
        return make_decoder(self.format, schema, self.decoding)


def with_required(schema: Schema, names: Iterable[str]) -> Schema:
    """``schema`` with the named features required; raises UsageError for a name that it does not have."""
    wanted = set(names)
    unknown = wanted - {feature.name for feature in schema.features}
    if unknown:
        raise UsageError(f"the features need {sorted(unknown)}, which the schema does not have")
    features = tuple(replace(f, required=f.required or f.name in wanted) for f in schema.features)
    return replace(schema, features=features)


@dataclass(frozen=True)
class BuildSettings:
    """How decoded rows become shards. ``splits`` are (name, fraction); ``staging`` is where parts are written aside."""

    input: InputSettings
    staging: str
    splits: tuple[tuple[str, float], ...] = (("train", 1.0),)
    split_key: str | None = None
    seed: int = 0
    shuffle: Shuffle = "blocks"
    target_shard_bytes: int = 128 << 20
    layout: str = "rows"
    rows_per_record: int = 256
    compression: Compression = "none"
    batch_rows: int = 1 << 17
    allow_non_finite: bool = False
    redact_features: frozenset[str] = frozenset()
