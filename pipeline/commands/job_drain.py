"""``headrace job drain``: a streaming job takes no more, finishes what it holds, and ends."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands.job_stop import stop


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Drain and wait until the job is DRAINED; 0."""
    return stop(arguments, state="DRAINED")
