"""``headrace job status``: the state of a job, its counters, its latest warnings and errors."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands import job_common as common
from pipeline.core.text import printable
from pipeline.ops.targets import find_job

_MESSAGES, _TEXT = 10, 1000


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print it; 0, or 1 where the job has FAILED."""
    target = common.target_of(arguments)
    port = common.port_of(arguments, target.project, target.region)
    job = port.job(find_job(port, target.name).id, details=True)
    metrics = port.metrics(job.id)
    messages = port.messages(job.id)[-_MESSAGES:]
    if arguments.json:
        said = [
            {"time": one.time.isoformat(), "importance": one.importance, "text": printable(one.text, _TEXT)}
            for one in messages
        ]
        common.print_json(
            {
                "job": {**job.as_json(), "machine_type": job.machine_type or None, "labels": dict(job.labels)},
                "metrics": dict(sorted(metrics.items())),
                "messages": said,
            }
        )
    else:
        lines = common.job_lines(job)
        lines += [("machine type", job.machine_type)] if job.machine_type else []
        lines += [(printable(name, 40), f"{value:,.0f}") for name, value in sorted(metrics.items()) if len(name) < 40]
        lines += [(one.importance, f"{one.time:%H:%M:%S}  {printable(one.text, _TEXT)}") for one in messages]
        common.print_lines(lines)
    return 1 if job.state == "FAILED" else 0
