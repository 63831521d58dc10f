"""``headrace stream``: a streaming job, submitted to Dataflow, or run on this machine until it is stopped."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions, TestOptions

from pipeline.commands import local_stream
from pipeline.commands.beam_options import is_local, make_pipeline, pipeline_options, runner_name
from pipeline.commands.prepare_stream import prepare_stream
from pipeline.commands.submitting import submit
from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.records import Json
from pipeline.jobs.streaming import StreamJob, build_stream
from pipeline.logs import words_of
from pipeline.readiness.stream import require_ready, wanted_of
from pipeline.transforms import files, names
from pipeline.transforms.tally import forget_totals, totals

_LOG = logging.getLogger(__name__)
_LINE_SECONDS = 10.0
INTERRUPTED = 130
"""The exit code after a second Ctrl-C, which does not wait for what is held back."""


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Submit the job and return, or run it here to its end; 0 unless it failed. Raises HeadraceError."""
    options = stream_options(beam_arguments)
    local = is_local(options)
    if local and arguments.id_attribute:
        raise UsageError(
            "--id_attribute: the local runner cannot drop repeated messages; leave it out, or use Dataflow"
        )
    if not local:
        check_remote(arguments)
    updating = bool(options.view_as(GoogleCloudOptions).update)
    job = prepare_stream(arguments, job_name=options.get_all_options().get("job_name"), updating=updating)
    _check_pubsub(arguments, options, local=local)
    if not local:
        _submit(job, options, as_json=arguments.json)
        return 0
    start = time.monotonic()
    try:
        counts = run_locally(job, options, duration=arguments.duration)
    except KeyboardInterrupt:
        _LOG.warning("stopped at once: messages that were taken and not yet written are lost")
        return INTERRUPTED
    summary = summary_of(job, counts, seconds=time.monotonic() - start)
    _print(summary, as_json=arguments.json)
    if summary["messages"] != summary["rows_written"] + summary["dead_letters"]:
        raise HeadraceError("the accounts do not balance: see the numbers above; this is a bug, please report it")
    return 0


def check_remote(arguments: Namespace) -> None:
    """Raise UsageError for what only this machine has, or can do."""
    if arguments.duration:
        raise UsageError("--duration is for local runs; end a job on Dataflow with 'headrace job drain'")
    for flag in ("output", "dead_letters", "transform"):
        folder = getattr(arguments, flag)
        if folder and not files.is_remote(folder):
            raise UsageError(
                f"--{flag} {folder}: workers elsewhere cannot see this machine's disk; give a gs:// folder"
            )


def stream_options(beam_arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options for a stream; the runner is the local one that can stream, unless another one is given.

    Raises UsageError for a local runner that cannot.
    """
    options = pipeline_options(beam_arguments, threads=1, default_runner=local_stream.NAME)
    if is_local(options) and runner_name(options) != local_stream.NAME:
        raise UsageError(
            f"--runner={runner_name(options)} cannot read Pub/Sub on this machine; leave --runner out (it is then "
            f"{local_stream.NAME}), or give --runner=DataflowRunner"
        )
    options.view_as(StandardOptions).streaming = True
    return options


def _check_pubsub(arguments: Namespace, options: PipelineOptions, *, local: bool) -> None:
    """Raise UsageError unless the job would find its subscription and topics; a dry run does not ask."""
    if not options.view_as(TestOptions).dry_run:
        account = options.view_as(GoogleCloudOptions).service_account_email
        require_ready(wanted_of(arguments, local=local, account=account))


def _submit(job: StreamJob, options: PipelineOptions, *, as_json: bool) -> None:
    """Start the job on a remote runner, and say where it is; nobody waits for a stream."""
    cloud = options.view_as(GoogleCloudOptions)
    cloud.job_name = job.settings.job
    pipeline = make_pipeline(options)
    build_stream(pipeline, job)
    job_id = submit(pipeline, project=cloud.project)
    url = f"https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{job_id}?project={cloud.project}"
    if as_json:
        print(json.dumps({"job_id": job_id, "job_name": job.settings.job, "url": url}))
    else:
        print(f"{'job':<15}{job_id}\n{'look at':<15}{url}")


def run_locally(job: StreamJob, options: PipelineOptions, *, duration: float | None) -> Json:
    """Run here until ``duration`` seconds are over or Ctrl-C is pressed, then to the end of what was taken.

    Returns the counters. Raises HeadraceError where the pipeline failed, KeyboardInterrupt at a second Ctrl-C.
    """
    stop = threading.Event()
    forget_totals()
    pipeline = beam.Pipeline(runner=local_stream.LocalStreamRunner(stop), options=options)
    build_stream(pipeline, job)
    _LOG.info("reading %s; windows go to %s; stop with Ctrl-C", job.settings.subscription, job.settings.output)
    result = pipeline.run()
    waiting = _Waiting(result)
    try:
        _watch(waiting, duration)
    except KeyboardInterrupt:
        _LOG.info("stopping: no more messages are taken, what is here is written; Ctrl-C again loses it")
    stop.set()
    waiting.join()
    if waiting.error is not None:
        _LOG.debug("the stream failed", exc_info=waiting.error)
        raise HeadraceError(
            f"the pipeline failed: {words_of(waiting.error)}\nmessages that were taken and not yet written are lost: "
            "the local runner acknowledges them before"
        ) from waiting.error
    return dict(totals())


class _Waiting:
    """Waits for a pipeline in a thread of its own: Beam's local runner tells of a failure only to who waits."""

    def __init__(self, result: Any) -> None:
        self.error: Exception | None = None
        self.done = threading.Event()
        threading.Thread(target=self._wait, args=(result,), daemon=True, name="stream").start()

    def _wait(self, result: Any) -> None:
        try:
            result.wait_until_finish()
        except Exception as error:  # handed over to the thread that asks
            self.error = error
        finally:
            self.done.set()

    def join(self) -> None:
        """Wait for the end, in steps, so that Ctrl-C is heard."""
        while not self.done.wait(1.0):
            pass


def _watch(waiting: _Waiting, duration: float | None) -> None:
    """Tell how it goes, until the pipeline has ended by itself or the time is over."""
    end = None if duration is None else time.monotonic() + duration
    while not waiting.done.is_set():
        left = _LINE_SECONDS if end is None else min(end - time.monotonic(), _LINE_SECONDS)
        if left <= 0:
            return
        if not waiting.done.wait(left):
            found = totals()
            _LOG.info(
                "%s messages, %s rows, %s refused, %s shards, %s manifests",
                *(
                    f"{found.get(name, 0):,}"
                    for name in (
                        names.MESSAGES_READ,
                        names.ROWS_WRITTEN,
                        names.ROWS_REJECTED,
                        names.SHARDS_WRITTEN,
                        names.WINDOWS_COMMITTED,
                    )
                ),
            )


def summary_of(job: StreamJob, counts: Json, *, seconds: float) -> Json:
    """What happened, as plain values."""
    prefix = names.REJECTED_PREFIX
    reasons = {
        name[len(prefix) :]: count for name, count in sorted(counts.items()) if name.startswith(prefix) and count
    }
    return {
        "messages": counts.get(names.MESSAGES_READ, 0),
        "rows_written": counts.get(names.ROWS_WRITTEN, 0),
        "dead_letters": counts.get(names.ROWS_REJECTED, 0),
        "dead_letters_by_reason": reasons,
        "dead_letters_published": counts.get(names.LETTERS_PUBLISHED, 0),
        "dead_letters_archived": counts.get(names.LETTERS_ARCHIVED, 0),
        "shards": counts.get(names.SHARDS_WRITTEN, 0),
        "shard_bytes": counts.get(names.BYTES_WRITTEN, 0),
        "manifests_written": counts.get(names.WINDOWS_COMMITTED, 0),
        "output": job.settings.output,
        "archive": job.letters.archive or None,
        "dead_letter_topic": job.letters.topic or None,
        "seconds": round(seconds, 2),
    }


def _print(summary: Json, *, as_json: bool) -> None:
    if as_json:
        json.dump(summary, sys.stdout, indent=2)
        print()
        return
    for label, text in _lines(summary):
        print(f"{label:<15}{text}")


def _lines(summary: Json) -> list[tuple[str, str]]:
    lines = [
        ("messages", f"{summary['messages']:,}"),
        ("rows written", f"{summary['rows_written']:,}"),
        ("dead letters", f"{summary['dead_letters']:,}"),
    ]
    lines += [("", f"{count:,}  {reason}") for reason, count in summary["dead_letters_by_reason"].items()]
    lines += [
        ("shards", f"{summary['shards']:,}, in {summary['output']}/window=*/"),
        ("look at", f"headrace verify {summary['output']}"),
    ]
    if summary["archive"] and summary["dead_letters"]:
        lines.append(("", f"headrace dlq summary {summary['archive']}"))
    return lines
