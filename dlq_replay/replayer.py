"""The replay itself, without Beam: letters in, batches claimed, sent or parked, and said to be done, in this order.

What happens when the process dies between two steps of a batch:

- before the claim, or between claim and send: nothing was sent; the next replay sends the batch, once the claim's
  lease is over (at once if it has the same id);
- while or after it was sent, before it was said to be done: the next replay sends the batch again. These are the only
  duplicates that there can be: letters of one batch (for each sender), with the same ``dlq_id`` and ``dlq_attempt``;
- after it was said to be done: nothing is sent again. A message of a subscription that was not acknowledged yet comes
  again, is found done, and is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dlq_replay.fixes import BadFixModule, Repaired
from dlq_replay.keys import Key, key_of, lane_of
from dlq_replay.ledger import Clock, Lane, Owner, Row
from dlq_replay.pacing import Pacer
from dlq_replay.policy import Decision, Fate
from dlq_replay.senders import Parking, Sender
from dlq_replay.settings import MAX_BATCH_BYTES, ReplaySettings
from dlq_replay.spilled import Unreadable, payload_of
from dlq_replay.store import Store
from dlq_replay.tally import Tally
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Opener

Acknowledge = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class Ports:
    """Everything that a replay touches. ``archive`` keeps letters that came from a subscription."""

    sender: Sender
    parking: Parking
    archive: Parking
    store: Store
    open_file: Opener
    clock: Clock
    acknowledge: Acknowledge


@dataclass(frozen=True)
class _Item:
    letter: DeadLetter
    ack: str | None

    @property
    def key(self) -> Key:
        return key_of(self.letter)


@dataclass
class _Batch:
    items: list[_Item] = field(default_factory=list)
    size_bytes: int = 0


class Replayer:
    """One sender: the letters of its lanes, in the order in which they come. Not for several threads at once.

    ``worker`` is a name never used before.
    """

    def __init__(self, settings: ReplaySettings, ports: Ports, *, worker: str, sender: int = 0, shared: bool = False):
        self._settings, self._ports = settings, ports
        owner = Owner(settings.replay_id, worker, settings.lease_seconds, shared)
        self._lanes = {
            index: Lane(ports.store, index, owner=owner, clock=ports.clock, force=settings.force)
            for index in settings.lanes_of(sender)
        }
        self._batches = {index: _Batch() for index in self._lanes}
        self._repair = settings.repair()
        self._pacer = Pacer(settings.sender_rate, ports.clock)
        self._wanted = 0
        self.tally = Tally()

    @property
    def is_full(self) -> bool:
        """Whether as many letters as the limit allows are on their way or done."""
        limit = self._settings.limit
        return limit is not None and self._wanted >= limit

    def add(self, letter: DeadLetter, ack: str | None = None) -> bool:
        """Take a letter in hand; False where it is not for this replay (or this sender), and stays where it is.

        ``ack`` is what acknowledges its message once it is done. Raises what sending raises.
        """
        lane = lane_of(letter)
        if lane not in self._lanes:
            return False
        self.tally.read += 1
        if not self._settings.filters.matches(letter):
            return False
        item = _Item(letter, ack)
        if item.key in self._lanes[lane]:
            self._count_done(item)
            return True
        if self.is_full:
            return False
        self._wanted += 1
        self.tally.selected += 1
        self._put(lane, item)
        return True

    def _put(self, lane: int, item: _Item) -> None:
        """Add to the lane's batch, and send it when it is large enough; a large payload in a file goes alone."""
        spilled = item.letter.payload is None
        if spilled:
            self._send(lane)
        batch = self._batches[lane]
        batch.items.append(item)
        batch.size_bytes += len(item.letter.payload or b"")
        if spilled or len(batch.items) >= self._settings.batch_rows or batch.size_bytes >= MAX_BATCH_BYTES:
            self._send(lane)

    def flush(self) -> None:
        """Send what waits. Raises what sending raises."""
        for lane in self._lanes:
            self._send(lane)

    def discard(self) -> None:
        """Forget what waits: the runner brings it again."""
        self._batches = {index: _Batch() for index in self._lanes}

    def _count_done(self, item: _Item) -> None:
        self.tally.selected += 1
        self.tally.already += 1
        if item.ack is not None:
            self._ports.acknowledge([item.ack])

    def _send(self, index: int) -> None:
        """One batch: decide, wait for the rate, claim, park and send, say that it is done, acknowledge."""
        lane, items = self._lanes[index], self._batches[index].items
        self._batches[index] = _Batch()
        decided = self._decided(items)
        if not decided:
            return
        self._pace(lane, decided)
        granted = lane.claim(list(decided))
        self._wanted -= len(decided) - len(granted)  # what another did meanwhile does not count towards a limit
        batch = {key: decided[key] for key in granted}
        if batch:
            name = f"lane-{index:02d}-{lane.claimed:08d}"
            refused = self._keep(name, batch)
            self._set_aside(
                f"{name}-refused", {key: refused[key.dlq_id] for key in batch if key.dlq_id in refused}, batch
            )
            for key in [key for key in decided if key.dlq_id in refused and key not in batch]:
                del decided[key]
            lane.finish([Row(key, decision.fate.value) for key, (_, decision) in batch.items()])
        self._count(items, decided, batch, lane)
        acks = [item.ack for item in items if item.ack is not None and item.key in decided]
        if acks:
            self._ports.acknowledge(acks)

    def _pace(self, lane: Lane, decided: dict[Key, tuple[DeadLetter, Decision]]) -> None:
        """Wait until the batch is due: for those letters that nobody else has sent meanwhile."""
        if self._settings.rate is not None:
            lane.refresh()
            due = (decision.fate is Fate.REPLAY for key, (_, decision) in decided.items() if key not in lane)
            self._pacer.wait(sum(due))

    def _decided(self, items: Sequence[_Item]) -> dict[Key, tuple[DeadLetter, Decision]]:
        """What becomes of each letter; those that stay where they are, and those that came twice, are left out."""
        found: dict[Key, tuple[DeadLetter, Decision]] = {}
        for item in items:
            if item.key in found:
                continue
            decision = self._decide(item.letter)
            if decision.fate is Fate.LEAVE and self._settings.park_left:
                decision = Decision(Fate.PARK, decision.why)
            if decision.fate is Fate.LEAVE:
                self.tally.leave(decision.why)
                self._wanted -= 1
            else:
                found[item.key] = item.letter, decision
        return found

    def _decide(self, letter: DeadLetter) -> Decision:
        policy, sender = self._settings.policy, self._ports.sender
        if policy.is_used_up(letter):
            return policy.decide(letter, Repaired(b"", ()))
        try:
            payload = self._payload(letter)
            repaired = self._repair(letter, payload)
        except (Unreadable, BadFixModule) as error:
            return Decision(Fate.LEAVE, str(error))
        for what in repaired.unapplied:
            self.tally.could_not(what)
        self.tally.changed += repaired.changed
        decision = policy.decide(letter, repaired)
        why = sender.refuses(decision.outgoing) if decision.outgoing else ""
        return Decision(Fate.LEAVE, why) if why else decision

    def _payload(self, letter: DeadLetter) -> bytes:
        ports, most = self._ports, self._ports.sender.max_bytes
        return payload_of(letter, ports.open_file, max_bytes=most, folders=self._settings.readable)

    def _keep(self, name: str, batch: dict[Key, tuple[DeadLetter, Decision]]) -> dict[str, str]:
        """Archive (where asked), park and send a claimed batch; the ids that could not be sent, and why."""
        letters = [letter for letter, _ in batch.values()]
        parked = [letter for letter, decision in batch.values() if decision.fate is Fate.PARK]
        outgoing = [decision.outgoing for _, decision in batch.values() if decision.outgoing]
        if self._settings.keep_letters:
            self._ports.archive.park(name, letters)
        if parked:
            self._ports.parking.park(name, parked)
        return self._ports.sender.send(name, outgoing) if outgoing else {}

    def _set_aside(self, name: str, refused: dict[Key, str], batch: dict[Key, tuple[DeadLetter, Decision]]) -> None:
        """Letters that the other side found invalid stay where they are, or are parked; ``batch`` is told."""
        if self._settings.park_left and refused:
            self._ports.parking.park(name, [batch[key][0] for key in refused])
            batch.update({key: (batch[key][0], Decision(Fate.PARK, why)) for key, why in refused.items()})
            return
        for key, why in refused.items():
            self.tally.leave(why)
            del batch[key]

    def _count(
        self,
        items: Sequence[_Item],
        decided: dict[Key, tuple[DeadLetter, Decision]],
        batch: dict[Key, tuple[DeadLetter, Decision]],
        lane: Lane,
    ) -> None:
        tally = self.tally
        for key, (letter, decision) in batch.items():
            tally.forced += lane.was_forced(key)
            if decision.fate is Fate.PARK:
                tally.park(letter.dlq_id)
            else:
                tally.replayed += 1
        taken = sum(item.key in decided for item in items)
        tally.already += taken - len(batch)
