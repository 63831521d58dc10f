"""Messages of a subscription: what arrives, what is refused, what comes out, and the settings of a streaming job."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.core.compression import Compression
from pipeline.core.dead_letter import DeadLetter, dead_letter_id, from_rejection, original_attributes
from pipeline.core.errors import UsageError
from pipeline.core.event_times import parse_rfc3339, rfc3339
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault, Rejection
from pipeline.core.settings import InputSettings

PayloadFormat = Literal["json", "avro"]
PAYLOAD_FORMATS: tuple[str, ...] = ("json", "avro")

_ID = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it came. Times are microseconds since 1970 UTC.

    ``attributes`` are pairs sorted by name. ``event_time_us`` is the timestamp that the runner gave the element: the
    publish time, or what ``--timestamp_attribute`` says.
    """

    payload: bytes
    attributes: tuple[tuple[str, str], ...]
    message_id: str
    publish_time_us: int
    event_time_us: int
    ordering_key: str = ""

    @property
    def size_bytes(self) -> int:
        """What the message holds, about: payload and attributes, in bytes."""
        return len(self.payload) + sum(len(name) + len(value) for name, value in self.attributes)


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that is not written, and all its faults (at least one, the first is the reason).

    ``event_time_us`` is None where the message was refused before its event time was known.
    """

    message: Message
    faults: tuple[Fault, ...]
    event_time_us: int | None = None

    @property
    def reason(self) -> Reason:
        """The reason of the first fault."""
        return self.faults[0].reason

    @property
    def stage(self) -> Stage:
        """The stage that found the first fault."""
        return self.faults[0].reason.stage


@dataclass(frozen=True, slots=True)
class WindowedChunk:
    """Framed records of one shard key of one window.

    ``window_start`` is in seconds since 1970 UTC; ``framed`` are uncompressed TFRecord frames of ``records`` records,
    which hold ``rows`` rows (at least one). ``origin`` (64 bits) tells chunks of other messages apart that hold the
    same bytes: equal rows are not one row.
    """

    window_start: int
    shard: int
    rows: int
    records: int
    framed: bytes
    origin: int = 0


@dataclass(frozen=True)
class StreamSettings:
    """What a streaming job was asked to do, as plain data that travels to workers.

    ``input.format`` is the format of a payload, ``json`` or ``avro``; ``avro_schema`` is the JSON text of the schema
    that avro payloads were written with. ``subscription`` is its whole name; it and the message id are a message's
    position. ``transform`` is the folder of the artefact, None for none. Raises UsageError for what cannot be done.
    """

    input: InputSettings
    subscription: str
    output: str = ""
    transform: str | None = None
    avro_schema: str = ""
    window_seconds: int = 600
    allowed_lateness_seconds: int = 3600
    shards_per_window: int = 1
    target_shard_bytes: int = 128 << 20
    layout: str = "rows"
    rows_per_record: int = 256
    compression: Compression = "none"
    event_time_feature: str | None = None
    max_event_ahead_seconds: int = 86_400
    max_batch_rows: int = 1000
    max_batch_bytes: int = 8 << 20
    max_batch_wait_seconds: float = 1.0
    batch_keys: int = 8
    allow_non_finite: bool = False
    redact_features: frozenset[str] = field(default_factory=frozenset)
    job: str = ""

    def __post_init__(self) -> None:
        if self.input.format not in PAYLOAD_FORMATS:
            raise UsageError(f"payload format {self.input.format!r} is not known: give one of json, avro")
        if self.input.format == "avro" and not self.avro_schema:
            raise UsageError(
                "avro payloads cannot be read without the schema they were written with: give --avro_schema"
            )
        for name in ("window_seconds", "shards_per_window", "target_shard_bytes", "rows_per_record", "batch_keys"):
            _check_at_least(name, getattr(self, name), 1)
        for name in ("max_batch_rows", "max_batch_bytes"):
            _check_at_least(name, getattr(self, name), 1)
        for name in ("allowed_lateness_seconds", "max_event_ahead_seconds", "max_batch_wait_seconds"):
            _check_at_least(name, getattr(self, name), 0)


def _check_at_least(name: str, value: float, least: int) -> None:
    if not least <= value < 2**53:
        raise UsageError(f"{name} is {value}: give a number of at least {least}")


def make_message(
    payload: bytes,
    attributes: Mapping[str, str] | None = None,
    *,
    message_id: str,
    publish_time_us: int,
    event_time_us: int,
    ordering_key: str = "",
) -> Message:
    """A message whose attributes come as a mapping (None: it has none)."""
    return Message(
        payload=payload,
        attributes=tuple(sorted((attributes or {}).items())),
        message_id=message_id,
        publish_time_us=publish_time_us,
        event_time_us=event_time_us,
        ordering_key=ordering_key,
    )


def source_of_message(subscription: str, message_id: str) -> str:
    """The position of a message, as text: ``projects/p/subscriptions/s#<message id>``."""
    return f"{subscription}#{message_id}".encode("utf-8", "backslashreplace").decode()


def earlier_failure(message: Message) -> tuple[str, int] | None:
    """(dlq_id, attempt) of a message that was a dead letter before and was replayed; None for any other.

    It is one where it carries both attributes and both are what we write; else they are somebody else's.
    """
    attributes = dict(message.attributes)
    dlq_id, attempt = attributes.get("dlq_id", ""), attributes.get("dlq_attempt", "")
    if _ID.fullmatch(dlq_id) is None or _ATTEMPT.fullmatch(attempt) is None:
        return None
    return dlq_id, int(attempt)


def first_event_time(message: Message) -> int | None:
    """The event time (microseconds since 1970) of a replayed message when it first came; None where nobody has told."""
    text = dict(message.attributes).get("dlq_event_time")
    if text is None or earlier_failure(message) is None:
        return None
    return parse_rfc3339(text.encode("utf-8", "replace"))


def own_attributes(message: Message) -> tuple[tuple[str, str], ...]:
    """The message's own attributes, as its first publisher set them, sorted by name.

    A replayed dead letter carries ours beside them, and its own under ``orig_<name>`` where names clash: ours are
    taken off and its own get their names back, so that a second failure tells the same story as the first.
    """
    return original_attributes(message.attributes) if earlier_failure(message) else message.attributes


def letter_of(
    refused: RefusedMessage,
    *,
    subscription: str,
    job: str,
    schema_fingerprint: str,
    failed_at: str,
    redact_features: frozenset[str] = frozenset(),
) -> DeadLetter:
    """The dead letter of a refused message: the original bytes, its own attributes, a stable id.

    ``dlq_id`` is over subscription, message id and payload; a replayed message keeps the id of its first failure
    and counts its attempts. ``failed_at`` (RFC 3339) is given and must not change when a bundle is retried. A message
    that only points at a spilled payload goes on pointing there; its ``payload_length`` is 0, since nobody has told.
    """
    message, earlier = refused.message, earlier_failure(refused.message)
    source = source_of_message(subscription, message.message_id)
    letter = from_rejection(
        Rejection(source, 0, len(message.payload), message.payload, refused.stage, refused.faults),
        job=job,
        schema_fingerprint=schema_fingerprint,
        failed_at=failed_at,
        event_time=None if refused.event_time_us is None else rfc3339(refused.event_time_us),
        attempt=earlier[1] if earlier else 0,
        attributes=dict(own_attributes(message)),
        redact_features=redact_features,
    )
    dlq_id = earlier[0] if earlier else dead_letter_id(source, letter.payload_sha256)
    letter = replace(letter, dlq_id=dlq_id, source=source, ordering_key=message.ordering_key)
    pointer = _pointer(message) if earlier else None
    return replace(letter, payload=None, payload_uri=pointer[0], payload_sha256=pointer[1]) if pointer else letter


def _pointer(message: Message) -> tuple[str, str] | None:
    """(uri, sha256) of the payload that an empty message stands for."""
    attributes = dict(message.attributes)
    uri, digest = attributes.get("dlq_payload_uri"), attributes.get("dlq_payload_sha256", "")
    return (uri, digest) if uri and not message.payload and _ID.fullmatch(digest) else None


def spill_id(letter: DeadLetter) -> str:
    """What names the file that holds a payload too large to travel: an id over position and content.

    The letter's own id on its first failure. A replay keeps that id but may bring other bytes, which must not
    overwrite the first ones.
    """
    return dead_letter_id(letter.source, letter.payload_sha256 or hashlib.sha256(letter.payload or b"").hexdigest())
