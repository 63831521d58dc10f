"""The dead letter: a refused row with its original bytes, why it was refused, and a stable identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.core.records import Fault, Rejection
from pipeline.core.text import cut_utf8

MAX_ATTRIBUTES, MAX_KEY_BYTES, MAX_VALUE_BYTES = 100, 256, 1024
"""Limits of a Pub/Sub message's attributes, in UTF-8 bytes."""

OWN_NAMES = frozenset(
    {
        "dlq_id",
        "dlq_reason",
        "errorMessage",
        "dlq_stage",
        "dlq_feature",
        "dlq_source",
        "dlq_failed_at",
        "dlq_event_time",
        "dlq_attempt",
        "dlq_job",
        "dlq_schema",
        "dlq_payload_uri",
        "dlq_payload_sha256",
        "dlq_ordering_key",
    }
)
"""The names of our attributes. They are an API: alerts and replays read them."""

_ID_VERSION = b"headrace dead letter 1\n"
_CARRIED = "orig_"
_WITHHELD = "details withheld because of --redact_features"


@dataclass(frozen=True, slots=True)
class LetterFault:
    """One thing wrong with the row, as archived. Codes are text: an archive may come from a newer release."""

    reason: str
    stage: str
    message: str
    feature: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused row. Times are RFC 3339; ``faults`` has at least one, and the first one is the reason.

    ``payload`` holds the original bytes; None where they were too large and lie in ``payload_uri``.
    ``payload_length`` is in bytes and ``payload_sha256`` in hexadecimal, of the original bytes in either case.
    ``attributes`` are the original message's own, as pairs sorted by name, ``ordering_key`` is its ordering key.
    """

    dlq_id: str
    source: str
    faults: tuple[LetterFault, ...]
    failed_at: str
    job: str
    schema: str
    payload: bytes | None
    payload_length: int
    payload_sha256: str
    payload_uri: str | None = None
    event_time: str | None = None
    attempt: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    ordering_key: str = ""

    @property
    def reason(self) -> str:
        """The code of the first fault."""
        return self.faults[0].reason

    @property
    def stage(self) -> str:
        """The stage that found the first fault."""
        return self.faults[0].stage

    @property
    def feature(self) -> str | None:
        """The column of the first fault, when there is one."""
        return self.faults[0].feature

    @property
    def message(self) -> str:
        """The sentence of the first fault, in full."""
        return self.faults[0].message


def source_of(uri: str, offset: int) -> str:
    """The position of a row in a file, as text: ``gs://bucket/file.jsonl#offset=8123``."""
    return f"{_clean(uri)}#offset={offset}"


def parse_source(source: str) -> tuple[str, int] | None:
    """(uri, byte offset) of a row in a file; None for any other source, such as a Pub/Sub message."""
    uri, mark, digits = source.rpartition("#offset=")
    if not mark or not (digits.isascii() and digits.isdigit()) or str(int(digits[:19])) != digits:
        return None
    return uri, int(digits)


def dead_letter_id(source: str, payload_sha256: str) -> str:
    """The stable id: the same row at the same place has the same id in every run and on every retry.

    Exactly: hexadecimal sha256 of the line ``headrace dead letter 1``, the line ``<source>`` in UTF-8, and
    the hexadecimal sha256 of the payload without a line end. For a row too large to be held, that last part is
    ``length=<bytes>``, so that its id (and the name of its spill file) is known before it is read.
    """
    return hashlib.sha256(_ID_VERSION + f"{source}\n{payload_sha256}".encode()).hexdigest()


def from_rejection(
    rejection: Rejection,
    *,
    job: str,
    schema_fingerprint: str,
    failed_at: str,
    event_time: str | None = None,
    attempt: int = 0,
    attributes: Mapping[str, str] | None = None,
    redact_features: frozenset[str] = frozenset(),
) -> DeadLetter:
    """The dead letter of a refused row of a file.

    ``failed_at`` is given (the run's start), never read from a clock: a retry must make the same bytes. Where
    ``rejection.payload`` is None, ``payload_uri`` and ``payload_sha256`` are left empty: the caller spills the
    row (``core.archive.spill``) and adds them with ``dataclasses.replace``.
    """
    source = source_of(rejection.uri, rejection.offset)
    payload = rejection.payload
    digest = "" if payload is None else hashlib.sha256(payload).hexdigest()
    faults = redact(rejection.faults, redact_features) if redact_features else rejection.faults
    stage = rejection.stage.value
    return DeadLetter(
        dlq_id=dead_letter_id(source, digest or f"length={rejection.length}"),
        source=source,
        faults=tuple(_letter_fault(fault, stage) for fault in faults),
        failed_at=failed_at,
        job=_clean(job),
        schema=schema_fingerprint,
        payload=payload,
        payload_length=rejection.length if payload is None else len(payload),
        payload_sha256=digest,
        event_time=event_time,
        attempt=attempt,
        attributes=tuple(sorted((_clean(key), _clean(value)) for key, value in (attributes or {}).items())),
    )


def redact(faults: Iterable[Fault], names: frozenset[str]) -> tuple[Fault, ...]:
    """The faults, without messages that could quote a value of the named features.

    A fault of a named feature loses its message. So does a fault of no feature (a line that is no JSON, a
    library's error), since its message may quote any part of the row.
    """
    return tuple(
        Fault(fault.reason, f"{fault.reason.value}: {_WITHHELD}", fault.feature)
        if names and (fault.feature is None or fault.feature in names)
        else fault
        for fault in faults
    )


@dataclass(frozen=True)
class Envelope:
    """The attributes of a dead letter's message. ``altered`` names original attributes that had to be cut or left out.

    Where ``altered`` is not empty, the originals are whole only in the archive.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    altered: tuple[str, ...] = ()


def to_attributes(letter: DeadLetter) -> Envelope:
    """The attributes with which a dead letter travels on Pub/Sub, within the service's limits in bytes.

    Ours are always there, cut to 1,024 bytes on a character's boundary. Originals keep their names, except
    those that clash with ours or are reserved (``goog...``): those travel as ``orig_<name>``. Originals over the
    limits, or beyond 100 attributes in all, are cut or left out, the last in order of name first.
    """
    attributes = {
        name: cut_utf8(value, MAX_VALUE_BYTES) for name, value in _own_attributes(letter) if value is not None
    }
    altered = []
    for name, value in letter.attributes:
        key, shown = carried_name(name), cut_utf8(value, MAX_VALUE_BYTES)
        fits = len(attributes) < MAX_ATTRIBUTES and 0 < len(key.encode()) <= MAX_KEY_BYTES
        if fits:
            attributes[key] = shown
        if not fits or shown != value:
            altered.append(name)
    return Envelope(attributes, tuple(altered))


def _own_attributes(letter: DeadLetter) -> tuple[tuple[str, str | None], ...]:
    return (
        ("dlq_id", letter.dlq_id),
        ("dlq_reason", letter.reason),
        ("errorMessage", letter.message),
        ("dlq_stage", letter.stage),
        ("dlq_feature", letter.feature),
        ("dlq_source", letter.source),
        ("dlq_failed_at", letter.failed_at),
        ("dlq_event_time", letter.event_time),
        ("dlq_attempt", str(letter.attempt)),
        ("dlq_job", letter.job),
        ("dlq_schema", letter.schema),
        ("dlq_payload_uri", letter.payload_uri),
        ("dlq_payload_sha256", letter.payload_sha256 if letter.payload_uri else None),
        ("dlq_ordering_key", letter.ordering_key or None),
    )


def carried_name(name: str) -> str:
    """The name under which an original attribute travels: its own, or ``orig_<name>`` where that may not be used.

    That is so for our names, for reserved ones (``goog...``), and for a name that looks like one carried already:
    so no two names become one, and ``original_attributes`` finds each again.
    """
    return f"{_CARRIED}{name}" if _is_taken(_base(name)) else name


def original_attributes(attributes: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What ``to_attributes`` was given, from what it made: ours left out, others under their own names, sorted.

    A reserved attribute (``goog...``) that the service has set anew wins over the one that was carried.
    """
    found: dict[str, str] = {}
    live: dict[str, str] = {}
    for name, value in attributes:
        if name.startswith(_CARRIED) and _is_taken(_base(name)):
            found[name.removeprefix(_CARRIED)] = value
        elif name not in OWN_NAMES:
            live[name] = value
    return tuple(sorted({**found, **live}.items()))


def _base(name: str) -> str:
    """``name`` without any ``orig_`` in front."""
    while name.startswith(_CARRIED):
        name = name.removeprefix(_CARRIED)
    return name


def _is_taken(name: str) -> bool:
    return name in OWN_NAMES or name.startswith("goog")


def _letter_fault(fault: Fault, stage: str) -> LetterFault:
    feature = None if fault.feature is None else _clean(fault.feature)
    return LetterFault(fault.reason.value, stage, _clean(fault.message), feature)


def _clean(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates (from file names or escapes) are replaced by their escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
