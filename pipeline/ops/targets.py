"""Which running job is meant, and whether it can be changed: every reason why not, with what to do instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from pipeline.core.errors import RefusedError, UsageError
from pipeline.core.text import printable
from pipeline.ops.port.api import RUNNING, ApiError, Dataflow, Job

BETWEEN_UPDATES_SECONDS = 120
_NAME_OR_ID = re.compile(r"[a-zA-Z0-9][-_a-zA-Z0-9]{0,1099}")

_INSTEAD: Mapping[str, str] = {
    "DRAINING": "it finishes what it has and takes no more; wait until it is DRAINED, then 'headrace job launch'",
    "CANCELLING": "it is being stopped; wait until it is CANCELLED, then 'headrace job launch'",
    "PAUSING": "it is being paused; wait, resume it, then update it",
    "PAUSED": "resume it first, then update it",
    "QUEUED": "it is not running yet; wait until it is RUNNING",
    "PENDING": "it is not running yet; wait until it is RUNNING",
    "STOPPED": "it is not running yet; wait until it is RUNNING",
    "RESOURCE_CLEANING_UP": "it has ended and is cleaning up; then 'headrace job launch'",
}


def find_job(port: Dataflow, name_or_id: str) -> Job:
    """The job with that id, or the newest of that name, active ones first. Raises UsageError where there is none."""
    if not _NAME_OR_ID.fullmatch(name_or_id):
        raise UsageError(f"{printable(name_or_id, 100)!r} is no job's name or id; see 'headrace job list'")
    if name_or_id[:1].isdigit():
        try:
            return port.job(name_or_id)
        except ApiError as error:
            if error.code != 404:
                raise
            raise UsageError(f"there is no job {name_or_id} in project {port.project}, region {port.region}") from None
    active = port.jobs(name=name_or_id, active=True)
    found = active or port.jobs(name=name_or_id)
    if not found:
        raise UsageError(_nowhere(port, name_or_id))
    return _running_first(found)


def replaceable(port: Dataflow, name: str, *, now: datetime) -> Job:
    """The running streaming job of that name, which an update may replace. Raises RefusedError for anything else."""
    active = port.jobs(name=name, active=True)
    if not active:
        raise RefusedError(_nothing_runs(port, name))
    job = _running_first(active)
    if job.kind == "batch":
        raise RefusedError(
            f"{name} ({job.id}) is a batch job; only streaming jobs can be updated. Let it end, or cancel it and "
            "launch it again: a batch run commits once or not at all"
        )
    if job.state != RUNNING:
        advice = _INSTEAD.get(job.state, "only a RUNNING job can be updated")
        raise RefusedError(f"{name} ({job.id}) is {job.state}: {advice}. Nothing was launched")
    age = (now - job.created).total_seconds()
    if 0 <= age < BETWEEN_UPDATES_SECONDS:
        raise RefusedError(
            f"{name} ({job.id}) was launched {age:.0f} s ago; the service wants {BETWEEN_UPDATES_SECONDS} s between "
            f"updates of one name. Try again in {BETWEEN_UPDATES_SECONDS - age:.0f} s"
        )
    return job


def _running_first(jobs: Sequence[Job]) -> Job:
    """The running one, else the newest: a job that only validates a graph has the name of the one that runs."""
    return next((job for job in jobs if job.state == RUNNING), jobs[0])


def _nothing_runs(port: Dataflow, name: str) -> str:
    before = port.jobs(name=name)
    if before:
        last = before[0]
        follower = f" (replaced by {last.replaced_by})" if last.replaced_by else ""
        said = f"no job called {name} is active in {port.region}: the last one, {last.id}, is {last.state}{follower}"
    else:
        said = _nowhere(port, name)
    return f"{said}. There is nothing to update; start it with 'headrace job launch'"


def _nowhere(port: Dataflow, name: str) -> str:
    said = f"there is no job called {name} in project {port.project}, region {port.region}"
    regions = sorted({job.region for job in port.jobs(name=name, active=True, everywhere=True)} - {port.region})
    return said + (f"; there is one in {', '.join(regions)}, and no update moves a job" if regions else "")
