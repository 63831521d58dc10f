"""A replay without an end: every dead letter of a subscription, as it comes. For Dataflow.

There is no shuffle between reading and sending, so that a message is acknowledged only after its bundle was sent or
parked. What comes in is all there will be: a letter that cannot be sent, or that a fix module fails on, is parked. A
letter that fails again comes back through the dead-letter topic and is parked after ``max_attempts``, so loops end.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.gcp.pubsub import PubsubMessage, ReadFromPubSub
from apache_beam.metrics import Metrics

from dlq_replay import names
from dlq_replay.envelope import letter_of_message
from dlq_replay.replayer import Replayer
from dlq_replay.settings import ReplaySettings
from dlq_replay.tally import Tally
from dlq_replay.worker import make_ports, system_clock

_COUNTED = ("read", "already", "replayed", "parked", "changed")


@dataclass(frozen=True)
class StreamReplayJob:
    """A replay and the subscription that feeds it. ``settings.park_left`` is set, and there is nothing to select by."""

    settings: ReplaySettings
    subscription: str


def build_stream_replay(root: beam.Pipeline, job: StreamReplayJob) -> beam.PCollection:
    """Add the graph to ``root``."""
    read = ReadFromPubSub(subscription=job.subscription, with_attributes=True)
    return root | names.READ_LETTERS >> read | names.REPLAY_LETTERS >> beam.ParDo(ReplayLetters(job))


class ReplayLetters(beam.DoFn):  # type: ignore[misc]
    """Messages of the subscription -> nothing; what a bundle holds is safe when it ends. Raises what sending raises."""

    def __init__(self, job: StreamReplayJob) -> None:
        self._job = job
        self._replayer: Replayer | None = None

    def setup(self) -> None:
        """Read the ledger; raises OSError."""
        settings = self._job.settings
        ports = make_ports(settings, _nothing, system_clock())
        self._replayer = Replayer(settings, ports, worker=f"stream-{uuid.uuid4().hex[:12]}", shared=True)
        self._counters = {name: Metrics.counter(names.NAMESPACE, name) for name in _COUNTED}

    def start_bundle(self) -> None:
        """What an earlier bundle left when it failed comes again in another."""
        if self._replayer is not None:
            self._replayer.discard()
            self._replayer.tally = Tally()

    def process(self, message: PubsubMessage) -> None:
        """Take one message; full batches are sent at once."""
        assert self._replayer is not None  # setup comes first
        self._replayer.add(letter_of(message, self._job.subscription))

    def finish_bundle(self) -> None:
        """Send the rest, and count."""
        assert self._replayer is not None
        self._replayer.flush()
        for name, counter in self._counters.items():
            counter.inc(getattr(self._replayer.tally, name))


def letter_of(message: Any, subscription: str) -> Any:
    """The dead letter of a message as Beam brings it."""
    published = message.publish_time
    return letter_of_message(
        message.data or b"",
        message.attributes or {},
        subscription=subscription,
        message_id=message.message_id or "",
        publish_time_us=0 if published is None else int(published.timestamp() * 1_000_000),
        ordering_key=message.ordering_key or "",
    )


def _nothing(acks: Sequence[str]) -> None:
    """The runner acknowledges, after the bundle."""
