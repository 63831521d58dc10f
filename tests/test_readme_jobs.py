"""The README's transcripts of job commands are what the commands print, against the service in memory."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cli import ROOT, headrace
from fakes.dataflow_http import dataflow_service
from fakes.gcs import storage_emulator
from fakes.jobs import JobsBench

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)

SECTIONS = ("Change a running job", "When workers run out of memory")
_VARIES = (
    (re.compile(r"\d{8}t\d{6}-[0-9a-f]{8}"), "LAUNCH"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "TIME"),
    (re.compile(r"INFO changes commit: .*\n"), ""),  # somebody commits while this runs
)


def section(title: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def transcripts() -> Iterator[str]:
    for title in SECTIONS:
        yield from re.findall(r"^```text\n(\$ .*?)^```", section(title), flags=re.MULTILINE | re.DOTALL)


def run(command: str, jobs: JobsBench) -> str:
    """What a command prints: messages, then the result, then the exit code where it is not 0."""
    words = shlex.split(command)
    if words[0] == "sed":
        subprocess.run(words, check=True)
        return ""
    assert words[:2] == ["headrace", "job"], command
    done = jobs.job(*words[2:])
    return done.err + done.out + (f"(exit code {done.code})\n" if done.code else "")


def plain(text: str) -> str:
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


@pytest.fixture
def jobs(tmp_path: Path, row_schema: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsBench]:
    monkeypatch.chdir(tmp_path)
    with storage_emulator(tmp_path) as bucket, dataflow_service() as service:
        bench = JobsBench(tmp_path, bucket, service, row_schema)
        (spec,) = re.findall(r"^```yaml\n(.*?)^```", section(SECTIONS[0]), flags=re.MULTILINE | re.DOTALL)
        (tmp_path / "launch.yaml").write_text(spec)
        yield bench


def test_the_transcripts_are_what_the_commands_print(jobs: JobsBench):
    shown, printed = [], []
    for transcript in transcripts():
        for part in re.split(r"^(?=\$ )", transcript, flags=re.MULTILINE)[1:]:
            command, _, _ = part.partition("\n")
            shown.append(plain(part.rstrip()))
            printed.append(plain(f"{command}\n{run(command[2:], jobs)}".rstrip()))
    assert len(shown) >= 6
    assert shown == printed


def test_every_job_command_is_in_the_readme():
    text = "".join(section(title) for title in SECTIONS)
    for command in ("launch", "update", "resize", "drain", "status", "list", "cancel"):
        assert f"headrace job {command}" in text
        assert headrace("job", command, "--help").code == 0
