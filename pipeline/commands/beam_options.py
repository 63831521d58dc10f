"""Our options as Beam pipeline options, and the line between flags that are Beam's and flags that are nobody's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

from pipeline import options as opt


class HeadraceOptions(PipelineOptions):  # type: ignore[misc]
    """Every flag of ``headrace run`` as a pipeline option, so that a flex template's parameters are the same names."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        opt.add_options(parser, opt.RUN_OPTIONS, enforce=False)


def split_known(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments that no class of Beam options knows, and all flags that some class does know."""
    parser = _BeamArgumentParser(allow_abbrev=False)
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        if options is not HeadraceOptions:
            options._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return unknown, flags


def pipeline_options(beam_arguments: Sequence[str], *, threads: int | None) -> PipelineOptions:
    """Options for a run: Beam's as given, and for a local run FnApiRunner with ``threads`` worker threads.

    ``DirectRunner`` is a switch that may fetch another runner; a local run names its runner.
    """
    given = {argument.split("=", 1)[0] for argument in beam_arguments}
    flags = list(beam_arguments)
    if "--runner" not in given:
        flags.append("--runner=FnApiRunner")
    if "--direct_num_workers" not in given:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        flags.append(f"--direct_num_workers={threads or cores or 1}")
    if "--direct_running_mode" not in given:
        # Arrow, TFT and the encoder release the interpreter lock: threads scale, processes would each load TensorFlow.
        flags.append("--direct_running_mode=multi_threading")
    return PipelineOptions(flags)


LOCAL_RUNNERS = ("FnApiRunner", "BundleBasedDirectRunner", "DirectRunner", "PrismRunner")


def is_local(options: PipelineOptions) -> bool:
    """Whether the chosen runner works in this process or on this machine, so that we wait for it."""
    return str(options.get_all_options()["runner"]).split(".")[-1] in LOCAL_RUNNERS
