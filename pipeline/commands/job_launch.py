"""``headrace job launch``: a launch spec becomes a running job, once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands import job_common as common
from pipeline.commands.job_graph import open_template, provenance_of
from pipeline.core.records import Json
from pipeline.ops.launch_record import LaunchRecord
from pipeline.ops.launching import launch_once, refuse_clash, wait_until_running
from pipeline.ops.port.api import Job
from pipeline.ops.requests import launch_request


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Launch and wait until the job runs; 0. Raises UsageError, RefusedError where the name is taken, HeadraceError."""
    spec = common.load_spec(arguments.spec)
    template = open_template(spec, where=arguments.spec)
    port = common.port_of(arguments, spec.project, spec.region)
    refuse_clash(port, spec.job_name)
    now = common.utc_now()
    request = launch_request(spec, launch_id=common.new_id(now))
    record = LaunchRecord(
        launch_id=request["launchParameter"]["environment"]["additionalUserLabels"]["headrace_launch"],
        action="launch",
        spec=spec,
        request=request,
        provenance=provenance_of(spec, template),
        launched_by=common.whoami(),
        launched_at=now.isoformat(timespec="seconds"),
    )
    if arguments.dry_run:
        port.validate(request)
        _print_plan(record, as_json=arguments.json)
        return 0
    common.write_record(record)
    waiting = common.waiting_of(arguments)
    job = launch_once(port, request, waiting=waiting, say=common.say)
    common.complete_record(record, job.id)
    if not arguments.no_wait:
        job = wait_until_running(port, job, waiting=waiting, say=common.say)
    _print(job, record, as_json=arguments.json)
    return 0


def _print_plan(record: LaunchRecord, *, as_json: bool) -> None:
    if as_json:
        common.print_json({"dry_run": True, "request": record.request, "launch_record": record.uri})
        return
    common.print_request("would launch", record.request, record.spec)
    print(f"would write {record.uri}\nnothing was launched (--dry_run); the service finds the request valid")


def _print(job: Job, record: LaunchRecord, *, as_json: bool) -> None:
    if as_json:
        result: Json = {"job": job.as_json(), "launch_id": record.launch_id, "launch_record": record.uri}
        common.print_json(result)
        return
    common.print_lines([*common.job_lines(job), ("launch record", record.uri)])
