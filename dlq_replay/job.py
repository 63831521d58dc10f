"""The replay as a Beam job: a fixed number of senders, each sequential, then one report. Runs locally or on Dataflow.

No payload and no list is in the graph; a sender that the runner tries again finds in the ledger what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam

from dlq_replay import names
from dlq_replay.report import Asked, report_bytes, report_of
from dlq_replay.settings import ReplaySettings
from dlq_replay.tally import Tally
from dlq_replay.worker import Source, system_clock, work
from pipeline.core.records import Json
from pipeline.transforms import files


@dataclass(frozen=True)
class ReplayJob:
    """A replay and its source. ``skipped`` counts objects that are not read since they are newer than the start."""

    settings: ReplaySettings
    source: Source
    asked: Asked
    skipped: tuple[tuple[str, int], ...] = ()

    @property
    def report_uri(self) -> str:
        """Where the report will be."""
        return self.settings.places.report(self.settings.replay_id)


def build_replay(root: beam.Pipeline, job: ReplayJob) -> beam.PCollection:
    """Add the graph to ``root``; returns the report, as JSON."""
    return (
        root
        | names.START >> beam.Impulse()
        | names.DEAL_SENDERS >> beam.ParDo(DealSenders(job.settings.senders))
        | names.SPREAD_SENDERS >> beam.Reshuffle()
        | names.SEND_LETTERS >> beam.ParDo(SendLetters(job.settings, job.source))
        | names.KEY_ACCOUNTS >> beam.Map(_under_one_key)
        | names.GATHER_ACCOUNTS >> beam.GroupByKey()
        | names.WRITE_REPORT >> beam.ParDo(WriteReport(job))
    )


class DealSenders(beam.DoFn):  # type: ignore[misc]
    """An impulse -> the numbers of the senders."""

    def __init__(self, senders: int) -> None:
        self._senders = senders

    def process(self, impulse: bytes) -> Iterator[int]:
        """One number a sender."""
        yield from range(self._senders)


class SendLetters(beam.DoFn):  # type: ignore[misc]
    """The number of a sender -> the accounts of what it did. Safe to repeat: the ledger says what is done."""

    def __init__(self, settings: ReplaySettings, source: Source) -> None:
        self._settings, self._source = settings, source

    def process(self, sender: int) -> Iterator[Tally]:
        """Replay the sender's share; raises what sending raises, and OSError."""
        yield work(self._settings, self._source, sender)


class WriteReport(beam.DoFn):  # type: ignore[misc]
    """The accounts of all senders -> the report, written beside the ledger and passed on."""

    def __init__(self, job: ReplayJob) -> None:
        self._job = job

    def process(self, element: tuple[None, Iterable[Tally]]) -> Iterator[Json]:
        """Write the report; raises OSError."""
        yield finish(self._job, element[1])


def finish(job: ReplayJob, tallies: Iterable[Tally]) -> Json:
    """Merge the accounts and write the report; returns it. Raises OSError."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    for why, count in job.skipped:
        total.skipped[why] += count
    report = report_of(job.asked, job.settings, total, finished=system_clock().now())
    files.write_bytes(job.report_uri, report_bytes(report))
    return report


def _under_one_key(tally: Tally) -> tuple[None, Tally]:
    return None, tally
