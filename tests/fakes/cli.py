"""The real command line, in this process (TensorFlow stays loaded) or in one of its own."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A finished command: exit code, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON document that it must be."""
        return json.loads(self.out)


def headrace(*words: object) -> Done:
    """Run ``headrace WORDS`` through ``pipeline.main.main``."""
    from pipeline.main import main

    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main([os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words])
            except SystemExit as leaving:  # --help
                code = int(leaving.code or 0)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return Done(code, out.getvalue(), err.getvalue())


def headrace_process(*words: object, env: dict[str, str] | None = None, timeout: float = 300) -> Done:
    """Run ``headrace WORDS`` in a process of its own."""
    return python("-m", "pipeline.main", *map(str, words), env=env, timeout=timeout)


def python(*words: str, env: dict[str, str] | None = None, timeout: float = 300) -> Done:
    """Run this interpreter with WORDS, in the project's folder."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def need_gcloud() -> None:
    """Skip the test with the reason where gcloud is not installed; fail it where CI=true."""
    if shutil.which("gcloud") is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("CI must test with the real gcloud, but it is not installed")
        pytest.skip("gcloud is not installed")
