"""Other machines for a running job: the same template and parameters, and what that does to memory, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.core.errors import RefusedError, UsageError
from pipeline.core.records import Json
from pipeline.ops.launch_spec import LaunchSpec
from pipeline.ops.machines import DEFAULT_MACHINE, DEFAULT_THREADS, ONE_PROCESS, Fit, bigger, fit, threads_that_fit

THREADS = "number_of_worker_harness_threads"


@dataclass(frozen=True)
class Wish:
    """What is asked for: a machine type or ``bigger``; threads a process; one process a worker; worker limits."""

    machine_type: str | None = None
    bigger: bool = False
    threads: int | None = None
    one_process: bool | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    utilization: float | None = None

    @property
    def replaces(self) -> bool:
        """Whether it takes a replacement of the job: worker limits are changed in flight."""
        return bool(self.machine_type or self.bigger or self.threads or self.one_process is not None)

    @property
    def in_flight(self) -> dict[str, int | float]:
        """The options that a running job takes."""
        given = {
            "min_num_workers": self.min_workers,
            "max_num_workers": self.max_workers,
            "worker_utilization_hint": self.utilization,
        }
        return {name: value for name, value in given.items() if value is not None}

    def keeping(self, in_flight: Mapping[str, float]) -> Wish:
        """The wish, and beside it what was changed in flight: a replacement starts from its launch, without that."""
        low, high = in_flight.get("min_num_workers"), in_flight.get("max_num_workers")
        return replace(
            self,
            min_workers=self.min_workers or (int(low) if low else None),
            max_workers=self.max_workers or (int(high) if high else None),
            utilization=self.utilization or in_flight.get("worker_utilization_hint") or None,
        )


@dataclass(frozen=True)
class Resize:
    """A resize as it is planned: memory before and after, and the spec of the replacement."""

    before: Fit
    after: Fit
    spec: LaunchSpec

    @property
    def gives_less(self) -> bool:
        """Whether an SDK process gets less memory than before."""
        return self.after.process_gb < self.before.process_gb - 1e-9

    def explain(self) -> Iterator[str]:
        """Before, after, and what it means."""
        yield f"now    {self.before}"
        yield f"then   {self.after}"
        was, will = self.before.process_gb, self.after.process_gb
        of_thread = self.after.thread_gb / self.before.thread_gb
        yield f"memory of a process: {was:.4g} GB -> {will:.4g} GB ({will / was:.3g}x); of a thread: {of_thread:.3g}x"
        if self.after.machine.vcpus != self.before.machine.vcpus and self.after.processes > 1:
            yield (
                "a worker runs one SDK process a vCPU: more vCPUs mean more processes, not more memory for each; "
                f"with {self.after.processes} processes consider other worker limits (--max_workers)"
            )

    def as_json(self) -> Json:
        """Plain values."""
        return {"before": _fit_json(self.before), "after": _fit_json(self.after)}


def _fit_json(one: Fit) -> Json:
    return {
        "machine_type": one.machine.name,
        "vcpus": one.machine.vcpus,
        "memory_gb": one.machine.memory_gb,
        "sdk_processes": one.processes,
        "threads_per_process": one.threads,
        "memory_per_process_gb": round(one.process_gb, 3),
        "memory_per_thread_mb": round(one.thread_gb * 1024),
    }


def plan_resize(spec: LaunchSpec, wish: Wish, *, running_machine: str = "", force: bool = False) -> Resize:
    """The spec with other machines. ``running_machine`` is what the job runs on, where the spec does not say.

    Raises UsageError for machine types that do not exist, RefusedError where a process would get less memory and
    ``force`` is not set, or where ``bigger`` finds nothing bigger.
    """
    before = fit_of(spec, running_machine=running_machine)
    name = before.machine.name
    wanted = wish.machine_type or (_bigger(before) if wish.bigger else name)
    one_process = has_one_process(spec) if wish.one_process is None else wish.one_process
    after = fit(wanted, threads=wish.threads or threads_of(spec), one_process=one_process)
    if wish.threads is None and after.thread_gb < before.thread_gb:
        after = Fit(after.machine, after.processes, threads_that_fit(before, after))
    resize = Resize(before, after, _changed(spec, wish, after, one_process))
    if resize.gives_less and not force:
        raise RefusedError(
            f"{wanted} gives each SDK process {after.process_gb:.4g} GB, less than the {before.process_gb:.4g} GB that "
            f"it has on {name}: a job that runs out of memory would do so sooner. Take a machine with more memory a "
            "vCPU (highmem), or give --force"
        )
    return resize


def refuse_less_memory(running: LaunchSpec, wanted: LaunchSpec) -> None:
    """Raise RefusedError where an update by ``wanted`` would take memory from the SDK processes of ``running``.

    A job that was resized and a launch spec that was not changed with it lead to this.
    """
    try:
        before, after = fit_of(running), fit_of(wanted)
    except UsageError:  # a machine type that is not in the table; the service knows it, or refuses it
        return
    if after.process_gb < before.process_gb - 1e-9:
        raise RefusedError(
            f"this update would give each SDK process {after.process_gb:.4g} GB ({after.machine.name}); the running "
            f"job has {before.process_gb:.4g} GB ({before.machine.name}). Was it resized? Then put its machine type "
            "into the launch spec, or give --accept_less_memory"
        )


def undone_in_flight(spec: LaunchSpec, in_flight: Mapping[str, float]) -> Iterator[str]:
    """What was changed while the job ran and ``spec`` does not say: its replacement starts without that."""
    options = [one.partition("=") for one in spec.environment.get("additional_experiments", ())]
    said = {name: value for name, _, value in options} | {"max_num_workers": str(spec.environment.get("max_workers"))}
    for name, value in sorted(in_flight.items()):
        if said.get(name) != f"{value:g}":
            yield f"{name} was set to {value:g} in flight; the new job goes by the launch spec, which does not say so"


def fit_of(spec: LaunchSpec, *, running_machine: str = "") -> Fit:
    """How ``spec`` uses its machines; ``running_machine`` is what the job runs on, where the spec does not say."""
    name = str(spec.environment.get("machine_type") or running_machine or DEFAULT_MACHINE[spec.pipeline])
    return fit(name, threads=threads_of(spec), one_process=has_one_process(spec))


def _bigger(before: Fit) -> str:
    found = bigger(before.machine.name)
    if found is None:
        raise RefusedError(
            f"{before.machine.name} has the most memory a vCPU of its family. Give --machine_type of another family, "
            f"or --one_process: one SDK process with all {before.machine.memory_gb:g} GB, which uses about one vCPU of "
            f"Python, or fewer --harness_threads"
        )
    return found


def _changed(spec: LaunchSpec, wish: Wish, after: Fit, one_process: bool) -> LaunchSpec:
    experiments = [
        option
        for option in spec.environment.get("additional_experiments", ())
        if option != ONE_PROCESS and option.split("=")[0] not in _replaced_options(wish)
    ]
    experiments += [ONE_PROCESS] if one_process else []
    experiments += [f"{name}={value}" for name, value in wish.in_flight.items() if name != "max_num_workers"]
    options = [one for one in spec.environment.get("additional_pipeline_options", ()) if not _is_threads(one)]
    if after.threads != DEFAULT_THREADS:
        options.append(f"{THREADS}={after.threads}")
    return spec.with_environment(
        machine_type=after.machine.name,
        max_workers=wish.max_workers or spec.environment.get("max_workers"),
        additional_experiments=experiments or None,
        additional_pipeline_options=options or None,
    )


def _replaced_options(wish: Wish) -> set[str]:
    return set(wish.in_flight) - {"max_num_workers"}


def _is_threads(option: str) -> bool:
    return option.removeprefix("--").split("=")[0] == THREADS


def has_one_process(spec: LaunchSpec) -> bool:
    """Whether workers run one SDK process each."""
    return ONE_PROCESS in spec.environment.get("additional_experiments", ())


def threads_of(spec: LaunchSpec) -> int | None:
    """Threads of an SDK process that the spec asks for; None where it does not. Raises UsageError for no number."""
    given = [
        one.partition("=")[2] for one in spec.environment.get("additional_pipeline_options", ()) if _is_threads(one)
    ]
    if not given:
        return None
    if not given[-1].isdigit() or int(given[-1]) < 1:
        raise UsageError(f"additional_pipeline_options: {THREADS}={given[-1]} is not a number of threads")
    return int(given[-1])
