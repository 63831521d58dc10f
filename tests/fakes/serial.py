"""A batch job carried out by calling its DoFns one after the other: what a runner does, without a runner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam

from pipeline.commands.prepare import prepare_run
from pipeline.jobs.batch import BatchJob
from pipeline.main import parse
from pipeline.transforms import files, names
from pipeline.transforms.build import BuildShard
from pipeline.transforms.dead_letters import WriteDeadLetters
from pipeline.transforms.plan import ReadPlan
from pipeline.transforms.publish import Commit, MergeStatistics, PublishShard, Settle

Process = Callable[..., Iterator[Any]]


def once(process: Process, *elements: Any) -> list[Any]:
    """A bundle that works."""
    return list(process(*elements))


def twice(process: Process, *elements: Any) -> list[Any]:
    """A bundle whose result is lost after its last step, and which is tried again."""
    list(process(*elements))
    return list(process(*elements))


def prepare(words: list[object]) -> BatchJob:
    """The job of ``headrace run WORDS``."""
    arguments, _ = parse(["run", *map(str, words)])
    job, _ = prepare_run(arguments, job_name=None)
    return job


def carry_out(job: BatchJob, attempt: Callable[..., list[Any]] = once) -> None:
    """Build, settle, publish, commit; ``attempt`` calls each DoFn."""
    try:
        _carry_out(job, attempt)
    finally:
        files.delete_folder(job.build.staging)


def _carry_out(job: BatchJob, attempt: Callable[..., list[Any]]) -> None:
    build = BuildShard(job.build, job.commit.run_id)
    build.setup()
    build.start_bundle()
    tagged: dict[str, list[Any]] = defaultdict(list)
    for task in attempt(ReadPlan(job.commit.plan_uri).process, b""):
        for output in attempt(build.process, task, job.transform):
            tagged[output.tag].append(output.value)
    write = WriteDeadLetters(job.archive)
    write.start_bundle()
    archives = [found for element in tagged[names.REJECTIONS] for found in attempt(write.process, element)]
    merge = MergeStatistics()
    statistics = merge.create_accumulator()
    for state in tagged[names.STATISTICS]:
        statistics = merge.add_input(statistics, state)
    gathered = {
        names.REPORTS: tagged[names.REPORTS],
        names.DEAD_LETTERS: archives,
        names.STATISTICS: [merge.extract_output(statistics)],
    }
    settled = attempt(Settle(job.commit).process, (None, gathered))
    accounts = next(output.value for output in settled if isinstance(output, beam.pvalue.TaggedOutput))
    shards = [output for output in settled if not isinstance(output, beam.pvalue.TaggedOutput)]
    publish = PublishShard(job.commit.run_folder)
    publish.start_bundle()
    entries = [entry for shard in shards for entry in attempt(publish.process, shard)]
    attempt(Commit(job.commit).process, (None, entries), accounts, job.transform)
