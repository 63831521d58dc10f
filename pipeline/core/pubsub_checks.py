"""Facts about a job's topics and subscriptions, judged: what is well, what will hurt, what cannot work. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.core import pubsub_commands as commands
from pipeline.core.findings import Finding, ok, problem, unknown, warning
from pipeline.core.pubsub_dead_letters import dead_letter_findings, keeping_findings, net_findings
from pipeline.core.pubsub_facts import Absent, Held, StreamFacts, SubscriptionFacts, Unseen, Wanted

SUBSCRIPTION, ACCESS = "subscription", "permissions"
CONSUME, PUBLISH = "pubsub.subscriptions.consume", "pubsub.topics.publish"
_ROLES = {CONSUME: "roles/pubsub.subscriber", PUBLISH: "roles/pubsub.publisher"}
_SHORT_DEADLINE_S = 30
_CREDENTIALS = "gcloud auth application-default login   (or set GOOGLE_APPLICATION_CREDENTIALS to a key file)"


def findings_of(facts: StreamFacts, wanted: Wanted) -> list[Finding]:
    """All findings, in the order in which a person would mend them."""
    fatal = [seen for seen in (facts.subscription, facts.dead_letter_topic) if isinstance(seen, Unseen) and seen.fatal]
    if fatal:
        return [problem("Pub/Sub", fatal[0].why, _CREDENTIALS if "credentials" in fatal[0].why else "")]
    found = [*_subscription(facts, wanted), *dead_letter_findings(facts, wanted)]
    if isinstance(facts.subscription, SubscriptionFacts) and not list(_unusable(facts.subscription)):
        found += net_findings(facts.subscription, facts, wanted)
    return found + [finding for held in facts.permissions for finding in _permission(held, wanted)]


def _subscription(facts: StreamFacts, wanted: Wanted) -> Iterator[Finding]:
    seen, path = facts.subscription, wanted.subscription
    if isinstance(seen, Absent):
        yield _missing_subscription(facts, wanted)
        return
    if isinstance(seen, Unseen):
        yield unknown(SUBSCRIPTION, f"{path} cannot be looked at: {seen.why}", commands.ask_to_see(wanted.subscription))
        return
    if broken := list(_unusable(seen)):
        yield from broken
        return
    yield ok(SUBSCRIPTION, f"{path} is there and takes from {seen.topic}")
    yield from _settings(seen)
    yield from keeping_findings(seen, SUBSCRIPTION, "messages that the job has not read")


def _missing_subscription(facts: StreamFacts, wanted: Wanted) -> Finding:
    topic = wanted.input_topic or "projects/PROJECT/topics/NAME"
    make = commands.create_subscription(wanted.subscription, topic)
    if isinstance(facts.input_topic, Absent):
        make = f"{commands.create_topic(topic)} && {make}"
    hint = "" if wanted.input_topic else " with --input_topic"
    return problem(
        SUBSCRIPTION,
        f"there is no {wanted.subscription}",
        f"{make}   (or: headrace preflight --create{hint})",
    )


def _unusable(seen: SubscriptionFacts) -> Iterator[Finding]:
    """Why nothing would ever arrive."""
    again = f"{commands.delete_subscription(seen.path)} && " + commands.create_subscription(
        seen.path, "projects/PROJECT/topics/NAME"
    )
    if seen.topic_deleted:
        yield problem(SUBSCRIPTION, f"the topic of {seen.path} was deleted: nothing new will ever arrive", again)
    if seen.detached:
        yield problem(SUBSCRIPTION, f"{seen.path} is detached from its topic: nothing arrives, nothing is kept", again)
    if seen.delivery != "pull":
        yield problem(
            SUBSCRIPTION,
            f"{seen.path} sends its messages away ({seen.delivery}); the job has to pull, and needs one of its own",
            commands.create_subscription(f"{seen.path}-headrace", seen.topic),
        )


def _settings(seen: SubscriptionFacts) -> Iterator[Finding]:
    if seen.ack_deadline_s < _SHORT_DEADLINE_S:
        yield warning(
            SUBSCRIPTION,
            f"a message not acknowledged within {seen.ack_deadline_s} s is delivered again: a slow moment makes "
            "duplicates",
            commands.update_subscription(seen.path, f"--ack-deadline={commands.ACK_DEADLINE_S}"),
        )
    if seen.ordering:
        yield warning(
            SUBSCRIPTION,
            "message ordering is on: the job does not need it (nor does Dataflow keep it), and it holds back all "
            "messages of a key behind one",
            "make the job a subscription without it (ordering cannot be switched off later): "
            + commands.create_subscription(f"{seen.path}-headrace", seen.topic),
        )
    if seen.exactly_once:
        yield warning(
            SUBSCRIPTION,
            "exactly-once delivery is on: Dataflow removes duplicates of a message id by itself, and it costs "
            "throughput",
            commands.update_subscription(seen.path, "--no-enable-exactly-once-delivery"),
        )
    if seen.filter:
        yield warning(
            SUBSCRIPTION,
            f"it has the filter {seen.filter!r}: the service drops all other messages, which are neither written "
            "nor dead-lettered",
            "nothing, if that is meant; a filter cannot be changed, only a new subscription goes without",
        )
    if seen.transforms:
        yield warning(
            SUBSCRIPTION,
            "it has message transforms: payloads may differ from what was published, and messages may be dropped",
            commands.update_subscription(seen.path, "--clear-message-transforms"),
        )


def _permission(held: Held, wanted: Wanted) -> Iterator[Finding]:
    member = f"serviceAccount:{wanted.account}" if wanted.account else "serviceAccount:ACCOUNT"
    todo = commands.grant(held.resource, _ROLES[held.permission], member)
    if held.held is None:
        yield unknown(ACCESS, f"the service does not say whether you hold {held.permission} on {held.resource}")
    elif held.held and wanted.local:
        yield ok(ACCESS, f"you hold {held.permission} on {held.resource}")
    elif wanted.local:
        yield problem(ACCESS, f"you do not hold {held.permission} on {held.resource}", todo)
    else:
        who = wanted.account or "the workers' service account"
        yield unknown(ACCESS, f"whether {who} holds {held.permission} on {held.resource} cannot be seen by you", todo)
