"""Event times: RFC 3339 texts and epoch numbers as microseconds since 1970 UTC, and back."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa

from pipeline.core.records import BoolArray, Int64Array

# RFC 3339, section 5.6: date, T (or t, or a space), time, optional fraction, then Z or an offset.
PATTERN = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)"
    r"(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_TIME = re.compile(PATTERN.encode())
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

# Seconds up to the year 5138, then milli-, micro- and nanoseconds: a unit is a thousand times the one before.
_SECONDS_BELOW, _MILLIS_BELOW, _MICROS_BELOW = 10**11, 10**14, 10**17

_PLAIN_BYTES = 20  # 2013-01-01T10:00:00Z
_PLAIN_LOW = np.frombuffer(b"0001-01-01T00:00:00Z", np.uint8)
_PLAIN_HIGH = np.frombuffer(b"9999-19-39T29:59:59Z", np.uint8)
# Which digit of YYYY-MM-DDTHH:MM:SS counts how much in which number: one product parses all six.
_WEIGHTS = np.zeros((_PLAIN_BYTES, 6), np.int64)
for _column, _places in enumerate(((0, 1, 2, 3), (5, 6), (8, 9), (11, 12), (14, 15), (17, 18))):
    for _power, _place in enumerate(reversed(_places)):
        _WEIGHTS[_place, _column] = 10**_power


def rfc3339(time_us: int) -> str | None:
    """A time in microseconds since 1970 as RFC 3339 in UTC, fraction only where there is one.

    None for a time that the calendar of RFC 3339 (here: years 1 to 9999) does not have.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
    return moment.isoformat().replace("+00:00", "Z")


def parse_rfc3339(text: bytes) -> int | None:
    """Microseconds since 1970 of an RFC 3339 time; None for any other text, and for the year 0.

    Digits beyond microseconds are cut off. A leap second (:60) is the first second of the next minute.
    """
    if _TIME.fullmatch(text) is None:
        return None
    try:
        day = date(int(text[:4]), int(text[5:7]), int(text[8:10])).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    seconds = (day * 24 + int(text[11:13])) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    rest = text[19:]
    fraction = 0
    if rest.startswith(b"."):
        digits = rest[1:-1] if rest[-1:] in b"Zz" else rest[1:-6]
        fraction = int(digits[:6].ljust(6, b"0"))
    if rest[-1:] not in b"Zz":
        offset = int(rest[-5:-3]) * 3600 + int(rest[-2:]) * 60
        seconds -= -offset if rest[-6:-5] == b"-" else offset
    return seconds * 1_000_000 + fraction


def read_times(column: pa.Array) -> tuple[Int64Array, BoolArray]:
    """Event times of a column without nulls: (microseconds since 1970, which values are no time), shape (rows,) each.

    int64: seconds since 1970 where the number is below 1e11 (the year 5138), else milliseconds below 1e14,
    microseconds below 1e17, nanoseconds beyond. large_binary: RFC 3339. What is no time is 0.
    """
    if pa.types.is_int64(column.type):
        numbers: Int64Array = column.to_numpy(zero_copy_only=False)
        return _micros_of(numbers), np.zeros(len(numbers), np.bool_)
    plain = _plain_times(column)
    if plain is not None:
        return plain, np.zeros(len(plain), np.bool_)
    parsed = [parse_rfc3339(text) for text in column.to_pylist()]
    times = np.array([0 if time is None else time for time in parsed], np.int64)
    return times, np.array([time is None for time in parsed], np.bool_)


def _micros_of(numbers: Int64Array) -> Int64Array:
    size = np.abs(np.maximum(numbers, -(2**63) + 1))  # the least int64 has no absolute value
    return np.select(
        [size < _SECONDS_BELOW, size < _MILLIS_BELOW, size < _MICROS_BELOW],
        [numbers * 1_000_000, numbers * 1000, numbers],
        numbers // 1000,
    )


def _plain_times(column: pa.LargeBinaryArray) -> Int64Array | None:
    """The times, where all are good and written as 2013-01-01T10:00:00Z (a hundredth of the time); else None."""
    count = len(column)
    ends = np.frombuffer(column.buffers()[1] or bytes(8), np.int64)[column.offset : column.offset + count + 1]
    if not count or (np.diff(ends) != _PLAIN_BYTES).any():
        return None
    text = np.frombuffer(column.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(count, _PLAIN_BYTES)
    if not ((text >= _PLAIN_LOW) & (text <= _PLAIN_HIGH)).all():
        return None
    year, month, day, hour, minute, second = ((text.astype(np.int64) - 48) @ _WEIGHTS).T
    if not ((year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23)).all():
        return None
    months = (year - 1970) * 12 + month - 1
    first = months.view("datetime64[M]").astype("datetime64[D]").view(np.int64)
    if (first + day - 1 >= (months + 1).view("datetime64[M]").astype("datetime64[D]").view(np.int64)).any():
        return None
    times: Int64Array = ((((first + day - 1) * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000
    return times
