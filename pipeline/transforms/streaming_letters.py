"""Dead letters of a stream: gathered, then published to the topic, and archived as Avro files that ``dlq`` reads."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from pipeline.core.archive import write_archive
from pipeline.core.codec import decode_letter
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.names import LettersName
from pipeline.transforms import files, names
from pipeline.transforms.publisher import TopicPublisher
from pipeline.transforms.streaming_buffer import Buffer, Held, Limits, Now, wall_clock
from pipeline.transforms.streaming_windows import write_aside
from pipeline.transforms.tally import Tally

PUBLISH_LIMITS = Limits(rows=1000, size_bytes=8 << 20, wait_seconds=1.0)
ARCHIVE_ROWS, ARCHIVE_BYTES = 50_000, 32 << 20


@dataclass(frozen=True)
class LetterSettings:
    """Where dead letters go: ``topic`` and ``archive`` (a folder) may be empty, but not both.

    ``spill`` is the folder for payloads that are too large to travel.
    """

    topic: str
    archive: str
    spill: str
    archive_wait_seconds: float = 60.0


class LetterPublisher(Protocol):
    """Publishes dead letters; raises OSError or HeadraceError where that goes on failing."""

    def publish(self, letters: Sequence[DeadLetter]) -> int:
        """Publish all of them; returns how many."""
        ...


MakePublisher = Callable[[LetterSettings], LetterPublisher]


def make_publisher(settings: LetterSettings) -> LetterPublisher:
    """The publisher of a job's topic."""
    return TopicPublisher(settings.topic, spill=settings.spill)


_SHARED: dict[LetterSettings, LetterPublisher] = {}
_SHARED_LOCK = threading.Lock()


def shared_publisher(settings: LetterSettings, make: MakePublisher) -> LetterPublisher:
    """The publisher of a job, made once a process: it keeps a connection, and remembers what it published."""
    with _SHARED_LOCK:
        if settings not in _SHARED:
            _SHARED.clear()  # a process works for one job at a time
            _SHARED[settings] = make(settings)
        return _SHARED[settings]


class _GatherLetters(beam.DoFn):  # type: ignore[misc]
    """(key, dead letter) -> whatever ``give_out`` makes of many of them.

    State puts a shuffle before the side effect: what a letter says is fixed by then, so that a retry repeats it.
    The timers are each step's own (``names`` says why), and so the methods that Beam calls with them.
    """

    BUFFER = BagStateSpec(names.BUFFER, BytesCoder())
    FILL = ReadModifyWriteStateSpec(names.FILL, BytesCoder())

    def __init__(self, limits: Limits, now: Now) -> None:
        self._limits, self._now = limits, now
        self.tally = Tally()

    def start_bundle(self) -> None:
        """Count anew."""
        self.tally.begin()

    def finish_bundle(self) -> None:
        """Let the counts of this bundle count."""
        self.tally.done()

    def wanted(self) -> bool:
        """Whether this job has such a destination; without it letters end here."""
        raise NotImplementedError

    def give_out(self, letters: Sequence[DeadLetter]) -> Iterator[str]:
        """Do it; may be repeated with the same letters, or with some of them."""
        raise NotImplementedError

    def _gather(self, data: bytes, timestamp: Timestamp, buffer: Buffer) -> Iterator[str]:
        """Hold a letter back, or give out all that were held back with it."""
        if not self.wanted():
            return
        held = buffer.add(data, rows=1, timestamp=timestamp, now=self._now)
        if held:
            yield from self._give_out(held)

    def _end(self, buffer: Buffer) -> Iterator[str]:
        """The wait is over, or time is, which is a drain."""
        held = buffer.take()
        if held:
            yield from self._give_out(held)

    def _buffer(self, bag: Any, fill: Any, wait: Any, last: Any) -> Buffer:
        return Buffer(bag, fill, wait=wait, last=last, limits=self._limits)

    def _give_out(self, held: Held) -> Iterator[str]:
        yield from self.give_out([decode_letter(data) for data in sorted(held.items)])


class PublishLetters(_GatherLetters):
    """(key, dead letter) -> nothing; each is published to the topic, at least once, under its own ``dlq_id``."""

    WAIT = TimerSpec(names.PUBLISH_WAIT, TimeDomain.REAL_TIME)
    LAST = TimerSpec(names.PUBLISH_LAST, TimeDomain.WATERMARK)

    def __init__(self, settings: LetterSettings, make: MakePublisher, now: Now = wall_clock) -> None:
        super().__init__(PUBLISH_LIMITS, now)
        self._settings, self._make = settings, make

    def process(  # noqa: PLR0917, state and timers come as parameters
        self,
        element: tuple[int, bytes],
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """Hold a letter back, or give out all that were held back with it."""
        yield from self._gather(element[1], timestamp, self._buffer(bag, fill, wait, last))

    @on_timer(WAIT)  # type: ignore[untyped-decorator]
    def on_wait(
        self,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """The wait is over."""
        yield from self._end(self._buffer(bag, fill, wait, last))

    @on_timer(LAST)  # type: ignore[untyped-decorator]
    def on_last(
        self,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """The end of time."""
        yield from self._end(self._buffer(bag, fill, wait, last))

    def wanted(self) -> bool:
        """Whether there is a topic."""
        return bool(self._settings.topic)

    def give_out(self, letters: Sequence[DeadLetter]) -> Iterator[str]:
        """Publish. Raises what the publisher raises: the bundle is tried again."""
        shared_publisher(self._settings, self._make).publish(letters)
        self.tally.add(names.LETTERS_PUBLISHED, len(letters))
        return iter(())


class ArchiveLetters(_GatherLetters):
    """(key, dead letter) -> the URI of the archive file that holds it."""

    WAIT = TimerSpec(names.ARCHIVE_WAIT, TimeDomain.REAL_TIME)
    LAST = TimerSpec(names.ARCHIVE_LAST, TimeDomain.WATERMARK)

    def __init__(self, settings: LetterSettings, now: Now = wall_clock) -> None:
        super().__init__(Limits(ARCHIVE_ROWS, ARCHIVE_BYTES, settings.archive_wait_seconds), now)
        self._settings = settings

    def process(  # noqa: PLR0917, state and timers come as parameters
        self,
        element: tuple[int, bytes],
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """Hold a letter back, or give out all that were held back with it."""
        yield from self._gather(element[1], timestamp, self._buffer(bag, fill, wait, last))

    @on_timer(WAIT)  # type: ignore[untyped-decorator]
    def on_wait(
        self,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """The wait is over."""
        yield from self._end(self._buffer(bag, fill, wait, last))

    @on_timer(LAST)  # type: ignore[untyped-decorator]
    def on_last(
        self,
        bag: Any = beam.DoFn.StateParam(_GatherLetters.BUFFER),
        fill: Any = beam.DoFn.StateParam(_GatherLetters.FILL),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[str]:
        """The end of time."""
        yield from self._end(self._buffer(bag, fill, wait, last))

    def wanted(self) -> bool:
        """Whether there is an archive."""
        return bool(self._settings.archive)

    def give_out(self, letters: Sequence[DeadLetter]) -> Iterator[str]:
        """Write one file, named after its content. Raises OSError for storage faults."""
        stream = io.BytesIO()
        write_archive(stream, letters)
        data = stream.getvalue()
        name = str(LettersName(hashlib.sha256(data).hexdigest()[:16]))
        uri = files.join(self._settings.archive, name)
        if files.size_of(uri) != len(data):  # else an earlier attempt wrote just this
            write_aside(self._settings.archive, name, data)
        self.tally.add(names.LETTERS_ARCHIVED, len(letters))
        yield uri
