"""Our client against the fake service: every call, and every fault."""

from __future__ import annotations

import pytest
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import Service, dataflow_service

from pipeline.core.errors import UsageError
from pipeline.ops.port.api import ApiError
from pipeline.ops.port.client import DataflowClient
from pipeline.ops.port.endpoint import OVERRIDE, Endpoint, endpoint_of

REQUEST = {
    "launchParameter": {
        "jobName": "flights",
        "containerSpecGcsPath": "gs://b/streaming.json",
        "parameters": {"filter": "a=1,b='x,\"y\"'"},
        "environment": {"machineType": "n2-standard-2", "ipConfiguration": "WORKER_IP_PRIVATE"},
    }
}


@pytest.fixture
def service():
    with dataflow_service() as running:
        yield running


@pytest.fixture
def waits() -> list[float]:
    """What the client slept, instead of sleeping."""
    return []


@pytest.fixture
def client(service: Service, waits: list[float]) -> DataflowClient:
    return client_of(service, waits)


def client_of(service: Service, waits: list[float], *, timeout: float = 20) -> DataflowClient:
    return DataflowClient(PROJECT, REGION, endpoint=endpoint_of(service.url), timeout=timeout, sleep=waits.append)


def test_a_launch_reaches_the_service_unchanged(service, client):
    job = client.launch(REQUEST)
    assert (job.name, job.state, job.region, job.kind) == ("flights", "QUEUED", REGION, "streaming")
    sent = service.state.launches[0]
    assert sent == REQUEST["launchParameter"]
    assert [client.job(job.id).state for _ in range(3)] == ["PENDING", "RUNNING", "RUNNING"]


def test_a_field_that_the_api_does_not_have_is_not_dropped_silently(client):
    with pytest.raises(Exception, match="machineKind"):
        client.launch({"launchParameter": {"environment": {"machineKind": "n2"}}})


def test_details_are_read_when_asked_for(service, client):
    job = client.launch(REQUEST)
    assert client.job(job.id).machine_type == ""
    assert client.job(job.id, details=True).machine_type == "n2-standard-2"


def test_jobs_are_found_by_name_state_and_region_over_all_pages(service, client):
    for number in range(230):
        service.state.add_job(f"j{number % 3}", "JOB_STATE_DONE")
    service.state.add_job("j1", "JOB_STATE_RUNNING")
    service.state.add_job("j1", "JOB_STATE_RUNNING", location="us-central1")
    assert len(client.jobs()) == 231
    assert len(client.jobs(name="j1")) == 78
    assert [job.state for job in client.jobs(name="j1", active=True)] == ["RUNNING"]
    assert {job.region for job in client.jobs(name="j1", active=True, everywhere=True)} == {REGION, "us-central1"}
    created = [job.id for job in client.jobs()]
    assert created == sorted(created, reverse=True)


def test_drain_cancel_and_options(service, client):
    job = service.state.add_job("flights")
    assert client.change_options(job.id, {"max_num_workers": 9, "worker_utilization_hint": 0.7}).state == "RUNNING"
    assert job.body["runtimeUpdatableParams"] == {"maxNumWorkers": 9, "workerUtilizationHint": 0.7}
    assert client.request_state(job.id, "DRAINED").state == "DRAINING"
    assert client.job(job.id).state == "DRAINED"
    other = service.state.add_job("other")
    assert client.request_state(other.id, "CANCELLED").state == "CANCELLING"


def test_messages_and_metrics(service, client):
    job = service.state.add_job("flights")
    for importance in ("JOB_MESSAGE_ERROR", "JOB_MESSAGE_BASIC", "JOB_MESSAGE_WARNING", "JOB_MESSAGE_DEBUG"):
        service.state.say(job, importance, importance)
    assert [one.importance for one in client.messages(job.id)] == ["error", "warning"]
    assert [one.importance for one in client.messages(job.id, minimum="basic")] == ["error", "basic", "warning"]
    job.metrics = [
        {"name": {"origin": "user", "name": "rows_read"}, "scalar": 12},
        {"name": {"origin": "user", "name": "rows_read", "context": {"tentative": "true"}}, "scalar": 99},
    ]
    assert client.metrics(job.id) == {"rows_read": 12}


def test_what_is_not_there_is_not_looked_for_again(service, client, waits):
    with pytest.raises(ApiError, match=r"read job 2026-1: .*could not be found") as caught:
        client.job("2026-1")
    assert (caught.value.code, waits) == (404, [])


@pytest.mark.parametrize("fault", [429, 500, 503, "reset"])
def test_reading_and_changes_are_repeated_with_growing_delays(service, client, waits, fault):
    job = service.state.add_job("flights")
    service.fail(fault, times=3)
    assert client.job(job.id).state == "RUNNING"
    assert waits == [1, 2, 4]
    service.fail(fault, "PUT", times=1)
    assert client.request_state(job.id, "DRAINED").state == "DRAINING"
    service.fail(fault, times=9)
    with pytest.raises(ApiError):
        client.jobs()
    assert len(service.seen("GET")) == 4 + 5


@pytest.mark.parametrize(
    ("code", "said"),
    [(401, "gcloud auth application-default login"), (403, r"project test-proj; it takes dataflow\.jobs\.get")],
)
def test_what_will_not_pass_is_told_in_words_at_once(service, client, waits, code, said):
    service.fail(code, times=9)
    with pytest.raises(ApiError, match=said) as caught:
        client.jobs()
    assert (caught.value.code, waits, len(service.requests)) == (code, [], 1)


def test_no_answer_in_time_is_tried_again(service, waits):
    job = service.state.add_job("flights")
    service.fail("hang", times=1)
    assert client_of(service, waits, timeout=0.3).job(job.id).state == "RUNNING"
    assert waits == [1]


@pytest.mark.parametrize("fault", [500, 503, "reset", "hang"])
@pytest.mark.parametrize("after", [False, True])
def test_a_launch_without_a_clear_answer_is_not_repeated(service, waits, fault, after):
    service.fail(fault, "launch", times=1, after=after)
    with pytest.raises(ApiError) as caught:
        client_of(service, waits, timeout=0.3).launch(REQUEST)
    assert caught.value.carried_out is None
    assert (len(service.seen("launch")), len(service.state.launches), waits) == (1, int(after), [])


def test_a_launch_that_was_certainly_not_carried_out_is_repeated(service, client, waits):
    service.fail(429, "launch", times=2)
    client.launch(REQUEST)
    assert (len(service.state.launches), waits) == (1, [1, 2])


@pytest.mark.parametrize("code", [401, 403])
def test_a_launch_that_is_refused_is_told_in_words(service, client, code):
    service.fail(code, "launch")
    with pytest.raises(ApiError, match=r"actAs|gcloud auth") as caught:
        client.launch(REQUEST)
    assert caught.value.carried_out is False


def test_where_nobody_listens_nothing_was_sent(waits):
    with dataflow_service() as service:
        url = service.url
    client = DataflowClient(PROJECT, REGION, endpoint=endpoint_of(url), timeout=1, sleep=waits.append)
    with pytest.raises(ApiError, match="no connection") as caught:
        client.launch(REQUEST)
    assert caught.value.carried_out is False
    assert len(waits) == 4


def test_a_name_in_use_is_told(service, client):
    service.state.add_job("flights")
    with pytest.raises(ApiError, match="already an active job named flights") as caught:
        client.launch(REQUEST)
    assert (caught.value.code, caught.value.carried_out) == (409, False)


def test_validating_launches_nothing(service, client):
    client.validate(REQUEST)
    assert service.state.launches == []
    with pytest.raises(ApiError, match="gs://"):
        client.validate({"launchParameter": {"jobName": "x", "containerSpecGcsPath": "x"}})


def test_without_credentials_it_says_how_to_get_some(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ApiError, match="gcloud auth application-default login"):
        DataflowClient(PROJECT, REGION, endpoint=Endpoint()).jobs()


def test_the_endpoint_is_googles_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv(OVERRIDE, raising=False)
    assert endpoint_of(None) == Endpoint("dataflow.googleapis.com", "https", anonymous=False)
    monkeypatch.setenv(OVERRIDE, "localhost:8080")
    assert endpoint_of(None) == Endpoint("localhost:8080", "http", anonymous=True)
    assert endpoint_of("http://127.0.0.1:1/") == Endpoint("127.0.0.1:1", "http", anonymous=True)
    assert endpoint_of("[::1]:1") == Endpoint("[::1]:1", "http", anonymous=True)
    assert endpoint_of("x.p.googleapis.com") == Endpoint("x.p.googleapis.com", "https", anonymous=False)


@pytest.mark.parametrize(
    "bad", ["http://example.com", "ftp://localhost", "http://localhost/x", "localhost:99999999", "http://u:p@localhost"]
)
def test_other_machines_are_not_spoken_to_in_clear(bad):
    with pytest.raises(UsageError, match="the Dataflow endpoint"):
        endpoint_of(bad)
