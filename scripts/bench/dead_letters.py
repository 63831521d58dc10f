"""Dead letters in the benchmark: archives of refused flights, summed up, and replayed to nowhere."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data import Inputs
from bench.table import Line, MemoryLine

if TYPE_CHECKING:
    from pipeline.core.dead_letter import DeadLetter

ARCHIVE_LETTERS = 50_000
_SHARE = 4  # one letter to four flights of the plan: enough to measure, and the table does not take for ever
_AIR_TIME = re.compile(rb'"air_time":([0-9]+)')
_FIXES = "fixes:\n  - when: {reason: wrong_type, feature: air_time}\n    cast: {air_time: int}\n"


def lines(large: int) -> list[Line]:
    """The lines of the table."""
    return [
        Line("dead letters summarised, 1 thread", "summary"),
        Line("dead letters repaired and replayed to nowhere, 1 thread", "replay"),
        *(
            MemoryLine(f"dead letters {what}, peak MB at {large}x against 1x", f"large {key}", small=key)
            for what, key in (("summarised", "summary"), ("replayed", "replay"))
        ),
    ]


def jobs(work: Path, inputs: Inputs, large: int) -> dict[str, Callable[[], tuple[str, dict[str, Any]]]]:
    """By key of a measurement: what makes its job's name and settings (writing the archives, if they are not there)."""
    return {
        f"{size}{job}": partial(_job, job, work, inputs, times)
        for size, times in (("", 1), ("large ", large))
        for job in ("summary", "replay")
    }


def _job(job: str, work: Path, inputs: Inputs, times: int) -> tuple[str, dict[str, Any]]:
    folder = work / "dead" / f"{inputs.rows // _SHARE}-x{times}"
    count = max(1, inputs.rows // _SHARE) * times
    if not folder.exists():
        write_archives(folder, inputs.json_lines(1), count)
    return job, {"folder": str(folder), "letters": count}


def write_archives(folder: Path, source: Path, count: int) -> None:
    """``count`` dead letters over the flights in ``source``, again and again, as a run leaves them."""
    from pipeline.core.archive import write_archive

    aside = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    letters = itertools.islice(_letters(source), count)
    for number in range(-(-count // ARCHIVE_LETTERS)):
        path = aside / "run=bench" / f"task-{number:05d}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            write_archive(stream, itertools.islice(letters, ARCHIVE_LETTERS))
    aside.rename(folder)


def _letters(source: Path) -> Iterator[DeadLetter]:
    from pipeline.core.dead_letter import from_rejection
    from pipeline.core.reasons import Reason, Stage
    from pipeline.core.records import Fault, Rejection

    fault = Fault(Reason.WRONG_TYPE, "air_time: expected an integer, found a string", "air_time")
    offset = 0
    while True:
        with source.open("rb") as rows:
            for row in rows:
                payload, found = _AIR_TIME.subn(rb'"air_time":"\1"', row.rstrip(b"\n"))
                if not found:
                    continue
                rejection = Rejection("flights.jsonl", offset, len(payload), payload, Stage.VALIDATE, (fault,))
                yield from_rejection(
                    rejection, job="bench", schema_fingerprint="f" * 64, failed_at="2024-05-01T12:00:00Z"
                )
                offset += len(row)


class Summarising:
    """``headrace dlq summary``, without printing."""

    def __init__(self, folder: str, letters: int) -> None:
        from dlq_replay.archives import resolve_archives
        from pipeline.transforms import files

        self._archives = [file.uri for file in resolve_archives([folder], files.list_files)]
        self.rows = letters

    def run(self) -> None:
        """Sum up; every letter must be counted."""
        from dlq_replay.archives import read_letters
        from dlq_replay.summary import summarise
        from pipeline.transforms import files

        found = summarise(read_letters(self._archives, files.open_read), of="the benchmark")
        assert found.letters == self.rows, found.letters


class Replaying:
    """``headrace dlq replay`` without Beam, to a publisher that does nothing; the ledger is written, and afresh."""

    def __init__(self, folder: str, letters: int) -> None:
        from dlq_replay.archives import resolve_archives
        from dlq_replay.fix_file import parse_fixes
        from dlq_replay.ledger import utc_text
        from dlq_replay.plan import write_archives as write_plan
        from dlq_replay.settings import ReplaySettings, Target
        from dlq_replay.worker import Source, system_clock
        from pipeline.transforms import files

        now = system_clock().now()
        self._settings = ReplaySettings(
            "bench", folder, now, Target("null"), fixes=parse_fixes(_FIXES, f"fixes {utc_text(now)}")
        )
        self._source = Source(plan_uri=self._settings.places.plan("bench"))
        shutil.rmtree(Path(folder) / "_replay", ignore_errors=True)
        archives = [file.uri for file in resolve_archives([folder], files.list_files)]
        write_plan(self._source.plan_uri, archives)
        self.rows = letters

    def run(self) -> None:
        """Replay; every letter must be repaired and sent."""
        from dlq_replay.worker import work

        tally = work(self._settings, self._source, 0)
        assert (tally.replayed, tally.changed) == (self.rows, self.rows), tally.as_json()
