"""The streaming graph is an API: its snapshot is golden, labels are written, options change values, not its shape."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from fakes.plays import Play, stream_settings

from pipeline.core.settings import InputSettings
from pipeline.jobs.streaming import StreamJob, build_stream
from pipeline.ops.graph import snapshot
from pipeline.transforms import names

GOLDEN = Path(__file__).parents[1] / "golden" / "streaming_graph.json"
_INTERNAL = re.compile(r"lambda|\.py|:\d+|<|>")


def graph_of(job: StreamJob) -> dict[str, Any]:
    """The snapshot of the graph of ``job``, as it would be submitted."""
    pipeline = beam.Pipeline(options=PipelineOptions(["--streaming"]))
    build_stream(pipeline, job)
    return snapshot(pipeline.to_runner_api())


@pytest.fixture
def job(tmp_path) -> StreamJob:
    """A job with every destination."""
    return Play(tmp_path).job()


def test_the_graph_is_the_golden_one(job):
    """A running job can be updated in place by this release, if the last one's graph is this one.

    Where a change is meant, write the file anew (the command is in the message), and give the name mapping.
    """
    found = json.dumps(graph_of(job), indent=1, sort_keys=True) + "\n"
    assert GOLDEN.read_text() == found, "if this is meant: python tests/jobs/test_streaming_graph.py"


def test_labels_state_and_timers_are_from_names_py(job):
    written = {value for key, value in vars(names).items() if key.isupper()}
    for step in graph_of(job)["steps"]:
        assert step["name"].split("/")[0] in written
        assert set(step["states"]) | set(step["timers"]) <= written


def test_no_two_steps_share_a_timer_id(job):
    """Beam's FnApiRunner keeps set timers under the bare id: all would go to one step, and the others lose theirs."""
    timers = [timer for step in graph_of(job)["steps"] for timer in step["timers"]]
    assert len(timers) > 8
    assert sorted(set(timers)) == sorted(timers)


def test_no_label_of_ours_holds_a_lambda_or_a_place_in_a_file(job):
    labels = [step["name"] for step in graph_of(job)["steps"]]
    assert [label for label in labels if _INTERNAL.search(label)] == []


def test_everything_that_waits_is_bytes_or_a_number_under_a_coder_of_the_model(job):
    for step in graph_of(job)["steps"]:
        kept = [*step["states"].values()]
        if step["stateful"]:
            kept += step["inputs"].values()
        for coder in kept:
            assert set(re.findall(r"\w+", coder)) <= {"kv", "bytes", "varint", "bag", "read_modify_write", "tuple"}, (
                coder
            )


def test_everything_is_in_the_global_window(job):
    for step in graph_of(job)["steps"]:
        assert step["windowing"] == "global_windows, trigger default { }, discarding, lateness 0 ms", step


OPTIONS = {
    "event_time_feature": (None, "x"),
    "batch_keys": (1, 100),
    "layout": ("rows", "blocks"),
    "shards_per_window": (1, 64),
    "window_seconds": (1, 86_400),
    "allowed_lateness_seconds": (0, 86_400),
    "redact_features": (frozenset(), frozenset({"x"})),
    "transform": (None, "gs://bucket/transform_fn"),
    "input": (InputSettings("json", b""), InputSettings("avro", b"")),
}


def jobs_of_many_kinds(folder: Path):
    """A job for each value of each option, for each choice of destinations, with and without attributes."""
    for name, values in OPTIONS.items():
        for value in values:
            more = {"avro_schema": '"string"'} if name == "input" else {}
            yield Play(folder, stream_settings(**{name: value}, **more)).job()
    for topic, archive, compression in itertools.product(("", "projects/p/topics/t"), (True, False), ("none", "gzip")):
        yield Play(folder, topic=topic, archive=archive, compression=compression).job()
    for timestamps, ids in itertools.product((None, "time"), (None, "id")):
        yield replace(Play(folder).job(), timestamp_attribute=timestamps, id_attribute=ids)


def test_options_change_values_and_never_the_shape(tmp_path, job):
    graph, tried = graph_of(job), 0
    for other in jobs_of_many_kinds(tmp_path):
        assert graph_of(other) == graph, other
        tried += 1
    assert tried > 25


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(graph_of(Play(Path("golden")).job()), indent=1, sort_keys=True) + "\n")
