"""``headrace analyze``: learn a transform from the train split and keep it, without writing shards."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout

from apache_beam.options.pipeline_options import PipelineOptions

from pipeline import preflight
from pipeline.commands.beam_options import is_local, make_pipeline, pipeline_options, scratch_folder
from pipeline.commands.learning import learn
from pipeline.commands.prepare import analysis_of, build_settings, plan_of, required_by_features
from pipeline.core.errors import UsageError
from pipeline.features.transformer import IdentityTransformer
from pipeline.jobs.batch import analyze, read_tasks
from pipeline.transforms import files
from pipeline.transforms.plan import write_plan


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Analyse and print where the transform is. Raises UsageError for bad settings, HeadraceError if it fails."""
    options = pipeline_options(beam_arguments, threads=arguments.threads)
    with redirect_stdout(sys.stderr):  # where a preprocessing module may print; stdout holds the result and no more
        job_id = _analyze(arguments, options)
    if job_id is not None:
        print(json.dumps({"job_id": job_id, "transform": arguments.output}))
    else:
        print(json.dumps({"transform": arguments.output}) if arguments.json else f"transform      {arguments.output}")
    return 0


def _analyze(arguments: Namespace, options: PipelineOptions) -> str | None:
    """Run the analysis here, to its end; or submit it and return its id."""
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
    submitted = False
    try:
        write_plan(plan_uri, plan.tasks)
        with scratch_folder(options, staging) as scratch:
            if is_local(options):
                learn(analysis, build, plan_uri=plan_uri, total_bytes=plan.total_bytes, scratch=scratch)
                return None
            pipeline = make_pipeline(options)
            analyze(read_tasks(pipeline, plan_uri), build, analysis, progress_key=staging, scratch=scratch)
            job_id = str(getattr(pipeline.run(), "job_id", lambda: "")())
            submitted = True  # from here on the staging folder is the job's
            return job_id
    finally:
        if not submitted:
            files.delete_folder(staging)
