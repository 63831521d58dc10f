"""Where our time goes: the real build of each task, without Beam, with a stopwatch on every seam it has.

Stopwatches are put on by name and count their own time only, without that of the stages inside them,
so the stages add up to the whole. A seam that a refactoring takes away is left out, and its time
shows in the stage around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from bench.clock import Moment
from bench.ours import planned
from pipeline.core.decoding import json_fitting, json_lines, json_native
from pipeline.core.statistics import BatchStatistics
from pipeline.features import build as building
from pipeline.features import rows as working
from pipeline.features import tensors
from pipeline.features.build import Encoder, decode_task
from pipeline.transforms import files, loading
from pipeline.transforms import tasks as writing


class Stopwatch:
    """Exclusive time of each stage: [seconds, CPU seconds of the whole process]."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}
        self._open: list[str] = []
        self._since = Moment.now()

    def _turn(self) -> None:
        now = Moment.now()
        if self._open:
            spent = self.stages.setdefault(self._open[-1], [0.0, 0.0])
            spent[0] += now.wall - self._since.wall
            spent[1] += now.cpu - self._since.cpu
        self._since = now

    def enter(self, stage: str) -> None:
        """Time goes to ``stage`` from here on."""
        self._turn()
        self._open.append(stage)

    def leave(self) -> None:
        """Time goes to the stage before again."""
        self._turn()
        self._open.pop()

    def timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """``function``, its time going to ``stage``."""

        @functools.wraps(function, updated=())
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return wrapper

    def timed_items(self, function: Callable[..., Iterator[Any]], stage: str) -> Callable[..., Iterator[Any]]:
        """``function``, which returns an iterator, with the making of each item going to ``stage``."""

        def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
            items = function(*args, **kwargs)
            following = self.timed(lambda: next(items, _END), stage)
            while (item := following()) is not _END:
                yield item

        return wrapper

    def watch(self, owner: Any, name: str, stage: str) -> None:
        """Put a stopwatch on ``owner.name``, if it is there."""
        if hasattr(owner, name):
            setattr(owner, name, self.timed(getattr(owner, name), stage))


_END = object()


class StagedBuild:
    """The build of all tasks of ``headrace run`` with these arguments, in this thread. ``run`` does it."""

    def __init__(self, arguments: list[str]) -> None:
        job, plan, _ = planned(arguments)
        self._settings, self._tasks = job.build, plan.tasks
        schema = self._settings.input.load_schema()
        self._schema = schema.arrow_schema
        self._decoder = self._settings.input.make_decoder(schema)
        self._transform = job.transform
        self._watch = Stopwatch()
        self.rows = 0

    @property
    def stages(self) -> dict[str, list[float]]:
        """Of each stage: seconds, CPU seconds."""
        return dict(self._watch.stages)

    def _put_on(self, transformer: Any, layout: Any) -> None:
        watch = self._watch
        self._decoder.blocks = watch.timed_items(self._decoder.blocks, "read, find lines")  # type: ignore[method-assign]
        watch.watch(self._decoder, "decode", "decode: the rest")
        watch.watch(json_fitting, "non_utf8_rows", "decode: screens")
        watch.watch(json_fitting._Fit, "_match", "decode: rows of one form")
        watch.watch(json_fitting._Fit, "batch", "decode: to canonical columns")
        watch.watch(json_fitting, "valid_mask", "decode: schema checks")
        watch.watch(json_lines, "unsafe_rows", "decode: screens")
        watch.watch(json_native.NativeParse, "_read", "decode: Arrow's JSON parser")
        watch.watch(json_native, "canonical_batch", "decode: to canonical columns")
        watch.watch(json_native, "valid_mask", "decode: schema checks")
        watch.watch(json_lines, "assemble", "decode: assemble")
        BatchStatistics.of = watch.timed(BatchStatistics.of, "statistics")  # type: ignore[method-assign]
        watch.watch(building, "split_indices", "split, permute")
        watch.watch(building, "permutation", "split, permute")
        watch.watch(transformer, "faults", "transform: row checks")
        watch.watch(transformer, "transform", "transform: the rest")
        group = getattr(tensors, "Group", None)
        watch.watch(group, "inputs", "transform: columns to tensors")
        watch.watch(transformer, "_graph", "transform: TFT graph")
        watch.watch(group, "outputs", "transform: tensors to columns")
        watch.watch(working, "non_finite_rows", "non-finite check")
        watch.watch(layout, "encode_array", "encode")
        watch.watch(writing, "frame", "frame")
        watch.watch(writing.PartWriter, "add", "write, checksum of the part")
        watch.watch(writing.PartWriter, "_finish", "write, checksum of the part")

    def run(self) -> None:
        """Build every task; parts are written to the staging folder and deleted."""
        self._watch.enter("load the transform (once a process)")
        transformer = loading.shared_transformer(self._settings, self._transform)
        self._watch.leave()
        layout = loading.layout_of(self._settings, transformer)
        encoder = Encoder(self._settings, transformer=transformer, layout=layout)
        self._put_on(transformer, layout)
        self._watch.enter("all else (accounts)")
        for task in self._tasks:
            self._watch.enter("concatenate blocks")
            decoded = decode_task(task, self._decoder, self._schema, open_file=files.open_read)
            self._watch.leave()
            chunks = self._watch.timed_items(encoder.encode, "take rows, and the rest of the encoder")
            writing.write_parts(chunks(decoded, seed=task.seed), self._settings, task.index)
            self.rows += decoded.rows_read
            decoded.statistics.to_bytes()
        self._watch.leave()
        files.delete_folder(self._settings.staging)
