"""Messages in, chunks of framed records and dead letters out: the step of a stream that looks into messages.

Everything is in the global window, so that no runner ever drops anything as late. Windows are arithmetic on the event
time of a row, and what is late is decided here, by what is known of the watermark (``core.windows.Clock``).
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import apache_beam as beam
import google_crc32c
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from pipeline.core.codec import count_messages, encode_chunk, encode_letter, unpack_messages
from pipeline.core.errors import HeadraceError
from pipeline.core.event_times import rfc3339
from pipeline.core.messages import (
    Message,
    RefusedMessage,
    StreamSettings,
    WindowedChunk,
    letter_of,
)
from pipeline.core.windows import Clock
from pipeline.transforms import files, names
from pipeline.transforms.streaming_buffer import Buffer, Held, Limits, Now, wall_clock
from pipeline.transforms.streaming_keys import identity_of
from pipeline.transforms.tally import Tally

_CLOCK_FIELDS = 3
_LAST_SECOND = GlobalWindow().max_timestamp().micros // 1_000_000
LETTER_KEYS = 4
"""Dead letters are gathered under so many keys: few, so that archive files are not many and small."""


class ProcessedMessages(Protocol):
    """What a processor made of messages: each of them is in a chunk or among the refused."""

    @property
    def chunks(self) -> Sequence[WindowedChunk]:
        """Framed records."""
        ...

    @property
    def refused(self) -> Sequence[RefusedMessage]:
        """Messages that are not written."""
        ...


class Processor(Protocol):
    """Decodes, validates, transforms and encodes messages. Never raises for what is in a message."""

    def process(self, messages: Sequence[Message], *, closed_before_s: int) -> ProcessedMessages:
        """Work on a batch."""
        ...


MakeProcessor = Callable[[StreamSettings], Processor]


def make_processor(settings: StreamSettings) -> Processor:
    """The processor of a job. Raises UsageError where settings, schema and artefact do not go together; OSError."""
    # Here, so that a graph can be built, and compared with a running one, without TensorFlow.
    from pipeline.features.stream import MessageProcessor, stream_schema
    from pipeline.features.transformer import load_transformer

    transformer = load_transformer(
        settings.transform, stream_schema(settings), list_folder=files.list_folder, open_file=files.open_read
    )
    return MessageProcessor(settings, transformer=transformer)


class ProcessMessages(beam.DoFn):  # type: ignore[misc]
    """(batch key, packed messages) -> ((window start, shard), chunk), and tagged (letter key, dead letter).

    Messages are held back until a call is worth it: ``max_batch_rows``, ``max_batch_bytes`` or
    ``max_batch_wait_seconds``, whichever comes first. A batch is judged by what was known of the watermark before it
    came: the timer that brings news first gives out what is held back, so that nothing that was in time becomes
    late by waiting here.
    """

    BUFFER = BagStateSpec(names.BUFFER, BytesCoder())
    FILL = ReadModifyWriteStateSpec(names.FILL, BytesCoder())
    CLOCK = ReadModifyWriteStateSpec(names.CLOCK, BytesCoder())
    WAIT = TimerSpec(names.WAIT, TimeDomain.REAL_TIME)
    LAST = TimerSpec(names.LAST, TimeDomain.WATERMARK)
    WATCH = TimerSpec(names.WATCH, TimeDomain.WATERMARK)

    def __init__(
        self,
        settings: StreamSettings,
        make: MakeProcessor = make_processor,
        *,
        schema_fingerprint: str,
        kind: int,
        now: Now = wall_clock,
    ) -> None:
        self._settings, self._make, self._now = settings, make, now
        self._fingerprint, self._kind = schema_fingerprint, kind
        self._tally = Tally()
        self._limits = Limits(settings.max_batch_rows, settings.max_batch_bytes, settings.max_batch_wait_seconds)

    def setup(self) -> None:
        """Load the transform, once a process."""
        self._processor = shared_processor(self._settings, self._make)

    def start_bundle(self) -> None:
        """Count anew."""
        self._tally.begin()

    def finish_bundle(self) -> None:
        """Let the counts of this bundle count."""
        self._tally.done()

    def process(  # noqa: PLR0917, state and timers come as parameters
        self,
        element: tuple[int, bytes],
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        bag: Any = beam.DoFn.StateParam(BUFFER),
        fill: Any = beam.DoFn.StateParam(FILL),
        clock_state: Any = beam.DoFn.StateParam(CLOCK),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
        watch: Any = beam.DoFn.TimerParam(WATCH),
    ) -> Iterator[Any]:
        """Hold messages back, or work on them and on all that were held back."""
        pack = element[1]
        before = _clock_from(clock_state.read())
        clock = before.on_message(
            timestamp.micros,
            window_seconds=self._settings.window_seconds,
            allowed_lateness_seconds=self._settings.allowed_lateness_seconds,
        )
        if clock != before:
            self._arm(clock, clock_state, watch)
        buffer = Buffer(bag, fill, wait=wait, last=last, limits=self._limits)
        held = buffer.add(pack, rows=count_messages(pack), timestamp=timestamp, now=self._now)
        if held:
            yield from self._work(held, clock.closed_before)

    @on_timer(WAIT)  # type: ignore[untyped-decorator]
    def on_wait(
        self,
        bag: Any = beam.DoFn.StateParam(BUFFER),
        fill: Any = beam.DoFn.StateParam(FILL),
        clock_state: Any = beam.DoFn.StateParam(CLOCK),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[Any]:
        """The wait is over."""
        held = Buffer(bag, fill, wait=wait, last=last, limits=self._limits).take()
        if held:
            yield from self._work(held, _clock_from(clock_state.read()).closed_before)

    @on_timer(LAST)  # type: ignore[untyped-decorator]
    def on_last(
        self,
        bag: Any = beam.DoFn.StateParam(BUFFER),
        fill: Any = beam.DoFn.StateParam(FILL),
        clock_state: Any = beam.DoFn.StateParam(CLOCK),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> Iterator[Any]:
        """The end of time, which is a drain: nothing more will come, and no runner owes us the wait."""
        yield from self.on_wait(bag, fill, clock_state, wait, last)

    @on_timer(WATCH)  # type: ignore[untyped-decorator]
    def on_watch(  # noqa: PLR0917, state and timers come as parameters
        self,
        fired: Timestamp = beam.DoFn.TimestampParam,
        bag: Any = beam.DoFn.StateParam(BUFFER),
        fill: Any = beam.DoFn.StateParam(FILL),
        clock_state: Any = beam.DoFn.StateParam(CLOCK),
        wait: Any = beam.DoFn.TimerParam(WAIT),
        last: Any = beam.DoFn.TimerParam(LAST),
        watch: Any = beam.DoFn.TimerParam(WATCH),
    ) -> Iterator[Any]:
        """The watermark has passed a window's closing."""
        yield from self.on_wait(bag, fill, clock_state, wait, last)
        clock = _clock_from(clock_state.read())
        self._arm(
            clock.on_timer(fired.micros // 1_000_000, window_seconds=self._settings.window_seconds), clock_state, watch
        )

    def _arm(self, clock: Clock, clock_state: Any, watch: Any) -> None:
        clock_state.write(_clock_bytes(clock))
        if clock.armed < _LAST_SECOND:
            watch.set(Timestamp(clock.armed))

    def _work(self, held: Held, closed_before: int) -> Iterator[Any]:
        messages = sorted((message for pack in held.items for message in unpack_messages(pack)), key=_order)
        processed = self._processor.process(messages, closed_before_s=closed_before)
        rows = sum(chunk.rows for chunk in processed.chunks)
        if rows + len(processed.refused) != len(messages):
            raise HeadraceError(
                f"{len(messages)} messages came in, {rows} rows and {len(processed.refused)} refusals came out: "
                "nothing was passed on; this is a bug, please report it"
            )
        self._count(rows, processed.refused)
        origin = _origin_of(messages)
        for index, chunk in enumerate(processed.chunks):
            data = encode_chunk(replace(chunk, origin=(origin + index) % 2**64), kind=self._kind)
            ended = chunk.window_start + self._settings.window_seconds <= closed_before
            # What comes after its window is stamped with the time at which it came, as far as that is known.
            stamp = max(held.oldest, Timestamp(closed_before)) if ended else held.oldest
            yield TimestampedValue(((chunk.window_start, chunk.shard), data), stamp)
        for letter in self._letters(processed.refused):
            yield beam.pvalue.TaggedOutput(names.LETTERS, TimestampedValue(letter, held.oldest))

    def _count(self, rows: int, refused: Sequence[RefusedMessage]) -> None:
        self._tally.add(names.BATCHES)
        self._tally.add(names.ROWS_WRITTEN, rows)
        self._tally.add(names.ROWS_REJECTED, len(refused))
        for reason, count in Counter(message.reason.value for message in refused).items():
            self._tally.add(names.REJECTED_PREFIX + reason, count)

    def _letters(self, refused: Sequence[RefusedMessage]) -> Iterator[tuple[int, bytes]]:
        """Dead letters under their keys. From here they go through a shuffle, which keeps the time of failing."""
        failed_at = rfc3339(round(self._now() * 1_000_000)) or ""
        hidden = self._settings.event_time_feature in self._settings.redact_features
        for message in refused:
            letter = letter_of(
                message,
                subscription=self._settings.subscription,
                job=self._settings.job,
                schema_fingerprint=self._fingerprint,
                failed_at=failed_at,
                redact_features=self._settings.redact_features,
            )
            letter = replace(letter, event_time=None) if hidden else letter
            yield google_crc32c.value(letter.dlq_id.encode()) % LETTER_KEYS, encode_letter(letter)


_SHARED: dict[StreamSettings, Processor] = {}
_SHARED_LOCK = threading.Lock()


def shared_processor(settings: StreamSettings, make: MakeProcessor) -> Processor:
    """The processor of a job, made once a process: a graph costs a second and its memory."""
    with _SHARED_LOCK:
        if settings not in _SHARED:
            _SHARED.clear()  # a process works for one job at a time; an old graph is only memory
            _SHARED[settings] = make(settings)
        return _SHARED[settings]


def _order(message: Message) -> tuple[int, str]:
    """State gives messages back in any order; a retry of a batch must give the same bytes."""
    return message.publish_time_us, message.message_id


def _origin_of(messages: Sequence[Message]) -> int:
    """64 bits of a hash of the messages: the same for the same batch tried again, another for any other batch."""
    ids = b"\n".join([identity_of(message) for message in messages])
    return int.from_bytes(hashlib.sha256(ids).digest()[:8], "big")


def _clock_bytes(clock: Clock) -> bytes:
    return f"{clock.closed_before} {clock.armed} {clock.idle}".encode()


def _clock_from(data: bytes | None) -> Clock:
    return Clock(*map(int, data.split()[:_CLOCK_FIELDS])) if data else Clock()
