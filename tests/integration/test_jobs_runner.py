"""Every job compiled by Beam's DataflowRunner and handed to the fake service, as the templates' launchers do it."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as beam_pb2
from fakes.cli import ROOT, Done, headrace
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator

from pipeline.ops.graph import snapshot
from pipeline.ops.port.client import DataflowClient
from pipeline.ops.port.endpoint import endpoint_of
from pipeline.options.template import arguments, template_named
from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)

pytestmark = pytest.mark.slow
GOLDEN = ROOT / "tests" / "golden" / "streaming_graph.json"
IMAGE = "europe-docker.pkg.dev/test-proj/headrace/headrace:1"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


@pytest.fixture
def service():
    with dataflow_service() as running:
        yield running


@pytest.fixture
def launch(bucket, service, row_schema):
    """``launch(template, {parameter: value})``: what the template's launcher does with them on Dataflow."""
    files.write_bytes(f"{bucket}/schema.pbtxt", row_schema.read_bytes())

    def run(template: str, parameters: dict[str, str], *beam: str, name: str = "flights") -> Done:
        given = [f"--{key}={value}" for key, value in parameters.items()]
        words = arguments(template_named(template), given, image=IMAGE)
        environment = [
            *("--runner=DataflowRunner", f"--project={PROJECT}", f"--region={REGION}", f"--job_name={name}"),
            *(f"--temp_location={bucket}/temp", f"--staging_location={bucket}/staging", "--sdk_location=container"),
            f"--dataflow_endpoint={service.url.replace('127.0.0.1', 'localhost')}",
        ]
        return headrace(*words, *environment, *beam, "--json")

    return run


@pytest.fixture
def stream(bucket, pubsub) -> dict[str, str]:
    """Parameters of a streaming job."""
    return {
        "input_subscription": pubsub.subscription(pubsub.topic()),
        "schema": f"{bucket}/schema.pbtxt",
        "output": f"{bucket}/out",
        "dead_letters": f"{bucket}/dead",
    }


def staged_pipeline(bucket: str) -> beam_pb2.Pipeline:
    """The pipeline that was staged last."""
    found = [uri for uri in files.list_folder(f"{bucket}/staging") if uri.endswith("/pipeline.pb")]
    return beam_pb2.Pipeline.FromString(files.read_bytes(max(found)))


def steps_of(graph) -> dict[str, str]:
    """Names of steps, as a mapping of an update has them, with what each one holds."""
    return {step["name"]: (step["states"], step["timers"], step["stateful"]) for step in graph["steps"]}


def only_job(service):
    (body,) = [body for _, path, body in service.seen("POST") if path.endswith("/jobs")]
    return body


def assert_runs_on_runner_v2(body) -> None:
    experiments = body["environment"]["experiments"]
    assert "use_runner_v2" in experiments
    assert {pool["workerHarnessContainerImage"] for pool in body["environment"]["workerPools"]} == {IMAGE}


def test_the_streaming_job_compiles_and_the_launcher_leaves_at_once(bucket, service, launch, stream):
    done = launch("streaming", stream)
    assert done.code == 0, done.err
    body = only_job(service)
    assert_runs_on_runner_v2(body)
    assert "enable_streaming_engine" in body["environment"]["experiments"]
    assert body["type"] in (2, "JOB_TYPE_STREAMING")
    job = service.state.jobs[done.json["job_id"]]
    assert job.state == "JOB_STATE_QUEUED" or job.state == "JOB_STATE_RUNNING"
    assert not [path for _, path, _ in service.seen("GET") if path.endswith(job.id)], "it waited"
    assert steps_of(snapshot(staged_pipeline(bucket))) == steps_of(json.loads(GOLDEN.read_bytes()))


def test_the_batch_job_compiles(bucket, service, launch, rows):
    done = launch("batch", batch_parameters(bucket, rows), name="files")
    assert done.code == 0, done.err
    body = only_job(service)
    assert_runs_on_runner_v2(body)
    assert body["type"] in (1, "JOB_TYPE_BATCH")
    assert done.json["job_id"] in service.state.jobs


def batch_parameters(bucket, rows) -> dict[str, str]:
    files.write_bytes(f"{bucket}/in/a.jsonl", b"\n".join(rows(20)))
    where = {"output": f"{bucket}/out", "dead_letters": f"{bucket}/dead", "run_id": "r"}
    return {"input": f"{bucket}/in/*.jsonl", "schema": f"{bucket}/schema.pbtxt", **where}


@pytest.mark.parametrize("template", ["batch", "streaming"])
def test_the_services_launcher_gets_the_job_as_a_file(bucket, service, launch, stream, rows, template):
    """It calls the program with --template_location, and the service makes the job from what lies there."""
    parameters = stream if template == "streaming" else batch_parameters(bucket, rows)
    file = f"{bucket}/staging/template_launches/{template}/job_object"
    done = launch(template, parameters, f"--template_location={file}", name=template)
    assert done.code == 0, done.err
    assert json.loads(files.read_bytes(file))["name"] == template
    assert (done.json["job_id"], service.state.jobs) == ("", {})
    if template == "batch":
        assert files.list_folder(f"{bucket}/out/.staging-r"), "the job needs what was planned"


@pytest.mark.parametrize(("fault", "after", "kept"), [(503, True, True), (403, False, False)])
def test_a_submission_whose_answer_is_lost_keeps_what_the_job_needs(
    bucket, service, launch, rows, monkeypatch, fault, after, kept
):
    monkeypatch.setattr("apache_beam.utils.retry.Clock.sleep", [].append)
    parameters = {**batch_parameters(bucket, rows), "run_id": f"lost-{fault}"}
    service.fail(fault, "POST", after=after, times=99)
    done = launch("batch", parameters, name=f"lost-{fault}")
    assert (done.code, len(service.state.jobs)) == (1, int(kept)), done.err
    assert bool(files.list_folder(f"{bucket}/out/.staging-lost-{fault}")) is kept
    assert ("may have been made all the same" in done.err) is kept


def test_beams_own_update_replaces_what_we_see(service, launch, stream):
    first = launch("streaming", stream).json["job_id"]
    client = DataflowClient(PROJECT, REGION, endpoint=endpoint_of(service.url), sleep=[].append)
    service.state.jobs[first].body["currentState"] = "JOB_STATE_RUNNING"
    second = launch("streaming", stream, "--update").json["job_id"]
    while client.job(second).state != "RUNNING":
        pass
    old = client.job(first)
    assert (old.state, old.replaced_by, client.job(second).replaces) == ("UPDATED", second, first)


def test_a_second_job_of_the_name_is_not_made(service, launch, stream):
    assert launch("streaming", stream).code == 0
    done = launch("streaming", stream)
    assert (done.code, len(service.state.jobs)) == (4, 1)
    assert "There is already active job named flights" in done.err
    assert "headrace job update" in done.err


@pytest.mark.parametrize(("code", "said"), [(401, "gcloud auth"), (403, "dataflow.jobs.create"), (429, "quota")])
def test_what_the_service_refuses_is_told_in_words(service, launch, stream, code, said):
    service.fail(code, "POST", times=9)
    done = launch("streaming", stream)
    assert (done.code, service.state.jobs) == (1, {})
    assert said in done.err


def test_the_replay_compiles(bucket, service, launch, pubsub, bench, row_schema, rows):
    bench.write("bad.jsonl", [*rows(3), b"no json"])
    where = ("--output", f"{bucket}/out-replay", "--dead_letters", f"{bucket}/dead-replay", "--run_id=r")
    assert headrace("run", "--input", bench.folder / "bad.jsonl", "--schema", row_schema, *where).code == 0
    topic = pubsub.topic()
    pubsub.subscription(topic)
    parameters = {"archive": f"{bucket}/dead-replay", "to": topic, "execute": "true"}
    done = launch("replay", parameters, name="again")
    assert done.code == 0, done.err
    assert_runs_on_runner_v2(only_job(service))
    assert done.json["job_id"] in service.state.jobs
