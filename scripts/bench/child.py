"""One measured job in a process of its own: ``python -m bench.child JOB SETTINGS``, one JSON line as the result.

Three times are kept apart: imports, making the graph (planning included), and running it. The rate
of the table is over the last alone; the whole process is stated beside it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from bench.clock import Moment, peak_mb

Settings = dict[str, Any]
Steps = tuple[Callable[[], Any], Callable[[Any], int]]
"""What makes the job (an object with ``run``), and what says afterwards how many rows it read."""


def per_row(settings: Settings) -> Steps:
    """Peer 1."""
    import apache_beam as beam

    from bench import per_row as peer

    def build() -> beam.Pipeline:
        pipeline = beam.Pipeline(options=_one_worker())
        peer.build(pipeline, source=settings["source"], output=settings["output"])
        return pipeline

    return build, _rows_given(settings)


def canonical(settings: Settings) -> Steps:
    """Peer 2."""
    import apache_beam as beam

    from bench import canonical as peer

    def build() -> beam.Pipeline:
        pipeline = beam.Pipeline(options=_one_worker())
        names = ("source", "schema", "columns", "transform", "output", "temp")
        peer.build(pipeline, **{name: settings[name] for name in names})
        return pipeline

    return build, _rows_given(settings)


def canonical_analysis(settings: Settings) -> Steps:
    """The analysis that peer 2's transform comes from."""
    import apache_beam as beam

    from bench import canonical as peer

    def build() -> beam.Pipeline:
        pipeline = beam.Pipeline(options=_one_worker())
        names = ("source", "schema", "columns", "output", "temp")
        peer.build_analysis(pipeline, **{name: settings[name] for name in names})
        return pipeline

    return build, _rows_given(settings)


def run(settings: Settings) -> Steps:
    """``headrace run``."""
    from bench import ours

    return lambda: ours.ready_run(settings["arguments"]), ours.Ready.finished


def analyze(settings: Settings) -> Steps:
    """``headrace analyze``."""
    from bench import ours

    return lambda: ours.ready_analysis(settings["arguments"], rows=settings["rows"]), ours.Ready.finished


def read(settings: Settings) -> Steps:
    """tf.data over our shards, in one of the ways of ``reading.WAYS``; its graph time includes the warm-up."""
    from bench import reading

    return lambda: reading.Reading(**settings), lambda job: job.rows


def stream(settings: Settings) -> Steps:
    """Messages to shard bytes, in one of the ways of ``streaming.WAYS``; its graph time includes the warm-up."""
    from bench import streaming

    return lambda: streaming.Streaming(**settings), lambda job: job.rows


def stages(settings: Settings) -> Steps:
    """The build without Beam, one thread, each stage timed apart."""
    from bench.stages import StagedBuild

    def finish(job: StagedBuild) -> int:
        settings["result"] = {"stages": job.stages}
        return job.rows

    return lambda: StagedBuild(settings["arguments"]), finish


def summary(settings: Settings) -> Steps:
    """``headrace dlq summary``."""
    from bench import dead_letters

    return lambda: dead_letters.Summarising(**settings), lambda job: job.rows


def replay(settings: Settings) -> Steps:
    """``headrace dlq replay``, to a publisher that does nothing."""
    from bench import dead_letters

    return lambda: dead_letters.Replaying(**settings), lambda job: job.rows


JOBS = {
    job.__name__: job
    for job in (per_row, canonical, canonical_analysis, run, analyze, read, stream, stages, summary, replay)
}


def _rows_given(settings: Settings) -> Callable[[Any], int]:
    def rows(_: Any) -> int:
        return int(settings["rows"])

    return rows


def _one_worker() -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions(["--runner=FnApiRunner", "--direct_num_workers=1"])


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Do the job; seconds of each part, CPU seconds of all threads while it ran, peak memory, rows read."""
    start = Moment.now()
    build, finish = JOBS[name](settings)
    imported = Moment.now()
    job = build()
    built = Moment.now()
    result = job.run()
    if hasattr(result, "wait_until_finish"):
        result.wait_until_finish()
    done = Moment.now()
    peak = peak_mb()
    rows = finish(job)
    return {
        "rows": rows,
        "seconds": done.wall - built.wall,
        "cpu_seconds": done.cpu - built.cpu,
        "import_seconds": imported.wall - start.wall,
        "graph_seconds": built.wall - imported.wall,
        "peak_mb": peak,
        **settings.get("result", {}),
    }


def main() -> int:
    """Measure the job that the arguments name and print the result as the only line of stdout."""
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    stdout = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the result
    if name in ("run", "analyze", "stream", "stages"):
        from pipeline.logs import configure_logging

        configure_logging("text")  # as the command does: a library's chatter costs time too
    result = measure(name, settings)
    os.write(stdout, json.dumps(result).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
