"""Every option of every command, declared once; argparse and Beam's pipeline options are both made from it."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.errors import UsageError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def byte_size(text: str) -> int:
    """Bytes in ``text``: a number with an optional unit, e.g. ``134217728``, ``128MiB``, ``1.5GB``.

    Raises argparse.ArgumentTypeError for anything else, and for less than one byte.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = _UNITS.get(match.group(2).upper()) if match else None
    size = float(match.group(1)) * unit if match and unit else 0.0
    if not 1 <= size < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a size; write for example 134217728, 128MiB or 1.5GB")
    return int(size)


def count(text: str) -> int:
    """A whole number of at least 1; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def positive(text: str) -> float:
    """A finite number above 0; raises argparse.ArgumentTypeError otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1; raises argparse.ArgumentTypeError otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; write a number from 0 to 1")
    return value


def named(text: str) -> str:
    """``text``, which names something; raises argparse.ArgumentTypeError for nothing but white space."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "it is empty; give a value, or leave the flag out (is a shell variable unset?)"
        )
    return text


def words(text: str) -> tuple[str, ...]:
    """Comma-separated words; an empty word is kept, so that ``--csv_null_tokens=,NA`` holds the empty token."""
    return tuple(text.split(","))


def seed_number(text: str) -> int:
    """A seed from 0 to 2**63 - 1; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; write a whole number from 0 to 2**63-1")
    return int(text)


@dataclass(frozen=True)
class Option:
    """One flag: ``--name``, its type, default and help; ``flag`` options take no value, ``many`` may be repeated."""

    name: str
    help: str
    type: Callable[[str], Any] = named
    default: Any = None
    choices: tuple[str, ...] | None = None
    required: bool = False
    many: bool = False
    flag: bool = False
    metavar: str | None = None


INPUT = (
    Option(
        "input",
        "What to read: a file, a folder, or a glob (quote it), local or gs://. Repeat the flag for several.",
        required=True,
        many=True,
        metavar="PATH",
    ),
    Option(
        "format",
        "Format of the input; auto goes by the file names (.jsonl .ndjson .json, .csv .tsv).",
        default="auto",
        choices=("auto", "jsonl", "csv", "tsv"),
    ),
    Option(
        "csv_delimiter",
        "One character between CSV cells (default: a comma; a tab for .tsv).",
        type=str,  # a tab is white space
        metavar="CHAR",
    ),
    Option("csv_quote", "The character that quotes CSV cells.", type=str, default='"', metavar="CHAR"),
    Option(
        "csv_header",
        "Column names of CSV files that have no header line, separated by commas.",
        type=words,
        metavar="NAMES",
    ),
    Option(
        "csv_null_tokens",
        "Unquoted CSV cells that mean 'no value', separated by commas (the default: an empty cell, and NA).",
        type=words,
        default=("", "NA"),
        metavar="TOKENS",
    ),
    Option(
        "csv_multiline",
        "Quoted CSV cells may hold line ends. Such files cannot be split: one thread reads each.",
        flag=True,
    ),
    Option(
        "max_record_bytes",
        "A row longer than this is refused (record_too_large) without being held in memory.",
        type=byte_size,
        default=16 << 20,
        metavar="BYTES",
    ),
)
SCHEMA = (
    Option(
        "schema",
        "The schema: a tensorflow_metadata Schema proto in text form. 'headrace schema infer' writes one.",
        required=True,
        metavar="FILE",
    ),
    Option("environment", "The schema environment that decides which features are expected.", default="TRAINING"),
    Option(
        "unknown_features",
        "What to do with keys and columns that the schema does not name.",
        default="ignore",
        choices=("ignore", "reject"),
    ),
)
FEATURES = (
    Option("features", "features.yaml: one line a feature says how it is transformed.", metavar="FILE"),
    Option(
        "preprocessing_module",
        "A Python file with a TFT preprocessing_fn(inputs); use it instead of --features.",
        metavar="FILE",
    ),
)
SPLITTING = (
    Option(
        "splits",
        "Parts of the data and their fractions, by a seeded hash, e.g. train=0.9,eval=0.1.",
        default="train=1",
        metavar="NAME=F,...",
    ),
    Option(
        "split_key",
        "A feature whose value decides the split, so that rows which share it stay together (default: the whole row).",
        metavar="FEATURE",
    ),
    Option(
        "seed",
        "Seed of the shuffle and of the splits: same seed and input, same bytes.",
        type=seed_number,
        default=0,
        metavar="N",
    ),
)
OUTPUT = (
    Option(
        "output",
        "Folder for the results, local or gs://: run=<run_id>/ with the shards, and LATEST.",
        required=True,
        metavar="FOLDER",
    ),
    Option(
        "dead_letters",
        "Folder for the dead-letter archive (Avro), local or gs://: run=<run_id>/.",
        required=True,
        metavar="FOLDER",
    ),
    Option("run_id", "Name of the run; the same name again replaces that run (default: the UTC time).", metavar="ID"),
    Option(
        "transform",
        "A transform made earlier (OUTPUT/run=<id>/transform_fn), instead of analysing this input.",
        metavar="FOLDER",
    ),
    Option(
        "layout",
        "What one TFRecord record holds. rows: a row, every feature by its name; every tool reads it. packed: a row, "
        "its numbers in two vectors; faster to read. blocks: many rows, column by column; smallest, fastest by far, "
        "for features of fixed shape. pipeline.features.reader gives the same tensors from all of them.",
        default="rows",
        choices=("rows", "packed", "blocks"),
    ),
    Option("rows_per_record", "Rows in a record of --layout=blocks.", type=count, default=256, metavar="N"),
    Option(
        "compression",
        "Compress whole shards. Worth it where the network is slower than the trainer; blocks are small without.",
        default="none",
        choices=("none", "gzip", "zlib"),
    ),
    Option(
        "target_shard_bytes",
        "How large shards become, about; 100 to 200 MiB suits tf.data on object storage.",
        type=byte_size,
        default=128 << 20,
        metavar="BYTES",
    ),
    Option("min_shards", "At least this many shards a split, given as many rows.", type=count, default=1, metavar="N"),
    Option(
        "shuffle",
        "blocks: blocks of the input are dealt out at random and rows permuted inside shards, no data crosses workers. "
        "global: every row goes to a random shard (for sorted input that cannot be split). none: the input's order.",
        default="blocks",
        choices=("blocks", "global", "none"),
    ),
    Option(
        "max_rejected_fraction",
        "Commit nothing (exit code 3) if more than this share of the rows is refused.",
        type=fraction,
        default=1.0,
        metavar="F",
    ),
    Option(
        "redact_features",
        "Features whose values must not appear in messages, logs and reports, separated by commas.",
        type=words,
        default=(),
        metavar="NAMES",
    ),
    Option(
        "allow_non_finite",
        "Let NaN and infinity out of the transform; without it such a row is refused (transform_error).",
        flag=True,
    ),
)
LOCAL = (
    Option(
        "threads",
        "Worker threads of a local run (default: all cores).",
        type=count,
        metavar="N",
    ),
)
GENERAL = (
    Option("json", "Print the result as one JSON document on stdout.", flag=True),
    Option(
        "log_format",
        "How log lines on stderr look; json is Cloud Logging's structure (default: text on a terminal, else json).",
        choices=("text", "json"),
    ),
)
INFER = (
    Option("output", "Where to write the schema (default: stdout).", metavar="FILE"),
    Option("max_rows", "Learn from this many rows at most, spread over the input.", type=count, metavar="N"),
)
DLQ_SHOW = (
    Option("reason", "Only dead letters with this reason code, e.g. wrong_type.", metavar="CODE"),
    Option("feature", "Only dead letters in which this feature is at fault.", metavar="NAME"),
    Option("limit", "How many to show at most.", type=count, default=20, metavar="N"),
)
VERIFY = (
    Option(
        "checksums_only",
        "Do not parse the records: only files, checksums and counts (no TensorFlow needed).",
        flag=True,
    ),
)
BENCH = (
    Option("batch_size", "Rows a batch.", type=count, default=1024, metavar="N"),
    Option(
        "step_ms",
        "Milliseconds that the accelerator works on a batch: how much it would wait is then measured.",
        type=positive,
        metavar="MS",
    ),
    Option("seconds", "How long each reader is measured at most.", type=positive, default=10.0, metavar="S"),
    Option("split", "Which split to read.", default="train", metavar="NAME"),
)
ANALYZE = (Option("output", "Folder to write the transform to, local or gs://.", required=True, metavar="FOLDER"),)

RUN_OPTIONS = (*INPUT, *SCHEMA, *FEATURES, *SPLITTING, *OUTPUT, *LOCAL, *GENERAL)
ANALYZE_OPTIONS = (*ANALYZE, *INPUT, *SCHEMA, *FEATURES, *SPLITTING, *LOCAL, *GENERAL)


def add_options(parser: Any, options: Iterable[Option], *, enforce: bool = True) -> None:
    """Add ``options`` to an argparse parser; ``enforce=False`` leaves required ones optional (for Beam's views)."""
    for option in options:
        arguments: dict[str, Any] = {"dest": option.name, "default": option.default, "help": _help(option)}
        if option.flag:
            parser.add_argument(f"--{option.name}", action="store_true", **{**arguments, "default": False})
            continue
        arguments |= {"type": option.type, "metavar": option.metavar}
        if option.choices:
            arguments |= {"choices": option.choices, "metavar": None}
        if option.many:
            arguments["action"] = "append"
        parser.add_argument(f"--{option.name}", required=option.required and enforce, **arguments)


def _help(option: Option) -> str:
    text = option.help.replace("%", "%%")
    shown = option.default not in (None, (), False) and not option.flag and "default" not in text
    return f"{text} Default: {option.default}." if shown else text


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError, so that a bad flag is reported like every other bad setting."""

    def error(self, message: str) -> Any:
        """Raise UsageError with the command's own help named."""
        raise UsageError(f"{message}\nSee: {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        """Leave after --help, flushing so that a closed pipe is seen here."""
        sys.stdout.flush()
        super().exit(status, message)


def refuse_unknown(prog: str, unknown: Sequence[str], known: Iterable[str]) -> None:
    """Raise UsageError for each argument left over, with the nearest known flag."""
    if not unknown:
        return
    names = sorted(set(known))
    lines = []
    for argument in unknown:
        flag = argument.split("=", 1)[0]
        nearest = difflib.get_close_matches(flag, names, n=1, cutoff=0.6) if flag.startswith("-") else []
        lines.append(f"unknown argument {argument!r}" + (f"; did you mean {nearest[0]}?" if nearest else ""))
    raise UsageError("\n".join([*lines, f"See: {prog} --help"]))
