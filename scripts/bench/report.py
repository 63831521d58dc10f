"""Measurements to rows of one table: medians, ratios against the peers, what must be reached; text or JSON."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Sample = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A ratio of this row's rate (or memory) to another row's, and what it must reach; ``most`` is an upper bound.

    ``cpu_ratio`` is that of rows a CPU second: it says the same on a machine that others use too.
    """

    against: str
    ratio: float
    cpu_ratio: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the ratio is what it must be; None where nothing is asked."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.ratio >= self.least) and (self.most is None or self.ratio < self.most)

    @property
    def wanted(self) -> str:
        """The bound, for a person."""
        if self.least is not None:
            return f">= {self.least:g}x"
        return f"< {self.most:g}x" if self.most is not None else ""


@dataclass(frozen=True)
class Row:
    """One line of the table. Rates are rows read a second: of the run alone, and of the whole process."""

    what: str
    rows: int = 0
    rows_per_second: float | None = None
    process_rows_per_second: float | None = None
    rows_per_cpu_second: float | None = None
    peak_mb: float | None = None
    seconds: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    all_seconds: tuple[float, ...] = ()


def row_of(what: str, samples: Sequence[Sample], comparisons: Iterable[Comparison] = ()) -> Row:
    """The row of repeated measurements of one job: medians."""
    seconds = median(samples, "seconds")
    rows = samples[0]["rows"]
    return Row(
        what,
        rows=rows,
        rows_per_second=rows / seconds,
        process_rows_per_second=rows / median(samples, "process_seconds"),
        rows_per_cpu_second=rows / median(samples, "cpu_seconds"),
        peak_mb=median(samples, "peak_mb"),
        seconds=seconds,
        comparisons=tuple(comparisons),
        all_seconds=tuple(sample["seconds"] for sample in samples),
    )


def median(samples: Sequence[Sample], name: str) -> float:
    """The median of one value over the samples."""
    return float(statistics.median(sample[name] for sample in samples))


def speedup(against: str, mine: Sequence[Sample], theirs: Sequence[Sample], *, least: float | None) -> Comparison:
    """How many times as many rows a second; of medians of interleaved runs."""

    ratios = [_rate(mine, kind) / _rate(theirs, kind) for kind in ("seconds", "cpu_seconds")]
    return Comparison(against, *ratios, least=least)


def _rate(samples: Sequence[Sample], kind: str) -> float:
    return float(samples[0]["rows"] / median(samples, kind))


def as_json(rows: Iterable[Row], notes: Iterable[str], extra: dict[str, Any]) -> dict[str, Any]:
    """The table as plain values, with ``reached`` beside every bound."""
    shown = []
    for row in rows:
        plain = asdict(row)
        plain["comparisons"] = [{**asdict(c), "reached": c.reached} for c in row.comparisons]
        shown.append(plain)
    return {"rows": shown, "notes": list(notes), **extra}


_HEADINGS = (
    "what",
    "rows/s",
    "ratio",
    "against",
    "must reach",
    "",
    "peak MB",
    "rows/CPU s",
    "by CPU",
    "rows/s, process",
)
_LEFT = (0, 3, 5)


def cells_of(row: Row) -> list[tuple[str, ...]]:
    """The lines of a row: one for each comparison, at least one."""
    lines = []
    for index, comparison in enumerate(row.comparisons or (None,)):
        ratio = against = wanted = verdict = ""
        if comparison:
            ratio, against, wanted = f"{comparison.ratio:.2f}x", comparison.against, comparison.wanted
            verdict = {True: "yes", False: "NO", None: ""}[comparison.reached]
        first = index == 0
        if row.rows_per_second is None and row.seconds is not None:
            rate = f"{row.seconds:.2f} s"
        else:
            rate = _number(row.rows_per_second)
        lines.append(
            (
                row.what if first else "",
                rate if first else "",
                ratio,
                against,
                wanted,
                verdict,
                _number(row.peak_mb) if first else "",
                _number(row.rows_per_cpu_second) if first else "",
                f"{comparison.cpu_ratio:.2f}x" if comparison and comparison.cpu_ratio else "",
                _number(row.process_rows_per_second) if first else "",
            )
        )
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def print_table(rows: Sequence[Row], notes: Sequence[str]) -> None:
    """Print the table, with colour on a terminal."""
    cells = [line for row in rows for line in cells_of(row)]
    if sys.stdout.isatty():
        _print_rich(cells)
    else:
        print(plain_table(_HEADINGS, cells, left=_LEFT))
    for note in notes:
        print(note)


def _print_rich(cells: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for index, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if index in _LEFT else "right", no_wrap=index != 0)
    colours = {"yes": "[green]yes[/]", "NO": "[red]NO[/]"}
    for line in cells:
        table.add_row(*(colours.get(cell, cell) for cell in line))
    Console().print(table)


def plain_table(headings: Sequence[str], cells: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    """Columns lined up with spaces; those in ``left`` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = []
    for line in (headings, ["-" * width for width in widths], *cells):
        padded = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def stage_table(samples: Sequence[Sample]) -> str:
    """The stage profile, medians over the samples, the largest first; shares are of CPU time."""
    rows = samples[0]["rows"]
    spent = {
        name: [statistics.median(sample["stages"].get(name, (0.0, 0.0))[kind] for sample in samples) for kind in (0, 1)]
        for name in samples[0]["stages"]
    }
    wall, cpu = (sum(times[kind] for times in spent.values()) for kind in (0, 1))
    cells = [
        (name, f"{times[0]:.2f}", *(f"{seconds / rows * 1e6:.2f}" for seconds in times), f"{times[1] / cpu:.1%}")
        for name, times in sorted(spent.items(), key=lambda item: -item[1][1])
    ]
    cells.append(("total", f"{wall:.2f}", f"{wall / rows * 1e6:.2f}", f"{cpu / rows * 1e6:.2f}", "100.0%"))
    headings = ("stage (one thread, no Beam)", "seconds", "us/row", "CPU us/row", "share")
    return plain_table(headings, cells, left=(0,))
