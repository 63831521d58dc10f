"""Is Pub/Sub ready for a streaming job? Asked by ``headrace preflight``, and before every launch."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Sequence

from pipeline.core.errors import UsageError
from pipeline.core.findings import Finding, Level, problem, problems
from pipeline.core.pubsub_checks import findings_of
from pipeline.core.pubsub_creation import CreateSubscription, Step
from pipeline.core.pubsub_facts import Wanted, check_path
from pipeline.readiness.port import PubSubPort, create_missing, gather

_LOG = logging.getLogger(__name__)


def wanted_of(arguments: Namespace, *, local: bool, account: str | None = None) -> Wanted:
    """What the job of ``headrace stream`` will use, by whole names. Raises UsageError for a name that is none.

    ``local``: the caller's own account does the work; else ``account`` does, where it is known.
    """
    given = {name: getattr(arguments, name, None) for name in ("dead_letter_topic", "input_topic")}
    for flag, path in given.items():
        if path:
            check_path(flag, path, "topics")
    return Wanted(
        subscription=check_path("input_subscription", arguments.input_subscription, "subscriptions"),
        dead_letter_topic=given["dead_letter_topic"] or None,
        input_topic=given["input_topic"] or None,
        local=local,
        account=account,
    )


def check(wanted: Wanted, port: PubSubPort | None = None, *, made: Sequence[Step] = ()) -> list[Finding]:
    """All findings about the job's topics and subscriptions. ``made`` was made just now: it may not be listed yet."""
    also = [step.path for step in made if isinstance(step, CreateSubscription)]
    if port is not None:
        return findings_of(gather(port, wanted, also=also), wanted)
    from pipeline.readiness.pubsub import PubSubClient

    try:
        with PubSubClient() as client:
            return findings_of(gather(client, wanted, also=also), wanted)
    except UsageError as error:
        return [problem("Pub/Sub", str(error))]


def create(wanted: Wanted) -> list[Step]:
    """Make what is missing; see ``create_missing``."""
    from pipeline.readiness.pubsub import PubSubClient

    with PubSubClient() as client:
        return create_missing(client, wanted)


def require_ready(wanted: Wanted, port: PubSubPort | None = None) -> list[Finding]:
    """Check before a launch: warnings are logged, and problems raise UsageError with all of them and what to do."""
    findings = check(wanted, port)
    for finding in findings:
        if finding.level is Level.WARNING:
            _LOG.warning(
                "%s", "; do: ".join(part for part in (f"{finding.about}: {finding.what}", finding.todo) if part)
            )
    if found := problems(findings):
        lines = [line for finding in found for line in finding.lines()]
        raise UsageError("\n".join(["Pub/Sub is not ready for this job:", *lines]))
    return findings
