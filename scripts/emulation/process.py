"""Processes that outlive the command that started them, and are known again: a pid alone may be somebody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Running:
    """A process by its id and by when it began, which together no other process has."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether it is this very process that runs under the id."""
        return _began(self.pid) == self.began


def start(command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Running:
    """Start a process in a session of its own (Ctrl-C here is not for it), its output in ``log``. Raises OSError."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(environment), start_new_session=True
        )
    return Running(process.pid, _began(process.pid) or "")


def stop(running: Running, *, seconds: float = 10.0) -> bool:
    """End the process, kindly at first; False where it was gone already. Nobody else's is ever touched."""
    if not running.alive:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(running.pid, number)
        except ProcessLookupError:
            return True
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if not running.alive:
                return True
            time.sleep(_POLL_SECONDS)
    raise OSError(f"process {running.pid} does not end")


def _began(pid: int) -> str | None:
    """When the process began, as its system says; None where there is none that still runs."""
    if os.path.isdir("/proc/self"):
        return _began_by_proc(pid)
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.split(None, 1)
    return said[1].strip() if len(said) == 2 and not said[0].startswith("Z") else None


def _began_by_proc(pid: int) -> str | None:
    _reap(pid)
    try:
        said = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = said[said.rindex(b")") + 2 :].split()  # after the name, which may hold anything
    return f"{boot} {int(fields[19])}" if fields[0] not in (b"Z", b"X") else None


def _reap(pid: int) -> None:
    """Let a child of ours that has ended go."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except (ChildProcessError, OSError):
        return
