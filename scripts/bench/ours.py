"""Our jobs, made by the same functions as the command line makes them, so that the run itself can be timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from bench.clock import note_worker_processes
from pipeline.commands.beam_options import make_pipeline, pipeline_options
from pipeline.commands.prepare import Plan, analysis_of, build_settings, plan_of, prepare_run, required_by_features
from pipeline.commands.run import workers_of
from pipeline.core.manifest import Manifest
from pipeline.core.names import MANIFEST
from pipeline.features.transformer import IdentityTransformer
from pipeline.jobs.batch import BatchJob, analyze, build_batch, read_tasks
from pipeline.main import parse
from pipeline.preflight import check_folder, open_sources
from pipeline.transforms import files
from pipeline.transforms.plan import write_plan


@dataclass(frozen=True)
class Ready:
    """A job that is planned and built. ``run`` does the work; ``finish`` cleans up and returns the rows read."""

    run: Callable[[], None]
    finish: Callable[[], int]

    def finished(self) -> int:
        """Call ``finish``."""
        return self.finish()


def planned(arguments: list[str]) -> tuple[BatchJob, Plan, PipelineOptions]:
    """The job that ``headrace run`` would start with these arguments, and the options of its pipeline."""
    namespace, rest = parse(["run", *arguments])
    job, plan = prepare_run(namespace, job_name=None)
    return job, plan, pipeline_options(rest, threads=namespace.threads)


def ready_run(arguments: list[str]) -> Ready:
    """``headrace run`` with these arguments. Its processes begin with the graph, as they do there."""
    job, plan, options = planned(arguments)
    stack = contextlib.ExitStack()
    pipeline = make_pipeline(options, in_processes=stack.enter_context(workers_of(job, plan, options)))
    build_batch(pipeline, job, scratch=f"{job.build.staging}/analysis")

    def run() -> None:
        with stack:
            pipeline.run().wait_until_finish()
            note_worker_processes()

    def finish() -> int:
        files.delete_folder(job.build.staging)
        uri = files.join(job.commit.run_folder, MANIFEST)
        return Manifest.from_json(files.read_bytes(uri), uri).counts.read

    return Ready(run, finish)


def ready_analysis(arguments: list[str], *, rows: int) -> Ready:
    """``headrace analyze`` with these arguments on an input of ``rows`` rows."""
    namespace, rest = parse(["analyze", *arguments])
    sources = open_sources(namespace)
    check_folder("output", namespace.output)
    sources = required_by_features(namespace, sources)
    analysis = analysis_of(namespace, sources, folder=namespace.output)
    assert analysis is not None  # --features is among the arguments
    staging = files.join(namespace.output, ".staging-benchmark")
    build = build_settings(namespace, sources, staging=staging)
    plan = plan_of(sources, build, features=IdentityTransformer(sources.schema).features, min_shards=1)
    plan_uri = files.join(staging, "plan.jsonl")
    write_plan(plan_uri, plan.tasks)
    pipeline = make_pipeline(pipeline_options(rest, threads=namespace.threads))
    analyze(read_tasks(pipeline, plan_uri), build, analysis, progress_key=staging, scratch=f"{staging}/analysis")

    def finish() -> int:
        files.delete_folder(staging)
        return rows

    return Ready(lambda: pipeline.run().wait_until_finish(), finish)
