"""Waiting for a job: its states and its warnings are told once each, as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pipeline.core.errors import HeadraceError
from pipeline.core.text import printable
from pipeline.ops.port.api import ApiError, Dataflow, Job, Message

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

    def until(self, job_id: str, states: Collection[str], *, from_now: bool = False) -> Job:
        """Wait until the job is in one of ``states``, or in a final one; a service that fails is asked again.

        ``from_now`` is for a job that has run for long: what was said of it before is not told again.
        Raises HeadraceError when time is up, and ApiError where the job may not be looked at.
        """
        if from_now:
            self._told |= {(job_id, message.id) for message in self._messages(job_id)}
        try:
            while True:
                is_late = self._waiting.clock() >= self._end
                job = self._look(job_id)
                if job is not None and (job.state in states or job.is_finished):
                    return job
                if is_late:
                    raise HeadraceError(f"job {job_id} {self._still(job_id)}; {self._look_again(job_id)}")
                self._waiting.sleep(self._waiting.poll)
        except KeyboardInterrupt:
            state = self._states.get(job_id, "not seen by us")
            self._say(f"we stop looking; job {job_id} is {state} now; {self._look_again(job_id)}")
            raise

    def _look(self, job_id: str) -> Job | None:
        """The job, told of; None where the service fails in a way that may pass."""
        try:
            job = self._port.job(job_id)
        except ApiError as error:
            if not error.is_passing:
                raise
            self._say(f"{error}; looking again")
            return None
        self._tell(job)
        return job

    def _still(self, job_id: str) -> str:
        state = self._states.get(job_id)
        return (f"is still {state}" if state else "could not be seen") + f" after {self._waiting.limit / 60:g} minutes"

    def _look_again(self, job_id: str) -> str:
        where = f"--project {self._port.project} --region {self._port.region}"
        return f"it goes on without us. Look again with: headrace job status {job_id} {where}"

    def _tell(self, job: Job) -> None:
        if self._states.get(job.id) != job.state:
            self._states[job.id] = job.state
            self._say(f"job {job.id} ({job.name}) is {job.state}")
        for message in self._messages(job.id):
            if (job.id, message.id) not in self._told:
                self._told.add((job.id, message.id))
                self._say(f"{message.importance}: {printable(message.text, _TEXT)}")

    def _messages(self, job_id: str) -> Sequence[Message]:
        """What the service says of the job; nothing, which is told, where that cannot be read: its state is enough."""
        try:
            return self._port.messages(job_id)
        except ApiError as error:
            if (job_id, str(error)) not in self._told:
                self._told.add((job_id, str(error)))
                self._say(str(error))
            return ()


def errors_of(port: Dataflow, job_id: str) -> list[str]:
    """What the service says went wrong with a job, oldest first, safe to print."""
    try:
        found = port.messages(job_id, minimum="error")
    except ApiError as error:
        return [str(error)]
    return [printable(one.text, _TEXT) for one in found][:_SHOWN]


def says_valid(messages: Collection[Message]) -> bool:
    """Whether a job that only validated a graph found it good, whatever state it ended in."""
    return any("succeeded validation" in message.text for message in messages)
