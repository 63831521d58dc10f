"""The options of the dead-letter commands: one filter language for all, and what a replay is told."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from pipeline.options import data, stream
from pipeline.options.kinds import Option, byte_size, count, duration, fraction, positive, seed_number, words


def attempt(text: str) -> int:
    """A whole number of at least 0; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def topic(text: str) -> str:
    """``projects/<project>/topics/<name>``; raises argparse.ArgumentTypeError otherwise."""
    if not re.fullmatch(r"projects/[^/\s]+/topics/[^/\s]+", text):
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is no topic; write projects/<project>/topics/<name>")
    return text


def topic_or_original(text: str) -> str:
    """A topic, or the word ``original``; raises argparse.ArgumentTypeError otherwise."""
    return text if text == "original" else topic(text)


SELECTION = (
    Option(
        "reason",
        "Only dead letters with this reason code, e.g. wrong_type. Repeat the flag for several (as for those below).",
        many=True,
        metavar="CODE",
    ),
    Option("feature", "Only dead letters in which this feature is at fault.", many=True, metavar="NAME"),
    Option("stage", "Only those refused at this stage: read, decode, validate, ...", many=True, metavar="STAGE"),
    Option(
        "source",
        "Only those whose position (file#offset=..., subscription#id), or file or subscription, fits this glob.",
        many=True,
        metavar="GLOB",
    ),
    Option(
        "since",
        "Only those that failed at this time or later: 2024-05-01, 2024-05-01T12:00:00Z (UTC where no zone is "
        "given), or so long ago: 90m, 6h, 2d.",
        metavar="TIME",
    ),
    Option("until", "Only those that failed before this time.", metavar="TIME"),
    Option("attempt", "Only those replayed so often before: 0 is a first failure.", attempt, many=True, metavar="N"),
    Option("attribute", "Only those whose message had this attribute.", many=True, metavar="NAME=VALUE"),
    Option("ids", "Only these: dlq_ids separated by commas, or a file of them.", metavar="IDS|FILE"),
    Option(
        "sample",
        "Only this share of them, chosen by a hash of the id: the same ones every time, and a smaller sample is part "
        "of a larger one.",
        type=fraction,
        metavar="F",
    ),
    Option("sample_seed", "Another number, another sample.", type=seed_number, default=0, metavar="N"),
)
_LIMIT = Option("limit", "Stop after so many.", type=count, metavar="N")
_PULLING = (
    Option(
        "max_messages",
        "Of a subscription: take at most so many messages (default: {}).",
        type=count,
        metavar="N",
    ),
    Option(
        "max_seconds",
        "Of a subscription: stop after so long (default: when nothing came for --idle_seconds).",
        type=positive,
        metavar="S",
    ),
    Option(
        "idle_seconds",
        "Of a subscription: it is taken for empty when nothing came for so long.",
        type=positive,
        default=15.0,
        metavar="S",
    ),
)


def _pulling(most: str) -> tuple[Option, ...]:
    return tuple(replace(option, help=option.help.replace("{}", most)) for option in _PULLING)


_PEEK = _pulling("10000")
_REDACTION = (
    Option(
        "redact_features",
        "Do not show the values of these features; a payload that is no JSON object is then not shown at all. Names "
        "separated by commas.",
        type=words,
        default=(),
        metavar="NAMES",
    ),
    Option(
        "reveal",
        "Show payloads of dead letters whose details a job withheld because of its --redact_features.",
        flag=True,
    ),
)

DLQ_SUMMARY = (*SELECTION, _LIMIT, *_PEEK)
DLQ_SHOW = (
    *SELECTION,
    Option("limit", "How many to show at most.", type=count, default=20, metavar="N"),
    Option("max_payload_chars", "How much of a payload is shown.", type=count, default=2000, metavar="N"),
    *_REDACTION,
    *_PEEK,
)
DLQ_EXPORT = (
    *SELECTION,
    _LIMIT,
    Option(
        "format",
        "jsonl: everything, one object a line. csv: for a spreadsheet.",
        default="jsonl",
        choices=("jsonl", "csv"),
    ),
    Option("output", "File to write, local or gs:// (default: stdout).", metavar="FILE"),
    Option(
        "max_payload_bytes",
        "A longer payload is cut (a spreadsheet's cell takes 32,767 characters).",
        type=byte_size,
        default=30_000,
        metavar="BYTES",
    ),
    *_REDACTION,
    *_PEEK,
)

REPAIR = (
    Option(
        "fix",
        "fixes.yaml: repairs by key (rename, cast, default, drop, keep, replace, regex) and set_attribute, for all "
        "letters or for those of a reason or feature.",
        metavar="FILE",
    ),
    Option(
        "fix_module",
        "A Python function(payload: bytes, attributes: dict) -> (bytes, dict), or None to park the letter. It comes "
        "after --fix.",
        metavar="FILE.py:FUNCTION",
    ),
)
PROOF = (
    Option("schema", "The schema by which a dry run judges what would be sent.", metavar="FILE"),
    *(option for option in data.SCHEMA if option.name in ("environment", "unknown_features")),
    Option("transform", "The transform that the dry run (and --to_shards) applies too.", metavar="FOLDER"),
    *(
        option
        for option in stream.STREAM_OPTIONS
        if option.name in ("payload_format", "avro_schema", "event_time_feature")
    ),
)
REPLAY = (
    Option(
        "execute", "Do it. Without this flag a replay is a dry run: everything is tried and nothing is sent.", flag=True
    ),
    Option("dry_run", "Try everything, send nothing. This is the default, and may be said for clarity.", flag=True),
    Option(
        "to",
        "Where repaired letters go: projects/<project>/topics/<name>, or 'original': the topic of the subscription "
        "that each came from.",
        type=topic_or_original,
        metavar="TOPIC",
    ),
    Option(
        "to_shards",
        "Instead of a topic: a folder where 'headrace run' makes shards of the repaired rows, with --schema and "
        "--transform. What it refuses keeps its id, with the next attempt.",
        metavar="FOLDER",
    ),
    Option(
        "max_attempts",
        "A letter is replayed at most so often, over all replays; then it is parked.",
        type=count,
        default=3,
        metavar="N",
    ),
    Option(
        "parking_topic", "Topic for parked letters (default: an archive beside the ledger).", topic, metavar="TOPIC"
    ),
    Option(
        "timestamp_attribute",
        "The attribute from which the live job takes event times: set, where a message does not have it, to the event "
        "time of the first failure.",
        metavar="NAME",
    ),
    Option(
        "rate", "Letters a second at most, over the whole replay (default: as fast as it goes).", positive, metavar="R"
    ),
    Option(
        "senders",
        "How many send side by side, 1 to 8; each reads the whole source and takes its share.",
        type=count,
        default=1,
        metavar="N",
    ),
    _LIMIT,
    Option(
        "ledger",
        "The dead-letter folder whose ledger counts, local or gs:// (default: the one that holds the archive's runs). "
        "A replay from a subscription needs it.",
        metavar="FOLDER",
    ),
    Option(
        "payload_folder",
        "A folder, besides the dead-letter folder, from which payloads are read that were too large for their "
        "letters (a job without --dead_letters puts them below its --output). Files anywhere else are never opened, "
        "whatever a letter says.",
        many=True,
        metavar="PATH",
    ),
    Option(
        "claim_lease",
        "A batch that another replay has claimed and not finished is waited for so long; then that replay is taken for "
        "dead, and the batch is sent (perhaps a second time).",
        type=duration,
        default="2m",
        metavar="TIME",
    ),
    Option(
        "replay_id",
        "Name of this replay (default: the UTC time). The name of one that died takes over its claims at once.",
        metavar="ID",
    ),
    Option("force", "Send again what the ledger says was sent or parked. Consumers then get letters twice.", flag=True),
    Option("by", "Who replays, for the report (default: user@machine).", metavar="NAME"),
    *_pulling("all"),
)
REPLAY_OPTIONS = (*REPLAY, *SELECTION, *REPAIR, *PROOF, *data.GENERAL)
