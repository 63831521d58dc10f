"""Changing jobs while things go wrong: a failing service, lost answers, other operators, tampered files, Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import os
from datetime import timedelta

import pytest
from fakes.cli import ROOT, headrace
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator
from fakes.jobs import IMAGE, NAME, JobsBench

from pipeline.ops.following import Waiting
from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)

LOOK = f"GET /v1b3/projects/{PROJECT}/locations/{REGION}/jobs/"
PLACE = ("--project", PROJECT, "--region", REGION)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


@pytest.fixture
def jobs(bucket, tmp_path, row_schema, monkeypatch):
    """A fresh service, asked again without waiting."""
    monkeypatch.setattr("pipeline.ops.port.client._FIRST_DELAY", 0.0)
    monkeypatch.setattr("pipeline.ops.launching._LOOKS", (0.0, 0.0))
    with dataflow_service() as service:
        yield JobsBench(tmp_path, bucket, service, row_schema)


@pytest.fixture
def state(jobs):
    return jobs.service.state


def record_of_running(jobs) -> str:
    launch = jobs.service.state.launches[-1]["environment"]["additionalUserLabels"]["headrace_launch"]
    return f"{jobs.bucket}/staging/headrace-launches/{NAME}/{launch}.json"


# The service fails for a while


@pytest.mark.parametrize("code", [429, 500, 503, "reset"])
@pytest.mark.parametrize("command", ["launch", "update", "resize", "drain", "cancel"])
def test_a_service_that_fails_while_we_wait_is_asked_again(jobs, state, command, code):
    """Longer than one call is repeated: waiting goes on as long as it was asked to."""
    if command == "launch":
        words = [jobs.spec()]
        state.script("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING")
    else:
        job = jobs.launched()
        words = [jobs.spec()] if command == "update" else [NAME, *PLACE]
        words += ["--machine_type=n2-highmem-4"] if command == "resize" else []
        assert job
    before = len(jobs.service.requests)
    changing = {"launch": "POST", "update": "POST", "resize": "POST"}.get(command, "PUT")
    jobs.service.fail(code, LOOK, times=12, follows=changing)
    done = jobs.job(command, *words)
    assert done.code == 0, done.err
    assert "looking again" in done.err
    assert len(jobs.service.requests) > before + 12


def test_a_job_whose_messages_may_not_be_read_is_followed_by_its_states(jobs, state):
    jobs.service.fail(403, "/messages", times=99)
    done = jobs.job("launch", jobs.spec())
    assert done.code == 0, done.err
    assert done.err.count("cannot read the messages") == 1
    assert "dataflow.jobs.get" in done.err


def test_a_service_that_stays_away_is_told_when_the_time_is_up(jobs, state):
    jobs.service.fail(503, LOOK, times=10_000, follows="POST")
    done = jobs.job("launch", jobs.spec(), "--wait_minutes=0.001")
    assert done.code == 1
    assert "could not be seen after 0.001 minutes; it goes on without us" in done.err
    assert "headrace job status 2026-" in done.err


def test_a_permission_that_is_taken_away_while_we_wait_ends_it(jobs, state):
    jobs.service.fail(403, LOOK, times=9, follows="POST")
    done = jobs.job("launch", jobs.spec())
    assert (done.code, "dataflow.jobs.get and dataflow.jobs.list" in done.err) == (1, True)


# Answers are lost


@pytest.mark.parametrize("fault", [400, 503, "reset"])
def test_a_drain_before_an_update_whose_answer_is_lost_goes_on(jobs, state, fault):
    old = jobs.launched()
    jobs.service.fail(fault, "PUT", after=True, times=9)
    done = jobs.job("update", jobs.spec(), "--strategy=drain", "--json")
    assert done.code == 0, done.err
    assert state.jobs[old].state == "JOB_STATE_DRAINED"
    assert (len(state.named(NAME)), done.json["job"]["state"]) == (2, "RUNNING")


@pytest.mark.parametrize("fault", [403, 503])
def test_a_drain_that_was_not_carried_out_launches_nothing(jobs, state, fault):
    old = jobs.launched()
    jobs.service.fail(fault, "PUT", times=9)
    done = jobs.job("update", jobs.spec(), "--strategy=drain")
    assert (done.code, len(state.launches), state.jobs[old].state) == (1, 1, "JOB_STATE_RUNNING")
    assert "the new job was not launched" in done.err


@pytest.mark.parametrize("fault", [500, "reset"])
def test_a_resize_in_flight_whose_answer_is_lost_is_made_once_more(jobs, state, fault):
    job = jobs.launched()
    jobs.service.fail(fault, "PUT", after=True)
    assert jobs.job("resize", NAME, "--max_workers=9", *PLACE).code == 0
    assert state.jobs[job].body["runtimeUpdatableParams"] == {"maxNumWorkers": 9}
    assert len(state.launches) == 1


@pytest.mark.parametrize("fault", [500, "reset"])
def test_a_resize_whose_answer_is_lost_is_found_and_not_repeated(jobs, state, fault):
    jobs.launched()
    jobs.service.fail(fault, "flexTemplates:launch", after=True, times=2)
    assert jobs.job("resize", NAME, "--bigger", *PLACE).code == 0
    assert len(state.launches) == 3, "one launch, one validation, one replacement"


# Other operators


def test_what_another_operator_has_replaced_meanwhile_is_not_replaced_again(jobs, state, monkeypatch):
    old = jobs.launched()
    launch = state.launch

    def with_another(project, region, request):
        answer = launch(project, region, request)
        if "graph_validate_only" in str(request):
            other = state.add_job(NAME)
            state.jobs[old].body |= {"currentState": "JOB_STATE_UPDATED", "replacedByJobId": other.id}
        return answer

    monkeypatch.setattr(state, "launch", with_another)
    done = jobs.job("update", jobs.spec())
    assert (done.code, len(state.launches)) == (4, 2), done.err
    assert f"job {old} was RUNNING when this was planned and is UPDATED by 2026" in done.err
    assert "Nothing was launched" in done.err


def test_an_update_that_crosses_another_one_is_told(jobs, state, monkeypatch):
    old = jobs.launched()
    enter = state._enter

    def crossing(job, to):
        enter(job, to)
        if to == "JOB_STATE_RUNNING" and job.replaces:
            state.jobs[old].body["replacedByJobId"] = "2026-other"

    monkeypatch.setattr(state, "_enter", crossing)
    done = jobs.job("update", jobs.spec())
    assert done.code == 1
    assert "was replaced by 2026-other: somebody else has updated it at the same time" in done.err


@pytest.mark.parametrize("to", ["DRAINING", "CANCELLING", "FAILED"])
def test_a_job_that_leaves_running_between_look_and_launch_is_not_replaced(jobs, state, monkeypatch, to):
    old = jobs.launched()
    launch = state.launch

    def ending(project, region, request):
        answer = launch(project, region, request)
        state.jobs[old].body["currentState"] = f"JOB_STATE_{to}"
        return answer

    monkeypatch.setattr(state, "launch", ending)
    done = jobs.job("resize", NAME, "--bigger", *PLACE)
    assert (done.code, len(state.launches)) == (4, 2), done.err
    assert f"is {to} now: somebody else changes it too" in done.err


def test_a_name_that_another_takes_after_the_drain_is_told_as_it_is(jobs, state, monkeypatch):
    old = jobs.launched()
    enter = state._enter

    def taken(job, to):
        enter(job, to)
        if to == "JOB_STATE_DRAINED":
            state.add_job(NAME)

    monkeypatch.setattr(state, "_enter", taken)
    done = jobs.job("update", jobs.spec(), "--strategy=drain")
    assert (done.code, len(state.launches)) == (4, 1), done.err
    assert f"The old job {old} is DRAINED; under the name {NAME} job 2026" in done.err
    assert "nothing runs under the name" not in done.err


def test_of_two_launches_at_once_one_is_refused(jobs, state, monkeypatch):
    launch = state.launch

    def raced(project, region, request):
        if not state.active(NAME) and not request.get("validateOnly"):
            state.add_job(NAME)
        return launch(project, region, request)

    monkeypatch.setattr(state, "launch", raced)
    done = jobs.job("launch", jobs.spec())
    assert (done.code, state.launches) == (4, []), done.err
    assert "Nothing was launched" in done.err


# Files that are not what they should be


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[]", "expected an object"),
        (b'{"format": 1}', "expected"),
        (b'{"format": 99}', "format 99; this program reads 1"),
    ],
)
@pytest.mark.parametrize("command", ["update", "resize"])
def test_a_launch_record_that_is_garbage_is_told_and_nothing_happens(jobs, state, command, data, said):
    jobs.launched()
    uri = record_of_running(jobs)
    files.write_bytes(uri, data)
    words = [jobs.spec()] if command == "update" else [NAME, "--bigger", *PLACE]
    done = jobs.job(command, *words)
    assert (done.code, len(state.launches)) == (2, 1), done.err
    assert uri in done.err
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "change", [{"job_name": "payments"}, {"region": "us-central1"}, {"project": "other-proj"}, {"template": "/etc/x"}]
)
def test_a_launch_record_that_was_tampered_with_launches_nothing(jobs, state, change):
    """With an update, the name in the record would decide what is replaced."""
    jobs.launched()
    uri = record_of_running(jobs)
    record = json.loads(files.read_bytes(uri))
    record["spec"] |= change
    files.write_bytes(uri, json.dumps(record).encode())
    done = jobs.job("resize", NAME, "--bigger", *PLACE)
    assert (done.code, len(state.launches)) == (2, 1), done.err
    assert uri in done.err


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"image": 7}', b"\x89PNG", b"{" * 5000, b'{"image": "i", "image": "j"}']
)
def test_a_template_file_that_is_garbage_is_told(jobs, state, data):
    jobs.put("templates/streaming.json", data)
    done = jobs.job("launch", jobs.spec())
    assert (done.code, state.launches) == (2, [])
    assert "templates/streaming.json" in done.err
    assert "Traceback" not in done.err


def test_a_launch_record_that_cannot_be_written_stops_the_launch(jobs, state, monkeypatch):
    monkeypatch.setattr("pipeline.transforms.files.write_bytes", refused)
    done = jobs.job("launch", jobs.spec())
    assert (done.code, state.launches) == (1, [])
    assert "cannot write the launch record gs://" in done.err
    assert "environment.staging_location" in done.err


def test_a_launch_record_that_cannot_be_written_drains_nothing(jobs, state, monkeypatch):
    old = jobs.launched()
    monkeypatch.setattr("pipeline.transforms.files.write_bytes", refused)
    done = jobs.job("update", jobs.spec(), "--strategy=drain")
    assert (done.code, len(state.launches), state.jobs[old].state) == (1, 1, "JOB_STATE_RUNNING"), done.err


def test_a_job_whose_record_cannot_be_completed_is_launched_all_the_same(jobs, state, monkeypatch):
    write, calls = files.write_bytes, []

    def once(uri: str, data: bytes) -> None:
        calls.append(uri)
        (write if len(calls) == 1 else refused)(uri, data)

    monkeypatch.setattr("pipeline.transforms.files.write_bytes", once)
    done = jobs.job("launch", jobs.spec(), "--json")
    assert (done.code, done.json["job"]["state"]) == (0, "RUNNING"), done.err
    assert "its id is not in its launch record" in done.err


def refused(uri: str, data: bytes) -> None:
    raise PermissionError(13, "storage.objects.create denied \x1b[31m", uri)


# Ctrl-C


def interrupt_at(monkeypatch, looks: int) -> None:
    """Ctrl-C during the look of that number, not only between looks."""
    from pipeline.ops.port.client import DataflowClient

    look, seen = DataflowClient.job, []

    def looking(self, job_id, **more):
        seen.append(job_id)
        if len(seen) == looks:
            raise KeyboardInterrupt
        return look(self, job_id, **more)

    monkeypatch.setattr(DataflowClient, "job", looking)


@pytest.mark.parametrize(("looks", "said"), [(1, "not seen by us"), (2, "is PENDING now")])
def test_ctrl_c_in_the_middle_of_a_look_says_how_the_job_is(jobs, state, monkeypatch, looks, said):
    interrupt_at(monkeypatch, looks)
    done = jobs.job("launch", jobs.spec())
    assert (done.code, len(state.launches)) == (130, 1)
    assert said in done.err
    assert "Look again with: headrace job status 2026" in done.err


def test_ctrl_c_in_the_middle_of_a_launch_says_that_it_may_come(jobs, state, monkeypatch):
    from pipeline.ops.port.client import DataflowClient

    def interrupted(self, request):
        raise KeyboardInterrupt

    monkeypatch.setattr(DataflowClient, "launch", interrupted)
    done = jobs.job("launch", jobs.spec())
    assert done.code == 130
    assert "job flights (headrace_launch=2026" in done.err
    assert "may come all the same" in done.err


def test_ctrl_c_while_the_old_job_drains_says_what_is_left_to_do(jobs, state, monkeypatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    old = jobs.launched()
    monkeypatch.setattr("pipeline.commands.job_common.Waiting", lambda **more: Waiting(**more, sleep=interrupt))
    state.jobs[old].body["currentState"] = "JOB_STATE_RUNNING"
    monkeypatch.setattr(state, "look", state._job)  # it takes its time
    done = jobs.job("update", jobs.spec(), "--strategy=drain")
    assert (done.code, len(state.launches)) == (130, 1)
    assert "is DRAINING now" in done.err
    assert f"the new job was not launched; when {old} is DRAINED, start it with: headrace job launch" in done.err


def test_an_update_that_moves_the_workers_is_refused_here(jobs, state):
    jobs.launched(environment={"worker_zone": "europe-west1-b"})
    done = jobs.job("update", jobs.spec(environment={"worker_zone": "europe-west1-c"}))
    assert (done.code, len(state.launches)) == (4, 1)
    assert "it runs in europe-west1-b, the update is for europe-west1-c" in done.err


@pytest.mark.parametrize(
    "name", ["2026/../x", "2026-1/messages", "2026?x=1", "2026 1", "2026\n", "2026\x1b[31m", "x/y", "*", "x" * 5000]
)
@pytest.mark.parametrize("command", ["status", "drain", "cancel", "resize"])
def test_a_name_that_is_none_asks_for_no_other_thing(jobs, state, command, name):
    state.add_job("x")
    more = ["--max_workers=2"] if command == "resize" else []
    done = jobs.job(command, name, *PLACE, *more)
    assert done.code in (1, 2), done.err
    assert not jobs.service.seen("PUT")
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("place", [("a/b", REGION), (PROJECT, "../x"), (PROJECT, "europe-west1/jobs"), ("x y", REGION)])
def test_a_place_that_is_none_is_told(jobs, place):
    project, region = place
    done = jobs.job("list", "--project", project, "--region", region)
    assert (done.code, jobs.service.requests) == (2, []), done.err
    assert "must be a " in done.err


# What is told


def test_what_was_said_of_a_job_in_its_long_life_is_not_told_again(jobs, state):
    """Only what comes while we wait for its end."""
    spec = jobs.spec()
    for command, words in (("drain", [NAME, *PLACE]), ("update", [spec]), ("update", [spec, "--strategy=drain"])):
        job = state.jobs[jobs.launched()]
        state.say(job, "JOB_MESSAGE_WARNING", "an old story")
        job.errors = ("a new story",)
        done = jobs.job(command, *words)
        assert done.code == 0, done.err
        assert "an old story" not in done.err
        assert ("a new story" in done.err) == (command == "drain" or "--strategy=drain" in words)
        for one in state.named(NAME):
            one.body["currentState"] = "JOB_STATE_DRAINED"


# What reaches the job


@pytest.mark.parametrize("value", ["a\nb", "^~^a~b", "a;b|c", "x" * 10_000, "\U0001f600 \u202e", "\ttab", "- a", "'"])
def test_odd_parameters_reach_the_job_unchanged(jobs, state, value):
    done = jobs.job("launch", jobs.spec(parameters={"timestamp_attribute": value}), "--no_wait")
    assert done.code == 0, done.err
    assert state.launches[0]["parameters"]["timestamp_attribute"] == value


def real_template(jobs) -> None:
    """The template as scripts/build_template makes it, with all of its parameters."""
    metadata = json.loads((ROOT / "templates" / "streaming" / "metadata.json").read_text())
    jobs.put("templates/streaming.json", json.dumps({"image": IMAGE, "metadata": metadata}).encode())


def test_a_spec_is_held_to_the_real_template(jobs, state):
    real_template(jobs)
    assert jobs.job("launch", jobs.spec(parameters={"window": "5m"}), "--dry_run").code == 0
    for wrong, said in (
        ({"window": "five"}, "parameter 'window' is 'five', which does not match"),
        ({"windw": "5m"}, "did you mean 'window'?"),
        ({"num_workers": "5"}, "Beam's own options go into environment.additional_pipeline_options"),
    ):
        done = jobs.job("launch", jobs.spec(parameters=wrong))
        assert (done.code, state.launches) == (2, [])
        assert said in done.err


def test_the_version_to_stay_compatible_with_goes_where_the_service_takes_it(jobs, state):
    real_template(jobs)
    jobs.launched()
    uri = record_of_running(jobs)
    record = json.loads(files.read_bytes(uri))
    record["graph"]["sdk"] = "2.70.0"
    files.write_bytes(uri, json.dumps(record).encode())
    done = jobs.job("update", jobs.spec(), "--dry_run")
    assert "put update_compatibility_version=2.70.0 into the launch spec's environment" in done.err
    option = "update_compatibility_version=2.70.0"
    done = jobs.job("update", jobs.spec(environment={"additional_pipeline_options": [option]}))
    assert done.code == 0, done.err
    assert "put update_compatibility_version" not in done.err
    assert state.launches[-1]["environment"]["additionalPipelineOptions"] == [option]


# What was changed in flight


def test_a_resize_keeps_what_was_changed_in_flight(jobs, state):
    jobs.launched(environment={"max_workers": 5})
    assert jobs.job("resize", NAME, "--max_workers=9", "--utilization_hint=0.6", *PLACE).code == 0
    done = jobs.job("resize", NAME, "--bigger", *PLACE)
    assert done.code == 0, done.err
    assert "max_num_workers=9 was set in flight; the replacement has it too" in done.err
    launch = state.launches[-1]["environment"]
    assert (launch["maxWorkers"], launch["additionalExperiments"]) == (9, ["worker_utilization_hint=0.6"])


def test_a_resize_may_say_otherwise_than_what_was_changed_in_flight(jobs, state):
    jobs.launched(environment={"max_workers": 5})
    assert jobs.job("resize", NAME, "--max_workers=9", *PLACE).code == 0
    assert jobs.job("resize", NAME, "--bigger", "--max_workers=7", *PLACE).code == 0
    assert state.launches[-1]["environment"]["maxWorkers"] == 7


def test_an_update_says_what_it_undoes_of_what_was_changed_in_flight(jobs, state):
    jobs.launched(environment={"max_workers": 5})
    assert jobs.job("resize", NAME, "--max_workers=9", *PLACE).code == 0
    done = jobs.job("update", jobs.spec(environment={"max_workers": 5}))
    assert done.code == 0, done.err
    assert "max_num_workers was set to 9 in flight; the new job goes by the launch spec" in done.err
    quiet = jobs.job("update", jobs.spec(environment={"max_workers": 5}), "--dry_run")
    assert "in flight" not in quiet.err


# What people see


def test_many_pages_of_jobs_are_listed_and_cut(jobs, state):
    for number in range(250):
        state.add_job(f"job-{number:03d}")
    assert len(jobs.job("list", *PLACE, "--limit=240").out.splitlines()) == 240
    assert len(jobs.job("list", *PLACE).out.splitlines()) == 50


def test_what_the_service_says_cannot_harm_a_terminal(jobs, state):
    evil = "\x1b]0;owned\x07\x1b[2J\r\u202etxt\x9b31m"
    state.script("JOB_STATE_PENDING", "JOB_STATE_FAILED", errors=[evil])
    launched = jobs.job("launch", jobs.spec())
    job = state.jobs[max(state.jobs)]
    job.metrics = [{"name": {"origin": "user", "name": evil}, "scalar": 1}]
    jobs.service.fail(400, "PUT", text=evil)
    seen = [launched, jobs.job("status", NAME, *PLACE), jobs.job("status", NAME, *PLACE, "--json")]
    state.add_job("other")
    seen.append(jobs.job("drain", "other", *PLACE))
    for done in seen:
        assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(done.out + done.err), done
    assert "owned" in seen[0].err
    assert "owned" in seen[-1].err


def test_a_token_in_the_environment_of_the_caller_is_nowhere(jobs, state, monkeypatch):
    secret = "ya29.A0AfH6SMBtoken"
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", secret)
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", secret)
    done = [jobs.job("launch", jobs.spec(), "--dry_run"), jobs.job("launch", jobs.spec(), "--json")]
    record = files.read_bytes(record_of_running(jobs)).decode()
    assert not [text for text in (*(one.out + one.err for one in done), record) if secret in text]


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://10.0.0.1:80",
        "http://example.com",
        "ftp://127.0.0.1",
        "127.0.0.1:x",
        "https://example.com",
        "https://googleapis.com.evil.org",
    ],
)
@pytest.mark.parametrize("command", ["launch", "status", "list"])
def test_no_command_speaks_plainly_to_another_machine(jobs, endpoint, command, monkeypatch):
    monkeypatch.setenv("DATAFLOW_EMULATOR_HOST", endpoint)
    words = {"launch": [jobs.spec()], "status": [NAME, *PLACE], "list": [*PLACE]}[command]
    done = headrace("job", command, *words)
    assert (done.code, "the Dataflow endpoint" in done.err) == (2, True), done.err


def test_an_update_of_a_job_with_the_longest_name_is_checked_under_a_name_that_fits(jobs, state):
    name = "a" * 1023
    jobs.parameters["run_id"] = "r"
    jobs.launched(name=name)
    state.age = timedelta(hours=1)
    for words in (("--dry_run",), ("--strategy=drain",)):
        assert jobs.job("update", jobs.spec(name=name), *words).code == 0
    checks = [body for _, _, body in jobs.service.seen("flexTemplates:launch") if body.get("validateOnly")]
    assert {len(check["launchParameter"]["jobName"]) for check in checks} == {1023}
