"""Asking a job to stop: once is enough, and twice does no harm, even where an answer was lost."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.ops.port.api import ApiError, Dataflow, Job

ON_THE_WAY: Mapping[str, str] = {"DRAINED": "DRAINING", "CANCELLED": "CANCELLING"}
"""The states that can be asked for, and the state in which a job gets there."""


def ask_to_stop(port: Dataflow, job_id: str, state: str) -> Job:
    """Ask for ``state`` (DRAINED, CANCELLED). Raises ApiError unless the job goes there, whatever was answered."""
    try:
        return port.request_state(job_id, state)
    except ApiError:
        now = port.job(job_id)
        if now.state in (state, ON_THE_WAY[state]):
            return now
        raise
