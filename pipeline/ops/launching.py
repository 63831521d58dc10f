"""Launching a job once, and knowing which one it is, even where the answer to the launch was lost."""

from __future__ import annotations

from pipeline.core.errors import HeadraceError, RefusedError
from pipeline.core.records import Json
from pipeline.ops.following import Follower, Say, Waiting, errors_of
from pipeline.ops.port.api import RUNNING, ApiError, Dataflow, Job
from pipeline.ops.requests import LAUNCH_LABEL

_LOOKS = (2.0, 4.0, 8.0, 16.0)  # seconds before each look for a job whose launch was not answered
_LAUNCHES = 3


def refuse_clash(port: Dataflow, name: str) -> None:
    """Raise RefusedError (exit code 4) where a job of that name is active."""
    for job in port.jobs(name=name, active=True):
        raise RefusedError(
            f"{name} is active already: job {job.id} is {job.state}. Change it with 'headrace job update', stop it "
            "with 'headrace job drain', or launch under another job_name"
        )


def launch_once(port: Dataflow, request: Json, *, waiting: Waiting, say: Say) -> Job:
    """Launch, and answer with the job, whatever becomes of the connection.

    After an answer that was lost the job is looked for by its name and its label ``headrace_launch``. It is launched
    again only where the service itself would refuse a second one: a name can be active once. An update has no such
    guard (it would replace the job that it has just made), so it is not repeated. Raises ApiError, RefusedError, or
    HeadraceError where it stays unknown what happened.
    """
    body = request["launchParameter"]
    name, launch_id = body["jobName"], body["environment"]["additionalUserLabels"][LAUNCH_LABEL]
    attempts = 1 if body.get("update") else _LAUNCHES
    look = f"'headrace job list --project {port.project} --region {port.region}' before you try again"
    try:
        for _ in range(attempts):
            try:
                return port.launch(request)
            except ApiError as error:
                if error.code == 409:
                    return _ours_or_refused(port, name, launch_id, error)
                if error.carried_out is not None:
                    raise
                say(f"{error}. The job may have been launched all the same; looking for it")
                found = _look_for(port, name, launch_id, waiting)
                if found is not None:
                    say(f"found it: job {found.id}")
                    return found
                failure = error
    except KeyboardInterrupt:
        say(
            f"interrupted in the middle of the launch: job {name} ({LAUNCH_LABEL}={launch_id}) may come all the same. "
            f"Look with {look}"
        )
        raise
    raise HeadraceError(
        f"{failure}. No job with label {LAUNCH_LABEL}={launch_id} has shown up; it may still come. Look with {look}"
    )


def _look_for(port: Dataflow, name: str, launch_id: str, waiting: Waiting) -> Job | None:
    for seconds in _LOOKS:
        waiting.sleep(seconds)
        found = _with_label(port, name, launch_id)
        if found is not None:
            return found
    return None


def _with_label(port: Dataflow, name: str, launch_id: str) -> Job | None:
    return next((job for job in port.jobs(name=name) if job.labels.get(LAUNCH_LABEL) == launch_id), None)


def _ours_or_refused(port: Dataflow, name: str, launch_id: str, error: ApiError) -> Job:
    """The name is taken: by an earlier attempt of this very launch, or by another job."""
    found = _with_label(port, name, launch_id)
    if found is None:
        raise RefusedError(f"{error}. Nothing was launched") from error
    return found


def wait_until_running(port: Dataflow, job: Job, *, waiting: Waiting, say: Say) -> Job:
    """Follow a launched job until it runs (or has already done its work). Raises HeadraceError where it fails."""
    after = Follower(port, waiting, say).until(job.id, {RUNNING})
    if after.state in (RUNNING, "DONE"):
        return after
    said = errors_of(port, job.id) or ["the service says nothing more; see the job's logs"]
    raise HeadraceError("\n  ".join([f"job {job.id} ({job.name}) ended as {after.state}:", *said]))
