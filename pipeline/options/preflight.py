"""The options of ``headrace preflight``: those of the job that is to be launched, and what may be made."""

from __future__ import annotations

from dataclasses import replace

from pipeline.options import data, stream
from pipeline.options.kinds import Option

_OWN = (
    Option(
        "create",
        "Make what is missing: topics, and subscriptions that never expire and keep messages for 7 days. What is there "
        "is not changed.",
        flag=True,
    ),
    Option(
        "input_topic",
        "With --create: the topic that a missing --input_subscription is made for (and which is made too).",
        metavar="NAME",
    ),
)
_JOBS = {option.name: option for option in (*data.RUN_OPTIONS, *stream.STREAM_OPTIONS)}
PREFLIGHT_OPTIONS = (*_OWN, *(replace(option, required=False) for option in _JOBS.values()))
"""Of two options with one name the stream's is taken, but nothing is required: what is missing is a finding."""
