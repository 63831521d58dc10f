"""Native code that meets hostile bytes outside the decoders, fuzzed in processes of its own: always an answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzz(target: str, tmp_path: Path, *, count: int, seed: int) -> None:
    progress = tmp_path / "progress"
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.core.native_fuzz", target, str(count), str(seed)]
    done = subprocess.run([*command, progress], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, f"{target}, seed {seed}: {done.stderr[-3000:]!r}"
    assert int(progress.read_text()) == count - 1


def test_hostile_archives(tmp_path: Path) -> None:
    fuzz("archive", tmp_path, count=2_000, seed=1)


@pytest.mark.slow
def test_hostile_archives_at_length(tmp_path: Path) -> None:
    fuzz("archive", tmp_path, count=100_000, seed=2)


@pytest.mark.slow
def test_hostile_records_at_length(tmp_path: Path) -> None:
    fuzz("records", tmp_path, count=100_000, seed=3)
