"""Builds the image of a flex template (Docker or Cloud Build) and writes its specification with gcloud."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("batch", "streaming", "replay")
_DESCRIBE = ["gcloud", "artifacts", "docker", "images", "describe"]
_IMAGE = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_BUCKET = re.compile(r"gs://[a-z0-9][-_.a-z0-9]+(/.*)?")

EPILOG = """\
example:
  scripts/build_template streaming \\
    --repository europe-west4-docker.pkg.dev/my-project/headrace --templates gs://my-bucket/templates

It builds templates/Dockerfile as REPOSITORY/headrace-streaming:TAG, pushes it, and writes the specification
TEMPLATES/headrace-streaming.json, which 'headrace job launch' and 'gcloud dataflow flex-template run' start. The
specification names the image by its digest: an image that is pushed later under the same tag is not launched unnoticed.
Exit codes: 0 done; 1 a step failed; 2 bad usage, or a program is missing.
"""


@dataclass(frozen=True)
class Build:
    """What is to be built; ``image`` is its full name with the tag."""

    template: str
    image: str
    spec: str
    version: str
    commit: str
    builder: str
    project: str | None


def commands(build: Build, *, cloud_build_config: str) -> list[list[str]]:
    """The commands that build it, in their order; ``cloud_build_config`` is the file for Cloud Build."""
    project = ["--project", build.project] if build.project else []
    if build.builder == "docker":
        arguments = [
            word for name, value in build_arguments(build).items() for word in ("--build-arg", f"{name}={value}")
        ]
        image = [
            [
                *["docker", "build", "--platform", "linux/amd64", "--file", "templates/Dockerfile"],
                *arguments,
                "--tag",
                build.image,
                ".",
            ],
            ["docker", "push", build.image],
        ]
    else:
        image = [["gcloud", "builds", "submit", ".", "--config", cloud_build_config, *project]]
    metadata = f"templates/{build.template}/metadata.json"
    flags = ["--image", build.image, "--sdk-language", "PYTHON", "--metadata-file", metadata]
    specification = ["gcloud", "dataflow", "flex-template", "build", build.spec, *flags, *project]
    return [*image, [*_DESCRIBE, build.image, "--format", "value(image_summary.digest)"], specification]


def by_digest(image: str, digest: str) -> str:
    """The image's name with its digest in place of the tag; as it is where ``digest`` is none."""
    return f"{image.rpartition(':')[0]}@{digest}" if re.fullmatch("sha256:[0-9a-f]{64}", digest) else image


def build_arguments(build: Build) -> dict[str, str]:
    """The Dockerfile's arguments."""
    lock = hashlib.sha256((ROOT / "templates" / "requirements.lock").read_bytes()).hexdigest()
    return {
        "TEMPLATE": build.template,
        "VERSION": build.version,
        "COMMIT": build.commit,
        "LOCK_DIGEST": f"sha256:{lock}",
        "IMAGE": build.image,
    }


def cloud_build_yaml(build: Build) -> str:
    """The steps for Cloud Build: the Dockerfile is not in the root, and its arguments need --build-arg."""
    arguments = ["build", "--file", "templates/Dockerfile"]
    for name, value in build_arguments(build).items():
        arguments += ["--build-arg", f"{name}={value}"]
    listed = "".join(f"  - {_quoted(word)}\n" for word in [*arguments, "--tag", build.image, "."])
    return (
        f"steps:\n- name: gcr.io/cloud-builders/docker\n  args:\n{listed}"
        f"images:\n- {_quoted(build.image)}\ntimeout: 3600s\noptions:\n  machineType: E2_HIGHCPU_8\n"
    )


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''").replace("$", "$$") + "'"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; argparse leaves with exit code 2 for bad ones."""
    parser = argparse.ArgumentParser(
        prog="scripts/build_template",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("template", choices=NAMES, help="which template")
    parser.add_argument("--repository", required=True, metavar="NAME", help="a Docker repository, without a tag")
    parser.add_argument("--templates", required=True, metavar="FOLDER", help="where the specification goes, gs://")
    parser.add_argument("--tag", metavar="TAG", help="the image's tag (default: the version and the commit)")
    parser.add_argument(
        "--builder",
        choices=("auto", "docker", "cloud"),
        default="auto",
        help="docker here, or Cloud Build (default: auto)",
    )
    parser.add_argument("--project", metavar="ID", help="the project (default: gcloud's)")
    parser.add_argument("--print_only", action="store_true", help="print the commands and do nothing")
    arguments = parser.parse_args(argv)
    if not _IMAGE.fullmatch(arguments.repository):
        parser.error(
            f"--repository {arguments.repository!r} is no repository such as REGION-docker.pkg.dev/PROJECT/NAME"
        )
    if not _BUCKET.fullmatch(arguments.templates):
        parser.error(f"--templates {arguments.templates!r} must be a folder in Cloud Storage: gs://BUCKET/FOLDER")
    if arguments.tag is not None and not _TAG.fullmatch(arguments.tag):
        parser.error(f"--tag {arguments.tag!r} is no tag of an image")
    return arguments


def plan(arguments: argparse.Namespace) -> Build:
    """What the arguments ask for."""
    version, commit = _version(), _commit()
    short = commit[:12] + ("-dirty" if commit.endswith("-dirty") else "")
    image = f"{arguments.repository}/headrace-{arguments.template}:{arguments.tag or f'{version}-{short}'}"
    spec = f"{arguments.templates.rstrip('/')}/headrace-{arguments.template}.json"
    builder = arguments.builder if arguments.builder != "auto" else ("docker" if _docker_runs() else "cloud")
    return Build(arguments.template, image, spec, version, commit, builder, arguments.project)


def _version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"', (ROOT / "pipeline" / "__init__.py").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def _commit() -> str:
    """The commit, marked where the tree differs from it; ``unknown`` outside git, or without it."""
    if shutil.which("git") is None:
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if found.returncode:
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return found.stdout.strip() + ("-dirty" if changed else "")


def _docker_runs() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _named(image: str, describe: Sequence[str]) -> str:
    """The image by its digest; by its tag, which is told, where the registry does not say the digest."""
    done = subprocess.run(describe, cwd=ROOT, check=False, env=os.environ, capture_output=True, text=True)
    named = by_digest(image, done.stdout.strip())
    if named == image:
        print(
            f"the registry does not say the digest of {image}; the tag is used. {done.stderr.strip()}", file=sys.stderr
        )
    return named


def main(argv: Sequence[str]) -> int:
    """Print the commands, and unless told otherwise run them one after another; stops at the first that fails."""
    arguments = parse(argv)
    build = plan(arguments)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "cloudbuild.yaml")
        config.write_text(cloud_build_yaml(build))
        steps = commands(build, cloud_build_config=str(config))
        missing = sorted({step[0] for step in steps if shutil.which(step[0]) is None})
        if missing and not arguments.print_only:
            print(f"scripts/build_template: {' and '.join(missing)} must be installed and on the PATH", file=sys.stderr)
            return 2
        if arguments.print_only and build.builder == "cloud":
            print(f"# {config.name}:\n" + "".join(f"#   {line}\n" for line in config.read_text().splitlines()), end="")
        named = build.image
        for planned in steps:
            last = planned is steps[-1]
            step = [named if last and word == build.image else word for word in planned]
            print(shlex.join(config.name if word == str(config) else word for word in step), flush=True)
            if arguments.print_only:
                continue
            if step[: len(_DESCRIBE)] == _DESCRIBE:
                named = _named(build.image, step)
            elif subprocess.run(step, cwd=ROOT, check=False, env=os.environ).returncode:
                print(f"scripts/build_template: {step[0]} failed", file=sys.stderr)
                return 1
    if not arguments.print_only:
        print(f"wrote {build.spec}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
