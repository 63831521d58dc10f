"""A dead letter back from the message that it travelled as: the reverse of ``core.dead_letter.to_attributes``. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from pipeline.core.dead_letter import DeadLetter, LetterFault, dead_letter_id, original_attributes
from pipeline.core.event_times import rfc3339
from pipeline.core.messages import source_of_message

UNDELIVERED = "undelivered"
"""The reason of a message without ``dlq_reason``: the service's own dead-letter policy put it there, or a person."""

_ID = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"[0-9]{1,9}", re.ASCII)


def letter_of_message(
    payload: bytes,
    attributes: Mapping[str, str],
    *,
    subscription: str,
    message_id: str,
    publish_time_us: int,
    ordering_key: str = "",
) -> DeadLetter:
    """The dead letter that a message of the dead-letter subscription stands for.

    Whatever the message says, there is a letter: what is missing or malformed is filled with what is known of the
    message itself. Only the first fault travels on Pub/Sub.
    """
    source = attributes.get("dlq_source") or source_of_message(subscription, message_id)
    digest = hashlib.sha256(payload).hexdigest()
    pointer = attributes.get("dlq_payload_uri") if not payload else None
    named, attempt = attributes.get("dlq_id", ""), attributes.get("dlq_attempt", "")
    spilled_digest = attributes.get("dlq_payload_sha256", "")
    return DeadLetter(
        dlq_id=named if _ID.fullmatch(named) else dead_letter_id(source, digest),
        source=source,
        faults=(_fault(attributes),),
        failed_at=attributes.get("dlq_failed_at") or rfc3339(publish_time_us) or "",
        job=attributes.get("dlq_job", ""),
        schema=attributes.get("dlq_schema", ""),
        payload=None if pointer else payload,
        payload_length=0 if pointer else len(payload),
        payload_sha256=(spilled_digest if _ID.fullmatch(spilled_digest) else "") if pointer else digest,
        payload_uri=pointer,
        event_time=attributes.get("dlq_event_time"),
        attempt=int(attempt) if _ATTEMPT.fullmatch(attempt) else 0,
        attributes=original_attributes(attributes.items()),
        ordering_key=attributes.get("dlq_ordering_key") or ordering_key,
    )


def _fault(attributes: Mapping[str, str]) -> LetterFault:
    return LetterFault(
        reason=attributes.get("dlq_reason") or UNDELIVERED,
        stage=attributes.get("dlq_stage") or "read",
        message=attributes.get("errorMessage") or "the message says nothing of why it is here",
        feature=attributes.get("dlq_feature"),
    )
