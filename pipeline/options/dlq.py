"""The options of the dead-letter commands."""

from __future__ import annotations

from pipeline.options.kinds import Option, count

DLQ_SHOW = (
    Option("reason", "Only dead letters with this reason code, e.g. wrong_type.", metavar="CODE"),
    Option("feature", "Only dead letters in which this feature is at fault.", metavar="NAME"),
    Option("limit", "How many to show at most.", type=count, default=20, metavar="N"),
)
