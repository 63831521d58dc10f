"""Files and folders, checked before a launch: each look is a finding, a refusal with what to do."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.core.errors import GuardError, UsageError
from pipeline.core.findings import Finding, ok, problem
from pipeline.transforms import files


def attempt(about: str, look: Callable[[], str], todo: str = "") -> Finding:
    """What ``look`` says is well; what it refuses, by an error that says why, is a problem."""
    try:
        return ok(about, look())
    except (UsageError, GuardError) as error:
        return problem(about, str(error).replace("\n", "; "), todo)
    except OSError as error:
        return problem(about, f"storage: {error}", todo)


def folder_finding(flag: str, folder: str) -> Finding:
    """Whether ``folder`` can be written to, by writing and deleting a small file."""
    about = f"--{flag}"
    if not folder.strip():
        return problem(about, "it is empty; name a folder (is a shell variable not set?)")
    writable = files.check_writable(folder)
    if writable.ok:
        return ok(about, f"{folder} can be written to")
    return problem(about, f"{folder} cannot be written to: {writable.why}", _mend(folder))


def _mend(folder: str) -> str:
    if not folder.startswith("gs://"):
        return "make the folder, or let this user write to it"
    bucket = "gs://" + folder.removeprefix("gs://").split("/", 1)[0]
    return (
        f"make the bucket: gcloud storage buckets create {bucket} --location=REGION   (or be allowed to write: gcloud "
        f"storage buckets add-iam-policy-binding {bucket} --member=user:YOU --role=roles/storage.objectAdmin)"
    )
