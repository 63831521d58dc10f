"""Waiting for a job: its states and its warnings are told once each, as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pipeline.core.errors import HeadraceError
from pipeline.core.text import printable
from pipeline.ops.port.api import Dataflow, Job, Message

Say = Callable[[str], None]
_TEXT = 2000  # characters of a message that are shown
_SHOWN = 20


@dataclass(frozen=True)
class Waiting:
    """How long is waited, in seconds, and how; tests bring their own ``sleep``."""

    poll: float = 10.0
    limit: float = 3600.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class Follower:
    """Follows jobs until a time limit that they share."""

    def __init__(self, port: Dataflow, waiting: Waiting, say: Say) -> None:
        self._port, self._waiting, self._say = port, waiting, say
        self._end = waiting.clock() + waiting.limit
        self._states: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    def until(self, job_id: str, states: Collection[str]) -> Job:
        """Wait until the job is in one of ``states``, or in a final one. Raises HeadraceError when time is up."""
        while True:
            job = self._port.job(job_id)
            self._tell(job)
            if job.state in states or job.is_finished:
                return job
            if self._waiting.clock() >= self._end:
                raise HeadraceError(
                    f"job {job.id} is still {job.state} after {self._waiting.limit / 60:g} minutes; it goes on without "
                    f"us. Look again with: headrace job status {job.id} --project {job.project} --region {job.region}"
                )
            self._sleep(job)

    def _sleep(self, job: Job) -> None:
        try:
            self._waiting.sleep(self._waiting.poll)
        except KeyboardInterrupt:
            self._say(f"we stop looking; job {job.id} ({job.name}), now {job.state}, goes on without us")
            raise

    def _tell(self, job: Job) -> None:
        if self._states.get(job.id) != job.state:
            self._states[job.id] = job.state
            self._say(f"job {job.id} ({job.name}) is {job.state}")
        for message in self._port.messages(job.id):
            if (job.id, message.id) not in self._told:
                self._told.add((job.id, message.id))
                self._say(f"{message.importance}: {printable(message.text, _TEXT)}")


def errors_of(port: Dataflow, job_id: str) -> list[str]:
    """What the service says went wrong with a job, oldest first, safe to print."""
    return [printable(one.text, _TEXT) for one in port.messages(job_id, minimum="error")][:_SHOWN]


def says_valid(messages: Collection[Message]) -> bool:
    """Whether a job that only validated a graph found it good, whatever state it ended in."""
    return any("succeeded validation" in message.text for message in messages)
