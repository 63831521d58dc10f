"""A local stream that is told to stop: it writes what it has taken, leaves the rest in the subscription, ends well."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest
from fakes.bench import row_lines
from fakes.cli import headrace
from fakes.streams import running_stream

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_in_the_middle_it_writes_what_it_took_and_leaves_the_rest(
    pubsub_emulator, tmp_path, row_schema, number
):
    flags = ("--schema", row_schema, "--window=2s", "--max_batch_wait=200ms")
    with running_stream(pubsub_emulator, tmp_path, *flags) as stream:
        pubsub_emulator.publish(stream.topic, *row_lines(50))
        stream.wait_for(lambda: bool(stream.manifests()), "first window")
        pubsub_emulator.publish(stream.topic, *row_lines(20_000, start=50), b'{"id":1.5}')
        done = stream.stop(number)
        assert done.code == 0, done.err[-3000:]
        left = [json.loads(one.data)["id"] for one in pubsub_emulator.pull_all(stream.subscription)]
        assert "Traceback" not in done.err
        written = [row["id"][0] for row in stream.rows()]
        dead = [json.loads(letter["payload"])["id"] for letter in stream.archived()]
        assert Counter(written + dead + left) == Counter([*range(20_050), 1.5])
        assert len(written) + len(dead) == done.json["messages"] >= 50
        assert headrace("verify", stream.output).code == 0


def test_after_its_duration_it_ends_by_itself_with_everything_written(pubsub_emulator, tmp_path, row_schema, transform):
    """The windows that are open at the end are written too: nothing waits for a watermark that never comes."""
    flags = ("--schema", row_schema, "--transform", transform, "--window=1d", "--duration=6s", "--layout=blocks")
    with running_stream(pubsub_emulator, tmp_path, *flags) as stream:
        pubsub_emulator.publish(stream.topic, *row_lines(500))
        done = stream.finish()
        assert done.code == 0, done.err[-3000:]
        assert (done.json["messages"], done.json["rows_written"], done.json["dead_letters"]) == (500, 500, 0)
        assert sum(s["rows"] for manifest in stream.manifests().values() for s in manifest["shards"]) == 500
        assert headrace("verify", stream.output).code == 0


def test_rows_behind_the_watermark_are_late_data_and_those_ahead_of_all_sense_are_refused(
    pubsub_emulator, tmp_path, artefacts
):
    """Event times in the data: now is written, last year is late_data, and the year 2200 is out_of_range."""
    schema = tmp_path / "s.pbtxt"
    schema.write_text(
        "\n".join(
            f'feature {{ name: "{name}" type: {kind} value_count {{ min: 1 max: 1 }} presence {{ min_fraction: 1 }} }}'
            for name, kind in (("id", "INT"), ("at", "BYTES"))
        )
    )
    flags = ("--schema", schema, "--event_time_feature=at", "--window=2s", "--allowed_lateness=3s", "--batch_keys=1")
    with running_stream(pubsub_emulator, tmp_path / "job", *flags, "--max_archive_wait=1s") as stream:
        sent = 2
        pubsub_emulator.publish(stream.topic, b'{"id":0,"at":"2200-01-01T00:00:00Z"}', b'{"id":1,"at":"soon"}')
        stream.wait_for(lambda: len(stream.archived()) == 2, "dead letters")

        def late() -> bool:  # what is late is known once the watermark has been seen to pass a window
            nonlocal sent
            pubsub_emulator.publish(stream.topic, b'{"id":2,"at":"2020-01-01T00:00:00Z"}')
            sent += 1
            return len(stream.archived()) > 2

        stream.wait_for(late, "late row", every=1.0)
        done = stream.stop()
        assert done.code == 0, done.err[-3000:]
        reasons = {json.loads(one["payload"])["id"]: one["dlq_reason"] for one in stream.archived()}
        assert (reasons[0], reasons[2]) == ("out_of_range", "late_data")
        assert done.json["messages"] == done.json["dead_letters"] + done.json["rows_written"] == sent
