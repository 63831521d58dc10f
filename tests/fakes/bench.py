"""A folder to run commands in, and rows to run them on."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.cli import Done, headrace
from fakes.runs import Run

WORDS = ("ash", "beech", "cedar", "elm", "fir", "hazel", "larch")


def row_lines(count: int, *, start: int = 0) -> list[bytes]:
    """Valid JSON rows of ROW_SCHEMA with ids from ``start``; ``x`` grows with the id, ``w`` goes round."""
    return [
        json.dumps({"id": n, "x": n * 0.37 - 11, "w": WORDS[n * n % len(WORDS)]}).encode()
        for n in range(start, start + count)
    ]


class Workbench:
    """A temporary folder in which commands are run on inputs: OUTPUT is ``out``, dead letters go to ``dead``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output, self.dead = folder / "out", folder / "dead"

    def write(self, name: str, data: bytes | list[bytes]) -> Path:
        """An input file: bytes as they are, or lines, each ended by a newline."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else b"".join(line + b"\n" for line in data))
        return path

    def run(self, source: Path, *words: object, schema: Path, run_id: str = "r") -> tuple[Done, Run]:
        """``headrace run`` on ``source``."""
        done = headrace("run", *self.flags(source, schema=schema, run_id=run_id), *words)
        return done, Run(self.output, self.dead, run_id)

    def flags(self, source: Path, *, schema: Path, run_id: str = "r") -> list[object]:
        """The flags that every run needs."""
        where = ["--output", self.output, "--dead_letters", self.dead, "--run_id", run_id, "--threads", 1]
        return ["--input", source, "--schema", schema, *where]

    def good_run(self, source: Path, *words: object, schema: Path, run_id: str = "r") -> Run:
        """``headrace run`` that must be committed."""
        done, run = self.run(source, *words, schema=schema, run_id=run_id)
        assert done.code == 0, done.err
        assert run.committed
        return run
