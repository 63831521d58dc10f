"""The decoders of messages, fuzzed in a subprocess: no crash, and the same verdict as one by one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def fuzz(tmp_path: Path, count: int, seed: int) -> None:
    progress = tmp_path / "progress"
    progress.write_text("not begun")
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.core.decoding.payload_fuzz", str(count), str(seed)]
    done = subprocess.run([*command, progress], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}, input {progress.read_text().strip()}: {done.stderr[-3000:]}"
    assert int(progress.read_text()) == count - 1


def test_hostile_payloads_do_not_take_the_process_down(tmp_path):
    fuzz(tmp_path, 1_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_hostile_payloads_do_not_take_the_process_down_at_length(tmp_path, seed):
    fuzz(tmp_path, 25_000, seed)
