"""A local analysis: one thread, so that what is learnt does not depend on how many there are."""

from __future__ import annotations

from dataclasses import replace

from pipeline.commands.beam_options import make_pipeline, pipeline_options
from pipeline.commands.prepare import Plan
from pipeline.console import watching
from pipeline.core.errors import HeadraceError
from pipeline.core.progress import forget, progress_of
from pipeline.core.settings import BuildSettings
from pipeline.jobs.batch import BatchJob, analyze, read_tasks
from pipeline.logs import traces_held_back, was_interrupted, words_of
from pipeline.transforms.analysis import AnalysisSettings


def learn(analysis: AnalysisSettings, build: BuildSettings, *, plan_uri: str, total_bytes: int, scratch: str) -> None:
    """Analyse the planned input here, to the end. Raises HeadraceError if that fails.

    TFT merges its quantile sketches in the order in which workers finish, and each order gives slightly different
    boundaries: with one thread the same input gives the same transform, and so the same shards.
    """
    key = f"{build.staging} learning"
    pipeline = make_pipeline(pipeline_options([], threads=1))
    analyze(read_tasks(pipeline, plan_uri), build, analysis, progress_key=key, scratch=scratch)
    try:
        with watching(progress_of(key), title="learning the transform", total_bytes=total_bytes), traces_held_back():
            pipeline.run().wait_until_finish()
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise HeadraceError(f"the analysis failed, nothing was written: {words_of(error)}") from error
    finally:
        forget(key)


def learnt(job: BatchJob, plan: Plan, *, scratch: str) -> BatchJob:
    """The job with its transform learnt, if it asked for an analysis."""
    if job.analysis is None:
        return job
    learn(job.analysis, job.build, plan_uri=job.commit.plan_uri, total_bytes=plan.total_bytes, scratch=scratch)
    return replace(job, transform=job.analysis.folder, analysis=None)
