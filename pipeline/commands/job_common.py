"""What the job commands share: the spec, the port, waiting, the way a plan and a result are printed."""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import socket
import sys
import uuid
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime, timezone

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.records import Json
from pipeline.core.text import printable
from pipeline.ops.following import Waiting
from pipeline.ops.launch_record import LaunchRecord, new_launch_id
from pipeline.ops.launch_spec import LaunchSpec, read_spec, require_place
from pipeline.ops.port.api import Dataflow, Job
from pipeline.ops.port.client import DataflowClient
from pipeline.ops.port.endpoint import endpoint_of

_LOG = logging.getLogger(__name__)
_SPEC = re.compile(r".+\.ya?ml")
_VALUE = 200


def say(text: str) -> None:
    """Tell how it goes, on stderr."""
    _LOG.info("%s", text)


def utc_now() -> datetime:
    """The time."""
    return datetime.now(timezone.utc)


def new_id(now: datetime) -> str:
    """The id of a launch."""
    return new_launch_id(now, uuid.uuid4().hex)


def whoami() -> str:
    """Who launches, as far as this machine knows: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in a container
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return printable(f"{user}@{socket.gethostname()}", 200)


def load_spec(path: str) -> LaunchSpec:
    """The launch spec in a local or gs:// file. Raises UsageError."""
    from pipeline.preflight import read_text

    return read_spec(read_text(path, "launch spec"), path)


def port_of(arguments: Namespace, project: str, region: str) -> Dataflow:
    """The API of a project and region."""
    return DataflowClient(
        project, region, endpoint=endpoint_of(arguments.dataflow_endpoint), timeout=arguments.request_timeout
    )


def waiting_of(arguments: Namespace) -> Waiting:
    """How long to wait, from the options."""
    return Waiting(poll=arguments.poll_seconds, limit=arguments.wait_minutes * 60)


@dataclass(frozen=True)
class Target:
    """The job that a command is about: a name or id, and where it is; ``spec`` where a launch spec was given."""

    name: str
    project: str
    region: str
    spec: LaunchSpec | None = None


def target_of(arguments: Namespace) -> Target:
    """The target of ``arguments.job``: a job's name or id, or a launch spec. Raises UsageError for a missing place."""
    spec = load_spec(arguments.job) if _SPEC.fullmatch(arguments.job) else None
    project, region = place_of(arguments, spec)
    return Target(spec.job_name if spec else arguments.job, project, region, spec)


def place_of(arguments: Namespace, spec: LaunchSpec | None = None) -> tuple[str, str]:
    """Project and region. Raises UsageError where they are not known, or are none."""
    project = arguments.project or (spec.project if spec else os.environ.get("GOOGLE_CLOUD_PROJECT"))
    region = arguments.region or (spec.region if spec else os.environ.get("CLOUDSDK_DATAFLOW_REGION"))
    missing = [flag for flag, value in (("--project", project), ("--region", region)) if not value]
    if missing:
        raise UsageError(f"where is the job? Give {' and '.join(missing)}, or a launch spec (a .yaml file)")
    require_place(str(project), str(region))
    return str(project), str(region)


def print_json(value: Json) -> None:
    """One JSON document on stdout."""
    json.dump(value, sys.stdout, indent=2)
    print()


def print_lines(lines: list[tuple[str, str]]) -> None:
    """Labelled lines on stdout."""
    for label, text in lines:
        print(f"{label:<15}{text}")


def job_lines(job: Job) -> list[tuple[str, str]]:
    """What a job is, for a person."""
    lines = [
        ("job", f"{job.id}  {job.name}"),
        ("state", job.state),
        ("type", job.kind),
        ("region", job.region),
        ("created", f"{job.created:%Y-%m-%d %H:%M:%S} UTC"),
        ("look at", f"https://console.cloud.google.com/dataflow/jobs/{job.region}/{job.id}?project={job.project}"),
    ]
    if job.replaced_by:
        lines.insert(2, ("replaced by", job.replaced_by))
    if job.replaces:
        lines.insert(2, ("replaces", job.replaces))
    return lines


def print_request(title: str, request: Json, spec: LaunchSpec) -> None:
    """A request as it will be sent."""
    print(f"{title}: POST v1b3/projects/{spec.project}/locations/{spec.region}/flexTemplates:launch")
    print(json.dumps(request, indent=2))


def write_record(record: LaunchRecord) -> None:
    """Write a launch record where updates look for it."""
    from pipeline.transforms import files

    try:
        files.write_bytes(record.uri, record.to_json())
    except OSError as error:
        why = printable(str(error), 1000)
        raise HeadraceError(
            f"cannot write the launch record {record.uri}, without which no update can compare ({why}). May "
            f"{whoami()} write to environment.staging_location?"
        ) from error


def complete_record(record: LaunchRecord, job_id: str) -> None:
    """Note the job's id in its launch record. The job is there by now: that this fails is told, and no more."""
    try:
        write_record(record.with_job(job_id))
    except HeadraceError as error:
        _LOG.warning("job %s is launched; its id is not in its launch record: %s", job_id, error)
