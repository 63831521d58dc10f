"""``headrace job list``: the jobs of a region, newest first."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from pipeline.commands import job_common as common


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print them; 0."""
    port = common.port_of(arguments, *common.place_of(arguments))
    jobs = port.jobs(active=not arguments.all)[: arguments.limit]
    if arguments.json:
        common.print_json({"jobs": [job.as_json() for job in jobs]})
        return 0
    for job in jobs:
        print(f"{job.id:<42}{job.state:<12}{job.kind:<11}{job.created:%Y-%m-%d %H:%M}  {job.name}")
    if not jobs:
        print(f"no {'' if arguments.all else 'active '}jobs in {port.project}, {port.region}")
    return 0
