"""Pulling from a dead-letter subscription, with leases held as long as the work takes and given back unless done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from dlq_replay.envelope import letter_of_message
from dlq_replay.ledger import Clock
from pipeline.core.dead_letter import DeadLetter
from pipeline.transforms.subscriber import make_subscriber

LEASE_SECONDS = 600  # the longest that Pub/Sub gives
_EXTEND_AFTER_SECONDS = 240.0
_MOST_IDS = 1000  # ids are up to 200 bytes, a request up to 512 KiB
_PULL_SECONDS = 10.0
_CALL_SECONDS = 60.0
_USUAL_ATTEMPTS = 5  # where a policy does not say


@dataclass(frozen=True, slots=True)
class Pulled:
    """A dead letter from a subscription; ``ack`` acknowledges it."""

    letter: DeadLetter
    ack: str
    message_id: str
    published: datetime


class Puller(Protocol):
    """A subscription. All methods raise OSError for trouble that may pass."""

    def pull(self, most: int) -> list[Pulled]:
        """At most ``most`` letters; empty where none came within some seconds."""
        ...

    def acknowledge(self, acks: Sequence[str]) -> None:
        """They are done, and do not come again."""
        ...

    def extend(self, acks: Sequence[str], seconds: int) -> None:
        """They are ours for so many seconds from now; 0 gives them back."""
        ...


class Subscription:
    """A real subscription ``projects/p/subscriptions/s``, or one of an emulator (PUBSUB_EMULATOR_HOST).

    The client is made when it is first needed. A pull waits for a first message, at most ``wait_seconds``.
    """

    def __init__(self, name: str, *, wait_seconds: float = _PULL_SECONDS) -> None:
        self._name, self._wait = name, min(wait_seconds, _PULL_SECONDS)
        self._made: Any = None

    def pull(self, most: int) -> list[Pulled]:
        """See ``Puller``."""
        from google.api_core.exceptions import DeadlineExceeded

        request = {"subscription": self._name, "max_messages": min(most, 1000)}
        try:
            with _as_fault("pull from", self._name):
                found = self._client().pull(request=request, timeout=self._wait, retry=None)
        except DeadlineExceeded:
            return []
        pulled = [self._pulled(one) for one in found.received_messages]
        self.extend([one.ack for one in pulled], LEASE_SECONDS)
        return pulled

    def delivery_limit(self) -> int | None:
        """After how many deliveries the service itself moves a message away; None where it does not, or does not say.

        A message that is pulled and given back was delivered.
        """
        try:
            found = self._client().get_subscription(subscription=self._name, timeout=_CALL_SECONDS)
        except Exception:  # some may pull, and not look at the subscription: the pull says what is wrong
            return None
        policy = found.dead_letter_policy
        return (policy.max_delivery_attempts or _USUAL_ATTEMPTS) if policy.dead_letter_topic else None

    def acknowledge(self, acks: Sequence[str]) -> None:
        """See ``Puller``."""
        for start in range(0, len(acks), _MOST_IDS):
            request = {"subscription": self._name, "ack_ids": list(acks[start : start + _MOST_IDS])}
            with _as_fault("acknowledge to", self._name):
                self._client().acknowledge(request=request, timeout=_CALL_SECONDS)

    def extend(self, acks: Sequence[str], seconds: int) -> None:
        """See ``Puller``."""
        for start in range(0, len(acks), _MOST_IDS):
            ids = list(acks[start : start + _MOST_IDS])
            request = {"subscription": self._name, "ack_ids": ids, "ack_deadline_seconds": seconds}
            with _as_fault("hold messages of", self._name):
                self._client().modify_ack_deadline(request=request, timeout=_CALL_SECONDS)

    def _pulled(self, received: Any) -> Pulled:
        message = received.message
        published = message.publish_time
        letter = letter_of_message(
            bytes(message.data),
            dict(message.attributes),
            subscription=self._name,
            message_id=message.message_id,
            publish_time_us=int(published.timestamp() * 1_000_000),
            ordering_key=message.ordering_key,
        )
        return Pulled(letter, received.ack_id, message.message_id, published)

    def _client(self) -> Any:
        if self._made is None:
            with _as_fault("reach", self._name):
                self._made = make_subscriber()
        return self._made


@contextlib.contextmanager
def _as_fault(what: str, name: str) -> Any:
    """Whatever the client raises becomes OSError, but for the answer that nothing came."""
    from google.api_core.exceptions import DeadlineExceeded

    try:
        yield
    except (DeadlineExceeded, OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(f"cannot {what} {name}: {type(error).__name__}: {error}") from error


@dataclass
class Held:
    """The messages that were pulled and not acknowledged: their leases are extended, and given back at the end.

    Giving a message back counts as a delivery attempt where the subscription has a dead-letter policy of its own.
    """

    puller: Puller
    clock: Clock
    _acks: dict[str, None] = field(default_factory=dict)
    _extended: datetime | None = None

    def pull(self, most: int) -> list[Pulled]:
        """Pull, and hold what comes. Raises OSError."""
        self._extend_when_due()
        found = self.puller.pull(most)
        self._acks.update(dict.fromkeys(one.ack for one in found))
        return found

    def acknowledge(self, acks: Sequence[str]) -> None:
        """They are done. Raises OSError."""
        self.puller.acknowledge(acks)
        for ack in acks:
            self._acks.pop(ack, None)

    def release(self) -> None:
        """Give back what is still held. Raises OSError."""
        self.puller.extend(list(self._acks), 0)
        self._acks.clear()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # then their leases run out by themselves
            self.release()

    def _extend_when_due(self) -> None:
        now = self.clock.now()
        if self._extended is None:
            self._extended = now
        if (now - self._extended).total_seconds() >= _EXTEND_AFTER_SECONDS:
            self.puller.extend(list(self._acks), LEASE_SECONDS)
            self._extended = now
