"""``headrace dlq replay``: repair dead letters and send them again; without --execute, say what would happen."""

from __future__ import annotations

import json
import logging
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dlq_replay.archives import Damage
from dlq_replay.dry_run import DryRun, listed, run_dry
from dlq_replay.job import ReplayJob, build_replay
from dlq_replay.plan import write_archives
from dlq_replay.settings import ReplaySettings
from dlq_replay.store import NoStore, open_store
from dlq_replay.worker import Source, sender_of, system_clock
from pipeline import preflight
from pipeline.commands.beam_options import is_local, make_pipeline, pipeline_options
from pipeline.commands.dlq_letters import PEEKED, drain_of, peeking, reading
from pipeline.commands.dlq_prepare import NEWER, Prepared, prepare
from pipeline.commands.submitting import submit
from pipeline.console import watching
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import GuardError, HeadraceError, UsageError
from pipeline.core.names import run_folder
from pipeline.core.progress import forget, progress_of
from pipeline.core.records import Json
from pipeline.logs import silent_imports, traces_held_back, was_interrupted, words_of
from pipeline.transforms import files

_LOG = logging.getLogger(__name__)


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Try or make the replay; 0, or 3 where a part of an archive could not be read. Raises HeadraceError otherwise."""
    with redirect_stdout(sys.stderr):  # a fix module may print
        prepared = prepare(arguments, preflight.utc_now())
    if not arguments.execute:
        return _try(arguments, prepared)
    options = pipeline_options(beam_arguments, threads=prepared.settings.senders)
    if arguments.to_shards and not is_local(options):
        raise UsageError("--to_shards works on this machine; on a remote runner send the letters to a topic (--to)")
    if options.view_as(StandardOptions).streaming:
        return _submit_stream(arguments, prepared, options)
    if not is_local(options):
        _check_reachable(prepared.settings)
    job = _job(arguments, prepared)
    if prepared.settings.force:
        _LOG.warning("--force: letters that were replayed or parked before are sent again; consumers get them twice")
    if not is_local(options):
        return _submit(job, options)
    report = _make(job, prepared, options)
    if arguments.to_shards:
        from pipeline.commands.dlq_shards import run_rows

        run_rows(arguments, job, report)
    _print(report, job, as_json=arguments.json)
    return GuardError.exit_code if report["counts"]["damaged_parts"] else 0


def _try(arguments: Namespace, prepared: Prepared) -> int:
    with redirect_stdout(sys.stderr):
        dry = _tried(arguments, prepared)
    if arguments.json:
        print(json.dumps(dry.as_json()))
    else:
        print("\n".join(dry.lines()))
    return GuardError.exit_code if dry.tally.damaged else 0


def _tried(arguments: Namespace, prepared: Prepared) -> DryRun:
    settings, judge = prepared.settings, None
    if arguments.schema:
        with silent_imports():
            from pipeline.commands.dlq_judge import make_judge
        judge = make_judge(arguments, settings.start)
    dry = DryRun(
        settings,
        store=open_store(settings.places.ledger) if prepared.has_ledger else NoStore(),
        sender=sender_of(settings),
        open_file=files.open_read,
        clock=system_clock(),
        judge=judge,
    )
    dry.tally.skipped += Counter({NEWER: prepared.skipped} if prepared.skipped else {})
    with _items(arguments, prepared) as items:
        run_dry(dry, items)
    return dry


@contextmanager
def _items(arguments: Namespace, prepared: Prepared) -> Iterator[Iterator[DeadLetter | Damage]]:
    if prepared.subscription is None:
        with reading(prepared.archives, title="dry run") as items:
            yield items
        return
    drain = drain_of(arguments, prepared.subscription, most=PEEKED)
    with peeking(drain, start=prepared.settings.start) as peeked:
        yield peeked


def _job(arguments: Namespace, prepared: Prepared) -> ReplayJob:
    """The job, its list of archives written."""
    settings = prepared.settings
    if prepared.subscription is not None:
        source = Source(subscription=drain_of(arguments, prepared.subscription, most=None))
    else:
        source = Source(plan_uri=settings.places.plan(settings.replay_id))
        write_archives(source.plan_uri, [file.uri for file in prepared.archives])
    skipped = ((NEWER, prepared.skipped),) if prepared.skipped else ()
    return ReplayJob(settings, source, prepared.asked, skipped)


def _submit_stream(arguments: Namespace, prepared: Prepared, options: PipelineOptions) -> int:
    """Start a replay without an end. Raises UsageError for what only a bounded one can do."""
    settings = prepared.settings
    if prepared.subscription is None or is_local(options):
        raise UsageError("--streaming replays a subscription on Dataflow; leave it out to read what is there and end")
    bounded = [
        *(
            f"--{name}"
            for name in ("rate", "limit", "max_messages", "max_seconds", "to_shards")
            if getattr(arguments, name)
        ),
        *(f"--{name}" for name in settings.filters.as_json()),
        *(["--senders"] if settings.senders > 1 else []),
    ]
    if bounded:
        raise UsageError(
            f"with --streaming every letter is replayed as it comes: leave out {', '.join(bounded)}, or --streaming"
        )
    _check_reachable(settings)
    from dlq_replay.stream_job import StreamReplayJob, build_stream_replay

    pipeline = make_pipeline(options)
    build_stream_replay(pipeline, StreamReplayJob(replace(settings, park_left=True), prepared.subscription))
    job_id = submit(pipeline, project=options.get_all_options().get("project"))
    print(json.dumps({"job_id": job_id, "replay_id": settings.replay_id, "ledger": settings.places.ledger}))
    return 0


def _check_reachable(settings: ReplaySettings) -> None:
    """Raise UsageError where workers on other machines cannot reach the ledger."""
    if not files.is_remote(settings.root):
        raise UsageError(
            f"workers cannot reach {settings.root}, where the ledger would lie: on a remote runner archives (or "
            "--ledger) must be on gs://"
        )


def _submit(job: ReplayJob, options: PipelineOptions) -> int:
    pipeline = make_pipeline(options)
    build_replay(pipeline, job)
    job_id = submit(pipeline, project=options.get_all_options().get("project"))
    print(json.dumps({"job_id": job_id, "replay_id": job.settings.replay_id, "report": job.report_uri}))
    return 0


def _make(job: ReplayJob, prepared: Prepared, options: PipelineOptions) -> Json:
    """Run the job here, to its end; returns its report."""
    key = job.settings.replay_id
    forget(key)
    total = sum(file.size_bytes for file in prepared.archives)
    _LOG.info("replay %s, ledger %s", key, job.settings.places.ledger)
    try:
        with (
            watching(progress_of(key), title=f"replay {key}", total_bytes=total),
            traces_held_back(),
            redirect_stdout(sys.stderr),
        ):
            pipeline = make_pipeline(options)
            build_replay(pipeline, job)
            pipeline.run().wait_until_finish()
    except Exception as error:
        _LOG.debug("the replay failed", exc_info=True)
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise HeadraceError(
            f"the replay failed: {words_of(error)}\nWhat was sent is in the ledger; run it again with "
            f"--replay_id={key} to go on where it stopped"
        ) from error
    finally:
        forget(key)
    report: Json = json.loads(files.read_bytes(job.report_uri))
    return report


def _print(report: Json, job: ReplayJob, *, as_json: bool) -> None:
    if as_json:
        json.dump(report | {"report": job.report_uri}, sys.stdout)
        print()
        return
    counts = report["counts"]
    for damage in counts["damage"]:
        print(f"DAMAGED: {damage['archive']} at byte {damage['offset']}: {damage['what']} (the rest was read)")
    where = report["target"]["where"] or report["target"]["kind"]
    lines = [
        f"{'replayed':<20}{counts['replayed']:>12,}  to {where}; {counts['repaired']:,} repaired",
        f"{'parked':<20}{counts['parked']:>12,}" + (f"  in {report['parking']}" if counts["parked"] else ""),
        f"{'already done':<20}{counts['already_done']:>12,}",
        *listed("left", Counter(counts["left"])),
        *listed("repair not applied", Counter(counts["repairs_not_applied"])),
        *listed("not looked at", Counter(counts["not_looked_at"])),
    ]
    if "run_id" in report:
        run = files.join(job.settings.target.where, run_folder(report["run_id"]))
        lines.append(f"{'run':<20}{run}  ({report['refused_again']:,} rows were refused again)")
    lines.append(f"{'report':<20}{job.report_uri}")
    print("\n".join(lines))
