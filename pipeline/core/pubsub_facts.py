"""What is so about the topics and subscriptions of a streaming job, as plain values: gathered once, then judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pipeline.core.errors import UsageError

DAY = 86_400
DELETED_TOPIC = "_deleted-topic_"
"""What the service puts in place of a subscription's topic that was deleted."""

Kind = Literal["topics", "subscriptions"]
_PROJECT = r"(?:[a-z][a-z0-9.-]*[a-z0-9]:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"
_ID = r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}"


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such thing."""

    path: str


@dataclass(frozen=True, slots=True)
class Unseen:
    """It could not be looked at; ``why`` is a sentence, ``fatal`` where nothing else can be seen either."""

    path: str
    why: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription. Durations are in seconds; ``expires_after_s`` is None for never.

    ``delivery`` is ``pull``, or what messages are sent to instead (``push``, ``bigquery``, ``cloud_storage`` ...).
    """

    path: str
    topic: str
    ack_deadline_s: int = 60
    retention_s: int = 7 * DAY
    expires_after_s: int | None = None
    ordering: bool = False
    exactly_once: bool = False
    filter: str = ""
    delivery: str = "pull"
    detached: bool = False
    transforms: int = 0
    dead_letter_topic: str = ""
    max_delivery_attempts: int = 0

    @property
    def topic_deleted(self) -> bool:
        """Whether nothing can arrive any more."""
        return self.topic == DELETED_TOPIC


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic; ``subscriptions`` is None where they could not be listed."""

    path: str
    subscriptions: tuple[SubscriptionFacts | Unseen, ...] | None = ()
    has_schema: bool = False
    transforms: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Whether the caller holds a permission on a resource; None where the service does not say."""

    resource: str
    permission: str
    held: bool | None


Subscription = SubscriptionFacts | Absent | Unseen
Topic = TopicFacts | Absent | Unseen


@dataclass(frozen=True)
class StreamFacts:
    """All that was looked at for one job; None for what the job does not have.

    ``net`` is the topic of the subscription's native dead-letter policy, where it has one of its own.
    """

    subscription: Subscription
    dead_letter_topic: Topic | None = None
    input_topic: Topic | None = None
    net: Topic | None = None
    permissions: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What a job will use. ``account`` is who its workers are, where that is known.

    ``local`` is whether the caller's own account does the work, so that the caller's permissions decide.
    """

    subscription: str
    dead_letter_topic: str | None = None
    input_topic: str | None = None
    local: bool = True
    account: str | None = None


def check_path(flag: str, path: str, kind: Kind) -> str:
    """The whole name of a topic or subscription, as given. Raises UsageError that shows how it should look."""
    one = kind.removesuffix("s")
    if re.fullmatch(rf"projects/{_PROJECT}/{kind}/{_ID}", path) is None:
        raise UsageError(
            f"--{flag} {path[:200]!r} is not the whole name of a {one}: write projects/PROJECT/{kind}/NAME "
            "(a project id has 6 to 30 characters; a name 3 to 255, begins with a letter, but not with goog)"
        )
    return path


def project_of(path: str) -> str:
    """The project of a whole name."""
    return path.split("/")[1]


def name_of(path: str) -> str:
    """The last part of a whole name."""
    return path.split("/", 3)[3]
