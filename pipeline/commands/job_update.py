"""``headrace job update``: the running job is replaced by what the launch spec says now, or nothing happens."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from pipeline.commands import job_common as common
from pipeline.commands.job_graph import open_template, provenance_of
from pipeline.commands.job_records import record_of
from pipeline.core.errors import RefusedError
from pipeline.core.records import Json
from pipeline.ops.compatibility import Side, Verdict, compare
from pipeline.ops.differences import as_json, as_lines, differences
from pipeline.ops.launch_record import LaunchRecord, Provenance
from pipeline.ops.launch_spec import LaunchSpec
from pipeline.ops.mapping import load_name_mapping, parse_mapping
from pipeline.ops.port.api import Dataflow, Job
from pipeline.ops.requests import check_name, launch_request
from pipeline.ops.resizing import refuse_less_memory, undone_in_flight
from pipeline.ops.targets import replaceable
from pipeline.ops.updating import UpdatePlan, carry_out, parallel_name, refuse_incompatible


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Update and wait until the new job runs; 0. Raises RefusedError (exit code 4) where the job cannot be replaced."""
    spec = common.load_spec(arguments.spec)
    if spec.pipeline != "streaming":
        raise RefusedError(
            f"{arguments.spec}: a {spec.pipeline} job cannot be updated; launch it again when it has ended"
        )
    port = common.port_of(arguments, spec.project, spec.region)
    now = common.utc_now()
    old = replaceable(port, spec.job_name, now=now)
    provenance = provenance_of(spec, open_template(spec, where=arguments.spec))
    strategy = arguments.strategy or spec.update.strategy
    if arguments.transform_name_mapping:
        given = {**spec.update.transform_name_mapping, **parse_mapping(arguments.transform_name_mapping)}
        spec = replace(spec, update=replace(spec.update, transform_name_mapping=given))
    running = record_of(port, old, [spec.staging_location])
    changes = differences(running, spec, provenance) if running else ()
    for line in as_lines(changes):
        common.say(f"changes {line}")
    for caution in undone_in_flight(spec, port.job(old.id, details=True).in_flight):
        common.say(f"caution: {caution}")
    verdict = _verdict(running, arguments, spec, provenance, old) if strategy == "in_place" else None
    plan = _plan(spec, old, strategy, verdict, launch_id=common.new_id(now))
    record = LaunchRecord(
        launch_id=plan.launch_id,
        action="update",
        spec=plan.spec,
        request=plan.request,
        provenance=provenance,
        launched_by=common.whoami(),
        launched_at=now.isoformat(timespec="seconds"),
        replaces=old.id,
    )
    return finish(port, arguments, plan, record, {"changes": as_json(changes)})


def _verdict(
    record: LaunchRecord | None, arguments: Namespace, spec: LaunchSpec, provenance: Provenance, old: Job
) -> Verdict | None:
    """What the comparison with the running job's launch record says; None where there is nothing to compare with."""
    if record is None or record.provenance.graph is None or provenance.graph is None:
        if not arguments.force:
            raise RefusedError(
                f"job {old.id} has no launch record below {spec.staging_location}: was it launched by 'headrace job "
                "launch', with this staging_location? Without it the graphs cannot be compared here; --force leaves "
                "the judgement to the service alone"
            )
        common.say("no launch record: the service alone judges whether the graphs are compatible")
        return None
    if not arguments.accept_less_memory:
        refuse_less_memory(record.spec, spec)
    before = Side(record.provenance.graph, record.spec.place, record.spec.streaming_engine)
    version = spec.pipeline_option("update_compatibility_version") or ""
    after = Side(provenance.graph, spec.place, spec.streaming_engine, version)
    verdict = compare(before, after, mapping=spec.update.transform_name_mapping, known=load_name_mapping())
    if verdict.proposal and arguments.accept_mapping:
        verdict = replace(verdict, mapping={**verdict.mapping, **verdict.proposal}, proposal={})
    for caution in verdict.cautions:
        common.say(f"caution: {caution}")
    refuse_incompatible(verdict, old=old, force=arguments.force)
    return verdict


def _plan(spec: LaunchSpec, old: Job, strategy: str, verdict: Verdict | None, *, launch_id: str) -> UpdatePlan:
    if strategy == "parallel":
        spec = replace(spec, job_name=spec.update.new_job_name or parallel_name(spec.job_name))
        common.say(f"the new job is called {spec.job_name}: put that into the launch spec before the next update")
        common.say("both jobs read the same subscription while they run side by side: each message goes to one of them")
    given = spec.update.transform_name_mapping
    return UpdatePlan(old, spec, strategy, verdict, launch_id, dict(verdict.mapping if verdict else given))


def finish(
    port: Dataflow, arguments: Namespace, plan: UpdatePlan, record: LaunchRecord, extra: Json | None = None
) -> int:
    """Print the plan, or carry it out and print what became of it; 0."""
    if arguments.dry_run:
        port.validate(launch_request(replace(plan.spec, job_name=check_name(plan.spec.job_name)), launch_id="check"))
        _print_plan(plan, record, extra, as_json=arguments.json)
        return 0

    def write() -> None:
        common.write_record(record)

    waiting = common.waiting_of(arguments)
    job = carry_out(port, plan, waiting=waiting, say=common.say, before_launch=write)
    common.complete_record(record, job.id)
    old = port.job(plan.old.id)
    if arguments.json:
        common.print_json({**_plan_json(plan, extra), "job": job.as_json(), "old_job": old.as_json(), **_where(record)})
        return 0
    common.print_lines([*common.job_lines(job), ("old job", f"{old.id}  {old.state}"), ("launch record", record.uri)])
    return 0


def _where(record: LaunchRecord) -> Json:
    return {"launch_id": record.launch_id, "launch_record": record.uri}


def _plan_json(plan: UpdatePlan, extra: Json | None) -> Json:
    return {"strategy": plan.strategy, "verdict": plan.verdict.as_json() if plan.verdict else None, **(extra or {})}


def _print_plan(plan: UpdatePlan, record: LaunchRecord, extra: Json | None, *, as_json: bool) -> None:
    if as_json:
        requests = [request for request in (plan.validation, plan.request) if request]
        common.print_json(
            {"dry_run": True, "replaces": plan.old.as_json(), **_plan_json(plan, extra), "requests": requests}
            | _where(record)
        )
        return
    print(f"would replace job {plan.old.id} ({plan.old.name}, {plan.old.state}) by strategy {plan.strategy}")
    if plan.verdict:
        print(f"the graphs are {plan.verdict.kind}" + (f" with {dict(plan.mapping)}" if plan.mapping else ""))
    if plan.strategy == "drain":
        print(f"would first drain job {plan.old.id} and wait until it is DRAINED")
    if plan.validation:
        common.print_request("would first let the service validate the graph", plan.validation, plan.spec)
    common.print_request("would launch", plan.request, plan.spec)
    print(f"would write {record.uri}\nnothing was changed (--dry_run)")
