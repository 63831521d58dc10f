"""Where accepted messages belong in time: their event times and windows, and which come too late or from the future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa

from pipeline.core.errors import UsageError
from pipeline.core.event_times import read_times, rfc3339
from pipeline.core.messages import Message, StreamSettings, first_event_time
from pipeline.core.reasons import Reason
from pipeline.core.records import BoolArray, Fault, Int64Array
from pipeline.core.schema import Feature, Kind, Schema
from pipeline.core.schema_text import nearest
from pipeline.core.validation import show
from pipeline.core.windows import END_EVENT_US, FIRST_EVENT_US, is_late, window_start

_EVENT_TIME: Callable[[Message], int] = attrgetter("event_time_us")
_PUBLISHED: Callable[[Message], int] = attrgetter("publish_time_us")
_MOST_AHEAD_US = END_EVENT_US - FIRST_EVENT_US


@dataclass(frozen=True)
class Placed:
    """Where each row of a batch belongs; arrays have shape (rows,).

    ``times_us`` are event times in microseconds since 1970, ``starts`` the starts of their windows in seconds. Of the
    rows in ``refused`` they mean nothing, but for the time in it (None: the row has none).
    """

    times_us: Int64Array
    starts: Int64Array
    refused: dict[int, tuple[Fault, int | None]]


class Placing:
    """Places rows of one stream. The event time is that of the runner, or a feature's where the settings name one.

    Such a feature is an INT (seconds since 1970, or milli-, micro-, nanoseconds by their size) or RFC 3339 in a BYTES;
    it must be required by ``schema``. Raises UsageError for a feature that cannot be one.

    A replayed message that goes by the runner's time belongs where it did at first, unless that window has closed by
    now: then it goes by the runner's time, so that being replayed makes nothing late.
    """

    def __init__(self, settings: StreamSettings, schema: Schema) -> None:
        self._window_s = settings.window_seconds
        self._lateness_s = settings.allowed_lateness_seconds
        self._ahead_s = settings.max_event_ahead_seconds
        self._feature = settings.event_time_feature
        if self._feature is not None:
            _check_feature(self._feature, schema)

    def time_before_decoding(self, message: Message) -> int | None:
        """The event time of a message whose payload was refused: None where only the payload would tell."""
        if self._feature is not None:
            return None
        first = first_event_time(message)
        return message.event_time_us if first is None else min(first, message.event_time_us)

    def place(self, messages: Sequence[Message], batch: pa.RecordBatch, *, closed_before_s: int) -> Placed:
        """Where the rows of ``batch`` (canonical columns), which came in ``messages``, belong."""
        times, bad = self._times(messages, batch, closed_before_s)
        starts: Int64Array = times // 1_000_000
        starts = starts - starts % self._window_s
        published = np.clip(
            _published(messages),
            FIRST_EVENT_US,
            END_EVENT_US,
        )
        outside = (times < FIRST_EVENT_US) | (times >= END_EVENT_US)
        ahead = times > published + min(self._ahead_s * 1_000_000, _MOST_AHEAD_US)
        late = starts + (self._window_s + self._lateness_s) <= closed_before_s
        refused: dict[int, tuple[Fault, int | None]] = {}
        for row in np.flatnonzero(bad | outside | ahead | late).tolist():
            time = int(times[row])
            if bad[row]:
                refused[row] = (self._no_time(batch, row), None)
            elif outside[row]:
                refused[row] = (self._outside(time), time)
            elif ahead[row]:
                refused[row] = (self._ahead(time, int(published[row])), time)
            else:
                refused[row] = (self._late(time, closed_before_s), time)
        return Placed(times, starts, refused)

    def _times(
        self, messages: Sequence[Message], batch: pa.RecordBatch, closed_before_s: int
    ) -> tuple[Int64Array, BoolArray]:
        if self._feature is not None:
            return read_times(batch.column(self._feature))
        times = _array(_EVENT_TIME, messages)
        # One with fewer attributes lacks one of the three that tell its first time: asking costs 1 us a message.
        replayed = [row for row, message in enumerate(messages) if len(message.attributes) >= 3]
        for row in replayed:
            first = first_event_time(messages[row])
            if first is not None and FIRST_EVENT_US <= first < times[row] and not self._closed(first, closed_before_s):
                times[row] = first
        return times, np.zeros(len(messages), np.bool_)

    def _closed(self, time_us: int, closed_before_s: int) -> bool:
        return is_late(
            window_start(time_us, self._window_s),
            window_seconds=self._window_s,
            allowed_lateness_seconds=self._lateness_s,
            closed_before=closed_before_s,
        )

    def _no_time(self, batch: pa.RecordBatch, row: int) -> Fault:
        value = show(batch.column(self._feature)[row].as_py())
        message = f"feature {show(self._feature)} is {value}, not an RFC 3339 time such as 2013-01-01T10:00:00Z"
        return Fault(Reason.WRONG_TYPE, message, self._feature)

    def _outside(self, time: int) -> Fault:
        text = rfc3339(time) or f"{time} microseconds after 1970"
        return Fault(Reason.OUT_OF_RANGE, f"the event time {text} is in no year from 1002 to 9997", self._feature)

    def _ahead(self, time: int, published: int) -> Fault:
        message = (
            f"the event time {rfc3339(time)} is more than {self._ahead_s} s after the message was published "
            f"({rfc3339(published)})"
        )
        return Fault(Reason.OUT_OF_RANGE, message, self._feature)

    def _late(self, time: int, closed_before_s: int) -> Fault:
        start = rfc3339(window_start(time, self._window_s) * 1_000_000)
        closed = rfc3339(closed_before_s * 1_000_000) or f"{closed_before_s} s after 1970"
        message = (
            f"the event time {rfc3339(time)} is too late: its window of {self._window_s} s from {start}, with "
            f"{self._lateness_s} s of allowed lateness, ended before {closed}"
        )
        return Fault(Reason.LATE_DATA, message, self._feature)


def _array(time: Callable[[Message], int], messages: Sequence[Message]) -> Int64Array:
    return np.fromiter(map(time, messages), np.int64, len(messages))


def _published(messages: Sequence[Message]) -> Int64Array:
    """When each was published; the runner's time where nobody says."""
    published = _array(_PUBLISHED, messages)
    return published if published.all() else np.where(published, published, _array(_EVENT_TIME, messages))


def _check_feature(name: str, schema: Schema) -> None:
    features = {feature.name: feature for feature in schema.features}
    if name not in features:
        raise UsageError(f"--event_time_feature={name}: the schema has no such feature; {nearest(name, features)}")
    if why := _unfit(features[name]):
        raise UsageError(
            f"--event_time_feature={name}: {why}; give a required INT (seconds or milliseconds since 1970) or "
            "BYTES (RFC 3339) of one value"
        )


def _unfit(feature: Feature) -> str | None:
    if not feature.scalar:
        return "a row may hold several values of it"
    if feature.kind is Kind.FLOAT:
        return "it is a FLOAT, which holds seconds since 1970 only to within two minutes"
    if feature.bool_domain is not None:
        return "it is a truth value"
    return None if feature.required else "a row may lack it"
