"""The local runner: threads that lose nothing, and flags that are Beam's."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment

from pipeline.commands.beam_options import is_local, make_pipeline, pipeline_options, split_known

_ELEMENTS = 800
_WORK = bytes(4 << 20)


class Emit(beam.DoFn):  # type: ignore[misc]
    """Emits 100 kB at a time for some seconds: Beam's own flush, once a second, would fall among the writes."""

    def process(self, task: int) -> Iterator[tuple[int, bytes]]:
        for number in range(_ELEMENTS):
            zlib.crc32(_WORK)  # some work without the interpreter lock, as between real outputs
            yield number % 7, bytes(100_000)


class Count(beam.DoFn):  # type: ignore[misc]
    """Counts a group."""

    def process(self, group: tuple[int, Iterable[bytes]]) -> Iterator[int]:
        yield sum(1 for _ in group[1])


def test_threads_flush_by_size_never_by_time() -> None:
    runner = make_pipeline(pipeline_options([], threads=2)).runner
    assert isinstance(runner, FnApiRunner)
    environment = runner._default_environment
    assert isinstance(environment, EmbeddedPythonGrpcEnvironment)
    assert environment.data_buffer_time_limit_ms > 24 * 3600 * 1000


def test_beams_own_threading_mode_is_replaced_when_asked_for() -> None:
    options = pipeline_options(["--direct_running_mode=multi_threading"], threads=2)
    environment = make_pipeline(options).runner._default_environment
    assert environment.data_buffer_time_limit_ms > 24 * 3600 * 1000


@pytest.mark.slow
def test_nothing_is_lost_between_threads() -> None:
    with make_pipeline(pipeline_options([], threads=2)) as pipeline:
        counts = (
            pipeline
            | "Create" >> beam.Create([0, 1])
            | "Spread" >> beam.Reshuffle()
            | "Emit" >> beam.ParDo(Emit())
            | "Group" >> beam.GroupByKey()
            | "Count" >> beam.ParDo(Count())
            | "Sum" >> beam.CombineGlobally(sum)
        )
        assert_that(counts, equal_to([2 * _ELEMENTS]))


def test_flags_that_nobody_knows_are_told_from_beams() -> None:
    unknown, known = split_known(["--num_workers=2", "--num_wrokers=2"])
    assert unknown == ["--num_wrokers=2"]
    assert "--num_workers" in known


def test_dataflow_is_not_waited_for() -> None:
    assert is_local(pipeline_options([], threads=1))
    assert not is_local(pipeline_options(["--runner=DataflowRunner"], threads=1))
