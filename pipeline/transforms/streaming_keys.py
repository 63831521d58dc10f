"""Messages in, packs of messages under batch keys out: the step of a stream that meets what the runner read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import apache_beam as beam
import google_crc32c
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.transforms.window import GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from pipeline.core.codec import pack_messages
from pipeline.core.messages import Message, StreamSettings, make_message
from pipeline.transforms import names
from pipeline.transforms.tally import Tally

_MICROSECOND = timedelta(microseconds=1)
_PACK_BYTES = 1 << 20


def message_of(element: PubsubMessage, timestamp: Timestamp) -> Message:
    """The message in an element; ``timestamp`` is the element's own."""
    published, stamped = element.publish_time, timestamp.micros
    return make_message(
        element.data or b"",
        element.attributes,
        message_id=element.message_id or "",
        publish_time_us=stamped if published is None else _micros(published),
        event_time_us=stamped,
        ordering_key=element.ordering_key or "",
    )


def _micros(moment: Any) -> int:
    return int((moment - moment.__class__(1970, 1, 1, tzinfo=moment.tzinfo)) // _MICROSECOND)


@dataclass
class _Pack:
    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0
    oldest: int = 0

    def add(self, message: Message) -> None:
        stamped = message.event_time_us
        self.oldest = min(self.oldest, stamped) if self.messages else stamped
        self.messages.append(message)
        self.size_bytes += message.size_bytes

    def value(self, key: int) -> tuple[int, bytes]:
        return key, pack_messages(self.messages)


class KeyMessages(beam.DoFn):  # type: ignore[misc]
    """PubsubMessage -> (batch key, packed messages): those of a bundle together, since state costs by the call.

    The key is a stable hash of the message's id.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self._keys = settings.batch_keys
        self._rows = settings.max_batch_rows
        self._tally = Tally()

    def start_bundle(self) -> None:
        """Nothing is kept from another bundle: it may have failed."""
        self._tally.begin()
        self._read = 0
        self._packs: dict[int, _Pack] = {}

    def process(
        self, element: PubsubMessage, timestamp: Timestamp = beam.DoFn.TimestampParam
    ) -> Iterator[TimestampedValue]:
        """Add a message to its pack; give the pack out once it is large."""
        message = message_of(element, timestamp)
        key = google_crc32c.value(identity_of(message)) % self._keys
        pack = self._packs.setdefault(key, _Pack())
        pack.add(message)
        self._read += 1
        if len(pack.messages) >= self._rows or pack.size_bytes >= _PACK_BYTES:
            del self._packs[key]
            yield TimestampedValue(pack.value(key), Timestamp(micros=pack.oldest))

    def finish_bundle(self) -> Iterator[Any]:
        """The rest of the packs."""
        for key, pack in sorted(self._packs.items()):
            yield GlobalWindows.windowed_value(pack.value(key), timestamp=Timestamp(micros=pack.oldest))
        self._packs = {}
        self._tally.add(names.MESSAGES_READ, self._read)
        self._tally.done()


def identity_of(message: Message) -> bytes:
    """What tells a message from others: its id; where a runner gives none, what it holds and its times."""
    if message.message_id:
        return message.message_id.encode("utf-8", "surrogatepass")
    return b"%d %d " % (message.publish_time_us, message.event_time_us) + message.payload
