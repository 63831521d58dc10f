"""``headrace job cancel``: a job is stopped at once, and what it holds is dropped."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands.job_stop import stop


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Cancel and wait until the job is CANCELLED; 0."""
    return stop(arguments, state="CANCELLED")
