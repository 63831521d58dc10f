"""``headrace analyze``: learn a transform from the train split and keep it, without writing shards."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

import apache_beam as beam

from pipeline import preflight
from pipeline.commands.beam_options import is_local, make_pipeline, pipeline_options, scratch_folder
from pipeline.commands.prepare import analysis_of, build_settings, plan_of, required_by_features
from pipeline.console import watching
from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.progress import forget, progress_of
from pipeline.features.transformer import IdentityTransformer
from pipeline.jobs.batch import analyze, read_tasks
from pipeline.logs import traces_held_back, words_of
from pipeline.transforms import files
from pipeline.transforms.plan import write_plan


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Analyse and print where the transform is. Raises UsageError for bad settings, HeadraceError if it fails."""
    options = pipeline_options(beam_arguments, threads=arguments.threads)
    sources = preflight.open_sources(arguments)
    preflight.check_folder("output", arguments.output)
    sources = required_by_features(arguments, sources)
    analysis = analysis_of(arguments, sources, folder=arguments.output)
    if analysis is None:
        raise UsageError("there is nothing to learn: give --features or --preprocessing_module")
    staging = files.join(arguments.output, f".staging-{preflight.run_id_of(None, preflight.utc_now())}")
    build = build_settings(arguments, sources, staging=staging)
    plan = plan_of(sources, build, features=IdentityTransformer(sources.schema).features, min_shards=1)
    plan_uri = files.join(staging, "plan.jsonl")
    write_plan(plan_uri, plan.tasks)
    with scratch_folder(options, staging) as scratch:
        pipeline = make_pipeline(options)
        analyze(read_tasks(pipeline, plan_uri), build, analysis, progress_key=staging, scratch=scratch)
        if not is_local(options):
            job = pipeline.run()
            print(json.dumps({"job_id": getattr(job, "job_id", lambda: "")(), "transform": arguments.output}))
            return 0
        _run_locally(pipeline, staging, output=arguments.output, total_bytes=plan.total_bytes)
    print(json.dumps({"transform": arguments.output}) if arguments.json else f"transform      {arguments.output}")
    return 0


def _run_locally(pipeline: beam.Pipeline, staging: str, *, output: str, total_bytes: int) -> None:
    try:
        with watching(progress_of(staging), title="analyze", total_bytes=total_bytes), traces_held_back():
            pipeline.run().wait_until_finish()
    except Exception as error:
        raise HeadraceError(f"the analysis failed, nothing was written to {output}: {words_of(error)}") from error
    finally:
        forget(staging)
        files.delete_folder(staging)
