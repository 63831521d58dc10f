"""``headrace job resize``: other machines for a running job, with its memory explained; worker limits in flight."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands import job_common as common
from pipeline.commands.job_graph import open_template
from pipeline.commands.job_records import record_of
from pipeline.commands.job_update import finish
from pipeline.core.errors import RefusedError, UsageError
from pipeline.ops.launch_record import LaunchRecord
from pipeline.ops.port.api import RUNNING, Dataflow, Job
from pipeline.ops.resizing import Resize, Wish, plan_resize
from pipeline.ops.targets import find_job, replaceable
from pipeline.ops.updating import UpdatePlan


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Resize; 0. Raises RefusedError (exit code 4) where it would make things worse or cannot be done."""
    wish = _wish(arguments)
    target = common.target_of(arguments)
    port = common.port_of(arguments, target.project, target.region)
    if not wish.replaces:
        return _in_flight(port, find_job(port, target.name), wish, arguments)
    name = find_job(port, target.name).name
    now = common.utc_now()
    old = replaceable(port, name, now=now)
    folders = [arguments.staging_location, target.spec.staging_location if target.spec else None]
    record = record_of(port, old, [folder for folder in folders if folder])
    if record is None:
        raise RefusedError(
            f"job {old.id} has no launch record, so that its template and parameters are not known. Give "
            "--staging_location, or change machine_type in its launch spec and use 'headrace job update --force'"
        )
    details = port.job(old.id, details=True)
    running = "" if record.spec.environment.get("machine_type") else details.machine_type
    for name, value in sorted(details.in_flight.items()):
        common.say(f"{name}={value:g} was set in flight; the replacement has it too, unless another is given here")
    wish = wish.keeping(details.in_flight)
    resize = plan_resize(record.spec, wish, running_machine=running, force=arguments.force)
    _refuse_other_code(record, force=arguments.force)
    plan = UpdatePlan(old, resize.spec, "in_place", None, common.new_id(now))
    _explain(resize, to_stdout=arguments.dry_run and not arguments.json)
    new_record = LaunchRecord(
        launch_id=plan.launch_id,
        action="resize",
        spec=resize.spec,
        request=plan.request,
        provenance=record.provenance,
        launched_by=common.whoami(),
        launched_at=now.isoformat(timespec="seconds"),
        replaces=old.id,
    )
    code = finish(port, arguments, plan, new_record, {"resize": resize.as_json()})
    if not arguments.dry_run:
        common.say(f"put machine_type: {resize.after.machine.name} into the launch spec; the old one would undo this")
    return code


def _wish(arguments: Namespace) -> Wish:
    if arguments.machine_type and arguments.bigger:
        raise UsageError("give --machine_type or --bigger, not both")
    hint = arguments.utilization_hint
    if hint is not None and not 0.1 <= hint <= 0.9:
        raise UsageError(f"--utilization_hint is {hint:g}; the service takes 0.1 to 0.9")
    low, high = arguments.min_workers, arguments.max_workers
    if low and high and low > high:
        raise UsageError(f"--min_workers {low} is more than --max_workers {high}")
    wish = Wish(
        machine_type=arguments.machine_type,
        bigger=arguments.bigger,
        threads=arguments.harness_threads,
        one_process=True if arguments.one_process else None,
        min_workers=low,
        max_workers=high,
        utilization=hint,
    )
    if not wish.replaces and not wish.in_flight:
        raise UsageError("what is to change? Give --machine_type, --bigger, --harness_threads, --max_workers, …")
    return wish


def _explain(resize: Resize, *, to_stdout: bool) -> None:
    for line in resize.explain():
        if to_stdout:
            print(line)
        else:
            common.say(line)


def _refuse_other_code(record: LaunchRecord, *, force: bool) -> None:
    """A template that was built again under the same name is another program: that is an update, not a resize."""
    image = open_template(record.spec, where=f"the launch record of {record.spec.job_name}").image
    if image != record.provenance.image and not force:
        raise RefusedError(
            f"the template {record.spec.template} now names image {image}; the job was launched with "
            f"{record.provenance.image}. Use 'headrace job update' for other code, or give --force"
        )


def _in_flight(port: Dataflow, job: Job, wish: Wish, arguments: Namespace) -> int:
    if job.state != RUNNING or job.kind == "batch":
        raise RefusedError(
            f"{job.name} ({job.id}) is a {job.kind} job in state {job.state}: options can be changed in "
            "flight only for a streaming job that is RUNNING"
        )
    if arguments.dry_run:
        mask = ",".join(f"runtime_updatable_params.{name}" for name in sorted(wish.in_flight))
        if arguments.json:
            common.print_json({"dry_run": True, "job": job.as_json(), "options": wish.in_flight})
        else:
            print(f"would change options of job {job.id} ({job.name}) in flight, without replacing it:")
            print(f"PUT v1b3/projects/{job.project}/locations/{job.region}/jobs/{job.id}?updateMask={mask}")
            common.print_lines([(name, f"{value:g}") for name, value in sorted(wish.in_flight.items())])
        return 0
    after = port.change_options(job.id, wish.in_flight)
    common.say("a later update starts from the launch spec: put these into it too")
    if arguments.json:
        common.print_json({"job": after.as_json(), "options": wish.in_flight})
    else:
        changed = ", ".join(f"{name}={value:g}" for name, value in sorted(wish.in_flight.items()))
        common.print_lines([*common.job_lines(after), ("changed", f"{changed}  (in flight, not replaced)")])
    return 0
