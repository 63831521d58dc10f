"""Pub/Sub's administration in memory: the port that preflight looks through, with faults on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipeline.core.pubsub_creation import CreateTopic, Step
from pipeline.core.pubsub_facts import Absent, Held, Subscription, SubscriptionFacts, Topic, TopicFacts, Unseen


@dataclass
class FakePubSub:
    """Topics and subscriptions by whole name; ``unseen`` may not be looked at, ``lag`` is not listed yet."""

    topics: dict[str, TopicFacts] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionFacts] = field(default_factory=dict)
    unseen: dict[str, Unseen] = field(default_factory=dict)
    permissions: bool | None = True
    lag: set[str] = field(default_factory=set)

    def subscription(self, path: str) -> Subscription:
        return self.unseen.get(path) or self.subscriptions.get(path) or Absent(path)

    def topic(self, path: str, also: Sequence[str] = ()) -> Topic:
        if path in self.unseen:
            return self.unseen[path]
        if path not in self.topics:
            return Absent(path)
        of = {name: one for name, one in self.subscriptions.items() if one.topic == path}
        listed = [name for name in of if name not in self.lag or name in also]
        return replace(self.topics[path], subscriptions=tuple(of[name] for name in listed))

    def held(self, resource: str, permission: str) -> Held:
        return Held(resource, permission, self.permissions)

    def create(self, step: Step) -> bool:
        if isinstance(step, CreateTopic):
            assert step.path not in self.topics
            self.topics[step.path] = TopicFacts(step.path)
            return True
        assert step.path not in self.subscriptions
        assert step.topic in self.topics, "the service makes no subscription to a topic that is not there"
        assert step.net is None or step.net in self.topics
        self.subscriptions[step.path] = SubscriptionFacts(
            step.path, step.topic, dead_letter_topic=step.net or "", max_delivery_attempts=100 if step.net else 0
        )
        return True
