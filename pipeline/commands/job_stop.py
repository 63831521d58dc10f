"""Stopping a job: what drain and cancel share."""

from __future__ import annotations

from argparse import Namespace

from pipeline.commands import job_common as common
from pipeline.core.errors import HeadraceError, RefusedError
from pipeline.ops.following import Follower
from pipeline.ops.port.api import Job
from pipeline.ops.stopping import ON_THE_WAY, ask_to_stop
from pipeline.ops.targets import find_job


def stop(arguments: Namespace, *, state: str) -> int:
    """Ask the job for a final ``state`` (DRAINED, CANCELLED) and wait for it; 0. Raises RefusedError, HeadraceError."""
    target = common.target_of(arguments)
    port = common.port_of(arguments, target.project, target.region)
    job = find_job(port, target.name)
    verb = "drain" if state == "DRAINED" else "cancel"
    _refuse(job, verb=verb, state=state)
    if arguments.dry_run:
        return _print_plan(job, verb, state, as_json=arguments.json)
    if job.state not in (state, ON_THE_WAY[state]):
        job = ask_to_stop(port, job.id, state)
    if not arguments.no_wait:
        job = Follower(port, common.waiting_of(arguments), common.say).until(job.id, (), from_now=True)
        if job.state != state:
            raise HeadraceError(f"job {job.id} ({job.name}) ended as {job.state}, not as {state}")
    if arguments.json:
        common.print_json({"job": job.as_json()})
    else:
        common.print_lines(common.job_lines(job))
    return 0


def _refuse(job: Job, *, verb: str, state: str) -> None:
    if job.is_finished and job.state != state:
        followed = f"; it was replaced by {job.replaced_by}" if job.replaced_by else ""
        raise RefusedError(f"{job.name} ({job.id}) is {job.state} already{followed}: there is nothing to {verb}")
    if verb == "drain" and job.kind == "batch":
        raise RefusedError(
            f"{job.name} ({job.id}) is a batch job, which cannot be drained; 'headrace job cancel' stops it, and "
            "nothing is committed then"
        )
    if verb == "drain" and job.state == "CANCELLING":
        raise RefusedError(f"{job.name} ({job.id}) is being cancelled; it is too late to drain it")


def _print_plan(job: Job, verb: str, state: str, *, as_json: bool) -> int:
    if as_json:
        common.print_json({"dry_run": True, "job": job.as_json(), "requested_state": f"JOB_STATE_{state}"})
        return 0
    print(f"would {verb} job {job.id} ({job.name}, {job.state}):")
    print(f"PUT v1b3/projects/{job.project}/locations/{job.region}/jobs/{job.id}")
    print(f'{{"requestedState": "JOB_STATE_{state}"}}')
    return 0
