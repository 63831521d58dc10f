"""A stream that writes to gs://, and a stream as Dataflow would be given it, both against emulators."""

from __future__ import annotations

import importlib.util
import os

import pytest
from fakes.cli import headrace
from fakes.gcs import storage_emulator

from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """An empty bucket."""
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


@pytest.fixture
def words(row_schema, transform):
    """What every stream here is told."""
    return [
        *("stream", "--input_subscription", "projects/test-proj/subscriptions/flights", "--schema", row_schema),
        *("--transform", transform),
    ]


def test_windows_and_dead_letters_on_gs(pubsub, bucket, words, rows):
    topic = pubsub.topic()
    words[2] = pubsub.subscription(topic)
    pubsub.publish(topic, *rows(40), b"no json")
    out, dead = f"{bucket}/out", f"{bucket}/dead"
    done = headrace(*words, "--output", out, "--dead_letters", dead, "--duration", "3s", "--json")
    assert done.code == 0, done.err
    assert (done.json["rows_written"], done.json["dead_letters_archived"]) == (40, 1)
    verified = headrace("verify", out, "--json")
    assert verified.code == 0, verified.err
    assert verified.json["rows"] == 40
    assert all(not finding for window in verified.json["windows"] for finding in window["findings"])
    summary = headrace("dlq", "summary", dead, "--json")
    assert summary.code == 0, summary.err
    assert summary.json["dead_letters"] == 1


def dataflow(bucket: str) -> list[str]:
    """Beam's options for a job on Dataflow that is made and not started."""
    return [
        *("--runner", "DataflowRunner", "--dry_run=True", "--project", "test-proj", "--region", "us-central1"),
        *("--temp_location", f"{bucket}/tmp", "--sdk_location", "container", "--sdk_container_image", "image:1"),
    ]


def test_a_job_for_dataflow_is_made_and_nobody_waits_for_it(bucket, words, transform):
    for path in files.list_folder(str(transform)):
        files.write_bytes(f"{bucket}/tf{path.removeprefix(str(transform))}", files.read_bytes(path))
    words[-1] = f"{bucket}/tf"
    done = headrace(
        *(*words, *dataflow(bucket), "--output", f"{bucket}/out2", "--json"),
        *("--dead_letter_topic", "projects/test-proj/topics/dead"),
        *("--id_attribute", "id", "--timestamp_attribute", "time"),
    )
    assert done.code == 0, done.err
    assert done.json["job_name"] == "headrace-flights", "the same whenever it is launched"
    assert done.json["url"].startswith("https://console.cloud.google.com/dataflow/jobs/us-central1/")


def test_workers_elsewhere_are_not_sent_to_this_machines_disk(bucket, words, tmp_path):
    where = ("--output", f"{bucket}/out2", "--dead_letters", f"{bucket}/dead2")
    for more, flag in (
        ((), "--transform"),
        (("--output", tmp_path), "--output"),
        (("--dead_letters", tmp_path), "--dead_letters"),
        (("--duration", "1m"), "--duration"),
    ):
        done = headrace(*words, *where, *dataflow(bucket), *more)
        assert done.code == 2
        assert flag in done.err
