"""The image: what the Dockerfile says, its Python layer built from the lock, its launchers run, its build commands."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.cli import ROOT, Done, need_gcloud, python
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator

from pipeline.core.archive import write_archive
from pipeline.options import template as templates
from pipeline.transforms import files

DOCKERFILE = (ROOT / "templates" / "Dockerfile").read_text()
LOCK = (ROOT / "templates" / "requirements.lock").read_text()
TEMPLATES = [one.name for one in templates.TEMPLATES]


def pins(lock: str) -> dict[str, str]:
    return {match[1].lower().replace("_", "-"): match[2] for match in re.finditer(r"(?m)^([\w.\[\]-]+)==(\S+)", lock)}


def test_everything_that_is_copied_exists():
    copied = [match[1].split()[:-1] for match in re.finditer(r"(?m)^COPY (?!--from)(.+)$", DOCKERFILE)]
    assert len(copied) >= 6
    for path in (path for paths in copied for path in paths):
        assert (ROOT / path).exists(), path
        top = path.split("/")[0]
        assert f"!{top}" in (ROOT / ".dockerignore").read_text().splitlines(), f"{path} does not reach the builder"


def test_beam_of_the_workers_is_beam_of_the_lock():
    assert re.search(r"ARG BEAM_VERSION=(\S+)", DOCKERFILE)[1] == pins(LOCK)["apache-beam"]


def test_nothing_is_downloaded_when_a_job_starts():
    assert not re.search(r"(?m)^\s*[^#\n]*FLEX_TEMPLATE_PYTHON_REQUIREMENTS_FILE", DOCKERFILE)
    assert "--require-hashes" in DOCKERFILE


def test_locks_pin_by_hash_and_name_no_index():
    for name in ("requirements.lock", "templates/requirements.lock"):
        lock = (ROOT / name).read_text()
        entries = re.split(r"(?m)^(?=\w)", lock)[1:]
        assert len(entries) > 100
        assert all("--hash=sha256:" in entry for entry in entries)
        assert not re.search(r"https?://|--(extra-)?index|--find-links|--trusted", lock)


def test_the_image_has_the_versions_that_the_tests_ran_with():
    tested, image = pins((ROOT / "requirements.lock").read_text()), pins(LOCK)
    assert image.items() <= tested.items()
    assert not {"pytest", "ruff", "mypy", "hypothesis"} & set(image)
    for name in ("apache-beam", "pyarrow", "numpy", "tensorflow", "tensorflow-transform"):
        assert importlib.metadata.version(name) == image[name]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_launcher_is_short_and_answers_help(template):
    path = ROOT / "templates" / template / "launcher.py"
    assert len(path.read_text().splitlines()) < 30
    done = python(str(path), "--help")
    assert done.code == 0, done.err
    assert "example:" in done.out


def build(*words: str, **environment: str) -> Done:
    return python("scripts/build_template.py", *words, env=environment)


WHERE = ("--repository", "europe-west4-docker.pkg.dev/my-project/headrace", "--templates", "gs://my-bucket/templates")


@pytest.mark.parametrize("template", TEMPLATES)
def test_commands_are_printed_and_nothing_is_done(template):
    done = build(template, *WHERE, "--tag=1.0", "--builder=docker", "--print_only", PATH="")
    assert done.code == 0, done.err
    first, push, describe, spec = done.out.splitlines()
    image = f"europe-west4-docker.pkg.dev/my-project/headrace/headrace-{template}:1.0"
    assert first.startswith("docker build --platform linux/amd64 --file templates/Dockerfile")
    assert f"--build-arg TEMPLATE={template}" in first
    assert f"--build-arg IMAGE={image}" in first
    assert push == f"docker push {image}"
    assert describe.startswith(f"gcloud artifacts docker images describe {image}")
    assert f"gs://my-bucket/templates/headrace-{template}.json" in spec


def test_every_argument_of_the_image_is_given_and_its_labels_say_them():
    declared = set(re.findall(r"(?m)^ARG (\w+)=", DOCKERFILE)) - {"PYTHON_VERSION", "BEAM_VERSION", "LAUNCHER"}
    printed = build("batch", *WHERE, "--tag=1.0", "--builder=docker", "--print_only").out
    assert set(re.findall(r"--build-arg (\w+)=", printed)) == declared
    labels = DOCKERFILE.partition("\nLABEL ")[2].partition("\n\n")[0]
    assert {"VERSION", "COMMIT", "LOCK_DIGEST"} <= set(re.findall(r"\$\{(\w+)\}", labels))
    assert re.search(r"LOCK_DIGEST=sha256:[0-9a-f]{64} ", printed)


DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("answer", "named"),
    [(f"echo {DIGEST}", f"headrace-batch@{DIGEST}"), ("echo NOT_FOUND >&2; exit 1", "headrace-batch:1.0")],
)
def test_the_specification_names_the_image_by_its_digest(tmp_path, answer, named):
    for name in ("docker", "gcloud"):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/ran\ncase "$*" in artifacts*) {answer};; esac\n')
        script.chmod(0o755)
    done = build("batch", *WHERE, "--tag=1.0", "--builder=docker", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.code == 0, done.err
    ran = (tmp_path / "ran").read_text().splitlines()
    assert [line.split()[:2] for line in ran] == [
        ["docker", "build"],
        ["docker", "push"],
        ["gcloud", "artifacts"],
        ["gcloud", "dataflow"],
    ]
    assert f"/{named} " in ran[-1]
    assert ("the tag is used" in done.err) == ("exit 1" in answer)


def test_cloud_build_is_told_the_same_arguments():
    done = build("batch", *WHERE, "--tag=1.0", "--builder=cloud", "--print_only")
    assert done.code == 0, done.err
    assert "#     - 'TEMPLATE=batch'" in done.out
    assert "gcloud builds submit . --config cloudbuild.yaml" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing", *WHERE), "invalid choice"),
        (("batch", *WHERE[:2]), "--templates"),
        (("batch", "--repository", "x;rm", *WHERE[2:]), "is no repository"),
        (("batch", *WHERE[:2], "--templates", "/tmp"), "gs://"),
        (("batch", *WHERE, "--tag=a b"), "is no tag"),
    ],
)
def test_bad_usage_of_the_build_is_exit_2(words, said):
    done = build(*words)
    assert done.code == 2
    assert said in done.err


def test_a_missing_program_is_named():
    done = build("batch", *WHERE, "--builder=docker", PATH="")
    assert done.code == 2
    assert "docker and gcloud" in done.err


@pytest.mark.parametrize("template", TEMPLATES)
def test_gcloud_accepts_the_specification(template, tmp_path):
    need_gcloud()
    *_, command = build(template, *WHERE, "--tag=1.0", "--builder=docker", "--print_only").out.splitlines()
    done = subprocess.run(
        [*command.split(), "--print-only", "--format=json"],
        cwd=ROOT,
        env=os.environ
        | {
            "CLOUDSDK_CONFIG": str(tmp_path),
            "CLOUDSDK_CORE_PROJECT": "proj",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    specification = json.loads(said) if isinstance(said, str) else said
    written = json.loads((ROOT / "templates" / template / "metadata.json").read_text())
    assert [p["name"] for p in specification["metadata"]["parameters"]] == [p["name"] for p in written["parameters"]]


COMPILE = (
    "--runner=DataflowRunner",
    "--project=test-proj",
    "--region=europe-west4",
    "--job_name=compiled",
    "--dry_run=True",
    "--sdk_location=container",
    "--sdk_container_image=europe-west4-docker.pkg.dev/p/r/headrace-batch:1.0",
)


@pytest.mark.slow
def test_the_images_python_layer_builds_from_the_lock_and_compiles_a_job(tmp_path):
    """What the Dockerfile does after FROM, in a virtual environment, where no Docker engine runs."""
    image = tmp_path / "image"
    for folder in ("pipeline", "dlq_replay", "templates"):
        shutil.copytree(ROOT / folder, image / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, image)
    lock = image / "templates" / "requirements.lock"
    subprocess.run([sys.executable, "-m", "venv", image / "venv"], check=True)
    interpreter = image / "venv" / "bin" / "python"
    pip = (interpreter, "-m", "pip", "--quiet", "--disable-pip-version-check")
    for words in (
        (*pip, "install", "--require-hashes", "--requirement", lock),
        (*pip, "install", "--no-deps", "--no-build-isolation", "."),
        (*pip, "check"),
        (interpreter, "-c", "import apache_beam, tensorflow_transform, pipeline.main, dlq_replay"),
        *((interpreter, f"templates/{name}/launcher.py", "--help") for name in TEMPLATES),
    ):
        done = subprocess.run(list(map(str, words)), cwd=image, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    shutil.rmtree(image / "pipeline")  # the installed package must do
    with storage_emulator(tmp_path) as bucket:
        done = _compile(interpreter, "batch", bucket)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run_id"] == "compiled"


GIVEN = {
    "batch": ('--input={bucket}/in/a,b="1".jsonl', "--dead_letters={bucket}/dead", "--csv_multiline=false"),
    "streaming": (
        "--input_subscription=projects/test-proj/subscriptions/clicks",
        "--dead_letter_topic=projects/test-proj/topics/dead",
        "--dead_letters=",
        "--window=1m",
    ),
}


def _compile(interpreter: Path, template: str, bucket: str) -> subprocess.CompletedProcess[str]:
    """Let a launcher make a job of its template, with everything on gs://.

    Without an analysis: TensorFlow's own gs:// cannot be pointed at an emulator.
    """
    schema = b'feature { name: "a" type: INT presence { min_fraction: 1 } value_count { min: 1 max: 1 } }\n'
    files.write_bytes(f"{bucket}/schema.pbtxt", schema)
    files.write_bytes(f'{bucket}/in/a,b="1".jsonl', b'{"a": 1}\n')
    files.write_bytes(f"{bucket}/temp/x", b"")
    given = (
        *(word.format(bucket=bucket) for word in GIVEN[template]),
        f"--schema={bucket}/schema.pbtxt",
        f"--output={bucket}/out",
        "--run_id=compiled",
        f"--temp_location={bucket}/temp",
        f"--staging_location={bucket}/staging",
        f"--template_location={bucket}/staging/template",
    )
    launcher = ROOT / "templates" / template / "launcher.py"
    command = [str(interpreter), str(launcher), *given, *COMPILE]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("template", GIVEN)
def test_a_launcher_submits_and_returns_without_waiting(template, tmp_path):
    with storage_emulator(tmp_path) as bucket:
        done = _compile(Path(sys.executable), template, bucket)
    assert done.returncode == 0, done.stderr
    assert "job" in done.stdout


@pytest.mark.slow
def test_the_launcher_of_replays_submits_and_returns_without_waiting(tmp_path):
    """To a service of ours: ``--dry_run``, by which Beam only compiles, is a replay's own."""
    assert {*GIVEN, "replay"} == set(TEMPLATES)
    with storage_emulator(tmp_path) as bucket, dataflow_service() as service:
        with files.create(f"{bucket}/dead/run=r/letters.avro") as stream:
            write_archive(stream, [])
        files.write_bytes(f"{bucket}/temp/x", b"")
        done = python(
            *("templates/replay/launcher.py", f"--archive={bucket}/dead", "--to=projects/test-proj/topics/in"),
            *("--execute=true", "--runner=DataflowRunner", f"--project={PROJECT}", f"--region={REGION}"),
            *("--job_name=again", f"--temp_location={bucket}/temp", f"--staging_location={bucket}/staging"),
            *("--sdk_location=container", "--sdk_container_image=europe-west4-docker.pkg.dev/p/r/headrace-replay:1.0"),
            f"--dataflow_endpoint={service.url.replace('127.0.0.1', 'localhost')}",
        )
        assert done.code == 0, done.err
        assert json.loads(done.out)["job_id"] in service.state.jobs
