"""What the operations need of Dataflow: jobs, messages, a protocol to ask for them, and failures in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipeline.core.errors import HeadraceError
from pipeline.core.records import Json

RUNNING = "RUNNING"
STARTING = frozenset({"QUEUED", "PENDING", "STOPPED", "UNKNOWN"})
STOPPING = frozenset({"DRAINING", "CANCELLING", "PAUSING"})
FINISHED = frozenset({"DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED"})
PASSING = frozenset({0, 408, 429, 500, 502, 503, 504})
"""Codes of failures that may be gone next time; 0 is no answer at all."""


@dataclass(frozen=True)
class Job:
    """A job as the service describes it; ``state`` is without its JOB_STATE_ prefix.

    ``machine_type``, ``experiments``, ``staging_location`` and ``in_flight`` (options that were changed while it ran)
    are known only where it was asked for with ``details``.
    """

    id: str
    name: str
    project: str
    region: str
    state: str
    kind: str
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    replaces: str = ""
    replaced_by: str = ""
    sdk: str = ""
    machine_type: str = ""
    experiments: tuple[str, ...] = ()
    staging_location: str = ""
    in_flight: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Whether its state will not change any more."""
        return self.state in FINISHED

    def as_json(self) -> Json:
        """Plain values."""
        return {
            "id": self.id,
            "name": self.name,
            "region": self.region,
            "state": self.state,
            "type": self.kind,
            "created": self.created.isoformat(),
            "sdk": self.sdk,
            "replaces": self.replaces or None,
            "replaced_by": self.replaced_by or None,
        }


@dataclass(frozen=True)
class Message:
    """What the service says of a job; ``importance`` is error, warning, basic, detailed or debug."""

    id: str
    time: datetime
    importance: str
    text: str


class ApiError(HeadraceError):
    """The service did not do what it was asked. ``code`` is HTTP's, or 0 where no answer came.

    ``carried_out`` is False where the request certainly was not carried out, None where nobody knows.
    """

    def __init__(self, message: str, *, code: int = 0, carried_out: bool | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.carried_out = carried_out

    @property
    def is_passing(self) -> bool:
        """Whether asking again later may succeed."""
        return self.code in PASSING


class Dataflow(Protocol):
    """One project and region. Every method raises ApiError; what may be asked twice is, a launch is not."""

    @property
    def project(self) -> str:
        """The project's id."""

    @property
    def region(self) -> str:
        """The regional endpoint."""

    def launch(self, request: Json) -> Job:
        """Launch a flex template once; ``request`` is the body of flexTemplates:launch.

        ApiError's ``carried_out`` tells whether a job may have come of it.
        """

    def validate(self, request: Json) -> None:
        """Let the service check a launch without carrying it out."""

    def job(self, job_id: str, *, details: bool = False) -> Job:
        """The job as it is now."""

    def jobs(self, *, name: str = "", active: bool = False, everywhere: bool = False) -> Sequence[Job]:
        """Jobs, newest first: of that name, only active ones, or of all regions."""

    def request_state(self, job_id: str, state: str) -> Job:
        """Ask a job to become DRAINED or CANCELLED."""

    def change_options(self, job_id: str, options: Mapping[str, float | int]) -> Job:
        """Change options of a running job: min_num_workers, max_num_workers, worker_utilization_hint."""

    def messages(self, job_id: str, *, minimum: str = "warning") -> Sequence[Message]:
        """Messages of at least that importance, oldest first."""

    def metrics(self, job_id: str) -> Mapping[str, float]:
        """The committed user and system counters that are numbers, by name."""
