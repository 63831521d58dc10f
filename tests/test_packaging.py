"""What an installed package has is all that its commands read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_file_of_the_packages_is_installed(tmp_path):
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = {
        file.relative_to(ROOT)
        for package in ("pipeline", "dlq_replay")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {file.suffix for file in there} > {".py"}, "data files were looked at"
    assert {file.relative_to(tmp_path) for file in tmp_path.rglob("*") if file.is_file()} == there
    for file in there:
        assert (tmp_path / file).read_bytes() == (ROOT / file).read_bytes()


def test_no_command_reads_what_only_a_clone_has(tmp_path):
    """The known renames of the streaming job, from a copy of the package alone."""
    code = "from pipeline.ops import mapping; mapping.load_name_mapping(); print(mapping.NAME_MAPPING)"
    build = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
    assert Path(done.stdout.strip()).is_file()
