"""Launching, updating, resizing and stopping jobs: the real command line against a fake Dataflow and a bucket."""

from __future__ import annotations

import importlib.util
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.cli import headrace
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator
from fakes.jobs import IMAGE, NAME, JobsBench

from pipeline.ops.following import Waiting
from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)

PROCESS = "ProcessMessages/ParDo(ProcessMessages)"
PLACE = ("--project", PROJECT, "--region", REGION)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


@pytest.fixture
def jobs(bucket, tmp_path, row_schema):
    """A fresh service and a launch spec; the bucket is shared."""
    with dataflow_service() as service:
        yield JobsBench(tmp_path, bucket, service, row_schema)


@pytest.fixture
def state(jobs):
    return jobs.service.state


def record_at(uri: str) -> dict:
    return json.loads(files.read_bytes(uri))


# Launching


def test_a_launch_waits_until_the_job_runs_and_leaves_a_record(jobs, state):
    done = jobs.job("launch", jobs.spec(), "--json")
    assert done.code == 0, done.err
    said = done.json
    assert (said["job"]["state"], said["job"]["name"]) == ("RUNNING", NAME)
    assert state.active(NAME).id == said["job"]["id"]
    record = record_at(said["launch_record"])
    assert record["job_id"] == said["job"]["id"]
    assert record["request"]["launchParameter"] == state.launches[0]
    assert record["code"]["image"] == IMAGE
    assert record["code"]["image_digest"] == "sha256:" + "ab" * 32
    assert record["code"]["version"]
    assert len(record["schema_fingerprint"]) == 64
    assert record["transform_fingerprint"] is None
    assert "@" in record["launched_by"]
    assert record["launched_at"].endswith("+00:00")
    assert {PROCESS, "WriteShards", "CommitWindow"} <= {step["name"] for step in record["graph"]["steps"]}
    assert "is PENDING" in done.err
    assert "is RUNNING" in done.err


def test_a_dry_run_prints_the_exact_request_and_launches_nothing(jobs, state, bucket):
    before = files.list_folder(f"{bucket}/staging")
    done = jobs.job("launch", jobs.spec(), "--dry_run", "--json")
    assert done.code == 0, done.err
    assert (state.launches, files.list_folder(f"{bucket}/staging")) == ([], before)
    for_people = jobs.job("launch", jobs.spec(), "--dry_run").out
    assert f"POST v1b3/projects/{PROJECT}/locations/{REGION}/flexTemplates:launch" in for_people
    assert "nothing was launched" in for_people
    jobs.job("launch", jobs.spec())
    sent, planned = state.launches[0], done.json["request"]["launchParameter"]
    for one in (sent, planned):
        del one["environment"]["additionalUserLabels"]["headrace_launch"]
    assert sent == planned


@pytest.mark.parametrize(
    "value",
    [
        "a=1,b=2",
        'it\'s "quoted", twice',
        "x: {y: [z]}",
        "100%",
        "  spaced  ",
        "$(rm -rf /)",
        "ünï\\n",
        "--flag=1",
        "0.10",
    ],
)
def test_parameters_reach_the_job_unchanged(jobs, state, value):
    done = jobs.job("launch", jobs.spec(parameters={"timestamp_attribute": value}), "--no_wait")
    assert done.code == 0, done.err
    assert state.launches[0]["parameters"]["timestamp_attribute"] == value


def test_numbers_and_words_of_yaml_reach_the_job_as_they_are_written(jobs, state):
    path = jobs.spec()
    as_written = {"batch_keys": "020", "timestamp_attribute": "0.10", "id_attribute": "on"}
    words = ", ".join(f"{name}: {text}" for name, text in as_written.items())
    path.write_text(path.read_text().replace('"parameters": {', f'"parameters": {{{words}, '))
    done = jobs.job("launch", path, "--no_wait")
    assert done.code == 0, done.err
    sent = state.launches[0]["parameters"]
    assert {name: sent[name] for name in as_written} == as_written


def test_a_job_that_fails_shows_its_error_messages(jobs, state):
    state.script("JOB_STATE_PENDING", "JOB_STATE_FAILED", errors=["Quota 'CPUS' exceeded. \x1b[31m"])
    done = jobs.job("launch", jobs.spec())
    assert done.code == 1
    assert "ended as FAILED" in done.err
    assert "Quota 'CPUS' exceeded. \\x1b[31m" in done.err


def test_a_name_in_use_is_refused_before_anything_is_launched(jobs, state):
    jobs.launched()
    done = jobs.job("launch", jobs.spec())
    assert (done.code, len(state.launches)) == (4, 1)
    assert "flights is active already" in done.err
    assert "headrace job update" in done.err


@pytest.mark.parametrize("fault", [500, 503, "reset"])
def test_an_answer_that_is_lost_after_the_launch_does_not_launch_twice(jobs, state, monkeypatch, fault):
    monkeypatch.setattr("pipeline.ops.launching._LOOKS", (0.0, 0.0))
    jobs.service.fail(fault, "flexTemplates:launch", after=True)
    done = jobs.job("launch", jobs.spec(), "--json")
    assert done.code == 0, done.err
    assert (len(state.launches), len(state.named(NAME))) == (1, 1)
    assert done.json["job"]["id"] == state.active(NAME).id


@pytest.mark.parametrize("fault", [500, 503, "reset"])
def test_a_launch_that_was_lost_before_it_was_carried_out_is_made_again(jobs, state, monkeypatch, fault):
    monkeypatch.setattr("pipeline.ops.launching._LOOKS", (0.0, 0.0))
    jobs.service.fail(fault, "flexTemplates:launch")
    assert jobs.job("launch", jobs.spec()).code == 0
    assert len(state.named(NAME)) == 1


@pytest.mark.parametrize("code", [401, 403])
def test_missing_permission_is_told_in_words(jobs, state, code):
    jobs.service.fail(code, "flexTemplates:launch")
    done = jobs.job("launch", jobs.spec())
    assert done.code == 1
    assert ("gcloud auth application-default login" if code == 401 else "iam.serviceAccounts.actAs") in done.err
    assert state.launches == []


def test_a_template_that_is_not_there_is_told(jobs):
    done = jobs.job("launch", jobs.spec(template="gs://headrace-test/no.json"))
    assert (done.code, "there is no template gs://headrace-test/no.json" in done.err) == (2, True)


def test_parameters_that_the_job_does_not_take_are_refused_before_the_launch(jobs, state):
    done = jobs.job("launch", jobs.spec(parameters={"windw": "600"}))
    assert (done.code, state.launches) == (2, [])
    assert "--windw" in done.err


# Updating


def test_an_update_replaces_the_running_job_and_follows_both(jobs, state):
    old = jobs.launched()
    done = jobs.job("update", jobs.spec(parameters={"window": "1h"}), "--json")
    assert done.code == 0, done.err
    said = done.json
    assert (said["old_job"]["id"], said["old_job"]["state"]) == (old, "UPDATED")
    assert said["old_job"]["replaced_by"] == said["job"]["id"] == state.active(NAME).id
    assert said["verdict"]["verdict"] == "compatible"
    assert "changes parameters.window: none -> 1h" in done.err
    assert said["changes"]["parameters.window"] == {"before": None, "after": "1h"}
    validation, launch = state.launches[1:]
    assert validation["environment"]["additionalExperiments"] == ["graph_validate_only"]
    assert "additionalExperiments" not in launch["environment"]
    assert validation["update"] is launch["update"] is True
    record = record_at(said["launch_record"])
    assert (record["action"], record["replaces"], record["job_id"]) == ("update", old, said["job"]["id"])
    state.age = timedelta(hours=1)
    again = jobs.job("update", jobs.spec(), "--json")
    assert (again.code, again.json["old_job"]["id"]) == (0, said["job"]["id"])


def test_a_dry_run_of_an_update_prints_both_requests_and_changes_nothing(jobs, state):
    jobs.launched()
    done = jobs.job("update", jobs.spec(), "--dry_run")
    assert (done.code, len(state.launches)) == (0, 1), done.err
    assert "the graphs are compatible" in done.out
    assert done.out.count("flexTemplates:launch") == 2
    assert "graph_validate_only" in done.out
    assert "nothing was changed" in done.out
    assert len(jobs.job("update", jobs.spec(), "--dry_run", "--json").json["requests"]) == 2


@pytest.mark.parametrize(
    ("in_state", "said"),
    [
        ("DRAINING", "wait until it is DRAINED, then 'headrace job launch'"),
        ("CANCELLING", "wait until it is CANCELLED"),
        ("PENDING", "wait until it is RUNNING"),
        ("QUEUED", "wait until it is RUNNING"),
        ("DRAINED", "start it with 'headrace job launch'"),
        ("CANCELLED", "the last one, 2026"),
        ("FAILED", "is FAILED. There is nothing to update"),
    ],
)
def test_a_job_that_does_not_run_is_not_updated(jobs, state, in_state, said):
    state.add_job(NAME, f"JOB_STATE_{in_state}")
    done = jobs.job("update", jobs.spec())
    assert (done.code, state.launches) == (4, []), done.err
    assert in_state in done.err
    assert said in done.err


def test_a_batch_job_is_not_updated(jobs, state):
    state.add_job(NAME, streaming=False)
    done = jobs.job("update", jobs.spec())
    assert (done.code, state.launches) == (4, [])
    assert "is a batch job; only streaming jobs can be updated" in done.err
    assert jobs.job("update", jobs.spec(pipeline="batch")).code == 4


def test_a_job_that_is_missing_or_elsewhere_is_told(jobs, state):
    done = jobs.job("update", jobs.spec())
    assert (done.code, "there is no job called flights" in done.err) == (4, True)
    state.add_job(NAME, location="us-central1")
    done = jobs.job("update", jobs.spec())
    assert (done.code, state.launches) == (4, [])
    assert "there is one in us-central1, and no update moves a job" in done.err


def test_a_job_that_only_validates_is_not_taken_for_the_running_one(jobs, state):
    old = jobs.launched()
    state.add_job(NAME, "JOB_STATE_PENDING").validates_only = True
    done = jobs.job("update", jobs.spec(), "--json")
    assert (done.code, done.json["old_job"]["id"]) == (0, old), done.err


def test_two_minutes_lie_between_updates_of_one_name(jobs, state):
    state.age = timedelta(seconds=5)
    jobs.launched()
    done = jobs.job("update", jobs.spec())
    assert (done.code, len(state.launches)) == (4, 1)
    assert "s ago; the service wants 120 s between updates" in done.err


def test_what_the_service_refuses_is_shown_and_the_old_job_runs_on(jobs, state):
    old = jobs.launched()
    state.refuse_updates("The Coder for step ProcessMessages has changed.")
    done = jobs.job("update", jobs.spec())
    assert done.code == 4
    assert "the service finds the new graph incompatible" in done.err
    assert f"the old job {old} still runs, unchanged" in done.err
    assert "The Coder for step ProcessMessages has changed." in done.err
    assert state.active(NAME).id == old
    assert [launch["environment"]["additionalExperiments"] for launch in state.launches[1:]] == [
        ["graph_validate_only"]
    ]


def test_a_refusal_after_the_validation_leaves_the_old_job_running_too(jobs, state, monkeypatch):
    old = jobs.launched()
    launch = state.launch

    def refusing(project, region, request):
        if "graph_validate_only" not in str(request):
            state.refuse_updates("Something changed in between.")
        return launch(project, region, request)

    monkeypatch.setattr(state, "launch", refusing)
    done = jobs.job("update", jobs.spec())
    assert done.code == 4
    assert "the service refused the update" in done.err
    assert "Something changed in between." in done.err
    assert f"the old job {old} still runs" in done.err


def test_an_update_whose_answer_is_lost_is_found_and_not_repeated(jobs, state, monkeypatch):
    monkeypatch.setattr("pipeline.ops.launching._LOOKS", (0.0, 0.0))
    jobs.launched()
    jobs.service.fail(503, "flexTemplates:launch", after=True, times=2)
    done = jobs.job("update", jobs.spec(), "--json")
    assert done.code == 0, done.err
    assert len(state.launches) == 3
    assert done.json["job"]["id"] == state.active(NAME).id


@pytest.mark.parametrize("skip", [0, 1])
def test_an_update_that_may_not_have_been_carried_out_is_not_repeated(jobs, state, monkeypatch, skip):
    """Neither its validation nor its launch, which does not take the job that validated for its own."""
    monkeypatch.setattr("pipeline.ops.launching._LOOKS", (0.0, 0.0))
    old = jobs.launched()
    jobs.service.fail(503, "flexTemplates:launch", skip=skip)
    done = jobs.job("update", jobs.spec())
    assert done.code == 1
    assert "headrace job list" in done.err
    assert (len(state.launches), state.active(NAME).id) == (1 + skip, old)


def record_of_running(jobs) -> str:
    launch = jobs.service.state.launches[-1]["environment"]["additionalUserLabels"]["headrace_launch"]
    return f"{jobs.bucket}/staging/headrace-launches/{NAME}/{launch}.json"


def edit_graph(jobs, change) -> None:
    """Let the running job have been launched with another graph."""
    uri = record_of_running(jobs)
    record = record_at(uri)
    change({step["name"]: step for step in record["graph"]["steps"]}, record["graph"])
    files.write_bytes(uri, json.dumps(record).encode())


def test_an_incompatible_graph_is_refused_before_any_launch_with_the_step_named(jobs, state):
    old = jobs.launched()

    def other_coder(steps, graph):
        steps["WriteShards"]["inputs"] = {"None": "kv(varint, string_utf8)"}
        steps[PROCESS]["states"]["hoard"] = "bag(bytes)"

    edit_graph(jobs, other_coder)
    done = jobs.job("update", jobs.spec())
    assert (done.code, len(state.launches)) == (4, 1)
    assert f"cannot replace job {old}, which runs on; nothing was launched" in done.err
    assert "WriteShards: the coder of its input changes from kv(varint, string_utf8) to" in done.err
    assert f"{PROCESS}: state 'hoard' (bag(bytes)) goes" in done.err
    forced = jobs.job("update", jobs.spec(), "--force")
    assert (forced.code, len(state.launches)) == (0, 3), forced.err


def rename(steps, graph):
    steps["CommitWindow"]["name"] = "CommitWindows"


def test_a_renamed_step_is_proposed_as_a_mapping_and_taken_when_confirmed(jobs, state):
    jobs.launched()
    edit_graph(jobs, rename)
    done = jobs.job("update", jobs.spec())
    assert (done.code, len(state.launches)) == (4, 1)
    assert "CommitWindows: 'CommitWindow'" in done.err
    mapping = {"CommitWindows": "CommitWindow"}
    spec = jobs.spec(update={"transform_name_mapping": mapping})
    assert "compatible with {'CommitWindows': 'CommitWindow'}" in jobs.job("update", spec, "--dry_run").out
    done = jobs.job("update", jobs.spec(), "--accept_mapping", "--json")
    assert done.code == 0, done.err
    assert [launch["transformNameMappings"] for launch in state.launches[1:]] == [mapping, mapping]
    assert done.json["verdict"]["transform_name_mapping"] == mapping


def test_a_mapping_can_be_given_on_the_command_line(jobs, state):
    jobs.launched()
    edit_graph(jobs, rename)
    done = jobs.job("update", jobs.spec(), "--transform_name_mapping", '{"CommitWindows": "CommitWindow"}')
    assert done.code == 0, done.err


def test_without_a_launch_record_the_service_alone_can_judge_when_forced(jobs, state):
    old = state.add_job(NAME)
    done = jobs.job("update", jobs.spec())
    assert (done.code, state.launches) == (4, [])
    assert f"job {old.id} has no launch record" in done.err
    mapping = ("--transform_name_mapping", '{"Old": "New"}')
    assert jobs.job("update", jobs.spec(), "--force", *mapping).code == 0
    assert state.launches[-1]["transformNameMappings"] == {"Old": "New"}


def test_a_drained_update_ends_the_old_job_before_it_starts_the_new_one(jobs, state):
    old = jobs.launched()
    done = jobs.job("update", jobs.spec(), "--strategy=drain", "--json")
    assert done.code == 0, done.err
    assert state.jobs[old].state == "JOB_STATE_DRAINED"
    assert "update" not in state.launches[1]
    assert state.active(NAME).id == done.json["job"]["id"] != old


def test_when_the_start_after_a_drain_fails_it_says_that_nothing_runs(jobs, state):
    jobs.launched()
    state.script("JOB_STATE_FAILED", errors=["no workers"])
    state.scripts[0].states = ("JOB_STATE_PENDING", "JOB_STATE_FAILED")
    done = jobs.job("update", jobs.spec(), "--strategy=drain")
    assert done.code == 1
    assert "no workers" in done.err
    assert "nothing runs under the name flights now" in done.err


def test_a_launch_that_the_service_would_refuse_drains_nothing(jobs, state):
    old = jobs.launched()
    jobs.service.fail(403, "flexTemplates:launch")
    assert jobs.job("update", jobs.spec(), "--strategy=drain").code == 1
    assert state.jobs[old].state == "JOB_STATE_RUNNING"


def test_a_parallel_update_runs_both_and_lets_the_service_drain_the_old_one(jobs, state):
    old = jobs.launched()
    done = jobs.job("update", jobs.spec(update={"strategy": "parallel", "parallel_minutes": 7}), "--json")
    assert done.code == 0, done.err
    assert done.json["job"]["name"] == "flights-p2"
    assert state.launches[1]["environment"]["additionalExperiments"] == [
        f"parallel_replace_job_id={old}",
        "parallel_replace_job_min_parallel_pipelines_duration=7m",
    ]
    assert "update" not in state.launches[1]
    assert done.json["old_job"]["state"] in ("DRAINING", "DRAINED")


# Resizing


def test_a_resize_is_an_update_with_other_machines_and_says_what_memory_does(jobs, state):
    jobs.launched(parameters={"window": "1h"})
    done = jobs.job("resize", NAME, "--machine_type", "n2-highmem-4", *PLACE, "--json")
    assert done.code == 0, done.err
    assert "memory of a process: 4 GB -> 8 GB (2x)" in done.err
    launch = state.launches[-1]
    assert launch["update"] is True
    assert launch["environment"]["machineType"] == "n2-highmem-4"
    assert launch["parameters"] == state.launches[0]["parameters"]
    assert done.json["resize"]["after"]["memory_per_process_gb"] == 8
    record = record_at(done.json["launch_record"])
    assert (record["action"], record["spec"]["environment"]["machine_type"]) == ("resize", "n2-highmem-4")
    assert "put machine_type: n2-highmem-4 into the launch spec" in done.err


def test_an_update_does_not_undo_a_resize_unnoticed(jobs, state):
    jobs.launched()
    assert jobs.job("resize", NAME, "--machine_type=n2-highmem-4", *PLACE).code == 0
    launches = len(state.launches)
    done = jobs.job("update", jobs.spec())
    assert (done.code, len(state.launches)) == (4, launches)
    assert "4 GB (n2-standard-4); the running job has 8 GB (n2-highmem-4). Was it resized?" in done.err
    assert jobs.job("update", jobs.spec(), "--accept_less_memory", "--dry_run").code == 0
    assert jobs.job("update", jobs.spec(environment={"machine_type": "n2-highmem-4"})).code == 0


def test_bigger_takes_the_next_with_more_memory_a_vcpu(jobs, state):
    jobs.launched()
    done = jobs.job("resize", NAME, "--bigger", "--dry_run", *PLACE)
    assert done.code == 0, done.err
    assert "then   n2-highmem-4: 4 vCPU, 32 GB; 4 SDK processes of 8 GB" in done.out
    assert len(state.launches) == 1


def test_less_memory_a_process_is_refused_unless_forced(jobs, state):
    jobs.launched()
    done = jobs.job("resize", NAME, "--machine_type=n2-highcpu-16", *PLACE)
    assert (done.code, len(state.launches)) == (4, 1)
    assert "gives each SDK process 1 GB, less than the 4 GB" in done.err
    assert jobs.job("resize", NAME, "--machine_type=n2-highcpu-16", "--force", *PLACE).code == 0
    assert state.launches[-1]["environment"]["additionalPipelineOptions"] == ["number_of_worker_harness_threads=3"]


def test_a_template_that_was_built_again_is_not_a_resize(jobs, state):
    jobs.launched()
    jobs.write_template("europe-docker.pkg.dev/other@sha256:" + "cd" * 32)
    done = jobs.job("resize", NAME, "--bigger", *PLACE)
    assert (done.code, len(state.launches)) == (4, 1)
    assert "Use 'headrace job update' for other code" in done.err


def test_worker_limits_change_in_flight(jobs, state):
    old = jobs.launched()
    words = ("--max_workers=9", "--min_workers=2", "--utilization_hint=0.7")
    assert "without replacing it" in jobs.job("resize", NAME, *words, "--dry_run", *PLACE).out
    done = jobs.job("resize", jobs.spec(), *words, *PLACE, "--json")
    assert done.code == 0, done.err
    assert (len(state.launches), done.json["job"]["id"]) == (1, old)
    params = {"maxNumWorkers": 9, "minNumWorkers": 2, "workerUtilizationHint": 0.7}
    assert state.jobs[old].body["runtimeUpdatableParams"] == params


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "what is to change?"),
        (("--machine_type=n2-highmem-5",), "there is no machine type 'n2-highmem-5'; n2 has"),
        (("--machine_type=n2-highmem-4", "--bigger"), "not both"),
        (("--utilization_hint=0.95",), "0.1 to 0.9"),
        (("--min_workers=3", "--max_workers=2"), "more than"),
    ],
)
def test_a_resize_that_makes_no_sense_is_told(jobs, state, words, said):
    jobs.launched()
    done = jobs.job("resize", NAME, *words, *PLACE)
    assert (done.code, len(state.launches)) == (2, 1)
    assert said in done.err


# Stopping and looking


def test_drain_waits_until_the_job_is_drained(jobs, state):
    job = jobs.launched()
    plan = jobs.job("drain", NAME, "--dry_run", *PLACE)
    assert '{"requestedState": "JOB_STATE_DRAINED"}' in plan.out
    assert state.jobs[job].state == "JOB_STATE_RUNNING"
    done = jobs.job("drain", jobs.spec(), "--json")
    assert (done.code, done.json["job"]["state"]) == (0, "DRAINED")
    again = jobs.job("drain", job, *PLACE)
    assert again.code == 0


def test_cancel_waits_until_the_job_is_cancelled(jobs, state):
    job = jobs.launched()
    assert jobs.job("cancel", job, *PLACE).code == 0
    assert state.jobs[job].state == "JOB_STATE_CANCELLED"
    refused = jobs.job("drain", job, *PLACE)
    assert (refused.code, "is CANCELLED already" in refused.err) == (4, True)


def test_a_batch_job_cannot_be_drained(jobs, state):
    state.add_job("files", streaming=False)
    done = jobs.job("drain", "files", *PLACE)
    assert (done.code, "cannot be drained; 'headrace job cancel' stops it" in done.err) == (4, True)


def test_a_drain_whose_answer_is_lost_is_asked_for_again(jobs, state, monkeypatch):
    monkeypatch.setattr("pipeline.ops.port.client._FIRST_DELAY", 0.0)
    jobs.launched()
    jobs.service.fail("reset", "PUT", after=True)
    assert jobs.job("drain", NAME, *PLACE).code == 0


def test_status_shows_state_counters_and_messages_safely(jobs, state):
    job = state.jobs[jobs.launched()]
    state.say(job, "JOB_MESSAGE_WARNING", "slow \x1b[2J workers")
    job.metrics = [{"name": {"origin": "user", "name": "rows_written"}, "scalar": 1234}]
    done = jobs.job("status", NAME, *PLACE)
    assert done.code == 0, done.err
    for part in ("RUNNING", "1,234", "slow \\x1b[2J workers", "n2-standard-4", "console.cloud.google.com"):
        assert part in done.out
    said = jobs.job("status", jobs.spec(), "--json").json
    assert (said["job"]["state"], said["metrics"]) == ("RUNNING", {"rows_written": 1234})
    state.add_job("broken", "JOB_STATE_FAILED")
    assert jobs.job("status", "broken", *PLACE).code == 1
    missing = jobs.job("status", "2026-99", *PLACE)
    assert (missing.code, "there is no job 2026-99" in missing.err) == (2, True)


def test_list_shows_active_jobs_or_all(jobs, state):
    state.add_job("one")
    state.add_job("two", "JOB_STATE_DONE")
    assert [job["name"] for job in jobs.job("list", *PLACE, "--json").json["jobs"]] == ["one"]
    out = jobs.job("list", *PLACE, "--all").out
    assert "one" in out
    assert "DONE" in out
    monkey = jobs.job("list", "--project=empty-proj", "--region=us-west1")
    assert "no active jobs in empty-proj, us-west1" in monkey.out


def test_where_the_job_is_can_come_from_the_environment(jobs, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    done = jobs.job("status", NAME)
    assert (done.code, "Give --project and --region" in done.err) == (2, True)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    monkeypatch.setenv("CLOUDSDK_DATAFLOW_REGION", REGION)
    assert jobs.job("list").code == 0


def test_waiting_ends_and_says_how_to_look_again(jobs, state):
    state.script("JOB_STATE_QUEUED")
    done = jobs.job("launch", jobs.spec(), "--wait_minutes=0.0001")
    assert done.code == 1
    assert "is still QUEUED" in done.err
    assert "headrace job status" in done.err


def test_no_command_needs_a_service_for_its_help():
    for command in ("launch", "update", "resize", "drain", "cancel", "status", "list"):
        done = headrace("job", command, "--help")
        assert (done.code, "headrace job" in done.out) == (0, True)


def test_a_missing_spec_is_told(jobs):
    done = jobs.job("launch", Path("nothing.yaml"))
    assert (done.code, "there is no launch spec file nothing.yaml" in done.err) == (2, True)


def test_a_batch_job_is_launched_and_may_be_done_when_we_look(jobs, state, bucket):
    files.write_bytes(f"{bucket}/templates/batch.json", json.dumps({"image": "i", "metadata": {}}).encode())
    state.script("JOB_STATE_PENDING", "JOB_STATE_DONE", streaming=False)
    path = jobs.spec(template=f"{bucket}/templates/batch.json", pipeline="batch")
    spec = json.loads(path.read_text())
    del spec["parameters"]["input_subscription"]
    path.write_text(json.dumps({**spec, "parameters": {**spec["parameters"], "input": f"{bucket}/in/*.jsonl"}}))
    done = jobs.job("launch", path, "--json")
    assert (done.code, done.json["job"]["state"]) == (0, "DONE"), done.err
    record = record_at(done.json["launch_record"])
    assert (record["graph"], len(record["schema_fingerprint"])) == (None, 64)


def test_a_batch_template_does_not_launch_as_a_stream(jobs, state):
    jobs.put("templates/streaming.json", json.dumps({"image": "i", "metadata": {"streaming": False}}).encode())
    done = jobs.job("launch", jobs.spec())
    assert (done.code, state.launches) == (2, [])
    assert "is not a streaming template" in done.err


def test_ctrl_c_while_waiting_says_that_the_job_goes_on(jobs, state, monkeypatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.commands.job_common.Waiting", lambda **more: Waiting(**more, sleep=interrupt))
    done = jobs.job("launch", jobs.spec())
    assert (done.code, len(state.launches)) == (130, 1)
    assert "goes on without us" in done.err


def test_who_launches_need_not_be_allowed_to_write_what_the_job_writes(jobs, monkeypatch):
    def refused(flag: str, folder: str) -> None:
        raise AssertionError(f"probed --{flag} {folder}")

    monkeypatch.setattr("pipeline.preflight.check_folder", refused)
    assert jobs.job("launch", jobs.spec(), "--dry_run").code == 0
