"""Topics as the target of a replay and as a parking lot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlq_replay.policy import Outgoing
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.pubsub import MAX_MESSAGE_BYTES, OutgoingMessage, fits, plan_requests
from pipeline.transforms.publisher import TopicPublisher, connect
from pipeline.transforms.subscriber import make_subscriber

SUBSCRIPTION = re.compile(r"projects/[^/\s]+/subscriptions/[^/\s]+")
"""The whole name of a subscription."""

_CALL_SECONDS, _TOTAL_SECONDS = 30.0, 120.0


class TopicSender:
    """Publishes repaired letters to ``topic`` (``projects/p/topics/t``). Connects when first used.

    A call that fails may have published a part of the batch. Honours PUBSUB_EMULATOR_HOST.
    """

    max_bytes = MAX_MESSAGE_BYTES

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._made: Any = None

    def refuses(self, outgoing: Outgoing) -> str:
        """A message that is too large is not sent."""
        if fits(message_of_outgoing(outgoing)):
            return ""
        return f"with its attributes the message is larger than {MAX_MESSAGE_BYTES:,} bytes"

    def send(self, name: str, batch: Sequence[Outgoing]) -> dict[str, str]:
        """See ``Sender``. Raises OSError where the topic cannot be published to, after retries with backoff."""
        refused: dict[str, str] = {}
        for messages in plan_requests(message_of_outgoing(outgoing) for outgoing in batch):
            self._publish(messages, refused)
        return refused

    def _publish(self, messages: Sequence[OutgoingMessage], refused: dict[str, str]) -> None:
        """One request, narrowed down to the messages that the service finds invalid, if there are any."""
        from google.api_core.exceptions import InvalidArgument

        try:
            self._call(messages)
        except InvalidArgument as error:
            if len(messages) == 1:
                refused[dict(messages[0].attributes)["dlq_id"]] = f"the topic refuses the message: {error}"
                return
            middle = len(messages) // 2
            self._publish(messages[:middle], refused)
            self._publish(messages[middle:], refused)

    def _call(self, messages: Sequence[OutgoingMessage]) -> None:
        from google.api_core.exceptions import InvalidArgument

        wire = [
            {"data": message.data, "attributes": dict(message.attributes), "ordering_key": message.ordering_key}
            for message in messages
        ]
        try:
            request = {"topic": self._topic, "messages": wire}
            self._client().publish(request=request, timeout=_CALL_SECONDS, retry=_retry())
        except (InvalidArgument, OSError, MemoryError):
            raise
        except Exception as error:
            raise OSError(f"cannot publish to {self._topic}: {type(error).__name__}: {error}") from error

    def _client(self) -> Any:
        if self._made is None:
            self._made = connect()
        return self._made


def _retry() -> Any:
    from google.api_core import exceptions, retry

    passing = (
        exceptions.ServiceUnavailable,
        exceptions.InternalServerError,
        exceptions.TooManyRequests,
        exceptions.Aborted,
        exceptions.Cancelled,
        exceptions.DeadlineExceeded,
        exceptions.Unknown,
    )
    return retry.Retry(predicate=retry.if_exception_type(*passing), initial=0.2, maximum=10.0, timeout=_TOTAL_SECONDS)


def message_of_outgoing(outgoing: Outgoing) -> OutgoingMessage:
    """The message that a repaired letter is sent as."""
    return OutgoingMessage(outgoing.payload, outgoing.attributes, outgoing.ordering_key)


class OriginalTopics:
    """Publishes each repaired letter to the topic of the subscription that it was refused from."""

    max_bytes = MAX_MESSAGE_BYTES

    def __init__(self) -> None:
        self._senders: dict[str, TopicSender] = {}
        self._topics: dict[str, str] = {}

    def refuses(self, outgoing: Outgoing) -> str:
        """A row of a file has no topic to go back to."""
        if SUBSCRIPTION.fullmatch(outgoing.place) is None:
            return "it was refused from a file, so that it has no original topic; name one with --to"
        return TopicSender("").refuses(outgoing)

    def send(self, name: str, batch: Sequence[Outgoing]) -> dict[str, str]:
        """See ``Sender``. Raises OSError also where a subscription or its topic is gone."""
        by_topic: dict[str, list[Outgoing]] = {}
        for outgoing in batch:
            by_topic.setdefault(self._topic_of(outgoing.place), []).append(outgoing)
        refused: dict[str, str] = {}
        for topic, share in by_topic.items():
            refused |= self._senders.setdefault(topic, TopicSender(topic)).send(name, share)
        return refused

    def _topic_of(self, subscription: str) -> str:
        if subscription not in self._topics:
            self._topics[subscription] = topic_of(subscription)
        return self._topics[subscription]


def topic_of(subscription: str) -> str:
    """The topic of a subscription. Raises OSError where either is gone or cannot be seen."""
    try:
        found = str(make_subscriber().get_subscription(subscription=subscription, timeout=_CALL_SECONDS).topic)
    except Exception as error:
        raise OSError(f"cannot find the topic of {subscription}: {type(error).__name__}: {error}") from error
    if found == "_deleted-topic_":
        raise OSError(f"the topic of {subscription} was deleted; name another with --to")
    return found


class TopicParking:
    """Parks letters on a topic, as dead letters; a payload that is too large to travel goes to ``spill_folder``."""

    def __init__(self, topic: str, *, spill_folder: str) -> None:
        self._publisher = TopicPublisher(topic, spill=spill_folder)

    def park(self, name: str, letters: Sequence[DeadLetter]) -> None:
        """See ``senders.Parking``."""
        self._publisher.publish(letters)
