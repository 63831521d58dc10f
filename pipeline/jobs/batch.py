"""The batch graph: plan -> build shards -> settle -> publish -> commit; with an analysis in front where one is due."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam

from pipeline.core.records import Json
from pipeline.core.settings import BuildSettings
from pipeline.features.layouts import make_layout
from pipeline.transforms import names
from pipeline.transforms.analysis import AnalysisSettings, Analyze, spec_of
from pipeline.transforms.build import BuildShard, DecodeTrain, TransformRows, WriteBucket
from pipeline.transforms.dead_letters import ArchiveSettings, WriteDeadLetters
from pipeline.transforms.plan import ReadPlan
from pipeline.transforms.publish import Commit, CommitSettings, MergeStatistics, PublishShard, Settle

_TAGS = (names.REPORTS, names.STATISTICS, names.REJECTIONS, names.ROWS)


@dataclass(frozen=True)
class BatchJob:
    """All of a batch job. ``transform`` is an artefact to use, ``analysis`` one to make first; neither: rows as is.

    ``buckets`` is how many shards a global shuffle deals rows into.
    """

    commit: CommitSettings
    archive: ArchiveSettings
    transform: str | None = None
    analysis: AnalysisSettings | None = None
    buckets: int = 1

    @property
    def build(self) -> BuildSettings:
        """How shards are built."""
        return self.commit.build


def build_batch(root: beam.Pipeline, job: BatchJob, *, scratch: str) -> beam.PCollection:
    """Add the batch graph to ``root``; returns the URI of the committed manifest. ``scratch`` is for an analysis."""
    tasks = read_tasks(root, job.commit.plan_uri)
    artefact: Any = job.transform
    if job.analysis:
        analyzed = analyze(tasks, job.build, job.analysis, progress_key=job.commit.run_id, scratch=scratch)
        artefact = beam.pvalue.AsSingleton(analyzed)
    if job.build.shuffle == "global":
        built, parts = _build_globally(tasks, job, artefact)
    else:
        step = BuildShard(job.build, job.commit.run_id)
        built = tasks | names.BUILD_SHARD >> beam.ParDo(step, artefact).with_outputs(*_TAGS)
        parts = None
    archives = built[names.REJECTIONS] | names.WRITE_DEAD_LETTERS >> beam.ParDo(WriteDeadLetters(job.archive))
    gathered = _gather(built, parts, archives)
    settled = gathered | names.SETTLE >> beam.ParDo(Settle(job.commit)).with_outputs(names.ACCOUNTS, main="shards")
    return (
        settled["shards"]
        | names.SPREAD_SHARDS >> beam.Reshuffle()
        | names.PUBLISH_SHARD >> beam.ParDo(PublishShard(job.commit.run_folder, compression=job.build.compression))
        | names.KEY_SHARDS >> beam.Map(_under_one_key)
        | names.GATHER_SHARDS >> beam.GroupByKey()
        | names.COMMIT >> beam.ParDo(Commit(job.commit), beam.pvalue.AsSingleton(settled[names.ACCOUNTS]), artefact)
    )


def read_tasks(root: beam.Pipeline, plan_uri: str) -> beam.PCollection:
    """The tasks of the plan, spread over the workers."""
    return (
        root
        | names.PLAN >> beam.Impulse()
        | names.READ_PLAN >> beam.ParDo(ReadPlan(plan_uri))
        | names.SPREAD_TASKS >> beam.Reshuffle()
    )


def analyze(
    tasks: beam.PCollection, build: BuildSettings, analysis: AnalysisSettings, *, progress_key: str, scratch: str
) -> beam.PCollection:
    """Analyse the train split of the tasks; returns the artefact's folder, once it is complete.

    ``scratch`` is a folder that TensorFlow itself can write to, and that all workers see.
    """
    schema = build.input.load_schema()
    spec = spec_of(analysis.preprocessing)
    batches = tasks | names.DECODE_TRAIN >> beam.ParDo(DecodeTrain(build, progress_key, spec=spec))
    check = partial(_check_layout, build)
    return batches | names.ANALYZE >> Analyze(analysis, schema, temp_dir=scratch, check=check)


def _check_layout(build: BuildSettings, features: Json) -> None:
    """Raise UsageError where the layout cannot hold the outputs of the transform that is about to be made."""
    make_layout(build.layout, features=features, rows_per_record=build.rows_per_record)


def _build_globally(tasks: beam.PCollection, job: BatchJob, artefact: Any) -> tuple[Any, beam.PCollection]:
    step = TransformRows(job.build, job.commit.run_id, buckets=job.buckets)
    built = tasks | names.TRANSFORM_ROWS >> beam.ParDo(step, artefact).with_outputs(*_TAGS)
    parts = (
        built[names.ROWS]
        | names.GROUP_ROWS >> beam.GroupByKey()
        | names.WRITE_BUCKET >> beam.ParDo(WriteBucket(job.build), artefact)
    )
    return built, parts


def _gather(built: Any, parts: beam.PCollection | None, archives: beam.PCollection) -> beam.PCollection:
    """Everything that settling needs, under one key: small records only, never payload."""
    statistics = (
        built[names.STATISTICS] | names.MERGE_STATISTICS >> beam.CombineGlobally(MergeStatistics()).without_defaults()
    )
    keyed = {
        names.REPORTS: built[names.REPORTS] | names.KEY_REPORTS >> beam.Map(_under_one_key),
        names.DEAD_LETTERS: archives | names.KEY_DEAD_LETTERS >> beam.Map(_under_one_key),
        names.STATISTICS: statistics | names.KEY_STATISTICS >> beam.Map(_under_one_key),
    }
    if parts is not None:
        keyed[names.PARTS] = parts | names.KEY_PARTS >> beam.Map(_under_one_key)
    return keyed | names.GATHER >> beam.CoGroupByKey()


def _under_one_key(element: Any) -> tuple[None, Any]:
    return None, element
