"""``headrace run``: the batch job, from arguments to a committed run and what is said of it."""

from __future__ import annotations

import json
import logging
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, redirect_stdout
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline.commands.beam_options import is_local, local_workers, make_pipeline, pipeline_options, scratch_folder
from pipeline.commands.learning import learnt
from pipeline.commands.prepare import Plan, prepare_run
from pipeline.commands.submitting import may_have_been_made, submit
from pipeline.console import size, watching
from pipeline.core.errors import GuardError, HeadraceError
from pipeline.core.manifest import Manifest
from pipeline.core.names import MANIFEST
from pipeline.core.progress import forget, progress_of
from pipeline.core.records import Json
from pipeline.jobs.batch import BatchJob, build_batch
from pipeline.logs import traces_held_back, was_interrupted, words_of
from pipeline.transforms import files
from pipeline.transforms.loading import load_ahead
from pipeline.transforms.processes import worker_processes
from pipeline.transforms.publish import OUTCOME, CommitSettings

_LOG = logging.getLogger(__name__)


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Run the job; 0 when it is committed (or, on a remote runner, submitted). Raises HeadraceError otherwise."""
    options = pipeline_options(beam_arguments, threads=arguments.threads)
    start = time.monotonic()
    with redirect_stdout(sys.stderr):  # where a preprocessing module may print; stdout holds the result and no more
        job, plan = prepare_run(arguments, job_name=options.get_all_options().get("job_name"))
        _announce(job, plan)
        job_id = _start(job, plan, options)
    if job_id is not None:
        print(json.dumps({"job_id": job_id, "run_id": job.commit.run_id}))
        return 0
    manifest_uri = files.join(job.commit.run_folder, MANIFEST)
    manifest = Manifest.from_json(files.read_bytes(manifest_uri), manifest_uri)
    _report(job, manifest, time.monotonic() - start, as_json=arguments.json)
    return 0


def _start(job: BatchJob, plan: Plan, options: PipelineOptions) -> str | None:
    """Run the job here, to its end; or submit it and return its id."""
    theirs = False  # whether the staging folder may be a submitted job's
    try:
        # Processes are forked first: nothing has used TensorFlow yet, whose threads a fork would lose.
        with (
            workers_of(job, plan, options) as processes,
            scratch_folder(options, job.build.staging) as scratch,
        ):
            job = learnt(job, plan, scratch=scratch) if is_local(options) else job
            pipeline = make_pipeline(options, in_processes=processes)
            build_batch(pipeline, job, scratch=scratch)
            if not is_local(options):
                theirs = True
                return submit(pipeline, project=options.get_all_options().get("project"))
            _run_locally(pipeline, job, plan)
    except BaseException as error:
        if theirs and may_have_been_made(error):
            _LOG.warning("the job may have been made all the same; what it needs is kept in %s", job.build.staging)
        else:
            theirs = False
        raise
    finally:
        if not theirs:
            files.delete_folder(job.build.staging)
    return None


def workers_of(job: BatchJob, plan: Plan, options: PipelineOptions) -> AbstractContextManager[bool]:
    """Worker processes for a local run with several workers; none where threads do, or must do, the work.

    A global shuffle would send its rows between processes. Connections to storage must not be forked.
    """
    inputs = {split.uri for task in plan.tasks for split in task.splits}
    places = [job.commit.output, job.archive.folder, job.transform or "", *inputs]
    here = job.build.shuffle != "global" and not any(map(files.is_remote, places))
    return worker_processes(
        min(local_workers(options), len(plan.tasks)) if here else 1,
        progress_key=job.commit.run_id,
        begin=partial(load_ahead, job.build, job.transform),
    )


def _announce(job: BatchJob, plan: Plan) -> None:
    _LOG.info(
        "run %s: %s in %d file(s), %d task(s) -> %s",
        job.commit.run_id,
        size(plan.total_bytes),
        plan.files,
        len(plan.tasks),
        job.commit.run_folder,
    )


def _run_locally(pipeline: beam.Pipeline, job: BatchJob, plan: Plan) -> None:
    key = job.commit.run_id
    try:
        with (
            watching(progress_of(key), title=f"run {key}", total_bytes=plan.total_bytes),
            traces_held_back(),
        ):
            pipeline.run().wait_until_finish()
    except Exception as error:
        _LOG.debug("the run failed", exc_info=True)
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        failed = HeadraceError(f"the pipeline failed, nothing was committed: {words_of(error)}")
        raise outcome_of(job.commit) or failed from error
    finally:
        forget(key)


def outcome_of(settings: CommitSettings) -> HeadraceError | None:
    """The refusal that settling left in the staging folder, if it did; runners hide the exception itself."""
    try:
        outcome = json.loads(files.read_bytes(files.join(settings.build.staging, OUTCOME)))
    except (FileNotFoundError, ValueError):
        return None
    kind = GuardError if outcome["exit_code"] == GuardError.exit_code else HeadraceError
    letters = files.list_folder(settings.dead_letter_folder)
    kept = f", dead letters are kept in {settings.dead_letter_folder}" if letters else ""
    return kind(f"{outcome['message']}; nothing was committed{kept}")


def summary_of(job: BatchJob, manifest: Manifest, seconds: float) -> Json:
    """What happened, as plain values."""
    counts = manifest.counts
    return {
        "run_id": manifest.run_id,
        "run_dir": job.commit.run_folder,
        "manifest": files.join(job.commit.run_folder, MANIFEST),
        "dead_letters": job.commit.dead_letter_folder if counts.dead_lettered else None,
        "rows_read": counts.read,
        "rows_written": counts.written,
        "rows_written_by_split": dict(counts.written_by_split),
        "rows_dead_lettered": counts.dead_lettered,
        "rows_dead_lettered_by_reason": dict(counts.dead_lettered_by_reason),
        "blank_lines": counts.blank,
        "shards": len(manifest.shards),
        "shard_bytes": sum(shard.size_bytes for shard in manifest.shards),
        "seconds": round(seconds, 2),
        "rows_per_second": round(counts.read / seconds) if seconds else None,
    }


def _report(job: BatchJob, manifest: Manifest, seconds: float, *, as_json: bool) -> None:
    summary = summary_of(job, manifest, seconds)
    if as_json:
        json.dump(summary, sys.stdout, indent=2)
        print()
        return
    for label, text in _lines(summary):
        print(f"{label:<15}{text}")


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    splits = ", ".join(f"{name} {rows:,}" for name, rows in summary["rows_written_by_split"].items())
    lines = [
        (
            "rows read",
            f"{summary['rows_read']:,}"
            + (f"  ({summary['blank_lines']:,} blank lines apart)" if summary["blank_lines"] else ""),
        ),
        ("rows written", f"{summary['rows_written']:,}  ({splits})"),
        ("dead letters", f"{summary['rows_dead_lettered']:,}"),
    ]
    lines += [("", f"{rows:,}  {reason}") for reason, rows in summary["rows_dead_lettered_by_reason"].items()]
    lines += [
        ("shards", f"{summary['shards']}  ({size(summary['shard_bytes'])})"),
        ("speed", f"{summary['rows_per_second']:,} rows/s, {summary['seconds']:.1f} s in all"),
        ("run", summary["run_dir"]),
    ]
    if summary["dead_letters"]:
        lines.append(("look at", f"headrace dlq summary {summary['dead_letters']}"))
    return lines
