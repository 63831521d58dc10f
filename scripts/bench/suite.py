"""What is measured: every job of the table, what it needs, and in what order."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import dead_letters
from bench.data import Inputs, columns
from bench.report import Comparison, Row, Sample
from bench.table import lines, select

HERE = Path(__file__).resolve().parent
SCHEMA = str(HERE / "flights.pbtxt")
FEATURES = str(HERE / "features.yaml")
LAYOUTS = ("rows", "packed", "blocks")
HELP = "headrace --help"
READ_SECONDS, WARM_UP_SECONDS = 4.0, 2.0
STREAM_SECONDS, STREAM_MESSAGES = 3.0, 50_000
BATCHES = (1000, 100, 10, 1)
_LONG_ROUNDS = 2  # the peers and the large inputs take most of the time, and vary least
_ALL = re.compile("")


class MeasurementError(Exception):
    """A measured job failed; the message holds the end of what it wrote to stderr."""


@dataclass(frozen=True)
class Job:
    """A job to measure: its name in ``bench.child``, its settings, where its output goes (deleted after each run)."""

    name: str
    settings: dict[str, Any]
    output: Path | None = None
    keep: bool = False


@dataclass(frozen=True)
class Plan:
    """How much is measured: ``scale`` and ``large`` times the flights, ``repeat`` times; at most ``rows`` flights."""

    work: Path
    rows: int
    scale: int
    large: int
    repeat: int
    say: Callable[[str], None] = field(repr=False)

    @property
    def inputs(self) -> Inputs:
        """The data files."""
        return Inputs(self.work / "data", self.rows)


def measure(job: Job, *, logs: Path) -> Sample:
    """Run a job in a process of its own. Raises MeasurementError if it fails."""
    if job.output and job.output.exists():
        shutil.rmtree(job.output)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{job.name}-{time.time_ns()}.log"
    command = [sys.executable, "-m", "bench.child", job.name, json.dumps(job.settings)]
    paths = [str(HERE.parent), str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "2"}
    start = time.perf_counter()
    with log.open("wb") as stderr:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        end = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise MeasurementError(f"the job {job.name} failed (exit code {done.returncode}):\n{end}")
    log.unlink()
    if job.output and job.output.exists() and not job.keep:
        shutil.rmtree(job.output)
    return {**json.loads(done.stdout), "process_seconds": seconds}


@dataclass(frozen=True)
class Step:
    """How to make a job, once what it ``needs`` has been measured, and in how many rounds at most it takes part."""

    make: Callable[[], Job]
    needs: tuple[str, ...] = ()
    rounds: int | None = None


class Suite:
    """The measurements of one run of the benchmark: those that the lines in whose names ``only`` is found need."""

    def __init__(self, plan: Plan, only: re.Pattern[str] = _ALL) -> None:
        self._plan = plan
        self._work = plan.work
        self._lines = select(lines(scale=plan.scale, large=plan.large), only)
        self._help = bool(only.search(HELP))
        self._samples: dict[str, list[Sample]] = {}

    def run(self) -> list[Row]:
        """Measure everything, interleaved, and return the table."""
        steps, shown = self.steps(), {key for line in self._lines for key in line.keys}
        wanted = _with_needs(shown, steps)
        for number in range(self._plan.repeat):
            names = [name for name in wanted if number < _rounds(steps[name], shown=name in shown)]
            # Each round starts with another job, so that none always runs on a machine that has just got busy.
            turn = number % max(1, len(names))
            for name in names[turn:] + names[:turn]:
                self.take(name, steps[name].make(), f"round {number + 1} of {self._plan.repeat}: {name}")
        return [*(line.row(self._samples) for line in self._lines), *([help_row()] if self._help else [])]

    def profile(self) -> list[Sample]:
        """The stage profile, ``repeat`` times."""
        self.take("analysis", self._analysis(), "our analysis")
        job = replace(self._ours("profile", self._lines_at(self._plan.scale)), name="stages")
        for number in range(self._plan.repeat):
            self.take("stages", job, f"profile {number + 1}")
        return self._samples["stages"]

    def take(self, key: str, job: Job, what: str) -> Sample:
        """Measure ``job`` and keep its sample under ``key``."""
        sample = measure(job, logs=self._work / "logs")
        rate = sample["rows"] / sample["seconds"]
        self._plan.say(f"{what}: {sample['rows']:,} rows in {sample['seconds']:.1f} s, {rate:,.0f} rows/s")
        self._samples.setdefault(key, []).append(sample)
        return sample

    def steps(self) -> dict[str, Step]:
        """All that can be measured, in the order of a round: what is needed stands before what needs it."""
        plan, inputs, ready = self._plan, self._plan.inputs, ("analysis",)
        source, large = self._lines_at(plan.scale), self._lines_at(plan.large)
        steps = {
            "analysis": Step(self._analysis, rounds=1),
            "peer analysis": Step(self._peer_analysis, rounds=1),
            "per_row": Step(self._per_row, rounds=_LONG_ROUNDS),
            "canonical": Step(self._peer, ("peer analysis",), rounds=_LONG_ROUNDS),
        }
        for layout in LAYOUTS:
            steps[layout] = Step(partial(self._ours, layout, source, layout=layout, keep=True), ready)
        steps["malformed"] = Step(partial(self._ours, "dropped", partial(inputs.malformed, plan.scale)), ready)
        steps["scale 1"] = Step(partial(self._ours, "dropped", self._lines_at(1)), ready, rounds=1)
        for layout in ("rows", "blocks"):
            for name, threads in (("1 thread", 1), ("all cores", None)):
                make = partial(self._ours, "dropped", large, layout=layout, threads=threads)
                steps[f"large {layout}, {name}"] = Step(make, ready, _LONG_ROUNDS)
        steps["stream per_row"] = Step(partial(self._streaming, "per_row", BATCHES[0]), ready)
        for batch in BATCHES:
            steps[f"stream {batch}"] = Step(partial(self._streaming, "ours", batch), ready)
        for way in ("one_by_one", "batchwise"):
            steps[f"read {way}"] = Step(partial(self._reading, way, "rows"), ("rows",), _LONG_ROUNDS)
        for layout in LAYOUTS:
            steps[f"read {layout}"] = Step(partial(self._reading, "ours", layout), (layout,), _LONG_ROUNDS)
        for name, make in dead_letters.jobs(self._work, inputs, plan.large).items():
            steps[name] = Step(partial(_named_job, make), rounds=_LONG_ROUNDS)
        return steps

    def _lines_at(self, scale: int) -> Callable[[], Path]:
        return partial(self._plan.inputs.json_lines, scale)

    def _common(self, source: Path, *, threads: int | None) -> list[str]:
        threads_given = [f"--threads={threads}"] if threads else []
        return [f"--input={source}", f"--schema={SCHEMA}", *threads_given]

    def _analysis(self) -> Job:
        plan, folder = self._plan, self._work / "transform"
        source = self._plan.inputs.json_lines(plan.scale)
        arguments = [*self._common(source, threads=1), f"--features={FEATURES}", f"--output={folder}"]
        return Job("analyze", {"arguments": arguments, "rows": plan.rows * plan.scale}, folder, keep=True)

    def _ours(
        self,
        folder: str,
        source: Callable[[], Path],
        *,
        layout: str = "rows",
        threads: int | None = 1,
        keep: bool = False,
    ) -> Job:
        output = self._work / "ours" / folder
        arguments = [
            *self._common(source(), threads=threads),
            f"--layout={layout}",
            f"--transform={self._work / 'transform'}",
            f"--output={output / 'out'}",
            f"--dead_letters={output / 'dead'}",
        ]
        return Job("run", {"arguments": arguments}, output, keep=keep)

    def _per_row(self) -> Job:
        plan, output = self._plan, self._work / "per_row"
        source = plan.inputs.json_lines(plan.scale)
        return Job("per_row", {"source": str(source), "output": str(output), "rows": plan.rows * plan.scale}, output)

    def _peer_analysis(self) -> Job:
        folder = self._work / "peer_transform"
        return Job("canonical_analysis", self._canonical(folder, scale=1), folder, keep=True)

    def _peer(self) -> Job:
        output = self._work / "canonical"
        return Job("canonical", self._canonical(output, scale=self._plan.scale), output)

    def _canonical(self, output: Path, *, scale: int) -> dict[str, Any]:
        return {
            "source": str(self._plan.inputs.csv(scale)),
            "schema": SCHEMA,
            "columns": columns(),
            "transform": str(self._work / "peer_transform"),
            "output": str(output),
            "temp": str(self._work / "peer_temp"),
            "rows": self._plan.rows * scale,
        }

    def _reading(self, way: str, layout: str) -> Job:
        shards = str(self._work / "ours" / layout / "out")
        return Job("read", {"way": way, "shards": shards, "seconds": READ_SECONDS, "warm_up": WARM_UP_SECONDS})

    def _streaming(self, way: str, batch: int) -> Job:
        settings = {
            "way": way,
            "source": str(self._plan.inputs.json_lines(1)),
            "messages": STREAM_MESSAGES,
            "schema": SCHEMA,
            "transform": str(self._work / "transform"),
            "batch": batch,
            "seconds": STREAM_SECONDS,
            "warm_up": WARM_UP_SECONDS,
        }
        return Job("stream", settings)


def _named_job(make: Callable[[], tuple[str, dict[str, Any]]]) -> Job:
    return Job(*make())


def _with_needs(names: set[str], steps: dict[str, Step]) -> list[str]:
    """``names`` and what they need, in the order of ``steps``."""
    found = set(names)
    for name in reversed(steps):
        if name in found:
            found.update(steps[name].needs)
    return [name for name in steps if name in found]


def _rounds(step: Step, *, shown: bool) -> float:
    """In how many rounds a step takes part: in one alone if nothing but other steps wants it."""
    return (step.rounds or math.inf) if shown else 1


def help_row() -> Row:
    """Wall time of ``headrace --help`` as typed: the median of five."""
    command = Path(sys.executable).with_name("headrace")
    words = [str(command)] if command.exists() else [sys.executable, "-m", "pipeline.main"]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([*words, "--help"], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - start)
    middle = sorted(seconds)[2]
    bound = Comparison("0.5 s", middle / 0.5, most=1.0)
    return Row(HELP, seconds=middle, comparisons=(bound,), all_seconds=tuple(seconds))
