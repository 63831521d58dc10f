"""Where refused messages go, judged: the dead-letter topic, and the native policy that is the second net. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.core import pubsub_commands as commands
from pipeline.core.findings import Finding, ok, problem, unknown, warning
from pipeline.core.pubsub_facts import (
    DAY,
    DELETED_TOPIC,
    Absent,
    StreamFacts,
    SubscriptionFacts,
    TopicFacts,
    Unseen,
    Wanted,
)

DEAD_LETTERS, NET = "dead-letter topic", "second net"
_FEW_ATTEMPTS = 20


def dead_letter_findings(facts: StreamFacts, wanted: Wanted) -> Iterator[Finding]:
    """The dead-letter topic: there, no loop, and with somebody who keeps what is published."""
    path, seen = wanted.dead_letter_topic, facts.dead_letter_topic
    if path is None:
        return
    source = facts.subscription.topic if isinstance(facts.subscription, SubscriptionFacts) else wanted.input_topic
    if path == source:
        yield problem(
            DEAD_LETTERS,
            f"{path} is the topic that the job reads from: each dead letter would come back, for ever",
            "give --dead_letter_topic a topic of its own, for example: " + commands.create_topic(f"{path}-dead"),
        )
    elif isinstance(seen, Absent):
        keep = commands.create_subscription(commands.default_subscription(path), path)
        make = f"{commands.create_topic(path)} && {keep}"
        yield problem(DEAD_LETTERS, f"there is no {path}", f"{make}   (or: headrace preflight --create)")
    elif isinstance(seen, TopicFacts):
        yield from _kept(seen)
        yield from _unaltered(seen)
    else:
        why = seen.why if seen else "nobody looked"
        yield unknown(DEAD_LETTERS, f"{path} cannot be looked at: {why}", commands.ask_to_see(wanted.subscription))


def _kept(seen: TopicFacts) -> Iterator[Finding]:
    """Whether somebody keeps what is published there."""
    if seen.subscriptions is None:
        yield unknown(DEAD_LETTERS, f"whether {seen.path} has a subscription cannot be seen")
        return
    keepers = [one for one in seen.subscriptions if isinstance(one, SubscriptionFacts) and not one.detached]
    if not seen.subscriptions or (not keepers and not any(isinstance(one, Unseen) for one in seen.subscriptions)):
        make = commands.create_subscription(commands.default_subscription(seen.path), seen.path)
        yield problem(
            DEAD_LETTERS,
            f"{seen.path} has no subscription: what is published there is lost",
            f"{make}   (or: headrace preflight --create)",
        )
        return
    yield ok(DEAD_LETTERS, f"{seen.path} is there, and kept by {_names(seen)}")
    if keepers and all(one.filter for one in keepers):
        yield warning(
            DEAD_LETTERS,
            f"every subscription of {seen.path} has a filter: dead letters that none of them takes are lost",
            commands.create_subscription(commands.default_subscription(seen.path), seen.path),
        )
    for one in keepers:
        if one.delivery == "pull":
            yield from keeping_findings(one, DEAD_LETTERS, "dead letters")


def _unaltered(seen: TopicFacts) -> Iterator[Finding]:
    """Whether what is published there arrives as it is."""
    if seen.has_schema:
        yield problem(
            DEAD_LETTERS,
            f"{seen.path} has a schema: it refuses messages that are malformed, which dead letters are, so that the "
            "job would try for ever",
            f"gcloud pubsub topics update {seen.path} --clear-schema-settings",
        )
    if seen.transforms:
        yield warning(
            DEAD_LETTERS,
            f"{seen.path} has message transforms: dead letters may not be kept byte for byte, or be dropped",
            f"gcloud pubsub topics update {seen.path} --clear-message-transforms",
        )


def _names(seen: TopicFacts) -> str:
    paths = [one.path for one in seen.subscriptions or ()]
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def net_findings(seen: SubscriptionFacts, facts: StreamFacts, wanted: Wanted) -> Iterator[Finding]:
    """The native dead-letter policy: for messages that no worker ever manages to acknowledge."""
    own = wanted.dead_letter_topic
    target = own if own and own != seen.topic else "projects/PROJECT/topics/NAME"
    if not seen.dead_letter_topic:
        todo = commands.add_net(seen.path, target)
        yield warning(
            NET, "there is no native dead-letter policy: a message that kills workers is tried for ever", todo
        )
        return
    if seen.dead_letter_topic in (seen.topic, DELETED_TOPIC):
        yield problem(
            NET,
            f"the native dead-letter policy leads to {seen.dead_letter_topic}: back into the job, or nowhere",
            commands.add_net(seen.path, target),
        )
        return
    yield from _net_kept(seen.dead_letter_topic, facts)
    if seen.max_delivery_attempts < _FEW_ATTEMPTS:
        yield warning(
            NET,
            f"the native dead-letter policy gives up after {seen.max_delivery_attempts} deliveries, which restarts "
            "of workers use up on good messages too",
            commands.update_subscription(seen.path, f"--max-delivery-attempts={commands.MAX_ATTEMPTS}"),
        )
    yield unknown(
        NET,
        "whether Pub/Sub's own account may forward to it cannot be seen; it needs to be allowed once",
        commands.allow_net(seen.path, seen.dead_letter_topic),
    )


def _net_kept(path: str, facts: StreamFacts) -> Iterator[Finding]:
    """Of the policy's own topic; the job's dead-letter topic has its findings already."""
    seen = facts.net
    if isinstance(seen, Absent):
        yield warning(
            NET, f"the native dead-letter policy leads to {path}, which is not there", commands.create_topic(path)
        )
    elif isinstance(seen, TopicFacts) and seen.subscriptions == ():
        make = commands.create_subscription(commands.default_subscription(path), path)
        yield warning(NET, f"the native dead-letter policy leads to {path}, which nobody subscribes to", make)
    else:
        yield ok(NET, f"the native dead-letter policy leads to {path}")


def keeping_findings(seen: SubscriptionFacts, about: str, what: str) -> Iterator[Finding]:
    """How long a subscription and what is in it live while nobody reads."""
    if seen.expires_after_s is not None:
        yield warning(
            about,
            f"{seen.path} is deleted, with all in it, after {_days(seen.expires_after_s)} without a reader",
            commands.never_expire(seen.path),
        )
    if seen.retention_s < commands.RETENTION_DAYS * DAY:
        yield warning(
            about,
            f"{seen.path} keeps {what} for {_days(seen.retention_s)}, and then they are gone",
            commands.keep_longer(seen.path),
        )


def _days(seconds: int) -> str:
    if seconds % DAY == 0:
        return f"{seconds // DAY} days" if seconds != DAY else "1 day"
    return f"{seconds / 3600:.3g} hours"
