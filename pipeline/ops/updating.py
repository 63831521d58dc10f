"""Replacing a running job by a new one: judged here, validated by the service, launched, followed to the end.

in_place: the new job takes over state and name of the old one (launched with ``update``).
parallel: a job under another name runs beside the old one for some minutes; then the service drains the old one.
drain: the old job finishes what it holds; then the new one is launched under the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from pipeline.core.errors import HeadraceError, RefusedError
from pipeline.core.records import Json
from pipeline.ops.compatibility import Verdict
from pipeline.ops.following import Follower, Say, Waiting, errors_of, says_valid
from pipeline.ops.launch_spec import LaunchSpec
from pipeline.ops.launching import launch_once, refuse_clash, wait_until_running
from pipeline.ops.port.api import RUNNING, ApiError, Dataflow, Job
from pipeline.ops.requests import (
    VALIDATE_GRAPH,
    check_name,
    launch_request,
    parallel_options,
    renamed,
    with_suffix,
)
from pipeline.ops.stopping import ask_to_stop

Before = Callable[[], None]


@dataclass(frozen=True)
class UpdatePlan:
    """What an update will do: the job that it replaces, the spec, the verdict, and the requests, in order."""

    old: Job
    spec: LaunchSpec
    strategy: str
    verdict: Verdict | None
    launch_id: str
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def validation(self) -> Json | None:
        """The request that lets the service check the graph without replacing anything; only in place needs it."""
        if self.strategy != "in_place":
            return None
        return launch_request(
            self.spec,
            launch_id=f"{self.launch_id}-check",  # not to be taken for the launch itself
            update=True,
            mapping=self.mapping,
            options=(VALIDATE_GRAPH,),
        )

    @property
    def request(self) -> Json:
        """The request that launches the new job."""
        if self.strategy == "in_place":
            return launch_request(self.spec, launch_id=self.launch_id, update=True, mapping=self.mapping)
        options: tuple[str, ...] = ()
        if self.strategy == "parallel":
            options = parallel_options(self.old.id, minutes=self.spec.update.parallel_minutes)
        return launch_request(self.spec, launch_id=self.launch_id, options=options)


def refuse_incompatible(verdict: Verdict, *, old: Job, force: bool) -> None:
    """Raise RefusedError (exit code 4) for a verdict that does not let an in-place update go ahead."""
    if verdict.kind == "incompatible" and not force:
        reasons = [f"  {reason}" for reason in verdict.reasons]
        raise RefusedError(
            "\n".join(
                [
                    f"the new graph cannot replace job {old.id}, which runs on; nothing was launched. Because:",
                    *reasons,
                    "Use --strategy=drain or --strategy=parallel for such a change",
                ]
            )
        )
    if verdict.proposal:
        lines = [f"    {old_name}: {new_name!r}" for old_name, new_name in verdict.proposal.items()]
        raise RefusedError(
            "\n".join(
                [
                    f"the new graph can replace job {old.id} only with a mapping of step names; nothing was launched.",
                    "Check this proposal, then put it into the launch spec, or give --accept_mapping:",
                    "update:",
                    "  transform_name_mapping:",
                    *lines,
                ]
            )
        )


def parallel_name(name: str) -> str:
    """The name of a job that runs beside ``name``: ``x`` to ``x-p2``, ``x-p2`` to ``x-p3``."""
    found = re.fullmatch(r"(.+)-p([0-9]{1,9})", name)
    return with_suffix(found[1], f"-p{int(found[2]) + 1}") if found else with_suffix(name, "-p2")


def carry_out(port: Dataflow, plan: UpdatePlan, *, waiting: Waiting, say: Say, before_launch: Before) -> Job:
    """Do it. Returns the new job, running; the old one is UPDATED, DRAINED, or about to be drained (parallel).

    ``before_launch`` is called just before the launch: it writes the launch record. Raises RefusedError where the
    service refuses, with its reasons and what has become of the old job.
    """
    if plan.strategy == "drain":
        return _drain_then_launch(port, plan, waiting, say, before_launch)
    if plan.strategy == "parallel":
        refuse_clash(port, plan.spec.job_name)
        before_launch()
        _refuse_changed(port, plan.old)
        job = launch_once(port, plan.request, waiting=waiting, say=say)
        return wait_until_running(port, job, waiting=waiting, say=say)
    assert plan.validation is not None  # in place
    _validate_graph(port, plan, plan.validation, waiting, say)
    before_launch()
    _refuse_changed(port, plan.old)
    job = launch_once(port, plan.request, waiting=waiting, say=say)
    return _follow_both(port, plan, job, waiting, say)


def _refuse_changed(port: Dataflow, old: Job) -> None:
    """Raise RefusedError where the job is not any more what the plan was made for: minutes may have passed since.

    An update replaces whatever runs under the name, which may by now be another operator's replacement.
    """
    now = port.job(old.id)
    if now.state != RUNNING:
        follower = f" by {now.replaced_by}" if now.replaced_by else ""
        raise RefusedError(
            f"job {old.id} was RUNNING when this was planned and is {now.state}{follower} now: somebody else changes "
            "it too. Nothing was launched; look at it and try again"
        )


def _validate_graph(port: Dataflow, plan: UpdatePlan, request: Json, waiting: Waiting, say: Say) -> None:
    say("validating the new graph against the running job (graph_validate_only: nothing is replaced)")
    job = launch_once(port, request, waiting=waiting, say=say)
    after = Follower(port, waiting, say).until(job.id, ())
    if after.state != "DONE" and not says_valid(port.messages(job.id, minimum="basic")):
        _refused(port, plan, after, "the service finds the new graph incompatible")


def _follow_both(port: Dataflow, plan: UpdatePlan, job: Job, waiting: Waiting, say: Say) -> Job:
    follower = Follower(port, waiting, say)
    after = follower.until(job.id, {RUNNING})
    if after.state != RUNNING:
        _refused(port, plan, after, "the service refused the update")
    old = follower.until(plan.old.id, (), from_now=True)
    if old.state != "UPDATED":
        raise HeadraceError(f"job {job.id} is running, but the old job {old.id} ended as {old.state}, not as UPDATED")
    if old.replaced_by and old.replaced_by != job.id:
        raise HeadraceError(
            f"job {job.id} is running, but the old job {old.id} was replaced by {old.replaced_by}: somebody else has "
            "updated it at the same time, and which of the two graphs runs on is for you to see"
        )
    return after


def _refused(port: Dataflow, plan: UpdatePlan, job: Job, what: str) -> NoReturn:
    """Raise RefusedError with the service's reasons and the state of the old job, which is looked up, not assumed."""
    try:
        old = port.job(plan.old.id)
        still = "still runs, unchanged" if old.state == RUNNING else f"is {old.state}"
    except ApiError as error:
        still = f"is in an unknown state ({error})"
    said = errors_of(port, job.id) or [f"it says nothing more; the replacement {job.id} ended as {job.state}"]
    raise RefusedError("\n  ".join([f"{what}; the old job {plan.old.id} {still}. The service says:", *said]))


def _drain_then_launch(port: Dataflow, plan: UpdatePlan, waiting: Waiting, say: Say, before_launch: Before) -> Job:
    """What can fail beforehand fails before the old job is stopped: the check of the launch, the record's writing."""
    port.validate(renamed(plan.request, check_name(plan.spec.job_name)))
    before_launch()
    _drain(port, plan.old, waiting, say)
    try:
        job = launch_once(port, plan.request, waiting=waiting, say=say)
        return wait_until_running(port, job, waiting=waiting, say=say)
    except HeadraceError as error:
        kind = RefusedError if isinstance(error, RefusedError) else HeadraceError
        raise kind(f"{error}\nThe old job {plan.old.id} is DRAINED; {_who_runs(port, plan.spec.job_name)}") from error


def _drain(port: Dataflow, old: Job, waiting: Waiting, say: Say) -> None:
    then = f"the new job was not launched; when {old.id} is DRAINED, start it with: headrace job launch"
    try:
        ask_to_stop(port, old.id, "DRAINED")
        ended = Follower(port, waiting, say).until(old.id, (), from_now=True)
    except KeyboardInterrupt:
        say(then)
        raise
    except HeadraceError as error:
        raise HeadraceError(f"{error}\n{then}") from error
    if ended.state != "DRAINED":
        raise HeadraceError(f"job {old.id} ended as {ended.state}, not as DRAINED; the new job was not launched")


def _who_runs(port: Dataflow, name: str) -> str:
    """What has become of the name after a failed launch: looked up, not assumed."""
    try:
        active = port.jobs(name=name, active=True)
    except ApiError as error:
        return f"whether anything runs under the name {name} is not known ({error})"
    if active:
        return f"under the name {name} job {active[0].id} is {active[0].state} now"
    return f"nothing runs under the name {name} now. When this is repaired, start it with: headrace job launch"
