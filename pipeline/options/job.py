"""The options of the commands that launch, change and watch jobs on Dataflow."""

from __future__ import annotations

from pipeline.options.data import GENERAL
from pipeline.options.kinds import Option, count, fraction, positive

SERVICE = (
    Option(
        "dataflow_endpoint",
        "Another host than Google's for the Dataflow API, as DATAFLOW_EMULATOR_HOST; a stand-in on this machine is "
        "spoken to without credentials. For tests.",
        metavar="HOST:PORT",
    ),
    Option("request_timeout", "Seconds that one request may take.", type=positive, default=60.0, metavar="S"),
)
PLACE = (
    Option("project", "The project of the job (default: the launch spec's, or GOOGLE_CLOUD_PROJECT).", metavar="ID"),
    Option(
        "region",
        "The region of the job (default: the launch spec's, or CLOUDSDK_DATAFLOW_REGION).",
        metavar="REGION",
    ),
)
DRY_RUN = (Option("dry_run", "Print what would be done, with the exact requests, and change nothing.", flag=True),)
WAIT = (
    Option("no_wait", "Do not wait until the job has got there; say what was started and leave.", flag=True),
    Option("wait_minutes", "How long to wait at most.", type=positive, default=60.0, metavar="MIN"),
    Option("poll_seconds", "Seconds between looks at the job.", type=positive, default=10.0, metavar="S"),
)
UPDATE = (
    Option(
        "strategy",
        "in_place: the new job takes over the state of the old one. parallel: both run side by side for "
        "update.parallel_minutes, then the old one is drained. drain: the old one ends first, then the new one starts. "
        "Default: the launch spec's update.strategy, or in_place.",
        choices=("in_place", "parallel", "drain"),
    ),
    Option(
        "transform_name_mapping",
        'Renamed steps as a JSON object, old name (or prefix) to new, "" for a removed step; added to the launch '
        "spec's update.transform_name_mapping.",
        metavar="JSON",
    ),
    Option("accept_mapping", "Use the mapping that is proposed for renamed and removed steps.", flag=True),
    Option(
        "accept_less_memory",
        "Go on although SDK processes would get less memory than in the running job, as after a resize.",
        flag=True,
    ),
    Option(
        "force",
        "Go on although the comparison here finds the graphs incompatible, or has nothing to compare with; the service "
        "still judges, and a refused update leaves the old job running.",
        flag=True,
    ),
)
RESIZE = (
    Option("machine_type", "The machine type that workers are to have, e.g. n2-highmem-4.", metavar="TYPE"),
    Option("bigger", "The next machine type of the same family and vCPUs with more memory.", flag=True),
    Option(
        "harness_threads",
        "Bundles that each SDK process works on at once: fewer need less memory (default: as they are, or fewer where "
        "they would get less memory each).",
        type=count,
        metavar="N",
    ),
    Option(
        "one_process",
        "One SDK process a worker, with all of its memory, instead of one a vCPU.",
        flag=True,
    ),
    Option("min_workers", "Fewest workers; without another machine, changed in flight.", type=count, metavar="N"),
    Option("max_workers", "Most workers; without another machine, changed in flight.", type=count, metavar="N"),
    Option(
        "utilization_hint",
        "CPU use that autoscaling aims at, 0.1 to 0.9; without another machine, changed in flight.",
        type=fraction,
        metavar="F",
    ),
    Option(
        "staging_location",
        "Where the job's launch record is, gs://… (default: the launch spec's, or where the job stages its files).",
        metavar="FOLDER",
    ),
    Option("force", "Accept less memory a process, or a template that has changed since the launch.", flag=True),
)
LIST = (Option("all", "Jobs that have ended too, not only active ones.", flag=True),)
LIMIT = (Option("limit", "How many to show at most.", type=count, default=50, metavar="N"),)

LAUNCH_OPTIONS = (*DRY_RUN, *WAIT, *SERVICE, *GENERAL)
UPDATE_OPTIONS = (*UPDATE, *DRY_RUN, *WAIT, *SERVICE, *GENERAL)
RESIZE_OPTIONS = (*RESIZE, *DRY_RUN, *PLACE, *WAIT, *SERVICE, *GENERAL)
STOP_OPTIONS = (*DRY_RUN, *PLACE, *WAIT, *SERVICE, *GENERAL)
STATUS_OPTIONS = (*PLACE, *SERVICE, *GENERAL)
LIST_OPTIONS = (*LIST, *LIMIT, *PLACE, *SERVICE, *GENERAL)
