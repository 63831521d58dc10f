"""The launch record of a running job: found by its label, in the staging locations that it can be in."""

from __future__ import annotations

from pipeline.core.errors import UsageError
from pipeline.ops.launch_record import LaunchRecord, find_record
from pipeline.ops.port.api import Dataflow, Job
from pipeline.ops.requests import LAUNCH_LABEL
from pipeline.transforms import files


def record_of(port: Dataflow, job: Job, folders: list[str]) -> LaunchRecord | None:
    """The launch record of ``job``, in ``folders`` or where the job stages its files; None where there is none.

    Raises UsageError for a damaged record.
    """
    launch_id = job.labels.get(LAUNCH_LABEL)
    if not launch_id:
        return None
    found = find_record(files.read_bytes, folders, job_name=job.name, launch_id=launch_id)
    if found is None:
        staging = port.job(job.id, details=True).staging_location
        found = find_record(files.read_bytes, _with_parents(staging), job_name=job.name, launch_id=launch_id)
    if found is not None and (found.spec.project, found.spec.region) != (port.project, port.region):
        raise UsageError(
            f"{found.uri} is of a job in project {found.spec.project}, region {found.spec.region}, not of {job.id}: "
            "it was copied or changed"
        )
    return found


def _with_parents(staging: str) -> list[str]:
    """The folder and those above it: the SDK's runner stages in a folder of its own below the one it was given."""
    folders = []
    while staging.startswith("gs://") and staging.count("/") > 1:
        folders.append(staging)
        staging = staging.rstrip("/").rpartition("/")[0]
    return folders
