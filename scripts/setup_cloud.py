"""Makes the service accounts of Headrace, each with only the roles it uses, and the bucket's lifecycle rules."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

WORKER, LAUNCHER, OPERATOR = "headrace-worker", "headrace-launcher", "headrace-operator"
TRACKING_ROLE = "headraceTracking"
TRACKING_PERMISSIONS = "pubsub.subscriptions.create,pubsub.subscriptions.delete,pubsub.topics.attachSubscription"

EPILOG = """\
accounts:
  headrace-worker    runs on the workers: reads input, writes shards and dead letters, pulls, publishes dead letters
  headrace-launcher  starts and updates jobs (a person's or a CI's): may act as the worker, and as nobody else
  headrace-operator  watches, drains, cancels; reads and replays dead letters

lifecycle rules of the output bucket, by prefix (days):
  temp/ and out/.staging-* 14, dead/ 90, old versions of objects 30. Runs (out/) are kept: training may need them
  again; --keep_runs_days ends them too. staging/ is kept: a running stream starts its workers from it, and an update
  compares with the launch record in it; --keep_staging_days ends it, if every stream is updated more often than that.

It prints every gcloud command before it runs it; run again, it changes nothing. --print_only only prints.
Exit codes: 0 done; 1 a command failed; 2 bad usage, or gcloud is missing.
"""


def account(name: str, project: str) -> str:
    """The address of a service account."""
    return f"{name}@{project}.iam.gserviceaccount.com"


def commands(given: argparse.Namespace, *, lifecycle_file: str) -> Iterator[list[str]]:
    """All gcloud commands in their order; those that create fail harmlessly where the thing exists."""
    project = ["--project", given.project]
    for name, title in ((WORKER, "workers"), (LAUNCHER, "starts jobs"), (OPERATOR, "operates jobs")):
        yield ["gcloud", "iam", "service-accounts", "create", name, "--display-name", f"Headrace: {title}", *project]
    worker, launcher, operator = (account(name, given.project) for name in (WORKER, LAUNCHER, OPERATOR))
    yield _on_project(given, worker, "roles/dataflow.worker")
    yield _on_project(given, launcher, "roles/dataflow.developer")
    yield _on_project(given, operator, "roles/dataflow.developer")
    yield _on_project(given, operator, "roles/monitoring.viewer")
    yield _on_project(given, operator, "roles/logging.viewer")
    # Who starts a job as the worker must be allowed to act as it: as this one account, not as all of the project.
    act_as = ["gcloud", "iam", "service-accounts", "add-iam-policy-binding", worker, *project]
    yield [*act_as, "--member", f"serviceAccount:{launcher}", "--role", "roles/iam.serviceAccountUser"]
    yield from _buckets(given, worker=worker, launcher=launcher, operator=operator)
    if given.repository:
        yield from _images(given, (worker, launcher))
    yield from _pubsub(given, worker=worker, operator=operator)
    yield ["gcloud", "storage", "buckets", "update", f"gs://{given.bucket}", "--lifecycle-file", lifecycle_file]


def _on_project(given: argparse.Namespace, who: str, role: str) -> list[str]:
    command = ["gcloud", "projects", "add-iam-policy-binding", given.project]
    return [*command, "--member", f"serviceAccount:{who}", "--role", role, "--condition", "None"]


def _buckets(given: argparse.Namespace, *, worker: str, launcher: str, operator: str) -> Iterator[list[str]]:
    binding = ["gcloud", "storage", "buckets", "add-iam-policy-binding"]
    for bucket in given.input_bucket:
        yield [
            *binding,
            f"gs://{bucket}",
            "--member",
            f"serviceAccount:{worker}",
            "--role",
            "roles/storage.objectViewer",
        ]
    for who in (worker, launcher, operator):
        yield [
            *binding,
            f"gs://{given.bucket}",
            "--member",
            f"serviceAccount:{who}",
            "--role",
            "roles/storage.objectUser",
        ]


def _images(given: argparse.Namespace, readers: Sequence[str]) -> Iterator[list[str]]:
    region, project, name = re.fullmatch(r"([a-z0-9-]+)-docker\.pkg\.dev/([^/]+)/([^/]+)", given.repository).groups()
    for who in readers:
        command = ["gcloud", "artifacts", "repositories", "add-iam-policy-binding", name, "--location", region]
        member = ["--member", f"serviceAccount:{who}", "--role", "roles/artifactregistry.reader"]
        yield [*command, "--project", project, *member]


def _pubsub(given: argparse.Namespace, *, worker: str, operator: str) -> Iterator[list[str]]:
    def grant(kind: str, name: str, who: str, role: str) -> list[str]:
        command = ["gcloud", "pubsub", kind, "add-iam-policy-binding", name]
        return [*command, "--member", f"serviceAccount:{who}", "--role", role]

    if given.input_subscription:
        yield grant("subscriptions", given.input_subscription, worker, "roles/pubsub.subscriber")
        for who in (worker, operator):  # a replay sends a letter to the topic of the subscription that it came from
            yield grant("subscriptions", given.input_subscription, who, "roles/pubsub.viewer")
    if given.dead_letter_topic:
        yield grant("topics", given.dead_letter_topic, worker, "roles/pubsub.publisher")
        # Before a stream starts, its launcher (which is the worker) looks whether somebody keeps what is published.
        yield grant("topics", given.dead_letter_topic, worker, "roles/pubsub.viewer")
    if given.dead_letter_subscription:
        for who in (operator, worker):  # a replay here, a replay on Dataflow
            yield grant("subscriptions", given.dead_letter_subscription, who, "roles/pubsub.subscriber")
            yield grant("subscriptions", given.dead_letter_subscription, who, "roles/pubsub.viewer")
    if given.replay_topic:
        yield grant("topics", given.replay_topic, operator, "roles/pubsub.publisher")
        yield grant("topics", given.replay_topic, worker, "roles/pubsub.publisher")  # a replay on Dataflow
    if given.timestamp_attribute:
        # With a timestamp attribute Dataflow keeps a subscription of its own, to follow the watermark.
        role = ["gcloud", "iam", "roles", "create", TRACKING_ROLE, "--permissions", TRACKING_PERMISSIONS]
        yield [*role, "--title", "Headrace: tracking subscriptions", "--project", given.project]
        yield _on_project(given, worker, f"projects/{given.project}/roles/{TRACKING_ROLE}")


def lifecycle(keep_runs_days: int | None, keep_staging_days: int | None) -> dict[str, list[dict[str, object]]]:
    """The bucket's rules. Ages are in days; an object is deleted by the first rule that it meets."""
    ages = {"temp/": 14, "out/.staging-": 14, "dead/": 90}
    if keep_runs_days:
        ages["out/"] = keep_runs_days
    if keep_staging_days:
        ages["staging/"] = keep_staging_days
    rules: list[dict[str, object]] = [
        {"action": {"type": "Delete"}, "condition": {"age": age, "matchesPrefix": [prefix]}}
        for prefix, age in ages.items()
    ]
    rules.append({"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": 30}})
    rules.append({"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}})
    return {"rule": rules}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; argparse leaves with exit code 2 for bad ones."""
    parser = argparse.ArgumentParser(
        prog="scripts/setup_cloud",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--project", required=True, metavar="ID")
    parser.add_argument(
        "--bucket", required=True, metavar="NAME", help="bucket of output, dead letters, temp and staging"
    )
    parser.add_argument(
        "--input_bucket", action="append", default=[], metavar="NAME", help="a bucket to read; repeatable"
    )
    parser.add_argument("--repository", metavar="NAME", help="REGION-docker.pkg.dev/PROJECT/NAME of the images")
    parser.add_argument("--input_subscription", metavar="NAME", help="projects/P/subscriptions/S of the stream")
    parser.add_argument("--dead_letter_topic", metavar="NAME", help="projects/P/topics/T")
    parser.add_argument("--dead_letter_subscription", metavar="NAME", help="projects/P/subscriptions/S of dead letters")
    parser.add_argument("--replay_topic", metavar="NAME", help="projects/P/topics/T that replays publish to")
    parser.add_argument("--timestamp_attribute", action="store_true", help="the stream has a timestamp attribute")
    parser.add_argument("--keep_runs_days", type=int, metavar="N", help="delete what lies in out/ after so many days")
    parser.add_argument(
        "--keep_staging_days", type=int, metavar="N", help="delete what lies in staging/ after so many days"
    )
    parser.add_argument("--print_only", action="store_true", help="print the commands and do nothing")
    given = parser.parse_args(argv)
    for flag, pattern, values in (
        ("project", r"[a-z][a-z0-9-]{4,28}[a-z0-9]", [given.project]),
        ("bucket", r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]", [given.bucket, *given.input_bucket]),
        ("repository", r"[a-z0-9-]+-docker\.pkg\.dev/[a-z0-9:.-]+/[a-z0-9-]+", [given.repository]),
        ("input_subscription", r"projects/[^/\s]+/subscriptions/[^/\s]+", [given.input_subscription]),
        ("dead_letter_subscription", r"projects/[^/\s]+/subscriptions/[^/\s]+", [given.dead_letter_subscription]),
        ("dead_letter_topic", r"projects/[^/\s]+/topics/[^/\s]+", [given.dead_letter_topic]),
        ("replay_topic", r"projects/[^/\s]+/topics/[^/\s]+", [given.replay_topic]),
        ("keep_runs_days", r"[1-9][0-9]*", [given.keep_runs_days]),
        ("keep_staging_days", r"[1-9][0-9]*", [given.keep_staging_days]),
    ):
        for value in values:
            if value is not None and not re.fullmatch(pattern, str(value)):
                parser.error(f"--{flag} {value!r} does not look like one: it must match {pattern}")
    return given


def main(argv: Sequence[str]) -> int:
    """Print the commands, and unless told otherwise run them; what exists already is no failure."""
    given = parse(argv)
    if not given.print_only and shutil.which("gcloud") is None:
        print("scripts/setup_cloud: gcloud must be installed and on the PATH (or use --print_only)", file=sys.stderr)
        return 2
    rules = json.dumps(lifecycle(given.keep_runs_days, given.keep_staging_days), indent=2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lifecycle.json")
        file.write_text(rules)
        if given.print_only:
            print("# lifecycle.json:\n" + "".join(f"#   {line}\n" for line in rules.splitlines()), end="")
        for command in commands(given, lifecycle_file=str(file)):
            print(shlex.join(file.name if word == str(file) else word for word in command), flush=True)
            if not given.print_only and not _done(command):
                return 1
    return 0


def _done(command: Sequence[str]) -> bool:
    """Run one command; True if it succeeded, or if what it creates is there already."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not ("create" in command and "already exists" in done.stderr.lower()):
        print(done.stderr.strip(), file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
