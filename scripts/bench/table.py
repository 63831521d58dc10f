"""The lines of the table: what each is called, which measurement it shows, what it must reach against which others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report import Comparison, Row, Sample, median, row_of, speedup

Samples = Mapping[str, Sequence[Sample]]
Against = tuple[str, str, float | None]
"""Whom a line is compared with: a name for the table, the key of its samples, the least ratio (None: not asked)."""


@dataclass(frozen=True)
class Line:
    """A line of the table: the samples under ``key``, compared by rate."""

    what: str
    key: str
    against: tuple[Against, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The measurements that the line cannot do without."""
        return (self.key,)

    def row(self, taken: Samples) -> Row:
        """The row; compared with such of the others as were measured."""
        mine = taken[self.key]
        return row_of(
            self.what,
            mine,
            [speedup(name, mine, taken[key], least=least) for name, key, least in self.against if key in taken],
        )


@dataclass(frozen=True)
class MemoryLine(Line):
    """Peak memory under ``key`` against that under ``small``."""

    small: str = ""
    most: float = 1.3

    @property
    def keys(self) -> tuple[str, ...]:
        """Both."""
        return (self.key, self.small)

    def row(self, taken: Samples) -> Row:
        """The row; memory only."""
        large, small = median(taken[self.key], "peak_mb"), median(taken[self.small], "peak_mb")
        bound = Comparison(f"{small:,.0f} MB at 1x", large / small, most=self.most)
        return Row(self.what, peak_mb=large, comparisons=(bound,))


def lines(*, scale: int, large: int) -> list[Line]:
    """All lines but that of --help, in order."""
    from bench import dead_letters

    analysis = Line("our TFT analysis pass, 1 thread", "analysis")
    return [*_writing(scale, large), *_streaming(), *_reading(), analysis, *dead_letters.lines(large)]


def select(all_lines: Sequence[Line], pattern: re.Pattern[str]) -> list[Line]:
    """The lines in whose names ``pattern`` is found."""
    return [line for line in all_lines if pattern.search(line.what)]


def _writing(scale: int, large: int) -> list[Line]:
    cores = os.cpu_count() or 1
    return [
        Line("per-row Beam: json, checks, tf.Example; no transform", "per_row"),
        Line("canonical TFT: TFXIO, TransformDataset; no validation", "canonical"),
        _ours("rows", per_row=10, canonical=6),
        _ours("packed", per_row=14, canonical=8),
        _ours("blocks", per_row=25, canonical=14),
        Line("ours, 1% malformed lines, 1 thread", "malformed", (("ours, clean", "rows", 0.7),)),
        *_at_large("rows", large, cores),
        *_at_large("blocks", large, cores),
        MemoryLine(
            f"ours, peak memory at {large}x against 1x input",
            "large rows, 1 thread",
            small="rows" if scale == 1 else "scale 1",
        ),
    ]


def _ours(layout: str, *, per_row: float, canonical: float) -> Line:
    return Line(
        f"ours: validation and TFT, {layout} layout, 1 thread",
        layout,
        (("per-row Beam", "per_row", per_row), ("canonical TFT", "canonical", canonical)),
    )


def _at_large(layout: str, large: int, cores: int) -> list[Line]:
    one, all_cores = f"large {layout}, 1 thread", f"large {layout}, all cores"
    return [
        Line(f"ours, {large}x input, {layout} layout, 1 thread", one),
        Line(f"ours, {large}x input, {layout} layout, all {cores} cores", all_cores, (("1 thread", one, 1.6),)),
    ]


def _streaming() -> list[Line]:
    peer = ("message by message", "stream per_row")
    return [
        Line("stream, message by message: json, checks, tf.Example; no transform", peer[1]),
        Line("our stream: validation and TFT, rows layout, 1,000 messages a batch", "stream 1000", ((*peer, 8),)),
        *(
            Line(
                f"our stream, {count} {'messages' if count > 1 else 'message'} a batch",
                f"stream {count}",
                ((*peer, None),),
            )
            for count in (100, 10, 1)
        ),
    ]


def _reading() -> list[Line]:
    least = {"rows": 10, "packed": 20, "blocks": 100}
    single = "read one_by_one"
    return [
        Line("tf.data, rows shards: parse_single_example", single),
        Line(
            "tf.data, rows shards: batch, then parse_example",
            "read batchwise",
            (("parse_single_example", single, None),),
        ),
        *(
            Line(f"our reader, {layout} shards", f"read {layout}", (("parse_single_example", single, least[layout]),))
            for layout in least
        ),
    ]
