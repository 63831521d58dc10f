"""What is measured: every job of the table, in what order, and how the table is made of their samples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.data import Inputs, columns
from bench.report import Comparison, Row, Sample, median, row_of, speedup

HERE = Path(__file__).resolve().parent
SCHEMA = str(HERE / "flights.pbtxt")
FEATURES = str(HERE / "features.yaml")
_READ_ROWS = {"one_by_one": 200_000, "batchwise": 2_000_000}


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


class Suite:
    """All measurements of one run of the benchmark."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._work = plan.work
        self._samples: dict[str, list[Sample]] = {}

    def run(self) -> list[Row]:
        """Measure everything, interleaved, and return the table."""
        analysis = self.prepare()
        jobs = self.jobs()
        for number in range(self._plan.repeat):
            # Each round starts with another job, so that none always runs on a machine that has just got busy.
            names = list(jobs)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                self.take(name, jobs[name], f"round {number + 1} of {self._plan.repeat}: {name}")
        for way in _READ_ROWS:
            self.take(f"read {way}", self._reading(way), f"tf.data, {way}")
        return [*self._table(), *self._information(analysis), help_row()]

    def profile(self) -> list[Sample]:
        """The stage profile, ``repeat`` times."""
        self.prepare(peer=False)
        source = self._plan.inputs.json_lines(self._plan.scale)
        for number in range(self._plan.repeat):
            self.take("stages", self._run("stages", source, threads=1), f"profile {number + 1}")
        return self._samples["stages"]

    def prepare(self, *, peer: bool = True) -> list[Sample]:
        """Make the data and both transforms; returns the sample of our analysis."""
        plan = self._plan
        plan.say("making the data")
        for scale in {1, plan.scale, plan.large} if peer else {plan.scale}:
            plan.inputs.json_lines(scale)
        source, folder = plan.inputs.json_lines(plan.scale), self._work / "transform"
        arguments = [*self._common(source, threads=1), f"--features={FEATURES}", f"--output={folder}"]
        settings = {"arguments": arguments, "rows": plan.rows * plan.scale}
        sample = self.take("analysis", Job("analyze", settings, folder, keep=True), "our analysis")
        if peer:
            plan.inputs.csv(plan.scale)
            plan.inputs.malformed(plan.scale)
            source, folder = plan.inputs.csv(1), self._work / "peer_transform"
            job = Job("canonical_analysis", self._canonical(source, folder, scale=1), folder, keep=True)
            self.take("peer analysis", job, "the peer's analysis")
        return [sample]

    def take(self, key: str, job: Job, what: str) -> Sample:
        """Measure ``job`` and keep its sample under ``key``."""
        sample = measure(job, logs=self._work / "logs")
        rate = sample["rows"] / sample["seconds"]
        self._plan.say(f"{what}: {sample['rows']:,} rows in {sample['seconds']:.1f} s, {rate:,.0f} rows/s")
        self._samples.setdefault(key, []).append(sample)
        return sample

    def jobs(self) -> dict[str, Job]:
        """What each round measures."""
        plan, inputs = self._plan, self._plan.inputs
        lines, large = inputs.json_lines(plan.scale), inputs.json_lines(plan.large)
        peer = self._work / "per_row"
        settings = {"source": str(lines), "output": str(peer), "rows": plan.rows * plan.scale}
        tft = self._work / "canonical"
        jobs = {
            "per_row": Job("per_row", settings, peer),
            "canonical": Job("canonical", self._canonical(inputs.csv(plan.scale), tft, scale=plan.scale), tft),
            "ours": self._run("run", lines, threads=1, keep=True),
            "malformed": self._run("run", inputs.malformed(plan.scale), threads=1),
            "large, 1 thread": self._run("run", large, threads=1),
            "large, all cores": self._run("run", large, threads=None),
        }
        if plan.scale != 1:
            jobs["scale 1"] = self._run("run", inputs.json_lines(1), threads=1)
        return jobs

    def _common(self, source: Path, *, threads: int | None) -> list[str]:
        threads_given = [f"--threads={threads}"] if threads else []
        return [f"--input={source}", f"--schema={SCHEMA}", *threads_given]

    def _run(self, name: str, source: Path, *, threads: int | None, keep: bool = False) -> Job:
        folder = self._work / ("ours" if keep else "ours_dropped")
        arguments = [
            *self._common(source, threads=threads),
            f"--transform={self._work / 'transform'}",
            f"--output={folder / 'out'}",
            f"--dead_letters={folder / 'dead'}",
        ]
        return Job(name, {"arguments": arguments}, folder, keep=keep)

    def _canonical(self, source: Path, output: Path, *, scale: int) -> dict[str, Any]:
        return {
            "source": str(source),
            "schema": SCHEMA,
            "columns": columns(),
            "transform": str(self._work / "peer_transform"),
            "output": str(output),
            "temp": str(self._work / "peer_temp"),
            "rows": self._plan.rows * scale,
        }

    def _reading(self, way: str) -> Job:
        return Job("read", {"way": way, "shards": str(self._work / "ours" / "out"), "limit": _READ_ROWS[way]})

    def _table(self) -> list[Row]:
        plan, taken = self._plan, self._samples
        ours, threads = taken["ours"], os.cpu_count() or 1
        small = taken.get("scale 1", ours)
        memory = median(taken["large, 1 thread"], "peak_mb") / median(small, "peak_mb")
        cores = speedup("1 thread", taken["large, all cores"], taken["large, 1 thread"], least=1.6)
        return [
            row_of("per-row Beam: json, checks, tf.Example; no transform", taken["per_row"]),
            row_of("canonical TFT: TFXIO, TransformDataset; no validation", taken["canonical"]),
            row_of(
                "ours: validation and TFT, rows layout, 1 thread",
                ours,
                [
                    speedup("per-row Beam", ours, taken["per_row"], least=10),
                    speedup("canonical TFT", ours, taken["canonical"], least=6),
                ],
            ),
            row_of(
                "ours, 1% malformed lines, 1 thread",
                taken["malformed"],
                [speedup("ours, clean", taken["malformed"], ours, least=0.7)],
            ),
            row_of(f"ours, {plan.large}x input, 1 thread", taken["large, 1 thread"]),
            row_of(f"ours, {plan.large}x input, all {threads} cores", taken["large, all cores"], [cores]),
            Row(
                f"ours, peak memory at {plan.large}x against 1x input",
                peak_mb=median(taken["large, 1 thread"], "peak_mb"),
                comparisons=(Comparison(f"{median(small, 'peak_mb'):,.0f} MB at 1x", memory, most=1.3),),
            ),
        ]

    def _information(self, analysis: Sequence[Sample]) -> list[Row]:
        taken = self._samples
        single, batched = taken["read one_by_one"], taken["read batchwise"]
        return [
            row_of("our TFT analysis pass, 1 thread", analysis),
            row_of("tf.data over our shards: parse_single_example", single),
            row_of(
                "tf.data over our shards: batch, then parse_example",
                batched,
                [speedup("parse_single_example", batched, single, least=None)],
            ),
        ]


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
    return Row("headrace --help", seconds=middle, comparisons=(bound,), all_seconds=tuple(seconds))
