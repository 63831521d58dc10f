"""scripts/emulators, with the real emulators: started once, used, stopped, and nobody else's process touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from emulation import process
from emulation.process import Running
from fakes.cli import ROOT, Done
from fakes.pubsub import Emulator, need_emulator

SCRIPT = ROOT / "scripts" / "emulators.py"


def emulators(*words: object, **environment: str) -> Done:
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def variables(exports: str) -> dict[str, str]:
    lines = [line.removeprefix("export ") for line in exports.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def running(state: Path, name: str) -> Running:
    found = json.loads((state / f"{name}.json").read_text())
    return Running(found["pid"], found["began"])


@pytest.fixture
def state(tmp_path):
    """A state folder whose emulators are stopped in the end."""
    folder = tmp_path / "state folder"
    yield folder
    assert emulators("stop", "--state", folder).code == 0


@pytest.fixture
def everything(state):
    """Both emulators, started."""
    need_emulator()
    started = emulators("start", "--state", state)
    assert started.code == 0, started.err
    return started


def test_started_emulators_work_and_starting_again_changes_nothing(everything, state):
    led = variables(everything.out)
    emulator = Emulator(led["PUBSUB_EMULATOR_HOST"], led["GOOGLE_CLOUD_PROJECT"])
    topic = emulator.topic()
    subscription = emulator.subscription(topic)
    emulator.publish(topic, b"hello")
    bucket = urllib.request.urlopen(led["STORAGE_EMULATOR_HOST"] + "/storage/v1/b/headrace-local", timeout=10)
    assert json.load(bucket)["name"] == "headrace-local"
    key = Path(led["GOOGLE_APPLICATION_CREDENTIALS"].strip("'"))
    assert key.stat().st_mode & 0o077 == 0
    assert emulators("start", "--state", state).out == everything.out
    assert [one.data for one in emulator.pull_all(subscription, count=1)] == [b"hello"]
    shown = emulators("status", "--state", state)
    assert (shown.code, variables(shown.out)) == (0, led)


def test_stop_ends_both_and_only_says_so_the_second_time(everything, state):
    before = [running(state, name) for name in ("pubsub", "storage")]
    assert all(one.alive for one in before)
    stopped = emulators("stop", "--state", state)
    assert (stopped.code, stopped.err.count(" stopped")) == (0, 2)
    assert not any(one.alive for one in before)
    assert [path.name for path in state.iterdir() if path.suffix == ".json"] == []
    again = emulators("stop", "--state", state)
    assert (again.code, again.err.count("was not running")) == (0, 2)
    assert emulators("status", "--state", state).code == 1


def test_one_that_was_killed_is_started_again_and_the_other_left_alone(everything, state):
    other = running(state, "pubsub")
    os.kill(running(state, "storage").pid, signal.SIGKILL)
    assert emulators("status", "--state", state).code == 1
    assert emulators("status", "pubsub", "--state", state).code == 0
    assert emulators("start", "--state", state).code == 0
    assert (emulators("status", "--state", state).code, running(state, "pubsub")) == (0, other)


def test_two_starts_at_once_make_one_emulator(state):
    need_emulator()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: emulators("start", "storage", "--state", state), range(2)))
    assert [done.code for done in both] == [0, 0]
    assert both[0].out == both[1].out
    assert sum("runs on" in done.err for done in both) == 1


def test_a_busy_port_is_left_to_its_owner(state):
    with socket.socket() as owner:
        owner.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            owner.bind(("127.0.0.1", 9023))
            owner.listen()
        except OSError:
            pass  # somebody else has it already
        started = emulators("start", "storage", "--state", state)
    assert started.code == 0, started.err
    assert not variables(started.out)["STORAGE_EMULATOR_HOST"].endswith(":9023")


def test_a_process_that_only_has_the_same_id_is_not_touched(state):
    state.mkdir()
    with subprocess.Popen(["sleep", "60"]) as innocent:
        try:
            remembered = {"pid": innocent.pid, "began": "another time", "port": 1}
            (state / "pubsub.json").write_text(json.dumps(remembered))
            assert "was not running" in emulators("stop", "pubsub", "--state", state).err
            assert innocent.poll() is None
        finally:
            innocent.kill()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pid": "x"}', '{"pid": null, "began": 1, "port": 2}'])
def test_a_damaged_pid_file_means_not_running(state, damage):
    state.mkdir()
    (state / "pubsub.json").write_text(damage)
    assert emulators("status", "pubsub", "--state", state).code == 1
    assert emulators("stop", "pubsub", "--state", state).code == 0


def test_without_java_nothing_is_started_and_it_says_what_to_do(state):
    need_emulator()
    home = Path(shutil.which("gcloud") or "/nowhere/bin/gcloud").resolve().parent.parent
    done = emulators("start", "--state", state, PATH="/nowhere", JAVA_HOME="", CLOUDSDK_ROOT_DIR=str(home))
    assert (done.code, done.out) == (2, "")
    assert "no java on the PATH" in done.err
    assert "Traceback" not in done.err
    assert emulators("status", "storage", "--state", state).code == 1


def test_one_that_cannot_start_is_told_with_its_own_words(state, tmp_path):
    launcher = tmp_path / "sdk" / "platform" / "pubsub-emulator" / "bin" / "cloud-pubsub-emulator"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    launcher.chmod(0o755)
    done = emulators("start", "pubsub", "--state", state, CLOUDSDK_ROOT_DIR=str(tmp_path / "sdk"))
    assert (done.code, "no luck today" in done.err) == (1, True)
    assert emulators("status", "pubsub", "--state", state).code == 1


def test_an_unknown_name_is_bad_usage(state):
    done = emulators("start", "bigtable", "--state", state)
    assert (done.code, "no emulator 'bigtable'" in done.err) == (2, True)


def test_a_shell_can_evaluate_what_is_printed(state):
    script = (
        'eval "$(scripts/emulators start storage --state "$1")"; '
        'echo "$STORAGE_EMULATOR_HOST"; test -f "$GOOGLE_APPLICATION_CREDENTIALS"'
    )
    command = ["bash", "-euc", script, "bash", str(state)]
    if not (ROOT / ".venv" / "bin" / "python").exists():
        pytest.skip("scripts/setup has not been run here")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("http://127.0.0.1:")


def test_a_process_is_known_by_when_it_began():
    with subprocess.Popen(["sleep", "60"]) as child:
        known = Running(child.pid, process._began(child.pid))
        assert known.alive
        assert not Running(child.pid, "another time").alive
        assert process.stop(known)
        assert not process.stop(known)
        child.poll()


def test_one_that_ignores_the_kind_word_is_ended_all_the_same(tmp_path):
    log = tmp_path / "log"
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    started = process.start([sys.executable, "-c", deaf], log=log, environment=os.environ)
    while "deaf" not in log.read_text():
        assert started.alive
    assert process.stop(started, seconds=0.2)
    assert not started.alive
