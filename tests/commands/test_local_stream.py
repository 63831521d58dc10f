"""The local source: a message's time from its attribute or its publishing, and a watermark that follows a backlog."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Timestamp

from pipeline.commands import local_stream
from pipeline.commands.beam_options import HeadraceOptions
from pipeline.commands.prepare_stream import job_name_of
from pipeline.commands.stream import stream_options
from pipeline.core.errors import UsageError
from pipeline.options.stream import STREAM_OPTIONS

PUBLISHED = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


def received(**attributes: str) -> SimpleNamespace:
    return SimpleNamespace(data=b"x", attributes=attributes, message_id="1", publish_time=PUBLISHED, ordering_key="")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1714564800123", Timestamp(micros=1_714_564_800_123_000)),
        ("2024-05-01T12:00:01.5Z", Timestamp(1_714_564_801.5)),
        ("yesterday", Timestamp.from_utc_datetime(PUBLISHED)),
        ("", Timestamp.from_utc_datetime(PUBLISHED)),
        ("9" * 40, Timestamp.from_utc_datetime(PUBLISHED)),
        ("١٢٣", Timestamp.from_utc_datetime(PUBLISHED)),
    ],
)
def test_a_time_that_is_none_does_not_stop_the_stream(value, expected):
    assert local_stream._element(received(time=value), "time")[0] == expected


def test_a_message_without_the_attribute_has_the_time_of_its_publishing():
    for attribute in ("time", None):
        timestamp, element = local_stream._element(received(), attribute)
        assert timestamp == Timestamp.from_utc_datetime(PUBLISHED)
        assert (element.data, element.message_id) == (b"x", "1")


def test_the_watermark_stands_at_the_oldest_of_a_pull_and_moves_on_when_nothing_is_left():
    found = [local_stream._element(received(time=value), "time") for value in ("3000", "1000", "2000")]
    assert local_stream._watermark(found) == Timestamp(1)
    assert local_stream._watermark([]) <= Timestamp.of(time.time())


def test_every_flag_of_stream_is_a_beam_option_too():
    known = PipelineOptions([]).view_as(HeadraceOptions).get_all_options()
    assert {option.name for option in STREAM_OPTIONS} <= set(known)


def test_the_runner_that_streams_is_chosen_and_others_on_this_machine_are_refused():
    assert stream_options([]).get_all_options()["runner"].endswith("BundleBasedDirectRunner")
    assert stream_options([]).get_all_options()["streaming"]
    assert stream_options(["--runner=DataflowRunner"]).get_all_options()["streaming"]
    for runner in ("FnApiRunner", "DirectRunner", "PrismRunner"):
        with pytest.raises(UsageError, match="BundleBasedDirectRunner"):
            stream_options([f"--runner={runner}"])


@pytest.mark.parametrize(
    ("subscription", "name"),
    [
        ("projects/p/subscriptions/flights", "headrace-flights"),
        ("projects/p/subscriptions/Flights_of.2013~x", "headrace-flights-of-2013-x"),
        ("projects/p/subscriptions/" + "ab-" * 80, "headrace-" + ("ab-" * 17)[:50].rstrip("-")),
    ],
)
def test_a_job_without_a_name_is_called_after_its_subscription(subscription, name):
    assert job_name_of(subscription) == name
