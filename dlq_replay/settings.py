"""What a replay was asked to do, as frozen values that travel to workers: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dlq_replay.fix_module import FixModule
from dlq_replay.fixes import Fix, Repair
from dlq_replay.keys import LANES
from dlq_replay.places import Places
from dlq_replay.policy import Policy
from dlq_replay.selection import Filters
from pipeline.core.errors import UsageError

MAX_BATCH_ROWS, MAX_BATCH_BYTES = 500, 5_000_000


@dataclass(frozen=True)
class Target:
    """Where repaired letters go.

    ``kind``: ``topic`` (``where`` is its name), ``original`` (each to its own), ``rows`` (JSON lines for a batch run
    into the folder ``where``), ``null`` (nowhere: to measure).
    """

    kind: str
    where: str = ""


@dataclass(frozen=True)
class ReplaySettings:
    """One replay. ``root`` is the folder beside whose runs replays write (``places``); ``start`` its beginning.

    ``parking_topic`` is where parked letters go; empty means an archive beside the ledger. ``rate`` is in letters a
    second over all ``senders`` together; None means as fast as it goes. ``limit`` needs a single sender.
    ``keep_letters`` archives letters as they were before they are sent; ``park_left`` parks those that would be left
    where they are, for a source that does not keep them. ``payload_folders`` are where, besides ``root``, payloads may
    lie that were too large for their letters.
    """

    replay_id: str
    root: str
    start: datetime
    target: Target
    filters: Filters = field(default_factory=Filters)
    fixes: tuple[Fix, ...] = ()
    fix_module: FixModule | None = None
    policy: Policy = field(default_factory=Policy)
    parking_topic: str = ""
    rate: float | None = None
    senders: int = 1
    limit: int | None = None
    lease_seconds: float = 120.0
    force: bool = False
    keep_letters: bool = False
    park_left: bool = False
    payload_folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.senders <= LANES:
            raise UsageError(f"--senders is {self.senders}: give 1 to {LANES}, as many as a ledger has lanes")
        if self.limit is not None and self.senders > 1:
            raise UsageError("--limit counts over the whole replay, which needs --senders 1")

    @property
    def places(self) -> Places:
        """Where the replay writes."""
        return Places(self.root)

    @property
    def readable(self) -> tuple[str, ...]:
        """The folders from which payloads may be read."""
        return (self.root, *self.payload_folders)

    @property
    def batch_rows(self) -> int:
        """How many letters are claimed and sent at once: about a second's worth where there is a rate."""
        share = self.sender_rate
        return MAX_BATCH_ROWS if share is None else max(1, min(MAX_BATCH_ROWS, int(share)))

    @property
    def sender_rate(self) -> float | None:
        """Letters a second of one sender, so that all together keep to the rate."""
        return None if self.rate is None else self.rate / self.senders

    def repair(self) -> Repair:
        """The repair; executes the user's module. Raises UsageError where that fails."""
        return Repair(self.fixes, self.fix_module.load() if self.fix_module else None)

    def lanes_of(self, sender: int) -> tuple[int, ...]:
        """The lanes that a sender works on: all lanes, divided among the senders."""
        return tuple(range(sender, LANES, self.senders))
