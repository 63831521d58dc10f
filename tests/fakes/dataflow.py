"""A Dataflow service in memory: jobs whose states move when they are looked at, replacement, refusals, messages.

Nothing happens by itself and nothing waits: each ``GET`` of a job takes it one state further in its script. What the
service does and how it says it was taken from its documentation; it is a stand-in, not the service.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

PROJECT, REGION = "test-proj", "europe-west1"
ACTIVE = ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_DRAINING", "JOB_STATE_CANCELLING")
STARTING = ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING")
Json = dict[str, Any]


class Refusal(Exception):
    """An answer that is an error: HTTP code, status word, message."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.message = code, status, message


@dataclass
class Script:
    """What becomes of the next job that is launched: its states, its messages when it reaches the last one."""

    states: tuple[str, ...] = STARTING
    errors: tuple[str, ...] = ()
    streaming: bool = True


@dataclass
class FakeJob:
    """A job as the service knows it; ``body`` is its JSON, ``ahead`` are the states to come."""

    body: Json
    ahead: deque[str] = field(default_factory=deque)
    errors: tuple[str, ...] = ()
    messages: list[Json] = field(default_factory=list)
    metrics: list[Json] = field(default_factory=list)
    replaces: str = ""
    validates_only: bool = False
    parallel_to: str = ""
    launch: Json = field(default_factory=dict)

    @property
    def state(self) -> str:
        """``JOB_STATE_…``."""
        return str(self.body["currentState"])

    @property
    def id(self) -> str:
        """The job's id."""
        return str(self.body["id"])


class FakeDataflow:
    """All jobs of all projects. ``launches`` are the bodies of all launches that were carried out, in order."""

    def __init__(self) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.launches: list[Json] = []
        self.scripts: deque[Script] = deque()
        self.refusal: tuple[str, ...] = ()
        self.age = timedelta(hours=1)
        self.now: Callable[[], datetime] = _utc_now
        self._numbers = itertools.count(1)

    def script(self, *states: str, errors: Iterable[str] = (), streaming: bool = True) -> None:
        """What becomes of the next job that is launched."""
        self.scripts.append(Script(states or STARTING, tuple(errors), streaming))

    def refuse_updates(self, *reasons: str) -> None:
        """From now on no graph is compatible, for these reasons; none takes it back."""
        self.refusal = reasons

    def add_job(self, name: str, state: str = "JOB_STATE_RUNNING", *, streaming: bool = True, **body: Any) -> FakeJob:
        """A job that is there already."""
        script = Script((state,), streaming=streaming)
        return self._make(name, script, {"location": REGION, "projectId": PROJECT, **body})

    def named(self, name: str) -> list[FakeJob]:
        """All jobs of that name, oldest first."""
        return [job for job in self.jobs.values() if job.body["name"] == name]

    def active(self, name: str, region: str = REGION) -> FakeJob | None:
        """The one active job of that name."""
        for job in self.named(name):
            if job.state in ACTIVE and job.body["location"] == region and not job.validates_only:
                return job
        return None

    def launch(self, project: str, region: str, request: Json) -> Json:
        """``flexTemplates:launch``: the new job, or a Refusal."""
        body = request.get("launchParameter", {})
        name, environment = body.get("jobName", ""), body.get("environment", {})
        if not str(body.get("containerSpecGcsPath", "")).startswith("gs://"):
            raise Refusal(400, "INVALID_ARGUMENT", "The template file path is not a gs:// path")
        there = self.active(name, region)
        if there and not body.get("update"):
            raise Refusal(
                409, "ALREADY_EXISTS", f"There is already an active job named {name} with id {there.id} in {region}"
            )
        if request.get("validateOnly"):
            return {"job": {"name": name, "projectId": project, "location": region}}
        self.launches.append(body)
        where = {
            "projectId": project,
            "location": region,
            "labels": environment.get("additionalUserLabels", {}),
            "environment": _environment(environment),
        }
        job = self._make(name, self.scripts.popleft() if self.scripts else Script(), where)
        job.launch = body
        job.parallel_to = _option(environment, "parallel_replace_job_id")
        if body.get("update"):
            self._prepare_update(job, there, "graph_validate_only" in environment.get("additionalExperiments", []))
        return {"job": job.body}

    def create(self, project: str, region: str, body: Json) -> Json:
        """``jobs.create``, as the SDK's runner sends it: an active job of the same name is returned as it is."""
        there = self.active(body["name"], region)
        if there and not body.get("replaceJobId"):
            return there.body
        job = self._make(
            body["name"],
            Script(streaming=body.get("type") in ("JOB_TYPE_STREAMING", 2)),
            {**body, "projectId": project, "location": region},
        )
        if body.get("replaceJobId"):
            self._prepare_update(job, self.jobs.get(body["replaceJobId"]), validates_only=False)
        return job.body

    def look(self, job_id: str) -> FakeJob:
        """The job, one state further."""
        job = self._job(job_id)
        if job.ahead:
            self._enter(job, job.ahead.popleft())
        return job

    def change(self, job_id: str, body: Json, mask: str) -> Json:
        """``jobs.update``: another state, or options of a running job."""
        job = self._job(job_id)
        if mask:
            return self._change_options(job, body.get("runtimeUpdatableParams", {}), mask)
        wanted = body.get("requestedState", "")
        if job.state not in ACTIVE:
            raise Refusal(400, "FAILED_PRECONDITION", f"The job is in the terminal state {job.state}")
        on_the_way = {"JOB_STATE_DRAINED": "JOB_STATE_DRAINING", "JOB_STATE_CANCELLED": "JOB_STATE_CANCELLING"}
        if wanted not in on_the_way:
            raise Refusal(400, "INVALID_ARGUMENT", f"A job cannot be asked to go to {wanted or 'nothing'}")
        if wanted == "JOB_STATE_DRAINED" and job.body["type"] != "JOB_TYPE_STREAMING":
            raise Refusal(400, "FAILED_PRECONDITION", "Only streaming jobs can be drained")
        self._enter(job, on_the_way[wanted])
        job.ahead = deque([wanted])
        return job.body

    def _change_options(self, job: FakeJob, params: Json, mask: str) -> Json:
        if job.state != "JOB_STATE_RUNNING":
            raise Refusal(400, "FAILED_PRECONDITION", f"The job is in state {job.state}")
        for path in mask.split(","):
            name = _camel(path.rpartition(".")[2])
            if name in params:
                job.body.setdefault("runtimeUpdatableParams", {})[name] = params[name]
        return job.body

    def _job(self, job_id: str) -> FakeJob:
        if job_id not in self.jobs:
            raise Refusal(404, "NOT_FOUND", f"(f00): Information about job {job_id} could not be found.")
        return self.jobs[job_id]

    def _make(self, name: str, script: Script, body: Json) -> FakeJob:
        number = next(self._numbers)
        created = (self.now() - self.age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        made = {
            **body,
            "id": f"2026-11-30_12_00_00-{number:04d}",
            "name": name,
            "type": "JOB_TYPE_STREAMING" if script.streaming else "JOB_TYPE_BATCH",
            "currentState": script.states[0],
            "currentStateTime": created,
            "createTime": created,
            "jobMetadata": {"sdkVersion": {"version": "2.77.0", "versionDisplayName": "Apache Beam Python 3.11 SDK"}},
        }
        job = FakeJob(made, deque(script.states[1:]), script.errors)
        self.jobs[job.id] = job
        return job

    def _prepare_update(self, job: FakeJob, old: FakeJob | None, validates_only: bool) -> None:
        job.validates_only = validates_only
        if old is None:
            job.ahead = deque(["JOB_STATE_FAILED"])
            job.errors = (f"Workflow failed. Causes: There is no active job named {job.body['name']} to update.",)
        elif self.refusal:
            job.ahead = deque(["JOB_STATE_PENDING", "JOB_STATE_FAILED"])
            job.errors = ("Workflow failed. Causes: The new job is not compatible with " + old.id, *self.refusal)
        elif validates_only:
            job.ahead = deque(["JOB_STATE_PENDING", "JOB_STATE_DONE"])
        else:
            job.replaces = old.id
            job.body["replaceJobId"] = old.id

    def _enter(self, job: FakeJob, state: str) -> None:
        job.body["currentState"] = state
        job.body["currentStateTime"] = self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.say(job, "JOB_MESSAGE_DETAILED", f"The job is now in {state}")
        if not job.ahead:
            for error in job.errors:
                self.say(job, "JOB_MESSAGE_ERROR", error)
        if state == "JOB_STATE_DONE" and job.validates_only:
            text = f"Workflow job: {job.id} succeeded validation. Marking graph_validate_only job as Done."
            self.say(job, "JOB_MESSAGE_BASIC", text)
        if state != "JOB_STATE_RUNNING":
            return
        if job.replaces and self.jobs[job.replaces].state in ACTIVE:
            self.jobs[job.replaces].ahead.clear()
            self.jobs[job.replaces].body |= {"currentState": "JOB_STATE_UPDATED", "replacedByJobId": job.id}
        if job.parallel_to:
            self._enter(self.jobs[job.parallel_to], "JOB_STATE_DRAINING")
            self.jobs[job.parallel_to].ahead = deque(["JOB_STATE_DRAINED"])

    def say(self, job: FakeJob, importance: str, text: str) -> None:
        """Add a message to a job."""
        number = len(job.messages)
        time = (self.now() + timedelta(microseconds=number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        job.messages.append({"id": f"m{number}", "time": time, "messageText": text, "messageImportance": importance})


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


def _option(environment: Json, name: str) -> str:
    for option in environment.get("additionalExperiments", []):
        if option.startswith(f"{name}="):
            return str(option.partition("=")[2])
    return ""


def _environment(given: Json) -> Json:
    """The environment of a job, as far as clients look at it."""
    pool = {"kind": "harness", "machineType": given.get("machineType", ""), "numWorkers": given.get("numWorkers", 1)}
    return {
        "workerPools": [pool],
        "serviceAccountEmail": given.get("serviceAccountEmail", ""),
        "experiments": given.get("additionalExperiments", []),
        "sdkPipelineOptions": {"options": {"staging_location": given.get("stagingLocation", "") + "/job.1234"}},
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
