"""``headrace dlq summary``: what is in a dead-letter archive, counted."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from rich.console import Console

from dlq_replay.archives import resolve_archives
from dlq_replay.summary import summarise
from pipeline.core.errors import GuardError
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print the counts; 0, or 3 where a part of an archive could not be read. Raises UsageError for no archive."""
    summary = summarise(resolve_archives(arguments.archive, files.list_files), files.open_read)
    if arguments.json:
        print(json.dumps(summary.as_json()))
    else:
        summary.render(Console())
    return GuardError.exit_code if summary.damage else 0
