"""``headrace stream`` from the command line: against the emulator to shards that verify and read; and its refusals."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
from fakes.cli import headrace
from fakes.runs import letters_in

from pipeline.core.manifest import Code
from pipeline.core.windows import WindowManifest, window_name, window_start
from pipeline.transforms import names
from pipeline.transforms.tally import forget_totals, totals

SUBSCRIPTION = "projects/test-proj/subscriptions/flights"


@pytest.fixture
def words(tmp_path, row_schema, transform):
    """The arguments of a stream, without a destination for what is refused."""
    return [
        *("stream", "--input_subscription", SUBSCRIPTION, "--schema", row_schema),
        *("--transform", transform, "--output", tmp_path / "out"),
    ]


def test_a_stream_without_a_place_for_what_it_refuses_is_refused(words):
    done = headrace(*words)
    assert done.code == 2
    assert "--dead_letter_topic" in done.err
    assert "--dead_letters" in done.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--input_subscription", "flights"], "projects/<project>/subscriptions/<name>"),
        (["--dead_letter_topic", "projects/p/topics/t"], "projects/<project>/topics/<name>"),
        (["--dead_letter_topic", "projects/test-proj/subscriptions/abc"], "projects/<project>/topics/<name>"),
        (["--id_attribute", "id"], "--id_attribute"),
        (["--runner", "FnApiRunner"], "BundleBasedDirectRunner"),
        (["--runner", "DirectRunner"], "BundleBasedDirectRunner"),
        (["--window", "0"], "whole seconds"),
        (["--window", "1500ms"], "whole seconds"),
        (["--window", "10"], "not a duration"),
        (["--allowed_lateness", "900ms"], "whole seconds"),
        (["--window", "9" * 400 + "d"], "not a duration"),
        (["--allowed_lateness", "40000d"], "whole seconds"),
        (["--max_batch_wait", "100000000000d"], "not a duration"),
        (["--redact_features", "nobody"], "no feature 'nobody'"),
        (["--event_time_feature", "nobody"], "nobody"),
        (["--payload_format", "avro"], "--avro_schema"),
        (["--transform", "/nowhere"], "headrace.json"),
        (["--schema", "/nowhere"], "no schema file"),
        (["--batch_keys", "0"], "at least 1"),
        (["--run_id", "a/b"], "run id"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(words, tmp_path, more, said):
    done = headrace(*words, "--dead_letters", tmp_path / "dead", *more)
    assert done.code == 2, done.err
    assert said in done.err
    assert done.out == ""


def test_a_transform_of_another_schema_is_refused(words, tmp_path, case_schema):
    done = headrace(*words, "--dead_letters", tmp_path / "dead", "--schema", case_schema)
    assert done.code == 2
    assert "was made for another schema" in done.err


def test_an_output_that_holds_windows_of_another_kind_is_refused(words, tmp_path):
    """The window of 366 days that holds now, so that it is the one whenever this runs."""
    start = window_start(round(time.time()) * 1_000_000, 366 * 86_400)
    folder = tmp_path / "out" / str(window_name(start, 366 * 86_400))
    folder.mkdir(parents=True)
    manifest = WindowManifest(
        window_name(start, 366 * 86_400), "other-job", Code("1"), "s", None, "rows", {"features": {}}, "none"
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    done = headrace(*words, "--dead_letters", tmp_path / "dead", "--window", "366d")
    assert done.code == 2
    assert "other-job" in done.err
    assert "another --output" in done.err


def test_messages_become_shards_that_verify_and_read_and_refused_ones_dead_letters(pubsub, words, tmp_path, rows):
    topic = pubsub.topic()
    words[2] = pubsub.subscription(topic)
    pubsub.publish(topic, *rows(300), b"no json", b'{"id": "x"}')
    out, dead = tmp_path / "out", tmp_path / "dead"
    done = headrace(*words, "--dead_letters", dead, "--duration", "4s", "--json", "--run_id", "mine")
    assert done.code == 0, done.err
    summary = done.json
    assert (summary["messages"], summary["rows_written"], summary["dead_letters"]) == (302, 300, 2)
    assert summary["dead_letters_by_reason"] == {"invalid_json": 1, "wrong_type": 1}
    assert {letter["payload"] for letter in letters_in(dead / "run=mine")} == {b"no json", b'{"id": "x"}'}

    verified = headrace("verify", out, "--json")
    assert verified.code == 0, verified.err
    assert (verified.json["ok"], verified.json["rows"]) == (True, 300)
    assert headrace("dlq", "summary", dead).code == 0

    from pipeline.features.reader import make_dataset

    always = ("2000-01-01T00:00Z", "2100-01-01T00:00Z")
    batches = list(make_dataset(out, 50, windows=always, drop_remainder=False))
    assert sorted(int(number) for batch in batches for number in batch["id"]) == list(range(300))
    (window, *_) = sorted(out.glob("window=*"))
    assert sum(len(batch["id"]) for batch in make_dataset(window, 7, drop_remainder=False)) <= 300

    shard = next(window.glob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    damaged = headrace("verify", out)
    assert damaged.code == 3
    assert shard.name in damaged.out


def test_a_stream_that_is_told_to_end_writes_what_it_took(pubsub, words, tmp_path, rows):
    """SIGTERM, as from a shell or a container; it has come only after the messages were taken."""
    topic = pubsub.topic()
    words[2] = pubsub.subscription(topic)
    pubsub.publish(topic, *rows(50))
    forget_totals()
    end = threading.Thread(target=end_once_read, args=(50,), daemon=True)
    end.start()
    done = headrace(*words, "--dead_letters", tmp_path / "dead", "--json")
    end.join()
    assert done.code == 0, done.err
    assert done.json["rows_written"] == 50
    (manifest,) = [json.loads(path.read_bytes()) for path in (tmp_path / "out").glob("window=*/manifest.json")]
    assert manifest["counts"]["written"] == 50


def end_once_read(messages: int) -> None:
    """Send this process SIGTERM once a stream in it has read so many messages."""
    while totals().get(names.MESSAGES_READ, 0) < messages:
        threading.Event().wait(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
