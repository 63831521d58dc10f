"""The real gcloud against the same fake Dataflow: what it launches our commands see, and the other way round."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.cli import need_gcloud
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service

from pipeline.ops.port.api import ApiError
from pipeline.ops.port.client import DataflowClient
from pipeline.ops.port.endpoint import endpoint_of


@pytest.fixture(autouse=True)
def the_real_one():
    """Every test needs it."""
    need_gcloud()


pytestmark = pytest.mark.slow  # each call takes a second or two
Gcloud = Callable[..., Any]


@pytest.fixture
def service():
    with dataflow_service() as running:
        yield running


@pytest.fixture
def client(service):
    return DataflowClient(PROJECT, REGION, endpoint=endpoint_of(service.url), sleep=[].append)


@pytest.fixture
def gcloud(service, tmp_path: Path) -> Gcloud:
    """``gcloud dataflow WORDS``: its answer as JSON; raises CalledProcessError."""

    def run(*words: str) -> Any:
        environment = {
            **os.environ,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAFLOW": f"{service.url}/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }
        command = ["gcloud", "dataflow", *words, "--region", REGION, "--format=json", "--verbosity=error"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=120)
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


def launch(gcloud: Gcloud, *words: str) -> Any:
    return gcloud("flex-template", "run", "flights", "--template-file-gcs-location=gs://b/t.json", *words)["job"]


def test_what_gcloud_launches_we_see(service, client, gcloud):
    job = launch(gcloud, "--parameters=^~^filter=a,b=1~window=5m", "--worker-machine-type=n2-highmem-4")
    assert job["currentState"] == "JOB_STATE_QUEUED"
    seen = client.job(job["id"], details=True)
    assert (seen.name, seen.state, seen.machine_type) == ("flights", "PENDING", "n2-highmem-4")
    assert service.state.launches[0]["parameters"] == {"filter": "a,b=1", "window": "5m"}
    with pytest.raises(ApiError, match="already an active job named flights"):
        client.launch({"launchParameter": {"jobName": "flights", "containerSpecGcsPath": "gs://b/t.json"}})


def test_gcloud_and_our_client_send_the_same_launch(service, client, gcloud):
    launch(
        gcloud,
        *("--update", "--transform-name-mappings=A=B", "--additional-experiments=graph_validate_only"),
        *("--parameters=window=5m", "--disable-public-ips", "--max-workers=4"),
    )
    client.launch(
        {
            "launchParameter": {
                "jobName": "flights",
                "containerSpecGcsPath": "gs://b/t.json",
                "update": True,
                "transformNameMappings": {"A": "B"},
                "parameters": {"window": "5m"},
                "environment": {
                    "additionalExperiments": ["graph_validate_only"],
                    "ipConfiguration": "WORKER_IP_PRIVATE",
                    "maxWorkers": 4,
                },
            }
        }
    )
    theirs, ours = service.state.launches
    assert theirs == ours


def test_gcloud_sees_what_we_launch_drain_and_cancel(service, client, gcloud):
    job = client.launch({"launchParameter": {"jobName": "flights", "containerSpecGcsPath": "gs://b/t.json"}})
    listed = gcloud("jobs", "list", "--status=active")
    assert [(one["id"], one["name"]) for one in listed] == [(job.id, "flights")]
    assert gcloud("jobs", "describe", job.id)["currentState"] == "JOB_STATE_PENDING"
    assert gcloud("jobs", "describe", job.id)["currentState"] == "JOB_STATE_RUNNING"
    gcloud("jobs", "update-options", job.id, "--max-num-workers=7", "--min-num-workers=2")
    assert service.state.jobs[job.id].body["runtimeUpdatableParams"] == {"maxNumWorkers": 7, "minNumWorkers": 2}
    client.request_state(job.id, "DRAINED")
    assert gcloud("jobs", "describe", job.id)["currentState"] == "JOB_STATE_DRAINED"


def test_we_see_what_gcloud_drains_and_updates(service, client, gcloud):
    first = launch(gcloud)["id"]
    assert [client.job(first).state for _ in range(2)] == ["PENDING", "RUNNING"]
    second = launch(gcloud, "--update")["id"]
    assert [client.job(second).state for _ in range(2)] == ["PENDING", "RUNNING"]
    old = client.job(first)
    assert (old.state, old.replaced_by) == ("UPDATED", second)
    gcloud("jobs", "drain", second)
    assert client.job(second).state == "DRAINED"


def test_a_fault_meets_gcloud_too(service, gcloud):
    service.fail(403, times=9)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        gcloud("jobs", "describe", "2026-1")
    assert "a fault of 403 by script" in caught.value.stderr
