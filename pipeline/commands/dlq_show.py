"""``headrace dlq show``: dead letters one by one, safe to print."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from rich.console import Console

from dlq_replay.archives import resolve_archives
from dlq_replay.show import select
from pipeline.core.errors import GuardError
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print the selection; 0, or 3 where a part of an archive could not be read. Raises UsageError for no archive."""
    selection = select(
        resolve_archives(arguments.archive, files.list_files),
        files.open_read,
        reason=arguments.reason,
        feature=arguments.feature,
        limit=arguments.limit,
    )
    if arguments.json:
        print(json.dumps(selection.as_json()))
    else:
        selection.render(Console())
    return GuardError.exit_code if selection.damage else 0
