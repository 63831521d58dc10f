"""The ledger: which dead letters were replayed or parked, by whom, and who is at work; append-only, one file an entry.

It has lanes, and a dead letter always belongs to the same one. A lane is a row of files ``lane-03/00000041.jsonl``,
numbered without gaps, each made by exactly one replay. A replay that wants to send a batch of letters *claims* them;
then it sends them; then it says that they are *done*. While a claim is open nobody else claims in that lane, until it
is done or its lease has run out (its owner is then taken for dead, and its letters may be sent a second time).

An entry is JSON lines: one about the entry, then one a letter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from dlq_replay.keys import Key, KeySet
from dlq_replay.selection import read_time
from dlq_replay.store import Store
from pipeline.core.errors import HeadraceError
from pipeline.core.text import printable

_LOG = logging.getLogger(__name__)
_READERS = 16  # requests to object storage take 20 to 50 ms each
_POLL_SECONDS = 2.0
_LONGEST_LEASE = 1e9
_SKEW_SECONDS = 600.0
"""Clocks of two machines differ by less: a claim that is older than its lease by more is of one that died."""


@dataclass(frozen=True, slots=True)
class Row:
    """A letter of an entry; ``fate`` is empty in a claim."""

    key: Key
    fate: str = ""


@dataclass(frozen=True)
class Entry:
    """One file of a lane. ``claim`` is the number of the claim that a ``done`` entry closes."""

    kind: Literal["claim", "done"]
    replay: str
    worker: str
    at: datetime
    lease_seconds: float
    rows: tuple[Row, ...]
    claim: int | None = None

    @property
    def ends(self) -> datetime:
        """When a claim's lease runs out."""
        return self.at + timedelta(seconds=self.lease_seconds)

    def to_bytes(self) -> bytes:
        """The entry as JSON lines."""
        head = {
            "entry": self.kind,
            "replay": self.replay,
            "worker": self.worker,
            "at": self.at.isoformat(),
            "lease_seconds": self.lease_seconds,
            **({} if self.claim is None else {"claim": self.claim}),
        }
        rows = (
            {
                "dlq_id": row.key.dlq_id,
                "attempt": row.key.attempt,
                **({"payload": row.key.payload} if row.key.payload else {}),
                **({"fate": row.fate} if row.fate else {}),
            }
            for row in self.rows
        )
        return "".join(json.dumps(line) + "\n" for line in (head, *rows)).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Entry:
        """The reverse of ``to_bytes``. Raises HeadraceError where the file was not written by us."""
        try:
            head, *rows = (json.loads(line) for line in data.splitlines())
            at, lease = read_time(head["at"]), float(head["lease_seconds"])
            if head["entry"] not in ("claim", "done") or at is None or not 0 <= lease < _LONGEST_LEASE:
                raise ValueError
            return cls(
                head["entry"],
                str(head["replay"]),
                str(head["worker"]),
                at,
                lease,
                tuple(Row(_key(row), str(row.get("fate", ""))) for row in rows),
                head.get("claim"),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise HeadraceError(
                f"{where} is no entry of a replay ledger, or is damaged; without it nobody knows what was replayed. "
                "Restore it, or move the ledger's folder away to begin anew (letters may then be sent again)"
            ) from error


def _key(row: dict[str, Any]) -> Key:
    return Key(str(row["dlq_id"]), int(row["attempt"]), str(row.get("payload", "")))


@dataclass(frozen=True)
class Owner:
    """Who writes to a ledger: a replay, one of its workers (a name never used twice), and the length of its leases.

    ``shared`` says that several workers of the replay may be at work in one lane (streaming): then a claim of the
    replay's own is waited for as anyone else's; otherwise it is one of a worker that is gone, and is taken over.
    """

    replay: str
    worker: str
    lease_seconds: float
    shared: bool = False


@dataclass(frozen=True)
class Clock:
    """The time, and waiting."""

    now: Callable[[], datetime]
    sleep: Callable[[float], None]


class Lane:
    """One lane as one worker sees it. Not for several threads at once.

    With ``force`` what was done before is not looked at (claims of others are).
    """

    def __init__(self, store: Store, index: int, *, owner: Owner, clock: Clock, force: bool = False) -> None:
        self._store, self._folder, self._owner, self._clock = store, f"lane-{index:02d}", owner, clock
        self._force = force
        self._done = KeySet()
        self._before = KeySet()  # what was done when this worker began: forgotten by force
        self._next = 0
        self._open: tuple[int, Entry] | None = None
        self._seen = clock.now()  # when the open claim was first met, by this machine's clock
        self._mine: int | None = None
        self._load()

    def __contains__(self, key: Key) -> bool:
        return key in self._done

    def was_forced(self, key: Key) -> bool:
        """Whether ``key`` was done before and is only done again because of ``force``."""
        return key in self._before

    @property
    def claimed(self) -> int:
        """The number of this worker's open claim: no other claim of the lane ever has it."""
        assert self._mine is not None  # after a claim that granted something, and before ``finish``
        return self._mine

    def claim(self, keys: Sequence[Key]) -> list[Key]:
        """Claim those of ``keys`` that are not done yet, each once; waits while somebody else's claim is open.

        Returns them: from here on they are this worker's until ``finish``. Raises OSError.
        """
        while True:
            wanted = [key for key in dict.fromkeys(keys) if key not in self._done]
            if not wanted:
                return []
            if self._is_held():
                self._wait()
                continue
            number = self._next
            if self._append(self._entry("claim", [Row(key) for key in wanted])):
                self._mine = number
                return wanted

    def finish(self, rows: Iterable[Row]) -> None:
        """Say what became of the claimed letters; added whatever others have written meanwhile. Raises OSError."""
        entry = self._entry("done", rows, claim=self._mine)
        while not self._append(entry):
            pass
        self._mine = None

    def _entry(self, kind: Literal["claim", "done"], rows: Iterable[Row], *, claim: int | None = None) -> Entry:
        owner = self._owner
        return Entry(kind, owner.replay, owner.worker, self._clock.now(), owner.lease_seconds, tuple(rows), claim)

    def _append(self, entry: Entry) -> bool:
        """Write ``entry`` as the next file; False (and the file that is there is taken in) where another was first."""
        name, data = self._name(self._next), entry.to_bytes()
        if self._store.create(name, data):
            self._take_in(entry)
            return True
        self.refresh()
        return False

    def refresh(self) -> None:
        """Take in what others have written since. Raises OSError."""
        while (data := self._store.read(self._name(self._next))) is not None:
            self._take_in(Entry.from_bytes(data, self._name(self._next)))

    def _take_in(self, entry: Entry) -> None:
        if entry.kind == "claim":
            self._seen = self._clock.now()
            self._open = (self._next, entry)  # an older open claim was over, or it would have been waited for
        else:
            for row in entry.rows:
                self._done.add(row.key)
            if self._open and self._open[0] == entry.claim:
                self._open = None
        self._next += 1

    def _is_held(self) -> bool:
        """Whether an open claim of somebody else's keeps us out."""
        if self._open is None:
            return False
        entry, owner = self._open[1], self._owner
        ours = entry.worker == owner.worker or (entry.replay == owner.replay and not owner.shared)
        return not ours and self._clock.now() < self._over(entry)

    def _over(self, entry: Entry) -> datetime:
        """When the open claim's lease is over for sure: counted from when it was met, whose clock is this one's."""
        if self._clock.now() >= entry.ends + timedelta(seconds=_SKEW_SECONDS):
            return entry.ends
        return self._seen + timedelta(seconds=entry.lease_seconds)

    def _wait(self) -> None:
        assert self._open is not None  # or there would be nothing to wait for
        entry = self._open[1]
        left = (self._over(entry) - self._clock.now()).total_seconds()
        _LOG.info(
            "waiting for replay %s, which has claimed %d letters, at most %.0f s; if it has died, "
            "--replay_id=%s takes over at once",
            printable(entry.replay, 100),
            len(entry.rows),
            left,
            printable(entry.replay, 100),
        )
        self._clock.sleep(min(_POLL_SECONDS, max(left, 0.0) + 0.001))
        self.refresh()

    def _load(self) -> None:
        names = self._store.names(self._folder)
        with ThreadPoolExecutor(_READERS) as pool:
            for number, data in enumerate(pool.map(self._store.read, names)):
                if names[number] != self._name(number) or data is None:
                    raise HeadraceError(f"the ledger lacks {self._name(number)}; restore it, or begin a new ledger")
                self._take_in(Entry.from_bytes(data, names[number]))
        if self._force:
            self._before, self._done = self._done, KeySet()

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:08d}.jsonl"


def utc_text(moment: datetime) -> str:
    """A time as RFC 3339 in UTC, to the second."""
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
