"""The accounts and rules that scripts/setup_cloud makes: which commands, which roles, and that gcloud knows them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess

import pytest
from fakes.cli import ROOT, Done, need_gcloud, python

MINIMUM = ("--project=my-project", "--bucket=my-bucket")
EVERYTHING = (
    *MINIMUM,
    "--input_bucket=raw-1",
    "--input_bucket=raw-2",
    "--repository=europe-west4-docker.pkg.dev/my-project/headrace",
    "--input_subscription=projects/my-project/subscriptions/clicks",
    "--dead_letter_topic=projects/my-project/topics/dead",
    "--dead_letter_subscription=projects/my-project/subscriptions/dead",
    "--replay_topic=projects/my-project/topics/clicks",
    "--timestamp_attribute",
)


def setup_cloud(*words: str, **environment: str) -> Done:
    return python("scripts/setup_cloud.py", *words, env=environment)


def printed(*words: str) -> list[list[str]]:
    done = setup_cloud(*words, "--print_only")
    assert done.code == 0, done.err
    return [shlex.split(line) for line in done.out.splitlines() if not line.startswith("#")]


def roles(commands: list[list[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for command in commands:
        if "--member" in command:
            who = re.fullmatch(r"serviceAccount:headrace-(\w+)@.*", command[command.index("--member") + 1])[1]
            found.setdefault(who, set()).add(command[command.index("--role") + 1].rpartition("/")[2])
    return found


def test_each_account_has_only_the_roles_it_uses():
    assert roles(printed(*EVERYTHING)) == {
        "worker": {
            "dataflow.worker",
            "storage.objectViewer",
            "storage.objectUser",
            "artifactregistry.reader",
            "pubsub.subscriber",
            "pubsub.viewer",
            "pubsub.publisher",
            "headraceTracking",
        },
        "launcher": {
            "dataflow.developer",
            "storage.objectUser",
            "artifactregistry.reader",
            "iam.serviceAccountUser",
        },
        "operator": {
            "dataflow.developer",
            "monitoring.viewer",
            "logging.viewer",
            "storage.objectUser",
            "pubsub.subscriber",
            "pubsub.viewer",
            "pubsub.publisher",
        },
    }


def test_without_pubsub_and_images_nobody_may_use_them():
    given = roles(printed(*MINIMUM))
    assert not any(role.startswith(("pubsub", "artifact")) for found in given.values() for role in found)


def test_data_and_messages_are_granted_on_the_thing_and_not_on_the_project():
    for command in printed(*EVERYTHING):
        if command[1:3] == ["projects", "add-iam-policy-binding"]:
            role = command[command.index("--role") + 1]
            assert role.startswith(("roles/dataflow.", "roles/monitoring.", "roles/logging.", "projects/")), role
        if "roles/iam.serviceAccountUser" in command:
            assert command[1:4] == ["iam", "service-accounts", "add-iam-policy-binding"]


def test_runs_are_kept_unless_told_otherwise():
    def prefixes(*words: str) -> set[str]:
        text = setup_cloud(*MINIMUM, *words, "--print_only").out
        rules = json.loads("".join(line[4:] for line in text.splitlines()[1:] if line.startswith("#")))
        return {prefix for rule in rules["rule"] for prefix in rule["condition"].get("matchesPrefix", [])}

    assert prefixes() == {"temp/", "out/.staging-", "dead/"}
    assert prefixes("--keep_runs_days=400") - prefixes() == {"out/"}


def test_staging_is_kept_unless_told_otherwise_for_streams_live_on_it():
    assert '"staging/"' not in setup_cloud(*MINIMUM, "--print_only").out
    assert '"staging/"' in setup_cloud(*MINIMUM, "--keep_staging_days=400", "--print_only").out


def test_who_starts_and_replays_may_look_at_what_is_checked_beforehand():
    """A stream's launcher runs as the worker, and looks for subscriptions of the dead-letter topic."""
    granted = {
        (command[4], command[command.index("--member") + 1].partition("@")[0].rpartition("-")[2])
        for command in printed(*EVERYTHING)
        if command[1] == "pubsub" and command[-1] == "roles/pubsub.viewer"
    }
    assert granted == {
        ("projects/my-project/subscriptions/clicks", "worker"),
        ("projects/my-project/subscriptions/clicks", "operator"),
        ("projects/my-project/topics/dead", "worker"),
        ("projects/my-project/subscriptions/dead", "worker"),
        ("projects/my-project/subscriptions/dead", "operator"),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bucket=b-b-b",), "--project"),
        (("--project=P; rm -rf", "--bucket=b-b-b"), "--project"),
        ((*MINIMUM, "--repository=docker.io/x"), "--repository"),
        ((*MINIMUM, "--dead_letter_topic=dead"), "projects/"),
        ((*MINIMUM, "--keep_runs_days=0"), "--keep_runs_days"),
    ],
)
def test_bad_usage_is_exit_2(words, said):
    done = setup_cloud(*words, "--print_only")
    assert done.code == 2
    assert said in done.err


def test_without_gcloud_it_says_so():
    done = setup_cloud(*MINIMUM, PATH="")
    assert done.code == 2
    assert "gcloud must be installed" in done.err


def script(folder, text: str) -> str:
    gcloud = folder / "gcloud"
    gcloud.write_text(f"#!/bin/sh\n{text}\n")
    gcloud.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_what_exists_already_is_no_failure_and_what_fails_ends_it(tmp_path):
    exists = 'case "$*" in *create*) echo "ERROR: Resource already exists" >&2; exit 1;; esac'
    assert setup_cloud(*EVERYTHING, PATH=script(tmp_path, exists)).code == 0
    refused = setup_cloud(*EVERYTHING, PATH=script(tmp_path, 'echo "ERROR: PERMISSION_DENIED" >&2; exit 1'))
    assert refused.code == 1
    assert "PERMISSION_DENIED" in refused.err
    assert len(refused.out.splitlines()) == 1


@pytest.mark.slow
def test_gcloud_knows_every_command_and_flag(tmp_path):
    need_gcloud()
    own = {
        "CLOUDSDK_CONFIG": str(tmp_path),
        "CLOUDSDK_CORE_PROJECT": "proj",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
    }
    kinds = {tuple(command[1:4]): command for command in printed(*EVERYTHING)}
    assert len(kinds) >= 8
    for command in kinds.values():
        lint = ["gcloud", "meta", "lint-gcloud-commands", f"--command-string={shlex.join(command)}"]
        done = subprocess.run(
            lint, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=120, check=False
        )
        (verdict,) = json.loads(done.stdout)
        assert verdict["success"], verdict.get("error_message")
