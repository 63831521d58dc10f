"""``headrace dlq summary``: what is in dead-letter archives or a subscription, counted."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from rich.console import Console

from dlq_replay.summary import summarise
from pipeline import preflight
from pipeline.commands.dlq_letters import filters_of, opened
from pipeline.core.errors import GuardError


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print the counts; 0, or 3 where a part of an archive could not be read. Raises UsageError for no archive."""
    filters = filters_of(arguments, preflight.utc_now())
    with opened(arguments, title="dlq summary") as letters:
        summary = summarise(letters.items, filters, of=letters.of, limit=arguments.limit)
    if arguments.json:
        print(json.dumps(summary.as_json()))
    else:
        summary.render(Console())
    return GuardError.exit_code if summary.damage else 0
