"""A replay with archive, ledger, parking lot and report on gs://, through the storage emulator."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest
from fakes.cli import headrace
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator

from dlq_replay.store import BucketStore
from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


@pytest.mark.slow
def test_the_endless_replay_compiles_for_dataflow(bucket, pubsub):
    topic = pubsub.topic()
    files.write_bytes(f"{bucket}/temp/x", b"")
    with dataflow_service() as service:
        done = headrace(
            *("dlq", "replay", pubsub.subscription(topic), "--ledger", f"{bucket}/dead", "--to", topic, "--execute"),
            *(
                "--streaming",
                "--runner=DataflowRunner",
                f"--project={PROJECT}",
                f"--region={REGION}",
                "--job_name=replay",
            ),
            *(f"--temp_location={bucket}/temp", f"--staging_location={bucket}/staging", "--sdk_location=container"),
            "--sdk_container_image=europe-docker.pkg.dev/test-proj/headrace/headrace:1",
            f"--dataflow_endpoint={service.url.replace('127.0.0.1', 'localhost')}",
        )
        assert done.code == 0, done.err
        (body,) = [body for _, path, body in service.seen("POST") if path.endswith("/jobs")]
        assert body["type"] in (2, "JOB_TYPE_STREAMING")
        assert done.json["job_id"] in service.state.jobs


def test_on_a_remote_runner_the_ledger_must_be_where_workers_reach_it(tmp_path):
    done = headrace(
        *("dlq", "replay", "projects/test-proj/subscriptions/dead", "--ledger", tmp_path, "--execute"),
        *("--to", "projects/test-proj/topics/t", "--runner=DataflowRunner"),
    )
    assert done.code == 2
    assert "must be on gs://" in done.err


def test_a_store_in_a_bucket_reads_what_it_made(bucket):
    store = BucketStore(f"{bucket}/store")
    assert store.create("lane-00/00000000.jsonl", b"1\n")
    assert store.create("lane-00/00000001.jsonl", b"2\n")
    assert store.names("lane-00") == ["lane-00/00000000.jsonl", "lane-00/00000001.jsonl"]
    assert store.names("lane-01") == []
    assert store.read("lane-00/00000001.jsonl") == b"2\n"
    assert store.read("lane-00/00000002.jsonl") is None


def test_everything_of_a_replay_can_lie_in_a_bucket(bucket, bench, rows, row_schema):
    source = bench.write(
        "rows.jsonl", [*rows(20), *(b'{"id": %d, "x": "1.5", "w": "fir"}' % n for n in range(100, 110))]
    )
    schema = f"{bucket}/schema.pbtxt"
    files.write_bytes(schema, row_schema.read_bytes())
    where = ("--output", f"{bucket}/out", "--dead_letters", f"{bucket}/dead", "--run_id", "r", "--threads", 1)
    assert headrace("run", "--input", source, "--schema", schema, *where).code == 0
    files.write_bytes(f"{bucket}/fixes.yaml", b"fixes: [{cast: {x: float}}]")
    words = ("dlq", "replay", f"{bucket}/dead", "--fix", f"{bucket}/fixes.yaml", "--schema", schema, "--json")
    proof = headrace(*words)
    assert proof.json["would_pass"] == 10, proof.err
    assert not [name for name in files.list_folder(f"{bucket}/dead") if "_replay" in name]
    first = headrace(*words, "--to_shards", f"{bucket}/fixed", "--execute", "--replay_id", "one")
    assert first.code == 0, first.err
    assert first.json["counts"]["replayed"] == 10
    second = headrace(*words, "--to_shards", f"{bucket}/fixed", "--execute", "--replay_id", "two")
    assert (second.json["counts"]["replayed"], second.json["counts"]["already_done"]) == (0, 10)
    report = json.loads(files.read_bytes(f"{bucket}/dead/_replay/reports/one.json"))
    assert report["replay_id"] == "one"
    assert len([name for name in files.list_folder(f"{bucket}/dead/_replay/ledger") if name.endswith(".jsonl")]) >= 2
