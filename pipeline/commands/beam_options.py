"""Our options as Beam pipeline options, and the line between flags that are Beam's and flags that are nobody's."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, _BeamArgumentParser
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment

from pipeline.core.errors import UsageError
from pipeline.options import data, dlq, kinds, stream
from pipeline.transforms import files

_LOCAL = "FnApiRunner"
LOCAL_RUNNERS = (_LOCAL, "BundleBasedDirectRunner", "DirectRunner", "PrismRunner")
_NEVER_MS = 30 * 24 * 3600 * 1000  # longer than any local run


class HeadraceOptions(PipelineOptions):  # type: ignore[misc]
    """Every flag of the commands that are jobs as a pipeline option, so that a flex template's parameters are the same.

    ``--dry_run`` is Beam's own; ``dlq replay`` takes it for itself.
    """

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        jobs = (*dlq.REPLAY_OPTIONS, *stream.STREAM_OPTIONS, *data.RUN_OPTIONS)
        named = {option.name: option for option in jobs if option.name != "dry_run"}
        kinds.add_options(parser, named.values(), enforce=False)


def split_known(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments that no class of Beam options knows, and all flags that some class does know."""
    parser = _BeamArgumentParser(allow_abbrev=False)
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        if options is not HeadraceOptions:
            options._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return unknown, flags


def pipeline_options(
    beam_arguments: Sequence[str], *, threads: int | None, default_runner: str = _LOCAL
) -> PipelineOptions:
    """Options for a run: Beam's as given, and for a local run FnApiRunner with ``threads`` workers (default: cores).

    ``DirectRunner`` is a switch that may fetch another runner; a local run names its runner.
    """
    given = {argument.split("=", 1)[0] for argument in beam_arguments}
    flags = list(beam_arguments)
    if "--runner" not in given:
        flags.append(f"--runner={default_runner}")
    if "--direct_num_workers" not in given:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        flags.append(f"--direct_num_workers={threads or cores or 1}")
    return PipelineOptions(flags)


def make_pipeline(options: PipelineOptions, *, in_processes: bool = False) -> beam.Pipeline:
    """A pipeline for ``options``. FnApiRunner works in threads, whose outputs are flushed by size, never by time.

    One thread is enough for a run that has processes to do its work (``in_processes``, ``transforms.processes``).
    Beam's own ``--direct_running_mode=multi_threading`` must not be used: once a second a timer thread flushes the
    outputs of a bundle (data_plane.TimeBasedBufferingClosableOutputStream), without a lock against the thread that
    is writing to them; what is written between its get() and its clear() is lost without a word (seen with
    apache-beam 2.77.0: some of 600 elements missing after a GroupByKey in most runs with two workers).
    """
    direct = options.view_as(DirectOptions)
    if runner_name(options) != _LOCAL or direct.direct_running_mode == "multi_processing":
        try:
            return beam.Pipeline(options=options)
        except ValueError as error:  # an unknown runner, or options that the runner needs
            raise UsageError(f"Beam refuses the options: {error}") from error
    direct.direct_running_mode = "in_memory"
    if in_processes:
        direct.direct_num_workers = 1
    if direct.direct_num_workers == 1:
        return beam.Pipeline(options=options)
    threads = EmbeddedPythonGrpcEnvironment(data_buffer_time_limit_ms=_NEVER_MS)
    return beam.Pipeline(runner=FnApiRunner(default_environment=threads), options=options)


def local_workers(options: PipelineOptions) -> int:
    """How many workers a run in our own way has (``make_pipeline``); 1 for another runner, or a mode of Beam's."""
    direct = options.view_as(DirectOptions)
    ours = runner_name(options) == _LOCAL and direct.direct_running_mode == "in_memory"
    return int(direct.direct_num_workers) if ours else 1


def is_local(options: PipelineOptions) -> bool:
    """Whether the chosen runner works in this process or on this machine, so that we wait for it."""
    return runner_name(options) in LOCAL_RUNNERS


@contextlib.contextmanager
def scratch_folder(options: PipelineOptions, staging: str) -> Iterator[str]:
    """A folder for an analysis: in the staging folder, or on this machine's disk where a local run stages remotely.

    TensorFlow writes there by itself: on disk it needs neither credentials nor a round trip a file.
    """
    if not (is_local(options) and files.is_remote(staging)):
        yield files.join(staging, "analysis")
        return
    with tempfile.TemporaryDirectory(prefix="headrace-analysis-") as folder:
        yield folder


def runner_name(options: PipelineOptions) -> str:
    """The runner's name, without the module it lies in."""
    return str(options.get_all_options()["runner"]).split(".")[-1]
