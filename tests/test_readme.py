"""The README does what it says: every command in it is run, every Python snippet too."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.main import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    for block in blocks("console"):
        for line in block.splitlines():
            assert line.startswith("$ "), f"a console block holds commands only: {line!r}"
            yield line[2:]


def evening() -> list[str]:
    """The commands of the section on the dead-letter topic, which need the emulator."""
    section = README.partition("\n## An evening with the dead-letter topic\n")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.+)$", section, flags=re.MULTILINE)


def streaming() -> list[str]:
    """The commands of the section on streaming, which need the emulators."""
    section = README.partition("\n## Streaming\n")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.+)$", section, flags=re.MULTILINE)


def test_ci_runs_the_readmes_test_command() -> None:
    assert "scripts/test" in list(commands())
    assert "exec scripts/test" in (ROOT / ".ci" / "run").read_text()


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README


@pytest.mark.slow
def test_every_command_and_snippet_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    monkeypatch.chdir(tmp_path)
    ran = []
    for command in commands():
        words = shlex.split(command)
        if words[0] == "scripts/test":
            continue  # this very test is part of it
        if command in evening() or command in streaming():
            continue  # in test_readme_evening and test_readme_streaming
        if words[0] == "scripts/quickstart":  # without its shell, which sets up the environment that runs this
            subprocess.run([sys.executable, "scripts/quickstart.py", *words[1:]], check=True)
        elif words[0] in ("scripts/build_template", "scripts/setup_cloud"):
            assert words[-1] == "--print_only", "nothing is built or made by a test"
            subprocess.run([sys.executable, f"{words[0]}.py", *words[1:]], check=True)
        elif words[0] == ".venv/bin/python":
            subprocess.run([sys.executable, *words[1:]], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        elif words[0] == "headrace":
            assert main(words[1:]) == 0, command
        else:
            pytest.fail(f"the README shows a command that this test does not know how to run: {command}")
        ran.append(command)
    assert len(ran) >= 9
    for snippet in blocks("python"):
        scope: dict[str, object] = {}
        exec(compile(snippet, "README.md", "exec"), scope)
        features, label = next(iter(scope["dataset"]))  # type: ignore[call-overload]
        assert label.shape == (1024,)
        assert features["dep_delay"].dtype == "float32"
