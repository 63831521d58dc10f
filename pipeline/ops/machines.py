"""Compute Engine's machine types as far as Dataflow workers use them, and the memory that they give an SDK process.

On Dataflow's Runner v2 a worker runs one Python SDK process a vCPU, and each process works on several bundles at once,
in threads (12 unless ``number_of_worker_harness_threads`` says otherwise). What runs out when a job runs out of memory
is therefore memory per process: a machine with twice the vCPUs and twice the memory runs out just the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.core.errors import UsageError

DEFAULT_THREADS = 12
"""Bundles that a Python process on Runner v2 works on at once, unless told otherwise."""

ONE_PROCESS = "no_use_multiple_sdk_containers"
"""The experiment with which a worker runs one SDK process, whatever its vCPUs."""

DEFAULT_MACHINE = {"streaming": "n1-standard-2", "batch": "n1-standard-1", "replay": "n1-standard-1"}
"""What Dataflow takes where no machine type is given."""

_BY_16 = (2, 4, 8, 16, 32, 48, 64, 80, 96)
# family -> shape -> (GB a vCPU, sizes in vCPUs)
FAMILIES: Mapping[str, Mapping[str, tuple[float, Sequence[int]]]] = {
    "n1": {
        "standard": (3.75, (1, 2, 4, 8, 16, 32, 64, 96)),
        "highmem": (6.5, (2, 4, 8, 16, 32, 64, 96)),
        "highcpu": (0.9, (2, 4, 8, 16, 32, 64, 96)),
    },
    "n2": {
        "standard": (4, (*_BY_16, 128)),
        "highmem": (8, (*_BY_16, 128)),
        "highcpu": (1, _BY_16),
    },
    "n2d": {
        "standard": (4, (*_BY_16, 128, 224)),
        "highmem": (8, _BY_16),
        "highcpu": (1, (*_BY_16, 128, 224)),
    },
    "n4": {"standard": (4, _BY_16[:-1]), "highmem": (8, _BY_16[:-1]), "highcpu": (2, _BY_16[:-1])},
    "e2": {"standard": (4, (2, 4, 8, 16, 32)), "highmem": (8, (2, 4, 8, 16)), "highcpu": (1, (2, 4, 8, 16, 32))},
    "c2": {"standard": (4, (4, 8, 16, 30, 60))},
    "c2d": {
        "standard": (4, (2, 4, 8, 16, 32, 56, 112)),
        "highmem": (8, (2, 4, 8, 16, 32, 56, 112)),
        "highcpu": (2, (2, 4, 8, 16, 32, 56, 112)),
    },
    "c3": {
        "standard": (4, (4, 8, 22, 44, 88, 176)),
        "highmem": (8, (4, 8, 22, 44, 88, 176)),
        "highcpu": (2, (4, 8, 22, 44, 88, 176)),
    },
    "c3d": {
        "standard": (4, (4, 8, 16, 30, 60, 90, 180, 360)),
        "highmem": (8, (4, 8, 16, 30, 60, 90, 180, 360)),
        "highcpu": (2, (4, 8, 16, 30, 60, 90, 180, 360)),
    },
    "t2d": {"standard": (4, (1, 2, 4, 8, 16, 32, 48, 60))},
}
_EXCEPTIONS = {"n2-highmem-128": 864.0}  # GB; not vCPUs times the family's share
_CUSTOM = re.compile(r"(?:([a-z0-9]+)-)?custom-([1-9][0-9]{0,2})-([1-9][0-9]{2,6})(-ext)?")
_SHARED = {"f1-micro": 0.6, "g1-small": 1.7, "e2-micro": 1.0, "e2-small": 2.0, "e2-medium": 4.0}


@dataclass(frozen=True)
class Machine:
    """A machine type: its name, vCPUs, and memory in GB (2**30 bytes)."""

    name: str
    vcpus: int
    memory_gb: float


@dataclass(frozen=True)
class Fit:
    """What a machine gives to the work: ``processes`` SDK processes of ``threads`` bundles at once each."""

    machine: Machine
    processes: int
    threads: int

    @property
    def process_gb(self) -> float:
        """GB for each SDK process, before what the system and the shuffle take."""
        return self.machine.memory_gb / self.processes

    @property
    def thread_gb(self) -> float:
        """GB for each bundle that is worked on."""
        return self.process_gb / self.threads

    def __str__(self) -> str:
        return (
            f"{self.machine.name}: {self.machine.vcpus} vCPU, {self.machine.memory_gb:g} GB; {self.processes} SDK "
            f"process{'es' if self.processes > 1 else ''} of {self.process_gb:.4g} GB, {self.threads} threads each, "
            f"{self.thread_gb * 1024:,.0f} MB a thread"
        )


def machine(name: str) -> Machine:
    """The machine type called ``name``. Raises UsageError for one that does not exist, naming the family's sizes."""
    found = _CUSTOM.fullmatch(name)
    if found:
        return Machine(name, int(found[2]), int(found[3]) / 1024)
    if name in _SHARED:
        raise UsageError(f"machine type {name} shares its CPU with others; Dataflow does not take it for workers")
    family, _, rest = name.partition("-")
    shape, _, size = rest.partition("-")
    shapes = FAMILIES.get(family)
    if shapes is None:
        raise UsageError(f"machine type {name!r} is not in the table; known families: {', '.join(sorted(FAMILIES))}")
    share, sizes = shapes.get(shape, (0.0, ()))
    if size not in map(str, sizes):
        known = "; ".join(f"{family}-{one}-{{{','.join(map(str, many))}}}" for one, (_, many) in shapes.items())
        raise UsageError(f"there is no machine type {name!r}; {family} has {known}")
    return Machine(name, int(size), _EXCEPTIONS.get(name, share * int(size)))


def fit(name: str, *, threads: int | None, one_process: bool) -> Fit:
    """How the machine type called ``name`` would be used; ``threads`` None is Dataflow's default."""
    found = machine(name)
    return Fit(found, 1 if one_process else found.vcpus, threads or DEFAULT_THREADS)


def bigger(name: str) -> str | None:
    """The machine of the same family and vCPUs with the next more memory a vCPU; None where there is none."""
    found = machine(name)
    family = name.partition("-")[0]
    same_size = [
        machine(f"{family}-{shape}-{found.vcpus}")
        for shape, (_, sizes) in FAMILIES.get(family, {}).items()
        if found.vcpus in sizes
    ]
    more = sorted((one.memory_gb, one.name) for one in same_size if one.memory_gb > found.memory_gb)
    return more[0][1] if more else None


def threads_that_fit(before: Fit, after: Fit) -> int:
    """Threads a process on ``after`` so that each has at least the memory that it has on ``before``; at least 1."""
    return max(1, min(after.threads, int(after.process_gb / before.thread_gb + 1e-9)))
