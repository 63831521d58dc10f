"""The plan of a job: made by the launcher, kept in a file, read by the first step (never data in the graph)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import apache_beam as beam

from pipeline.core.manifest import Input
from pipeline.core.records import InputFile, Split, Task
from pipeline.transforms import files


def write_plan(uri: str, tasks: Sequence[Task]) -> None:
    """Write the tasks as JSON lines; raises OSError."""
    lines = [json.dumps(asdict(task), sort_keys=True, separators=(",", ":")) for task in tasks]
    files.write_bytes(uri, ("\n".join(lines) + "\n").encode())


def read_plan(uri: str) -> list[Task]:
    """The tasks that ``write_plan`` wrote; raises OSError."""
    return [_task(line) for line in files.read_bytes(uri).splitlines()]


def write_inputs(uri: str, inputs: Sequence[InputFile]) -> None:
    """Write what the manifest will say of the input files; there may be very many. Raises OSError."""
    lines = [json.dumps([file.uri, file.size_bytes, file.version]) for file in inputs]
    files.write_bytes(uri, "\n".join(lines).encode())


def read_inputs(uri: str) -> tuple[Input, ...]:
    """The inputs that ``write_inputs`` wrote; raises OSError."""
    return tuple(Input(*json.loads(line)) for line in files.read_bytes(uri).splitlines())


def _task(line: bytes) -> Task:
    raw = json.loads(line)
    return Task(raw["index"], tuple(Split(**split) for split in raw["splits"]), raw["seed"])


class ReadPlan(beam.DoFn):  # type: ignore[misc]
    """An impulse -> the tasks of the plan at ``uri``. (``beam.Create`` would bring a lambda's label into the graph.)"""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def process(self, impulse: bytes) -> Iterator[Task]:
        """Read the plan; raises OSError."""
        yield from read_plan(self._uri)
