"""What ``--create`` makes: only what is missing, never a change to what is there. Pure: facts in, steps out."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import UsageError
from pipeline.core.pubsub_commands import ACK_DEADLINE_S, MAX_ATTEMPTS, RETENTION_DAYS, default_subscription
from pipeline.core.pubsub_facts import Absent, StreamFacts, SubscriptionFacts, TopicFacts, Wanted


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic."""

    path: str

    def __str__(self) -> str:
        return f"topic {self.path}"


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """Make a subscription that never expires and keeps messages for 7 days; ``net`` gives it a native policy."""

    path: str
    topic: str
    net: str | None = None

    def __str__(self) -> str:
        kept = f"never expires, keeps messages {RETENTION_DAYS} days, acknowledgement within {ACK_DEADLINE_S} s"
        net = f", after {MAX_ATTEMPTS} deliveries to {self.net}" if self.net else ""
        return f"subscription {self.path} to {self.topic} ({kept}{net})"


Step = CreateTopic | CreateSubscription


def steps_of(facts: StreamFacts, wanted: Wanted) -> list[Step]:
    """The steps, in the order in which they can be taken; none where all is there.

    Raises UsageError where a subscription is missing and nobody says of which topic, or the dead letters would
    come back as input.
    """
    source = _source(facts, wanted)
    if source is not None and source == wanted.dead_letter_topic:
        raise UsageError(
            f"{source} cannot be both the topic that is read and the one for dead letters: each would come back"
        )
    steps: list[Step] = []
    if isinstance(facts.input_topic, Absent) and isinstance(facts.subscription, Absent):
        steps.append(CreateTopic(facts.input_topic.path))
    if wanted.dead_letter_topic:
        steps += _dead_letter_steps(facts, wanted.dead_letter_topic)
    if isinstance(facts.subscription, Absent):
        if source is None:
            raise UsageError(
                f"there is no {wanted.subscription}; to create it, say of which topic: --input_topic projects/..."
            )
        steps.append(CreateSubscription(wanted.subscription, source, wanted.dead_letter_topic))
    return steps


def _source(facts: StreamFacts, wanted: Wanted) -> str | None:
    return facts.subscription.topic if isinstance(facts.subscription, SubscriptionFacts) else wanted.input_topic


def _dead_letter_steps(facts: StreamFacts, topic: str) -> list[Step]:
    keep = CreateSubscription(default_subscription(topic), topic)
    if isinstance(facts.dead_letter_topic, Absent):
        return [CreateTopic(topic), keep]
    seen = facts.dead_letter_topic
    return [keep] if isinstance(seen, TopicFacts) and seen.subscriptions == () else []
