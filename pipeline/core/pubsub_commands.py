"""The gcloud commands that put right what a check found: whole names, quoted for a shell."""

from __future__ import annotations

from shlex import quote

from pipeline.core.pubsub_facts import name_of, project_of

ACK_DEADLINE_S, RETENTION_DAYS, MAX_ATTEMPTS = 60, 7, 100
"""What a subscription of ours is made with; 100 attempts, so that restarts of workers do not use them up."""

_NUMBER = "$(gcloud projects describe {project} --format='value(projectNumber)')"
_AGENT = f"service-{_NUMBER}@gcp-sa-pubsub.iam.gserviceaccount.com"


def default_subscription(topic: str) -> str:
    """The subscription that keeps the messages of a dead-letter topic, if one has to be made."""
    return f"projects/{project_of(topic)}/subscriptions/{name_of(topic)[:251]}-sub"


def create_topic(topic: str) -> str:
    """Makes a topic."""
    return f"gcloud pubsub topics create {quote(topic)}"


def create_subscription(subscription: str, topic: str) -> str:
    """Makes a subscription that neither expires nor forgets within a week."""
    return (
        f"gcloud pubsub subscriptions create {quote(subscription)} --topic={quote(topic)} --expiration-period=never "
        f"--message-retention-duration={RETENTION_DAYS}d --ack-deadline={ACK_DEADLINE_S}"
    )


def delete_subscription(subscription: str) -> str:
    """Takes a subscription away."""
    return f"gcloud pubsub subscriptions delete {quote(subscription)}"


def update_subscription(subscription: str, *flags: str) -> str:
    """Changes a subscription."""
    return f"gcloud pubsub subscriptions update {quote(subscription)} {' '.join(flags)}"


def never_expire(subscription: str) -> str:
    """Lets a subscription live while nobody reads it."""
    return update_subscription(subscription, "--expiration-period=never")


def keep_longer(subscription: str) -> str:
    """Lets a subscription keep what is not acknowledged for a week."""
    return update_subscription(subscription, f"--message-retention-duration={RETENTION_DAYS}d")


def add_net(subscription: str, topic: str) -> str:
    """Gives a subscription a native dead-letter policy."""
    flags = (f"--dead-letter-topic={quote(topic)}", f"--max-delivery-attempts={MAX_ATTEMPTS}")
    return update_subscription(subscription, *flags)


def allow_net(subscription: str, topic: str) -> str:
    """Lets Pub/Sub itself forward messages from a subscription to its dead-letter topic."""
    member = f'"serviceAccount:{_AGENT.format(project=project_of(subscription))}"'
    return (
        f"gcloud pubsub topics add-iam-policy-binding {quote(topic)} --member={member} --role=roles/pubsub.publisher "
        f"&& gcloud pubsub subscriptions add-iam-policy-binding {quote(subscription)} --member={member} "
        "--role=roles/pubsub.subscriber"
    )


def grant(resource: str, role: str, member: str) -> str:
    """Gives an account a role on a topic or subscription."""
    kind = resource.split("/")[2]
    return f"gcloud pubsub {kind} add-iam-policy-binding {quote(resource)} --member={quote(member)} --role={role}"


def ask_to_see(subscription: str) -> str:
    """What to do where the caller may not look."""
    return f"ask for roles/pubsub.viewer, or look yourself: gcloud pubsub subscriptions describe {quote(subscription)}"
