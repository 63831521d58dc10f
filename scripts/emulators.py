"""Local stand-ins for Pub/Sub (the Google Cloud SDK's emulator) and Cloud Storage (gcp-storage-emulator).

start   starts those that do not run and prints the lines that lead programs to them; run again, it changes nothing
stop    ends what start has started, and nothing else
status  says which run; exit code 1 if not all do

Nothing is kept when they stop. In a shell: eval "$(scripts/emulators start)"
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emulation import process
from emulation.process import Running
from emulation.sdk import Missing, came_up, java_options, pubsub_command

ROOT = Path(__file__).resolve().parent.parent
PROJECT, BUCKET = "test-proj", "headrace-local"
PORTS = {"pubsub": 8085, "storage": 9023}  # where people expect them; another one is taken where these are busy
_START_SECONDS = 60.0


class Failed(Exception):
    """An emulator did not start; the message says what it said."""


@dataclass(frozen=True)
class State:
    """The folder that knows which emulators were started: ``<name>.json``, ``<name>.log``, and a key file."""

    folder: Path

    @property
    def key(self) -> Path:
        """Credentials of nobody, for the Storage emulator."""
        return self.folder / "nobody.json"

    def log(self, name: str) -> Path:
        """What the emulator says."""
        return self.folder / f"{name}.log"

    def read(self, name: str) -> tuple[Running, int] | None:
        """The emulator's process and port, if it still runs."""
        try:
            found = json.loads(self._file(name).read_text())
            running, port = Running(int(found["pid"]), str(found["began"])), int(found["port"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (running, port) if running.alive else None

    def write(self, name: str, running: Running, port: int) -> None:
        """Remember the emulator."""
        self._file(name).write_text(json.dumps({"pid": running.pid, "began": running.began, "port": port}))

    def forget(self, name: str) -> None:
        """Remember it no more."""
        self._file(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def main() -> int:
    """Do what the arguments say: 0 done, 1 not running or not startable, 2 something must be installed first."""
    parser = argparse.ArgumentParser(
        prog="emulators", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("start", "stop", "status"))
    parser.add_argument("which", nargs="*", metavar="NAME", help="pubsub, storage (default: both)")
    parser.add_argument(
        "--state", type=Path, default=ROOT / ".venv" / "emulators", help="folder of pid files and logs (%(default)s)"
    )
    arguments = parser.parse_args()
    state, names = State(arguments.state), arguments.which or list(PORTS)
    if unknown := sorted(set(names) - set(PORTS)):
        parser.error(f"there is no emulator {unknown[0]!r}: {', '.join(PORTS)}")
    try:
        with state.alone():
            return {"start": start, "stop": stop, "status": status}[arguments.action](state, names)
    except Missing as missing:
        print(f"emulators: {missing}", file=sys.stderr)
        return 2
    except (Failed, OSError) as error:
        print(f"emulators: {error}", file=sys.stderr)
        return 1


def start(state: State, names: list[str]) -> int:
    """Start those that do not run; print the lines for the shell."""
    wanted = [name for name in names if state.read(name) is None]
    for name in wanted:  # all or none: what is missing is said before anything runs
        command_of(name, PORTS[name], state)
    for name in wanted:
        start_one(name, state)
    for name in names:
        for line in exports(name, state):
            print(line)
    return 0


def command_of(name: str, port: int, state: State) -> list[str]:
    """The command that becomes the emulator. Raises Missing."""
    if name == "pubsub":
        return pubsub_command("127.0.0.1", port)
    if importlib.util.find_spec("gcp_storage_emulator") is None:
        raise Missing("gcp-storage-emulator is not installed: run scripts/setup, or pip install gcp-storage-emulator")
    server = Path(__file__).resolve().parent / "emulation" / "storage.py"
    return [sys.executable, str(server), str(port), BUCKET, str(state.key)]


def start_one(name: str, state: State) -> None:
    """Start one emulator and wait until it answers. Raises Failed."""
    port = free_port(PORTS[name])
    environment = {**os.environ, "JAVA_OPTS": java_options()}
    running = process.start(command_of(name, port, state), log=state.log(name), environment=environment)
    state.write(name, running, port)  # at once: whatever happens now, stop will find it
    limit = time.monotonic() + _START_SECONDS
    up = None
    while up is None and running.alive and time.monotonic() < limit:
        time.sleep(0.05)
        up = came_up(state.log(name).read_text(errors="replace"), port)
    if not up:
        process.stop(running)
        state.forget(name)
        raise Failed(f"{name} does not start; the end of {state.log(name)}:\n{state.log(name).read_text()[-1500:]}")
    print(f"emulators: {name} runs on 127.0.0.1:{port} (process {running.pid})", file=sys.stderr)


def free_port(wanted: int) -> int:
    """``wanted`` if nobody listens there, else a free one."""
    for port in (wanted, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, just after another ended
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Failed("there is no free port")


def exports(name: str, state: State) -> list[str]:
    """The lines that lead programs to the emulator; none if it does not run."""
    found = state.read(name)
    if found is None:
        return []
    if name == "pubsub":
        variables = {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{found[1]}", "GOOGLE_CLOUD_PROJECT": PROJECT}
    else:
        variables = {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{found[1]}",
            "GOOGLE_APPLICATION_CREDENTIALS": str(state.key.resolve()),
        }
    return [f"export {variable}={shlex.quote(value)}" for variable, value in variables.items()]


def stop(state: State, names: list[str]) -> int:
    """End those that were started and still are the same processes."""
    for name in names:
        found = state.read(name)
        if found is not None:
            process.stop(found[0])
        state.forget(name)
        if name == "storage":
            state.key.unlink(missing_ok=True)
        print(f"emulators: {name} {'stopped' if found else 'was not running'}", file=sys.stderr)
    return 0


def status(state: State, names: list[str]) -> int:
    """Say which run, and how to reach them."""
    all_run = True
    for name in names:
        found = state.read(name)
        all_run &= found is not None
        if found is None:
            print(f"# {name}: not running")
            continue
        bucket = f", bucket gs://{BUCKET}" if name == "storage" else f", project {PROJECT}"
        print(f"# {name}: process {found[0].pid} on 127.0.0.1:{found[1]}{bucket}, log {state.log(name)}")
        for line in exports(name, state):
            print(line)
    return 0 if all_run else 1


if __name__ == "__main__":
    sys.exit(main())
