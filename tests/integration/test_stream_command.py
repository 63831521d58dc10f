"""``headrace stream`` against the Pub/Sub emulator and by its refusals: from the command line to shards that verify."""

from __future__ import annotations

import pytest
from fakes.cli import headrace


@pytest.fixture
def words(tmp_path, row_schema, transform):
    """The arguments of a stream, without a destination for what is refused."""
    return [
        *("stream", "--input_subscription", "projects/test-proj/subscriptions/flights", "--schema", row_schema),
        *("--transform", transform, "--output", tmp_path / "out"),
    ]


def test_a_stream_without_a_place_for_what_it_refuses_is_refused(words):
    done = headrace(*words)
    assert done.code == 2
    assert "--dead_letter_topic" in done.err
    assert "--dead_letters" in done.err


def test_messages_become_shards_and_refused_ones_dead_letters(pubsub, words, tmp_path, rows):
    topic = pubsub.topic()
    words[2] = pubsub.subscription(topic)
    pubsub.publish(topic, *rows(300), b"no json", b'{"id": "x"}')
    done = headrace(*words, "--dead_letters", tmp_path / "dead", "--duration", "4s", "--json")
    assert done.code == 0, done.err
    summary = done.json
    assert (summary["messages"], summary["rows_written"], summary["dead_letters"]) == (302, 300, 2)
