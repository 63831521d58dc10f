"""``headrace stream`` as a process of its own, and what it leaves, read without the code that wrote it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.cli import ROOT, Done
from fakes.pubsub import Emulator
from fakes.runs import Row, letters_in, records_of, row_of


@dataclass
class Stream:
    """A running job, its emulator, and the names it was given."""

    pubsub: Emulator
    folder: Path
    topic: str
    subscription: str
    dead_topic: str
    dead_subscription: str
    process: subprocess.Popen[bytes] = field(repr=False)
    _rows: list[Row] | None = field(default=None, repr=False)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def said(self) -> str:
        """What the job has logged so far."""
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def manifests(self) -> dict[str, dict[str, Any]]:
        """The windows that have a manifest, by name."""
        return {path.parent.name: json.loads(path.read_bytes()) for path in self.output.glob("window=*/manifest.json")}

    def shards(self) -> list[Path]:
        """The shards that manifests name."""
        return [
            self.output / window / shard["name"]
            for window, manifest in self.manifests().items()
            for shard in manifest["shards"]
        ]

    def rows(self) -> list[Row]:
        """All rows of all windows that have a manifest (layout ``rows``)."""
        return [row_of(record) for path in self.shards() for record in records_of(path)]

    def rows_once(self) -> list[Row]:
        """The rows, read once: for a job that has ended."""
        if self._rows is None:
            self._rows = self.rows()
        return self._rows

    def archived(self) -> list[dict[str, Any]]:
        """The dead letters in the archive."""
        return letters_in(self.folder / "dead")

    def settled(self) -> int:
        """How many messages have an end: rows in windows with a manifest, and dead letters in the archive."""
        rows = sum(shard["rows"] for manifest in self.manifests().values() for shard in manifest["shards"])
        return rows + len(self.archived())

    def wait_for(self, done: Callable[[], bool], what: str, *, seconds: float = 120, every: float = 0.1) -> None:
        """Wait until ``done()``; AssertionError with the job's own words if it ends, or never gets there."""
        limit = time.monotonic() + seconds
        while not done():
            assert self.alive, f"the job ended before {what}:\n{self.said[-3000:]}"
            assert time.monotonic() < limit, f"no {what} in {seconds} s:\n{self.said[-3000:]}"
            time.sleep(every)

    def stop(self, number: int = signal.SIGTERM, *, seconds: float = 120) -> Done:
        """Tell the job to stop, wait for its end, and return what it said."""
        if self.alive:
            self.process.send_signal(number)
        return self.finish(seconds=seconds)

    def finish(self, *, seconds: float = 120) -> Done:
        """Wait for the job's own end."""
        code = self.process.wait(seconds)
        return Done(code, (self.folder / "stdout").read_text(), self.said)


@contextlib.contextmanager
def running_stream(
    pubsub: Emulator, folder: Path, *flags: object, archive: bool = True, env: dict[str, str] | None = None
) -> Iterator[Stream]:
    """The job with topics of its own: input, and dead letters with a subscription. Killed in the end if it still runs.

    ``flags`` come on top of subscription, output, dead-letter topic and (with ``archive``) archive.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topic, dead_topic = pubsub.topic(), pubsub.topic()
    subscription, dead_subscription = pubsub.subscription(topic), pubsub.subscription(dead_topic)
    words = [
        *("--input_subscription", subscription, "--dead_letter_topic", dead_topic, "--output", folder / "out"),
        *(("--dead_letters", folder / "dead") if archive else ()),
        *("--json", *flags),
    ]
    command = [sys.executable, "-m", "pipeline.main", "stream", *map(str, words)]
    environment = {**os.environ, **pubsub.env, **(env or {})}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env=environment)
        try:
            yield Stream(pubsub, folder, topic, subscription, dead_topic, dead_subscription, process)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
