"""``headrace preflight``, the real command: a stream's flags against the emulator, a batch run's against files."""

from __future__ import annotations

import os

import pytest
from fakes.cli import headrace, headrace_process
from fakes.gcs import storage_emulator


@pytest.fixture
def a_stream(pubsub, tmp_path, row_schema, transform):
    """Flags of a job none of whose topics is there yet."""

    def name(kind: str) -> str:
        return f"projects/{pubsub.project}/{kind}/{pubsub._fresh('pre')}"

    return {
        "--input_subscription": name("subscriptions"),
        "--dead_letter_topic": name("topics"),
        "--input_topic": name("topics"),
        "--schema": row_schema,
        "--transform": transform,
        "--output": tmp_path / "out",
        "--dead_letters": tmp_path / "dead",
    }


def preflight(flags, *more):
    return headrace("preflight", *(word for pair in flags.items() for word in pair), *more)


def levels(done) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in done.json["findings"]:
        found.setdefault(finding["about"], set()).add(finding["level"])
    return found


def test_create_makes_what_is_missing_once_and_says_each_thing(a_stream, tmp_path):
    before = preflight(a_stream)
    assert before.code == 2
    assert before.out.count("problem ") == 2
    assert "NOT READY" in before.out
    created = preflight(a_stream, "--create")
    assert created.code == 0, created.out
    lines = [line for line in created.out.splitlines() if line.startswith("created  ")]
    assert [line.split()[1] for line in lines] == ["topic", "topic", "subscription", "subscription"]
    again = preflight(a_stream, "--create", "--json")
    assert (again.code, again.json["ok"], again.json["created"]) == (0, True, [])
    assert levels(again) == {
        "subscription": {"ok"},
        "dead-letter topic": {"ok"},
        "second net": {"ok", "unknown"},
        "permissions": {"unknown"},
        "--schema": {"ok"},
        "--output": {"ok"},
        "--dead_letters": {"ok"},
        "--transform": {"ok"},
        "the flags": {"ok"},
    }
    assert not [path for folder in ("out", "dead") for path in (tmp_path / folder).rglob("*")], "nothing is started"


def test_a_dead_letter_topic_without_a_subscription_is_refused_with_the_command_that_helps(pubsub, a_stream):
    assert preflight(a_stream, "--create").code == 0
    name = a_stream["--dead_letter_topic"].rsplit("/", 1)[1]
    keep = f"projects/{pubsub.project}/subscriptions/{name}-sub"
    pubsub.subscriber.delete_subscription(request={"subscription": keep}, timeout=10)
    done = preflight(a_stream)
    assert done.code == 2
    assert f"gcloud pubsub subscriptions create {keep} --topic={a_stream['--dead_letter_topic']}" in done.out


def test_everything_that_is_wrong_is_told_at_once(a_stream, tmp_path, case_schema):
    (tmp_path / "file").write_text("x")
    wrong = a_stream | {"--schema": case_schema, "--output": tmp_path / "file" / "out"}
    done = preflight(wrong, "--json")
    assert done.code == 2
    bad = {about for about, found in levels(done).items() if "problem" in found}
    assert bad == {"subscription", "dead-letter topic", "--output", "--transform"}
    transform = next(one for one in done.json["findings"] if one["about"] == "--transform")
    assert "another schema" in transform["what"]
    assert all(one["todo"] for one in done.json["findings"] if one["level"] in ("problem", "warning"))


def test_flags_that_do_not_go_together_are_a_problem_too(a_stream):
    assert preflight(a_stream, "--create").code == 0
    done = preflight(a_stream, "--window=1.5s")
    assert done.code == 2
    assert "problem  the flags: --window is 1.5 seconds" in done.out


def test_a_batch_runs_flags_are_checked_without_pubsub(bench, row_schema, features, rows, monkeypatch):
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    source = bench.write("f.jsonl", rows(3))
    flags = {"--input": source, "--schema": row_schema, "--features": features}
    flags |= {"--output": bench.folder / "o", "--dead_letters": bench.folder / "d"}
    done = preflight(flags, "--json")
    assert done.code == 0, done.out
    assert set(levels(done)) == {"--input", "--schema", "--output", "--dead_letters", "the features"}
    del flags["--schema"]
    flags["--input"] = bench.folder / "nothing-*"
    done = preflight(flags)
    assert done.code == 2
    assert "problem  --schema: it is not given" in done.out
    assert "matches no file" in done.out


def test_which_job_must_be_said(pubsub):
    assert "which job?" in headrace("preflight").err
    both = headrace("preflight", "--input=x", "--input_subscription=projects/test-proj/subscriptions/sub")
    assert (both.code, "flags of one job" in both.err) == (2, True)


def test_names_are_checked_and_unknown_flags_refused(a_stream):
    done = preflight(a_stream | {"--input_subscription": "sub"})
    assert (done.code, "is not the whole name" in done.err) == (2, True)
    done = preflight(a_stream, "--craete")
    assert (done.code, "did you mean --create" in done.err) == (2, True)


@pytest.mark.slow
def test_as_a_command_of_its_own(pubsub, a_stream):
    words = [word for pair in a_stream.items() for word in pair]
    done = headrace_process("preflight", *words, "--create", "--json", env=dict(os.environ))
    assert done.code == 0, done.err
    assert len(done.json["created"]) == 4


def test_it_runs_before_every_launch_of_a_stream(pubsub, a_stream):
    flags = {name: value for name, value in a_stream.items() if name != "--input_topic"}
    words = [word for pair in flags.items() for word in pair]
    done = headrace("stream", *words, "--duration=1s")
    assert done.code == 2
    assert "Pub/Sub is not ready for this job" in done.err
    assert f"there is no {flags['--dead_letter_topic']}" in done.err


def test_it_runs_before_a_launch_on_dataflow_too(pubsub, a_stream, tmp_path):
    names = ("--input_subscription", "--dead_letter_topic", "--schema")
    with storage_emulator(tmp_path) as bucket:
        words = [word for name in names for word in (name, a_stream[name])]
        words += ["--output", f"{bucket}/out", f"--temp_location={bucket}/temp", "--runner=DataflowRunner"]
        done = headrace("stream", *words, "--project=test-proj", "--region=europe-west4")
    assert done.code == 2
    assert "Pub/Sub is not ready for this job" in done.err


def test_what_workers_elsewhere_cannot_see_is_a_problem(a_stream):
    assert preflight(a_stream, "--create").code == 0
    done = preflight(a_stream, "--runner=DataflowRunner", "--project=test-proj", "--region=europe-west4")
    assert done.code == 2
    assert "problem  the runner: --output" in done.out
    assert "cannot see this machine's disk" in done.out
