"""Dead letters as messages of a topic: what fits, what is spilled, and how messages are cut into requests. Pure.

Limits are in bytes on the wire. The service takes 10,000,000 bytes and 1,000 messages a request, and one ordering
key a request; Dataflow's own sink rejects messages near 7 MB and then retries for ever, so messages stay below
6,900,000 bytes (as snowplow/enrich does), which leaves room for whoever forwards them through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pipeline.core.dead_letter import DeadLetter, to_attributes

MAX_MESSAGE_BYTES = 6_900_000
MAX_REQUEST_MESSAGES = 1000
MAX_REQUEST_BYTES = 9_500_000
OVERSIZED_FOLDER = ".dead-letters-oversized"
"""Inside OUTPUT: where payloads too large to travel lie, when there is no archive. Hidden, so that no glob meets it."""

_MAX_ORDERING_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to publish; ``attributes`` are pairs, each name once."""

    data: bytes
    attributes: tuple[tuple[str, str], ...]
    ordering_key: str = ""

    @property
    def size_bytes(self) -> int:
        """Its size on the wire, as one of the messages of a request."""
        size = sum(
            _field_bytes(_field_bytes(len(name.encode())) + _field_bytes(len(value.encode())))
            for name, value in self.attributes
        )
        size += _field_bytes(len(self.data)) if self.data else 0
        size += _field_bytes(len(self.ordering_key.encode())) if self.ordering_key else 0
        return _field_bytes(size)


def _field_bytes(length: int) -> int:
    """What a field of so many bytes takes in a protocol buffer: a tag of one byte, the length, the bytes."""
    return 1 + max(1, (length.bit_length() + 6) // 7) + length


def spill_folder(*, output: str, archive: str) -> str:
    """Where payloads go that are too large for a message: beside the archive, or else in a folder of the output.

    There is always such a place, so that no payload is lost for its size.
    """
    return archive or f"{output.rstrip('/')}/{OVERSIZED_FOLDER}"


def message_of(letter: DeadLetter, *, keep_ordering_key: bool = False) -> OutgoingMessage:
    """The message of a dead letter: the original bytes (none where they were spilled), attributes within the limits.

    The ordering key always travels as an attribute. As the message's own key (``keep_ordering_key``) it makes one
    subscriber take a key's letters in turn, which stops the others of the key when one cannot be worked on.
    """
    key = (
        letter.ordering_key
        if keep_ordering_key and len(letter.ordering_key.encode()) <= _MAX_ORDERING_KEY_BYTES
        else ""
    )
    return OutgoingMessage(letter.payload or b"", tuple(to_attributes(letter).attributes.items()), key)


def fits(message: OutgoingMessage) -> bool:
    """Whether a message may travel; where not, its payload has to be spilled."""
    return message.size_bytes <= MAX_MESSAGE_BYTES


def spilled_letter(letter: DeadLetter, uri: str) -> DeadLetter:
    """The letter with its payload in the file ``uri`` in place of itself."""
    return replace(letter, payload=None, payload_uri=uri)


def plan_requests(messages: Iterable[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Messages, each of which fits, in requests within the service's limits; every message once, none empty.

    The order is kept among messages of one ordering key, and among those without one.
    """
    open_requests: dict[str, tuple[list[OutgoingMessage], int]] = {}
    for message in messages:
        size = message.size_bytes
        request, filled = open_requests.get(message.ordering_key, ([], 0))
        if request and (filled + size > MAX_REQUEST_BYTES or len(request) == MAX_REQUEST_MESSAGES):
            yield request
            request, filled = [], 0
        request.append(message)
        open_requests[message.ordering_key] = (request, filled + size)
    for request, _ in open_requests.values():
        yield request
