"""Storage and topic that fail, at every point, before and after the deed: rows out equal rows in, once each."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from fakes.faults import faulty_storage
from fakes.plays import CopyProcessor, Play, Published, message, stream_settings

from pipeline.core.errors import HeadraceError
from pipeline.jobs.streaming import build_stream
from pipeline.transforms import files
from pipeline.transforms.streaming_buffer import wall_clock

TestStream.__test__ = False  # not a test
PAYLOADS = [b"a", b"bb", b"c", b"bad 1", b"dd", b"bad 2"]


def stream() -> TestStream:
    """Two windows, a late pane, two dead letters, a shard at its target: everything that writes, writes."""
    return (
        TestStream()
        .advance_watermark_to(0)
        .add_elements([message(payload, 1) for payload in PAYLOADS[:4]])
        .advance_processing_time(10)
        .advance_watermark_to(61)
        .add_elements([message(PAYLOADS[4], 2), message(PAYLOADS[5], 61)])
        .advance_processing_time(100)
        .advance_watermark_to_infinity()
    )


def play_of(folder) -> Play:
    return Play(folder, stream_settings(target_shard_bytes=30))


@pytest.mark.slow
def test_every_point_of_storage_may_fail_once(tmp_path):
    with faulty_storage(0) as counted:
        play_of(tmp_path / "0").run(stream())
    assert counted.points > 20
    fired = set()
    for at in range(1, counted.points + 1):
        play = play_of(tmp_path / str(at))
        with faulty_storage(at) as storage:
            play.run(stream())
        assert storage.fired
        fired.add(storage.fired.split("(")[0].split(" /")[0])
        play.assert_once_each(PAYLOADS)
        assert len({letter["dlq_id"] for letter in play.letters()}) == 2
        assert {name for name in play.strangers() if not name.startswith(".")} == set()
    assert {"before create", "before close", "after close", "before rename", "after rename"} <= fired, fired


def test_a_disk_that_stays_full_ends_the_stream_here_and_once_there_is_room_everything_is_written_once(
    tmp_path, monkeypatch
):
    def full(uri: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", uri)

    play = play_of(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(files, "write_bytes", full)
        with pytest.raises(Exception, match="No space left on device"):
            play.run(stream())
    assert not play.output.exists()
    assert not play.dead.exists()
    play.run(stream())
    play.assert_once_each(PAYLOADS)


class Failing(Published):
    """A topic that fails once, before or after it has taken the letters."""

    when: ClassVar[str] = ""

    def publish(self, letters: Any) -> int:
        """Fail, or not."""
        if Failing.when == "before":
            Failing.when = ""
            raise HeadraceError("unavailable")
        count = super().publish(letters)
        if Failing.when == "after":
            Failing.when = ""
            raise HeadraceError("the answer was lost")
        return count


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_topic_that_fails_gets_every_letter_and_copies_share_their_id(tmp_path, when):
    Failing.when = when
    play = play_of(tmp_path)
    play = replace(play, ports=replace(play.ports, publisher=Failing))
    play.run(stream())
    assert Failing.when == ""
    assert {letter.payload for letter in Published.letters} == {b"bad 1", b"bad 2"}
    assert len({letter.dlq_id for letter in Published.letters}) == 2
    play.assert_once_each(PAYLOADS)


class FailingProcessor(CopyProcessor):
    """Fails at its first call, as memory that ran out does."""

    failed: ClassVar[bool] = False

    def process(self, messages, *, closed_before_s):
        if not FailingProcessor.failed:
            FailingProcessor.failed = True
            raise MemoryError
        return super().process(messages, closed_before_s=closed_before_s)


def test_a_batch_that_failed_is_worked_on_again(tmp_path):
    FailingProcessor.failed = False
    play = play_of(tmp_path)
    replace(play, ports=replace(play.ports, processor=FailingProcessor)).run(stream())
    assert FailingProcessor.failed
    play.assert_once_each(PAYLOADS)


class LosingProcessor(CopyProcessor):
    """Forgets the last message."""

    def process(self, messages, *, closed_before_s):
        return super().process(messages[:-1], closed_before_s=closed_before_s)


def test_a_processor_that_loses_a_message_stops_the_stream_and_nothing_is_passed_on(tmp_path):
    play = play_of(tmp_path)
    with pytest.raises(HeadraceError, match="messages came in"):
        replace(play, ports=replace(play.ports, processor=LosingProcessor)).run(stream())
    assert not play.output.exists()


def test_the_graph_works_on_the_fn_api_too_as_dataflow_runs_it(tmp_path):
    """State, timers and coders of the portable worker; it holds the watermark, so that a window is one shard a key.

    Each letter reaches the topic and the archive: that runner loses timers where two steps share a timer id.
    """
    Published.letters = []
    play = Play(tmp_path, stream_settings(max_batch_rows=7, shards_per_window=1, max_batch_wait_seconds=0.1))
    payloads = [b"bad %d" % number if number % 10 == 3 else b"row %d" % number for number in range(100)]
    elements = [message(payload, 5 * number) for number, payload in enumerate(payloads)]
    pipeline = beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([]))
    ports = replace(play.ports, now=wall_clock)
    build_stream(pipeline, play.job(), ports=ports, messages=pipeline | beam.Create(elements))
    pipeline.run().wait_until_finish()
    play.assert_once_each(payloads)
    bad = {payload for payload in payloads if payload.startswith(b"bad")}
    assert {letter["payload"] for letter in play.letters()} == bad
    assert sorted(letter.payload for letter in Published.letters) == sorted(bad)
    assert len(play.manifests()) == 9
    assert play.strangers() == set()
