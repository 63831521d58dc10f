"""``headrace dlq show``: dead letters one by one, safe to print."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from rich.console import Console

from dlq_replay.show import select
from pipeline import preflight
from pipeline.commands.dlq_letters import filters_of, opened, view_of
from pipeline.core.errors import GuardError


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print the selection; 0, or 3 where a part of an archive could not be read. Raises UsageError for no archive."""
    filters = filters_of(arguments, preflight.utc_now())
    view = view_of(arguments, arguments.max_payload_chars)
    with opened(arguments, title="dlq show") as letters:
        selection = select(letters.items, filters, limit=arguments.limit)
    if arguments.json:
        print(json.dumps(selection.as_json(view)))
    else:
        selection.render(Console(), view)
    return GuardError.exit_code if selection.damage else 0
