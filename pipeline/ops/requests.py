"""From a launch spec to the exact body of ``flexTemplates:launch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.core.records import Json
from pipeline.ops.launch_spec import MAX_NAME, LaunchSpec

LAUNCH_LABEL = "headrace_launch"
VALIDATE_GRAPH = "graph_validate_only"


def launch_request(
    spec: LaunchSpec,
    *,
    launch_id: str,
    update: bool = False,
    mapping: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Json:
    """The request that launches ``spec``. ``options`` are service options that this launch needs beside the spec's.

    The label ``headrace_launch`` carries ``launch_id``: by it a job is known as ours after an answer is lost, and its
    launch record is found.
    """
    environment = {_camel(name): value for name, value in spec.environment.items()}
    experiments = [*spec.environment.get("additional_experiments", ()), *options]
    if experiments:
        environment["additionalExperiments"] = experiments
    environment["additionalUserLabels"] = {
        **spec.environment.get("additional_user_labels", {}),
        LAUNCH_LABEL: launch_id,
    }
    body: Json = {
        "jobName": spec.job_name,
        "containerSpecGcsPath": spec.template,
        "parameters": dict(spec.parameters),
        "environment": environment,
    }
    if update:
        body["update"] = True
        if mapping:
            body["transformNameMappings"] = dict(mapping)
    return {"launchParameter": body}


def renamed(request: Json, name: str) -> Json:
    """The request for a job of another name."""
    return {**request, "launchParameter": {**request["launchParameter"], "jobName": name}}


def with_suffix(name: str, suffix: str) -> str:
    """A job name that ends with ``suffix``, cut so that it is as short as the service wants names."""
    return name[: MAX_NAME - len(suffix)] + suffix


def check_name(name: str) -> str:
    """The name under which a launch is checked while the job itself runs: the service refuses names that are active."""
    return with_suffix(name, "-check")


def parallel_options(job_id: str, *, minutes: int) -> tuple[str, ...]:
    """Service options that run a job beside ``job_id`` for some minutes and then drain that one."""
    return (
        f"parallel_replace_job_id={job_id}",
        f"parallel_replace_job_min_parallel_pipelines_duration={minutes}m",
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
