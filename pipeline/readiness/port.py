"""What the checks need of Pub/Sub: a small port, which a client of the service and the tests' fakes both are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pipeline.core.errors import HeadraceError
from pipeline.core.pubsub_checks import CONSUME, PUBLISH
from pipeline.core.pubsub_creation import Step, steps_of
from pipeline.core.pubsub_facts import (
    Held,
    StreamFacts,
    Subscription,
    SubscriptionFacts,
    Topic,
    TopicFacts,
    Unseen,
    Wanted,
)


class PubSubPort(Protocol):
    """Looks at and makes topics and subscriptions, all by their whole names. Faults are Unseen, never exceptions."""

    def subscription(self, path: str) -> Subscription:
        """What is so about a subscription."""

    def topic(self, path: str, also: Sequence[str] = ()) -> Topic:
        """What is so about a topic and its subscriptions; ``also`` names some that the service may not list yet."""

    def held(self, resource: str, permission: str) -> Held:
        """Whether the caller holds a permission."""

    def create(self, step: Step) -> bool:
        """Take a step; False where another was faster. Raises HeadraceError where the service refuses."""


def gather(port: PubSubPort, wanted: Wanted, *, also: Sequence[str] = ()) -> StreamFacts:
    """Look at everything that the job will use. Stops early where nothing can be seen at all."""
    subscription = port.subscription(wanted.subscription)
    if isinstance(subscription, Unseen) and subscription.fatal:
        return StreamFacts(subscription)
    dead = port.topic(wanted.dead_letter_topic, also) if wanted.dead_letter_topic else None
    source = net = None
    if isinstance(subscription, SubscriptionFacts):
        if subscription.dead_letter_topic not in ("", wanted.dead_letter_topic, subscription.topic):
            net = port.topic(subscription.dead_letter_topic)
    elif wanted.input_topic:
        source = port.topic(wanted.input_topic)
    permissions = []
    if isinstance(subscription, SubscriptionFacts):
        permissions.append(port.held(subscription.path, CONSUME))
    if isinstance(dead, TopicFacts):
        permissions.append(port.held(dead.path, PUBLISH))
    return StreamFacts(subscription, dead, source, net, tuple(permissions))


def create_missing(port: PubSubPort, wanted: Wanted) -> list[Step]:
    """Make what is missing and return what was made: nothing the second time.

    Raises UsageError for what cannot be made, HeadraceError where the service refuses.
    """
    facts = gather(port, wanted)
    for seen in (facts.subscription, facts.dead_letter_topic):
        if isinstance(seen, Unseen) and seen.fatal:
            raise HeadraceError(f"nothing can be made: {seen.why}")
    return [step for step in steps_of(facts, wanted) if port.create(step)]
