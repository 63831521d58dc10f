"""RFC 3339 times: which strings are valid, and their parts, computed inside a TensorFlow graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from pipeline.core.event_times import PATTERN

_MESSAGE = "not an RFC 3339 time, such as 2013-01-01T10:00:00Z"

# Which digit of YYYY-MM-DDTHH:MM:SS counts how much in which number: one product parses all six.
_WEIGHTS = np.zeros((19, 6), np.int32)
for _column, _places in enumerate(((0, 1, 2, 3), (5, 6), (8, 9), (11, 12), (14, 15), (17, 18))):
    for _power, _place in enumerate(reversed(_places)):
        _WEIGHTS[_place, _column] = 10**_power


def time_parts(times: tf.Tensor, *, parts: tuple[str, ...], utc: bool) -> dict[str, tf.Tensor]:
    """The ``parts`` of each string, int64 of the same shape: of the clock as written, or of UTC.

    Fails (InvalidArgumentError) on a string that is no valid RFC 3339 time. A leap second (:60) is
    kept as 60 where it was written, and counts into the next minute in UTC.
    """
    year, month, day, hour, minute, second = _fields(times)
    days = None
    if utc:
        days = _days_from_civil(year, month, day)
        total = ((days * 24 + hour) * 60 + minute - _offset_minutes(times)) * 60 + second
        days, rest = total // 86400, total % 86400
        hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
        year, month, day = _civil_from_days(days)
    known = {"year": year, "month": month, "day": day, "hour": hour, "minute": minute, "second": second}
    if "day_of_week" in parts:
        # 1970-01-01 was a Thursday, day 3
        known["day_of_week"] = ((_days_from_civil(year, month, day) if days is None else days) + 3) % 7
    if "day_of_year" in parts:
        after_february = tf.cast(_leap(year) & (month > 2), tf.int64)
        known["day_of_year"] = tf.gather(tf.constant(_DAYS_BEFORE), month) + after_february + day
    return {part: known[part] for part in parts}


def _fields(times: tf.Tensor) -> list[tf.Tensor]:
    """Year, month, day, hour, minute and second as written, after making sure that every string is a time."""
    valid = tf.strings.regex_full_match(times, PATTERN)
    bad = tf.boolean_mask(times, ~valid)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(valid), [_MESSAGE, bad], summarize=1)]):
        times = tf.identity(times)
    digits = tf.cast(tf.io.decode_raw(tf.strings.substr(times, 0, 19), tf.uint8, fixed_length=19), tf.int32) - 48
    fields = tf.cast(tf.tensordot(digits, tf.constant(_WEIGHTS), 1), tf.int64)
    year, month, day, *clock = tf.unstack(fields, axis=-1)
    in_month = tf.gather(tf.constant(_MONTH_DAYS), month) + tf.cast(_leap(year) & (month == 2), tf.int64)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(day <= in_month), [_MESSAGE])]):
        return [year, month, tf.identity(day), *clock]


_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAYS_BEFORE = np.cumsum(_MONTH_DAYS) - _MONTH_DAYS


def _leap(year: tf.Tensor) -> tf.Tensor:
    return ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)


def _offset_minutes(times: tf.Tensor) -> tf.Tensor:
    """Minutes that the written clock is ahead of UTC."""
    zulu = tf.strings.regex_full_match(times, ".*[Zz]")
    tail = tf.where(zulu, tf.constant("+00:00"), tf.strings.substr(times, -6, 6))
    digits = tf.cast(tf.io.decode_raw(tail, tf.uint8, fixed_length=6), tf.int64) - 48
    minutes = tf.tensordot(digits, tf.constant([0, 600, 60, 0, 10, 1], tf.int64), 1)
    return tf.where(tf.equal(tf.strings.substr(tail, 0, 1), "-"), -minutes, minutes)


def _days_from_civil(year: tf.Tensor, month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    """Days since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms", days_from_civil)."""
    year = tf.where(month <= 2, year - 1, year)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def _civil_from_days(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Year, month and day (Hinnant, civil_from_days)."""
    shifted = days + 719468
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = (shifted_month + 2) % 12 + 1
    year = year_of_era + era * 400
    return tf.where(month <= 2, year + 1, year), month, day
