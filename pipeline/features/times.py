"""RFC 3339 times: which strings are valid, and their parts, computed inside a TensorFlow graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

# RFC 3339, section 5.6: date, T (or t, or a space), time, optional fraction, then Z or an offset.
PATTERN = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)"
    r"(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)


def time_parts(times: tf.Tensor, *, parts: tuple[str, ...], utc: bool) -> dict[str, tf.Tensor]:
    """The ``parts`` of each string, int64 of the same shape: of the clock as written, or of UTC.

    Fails (InvalidArgumentError) on a string that is no valid RFC 3339 time. A leap second (:60) is
    kept as 60 where it was written, and counts into the next minute in UTC.
    """
    with tf.control_dependencies([_check(times)]):
        times = tf.identity(times)
    year, month, day = _digits(times, 0, 4), _digits(times, 5, 2), _digits(times, 8, 2)
    hour, minute, second = _digits(times, 11, 2), _digits(times, 14, 2), _digits(times, 17, 2)
    days = _days_from_civil(year, month, day)
    if utc:
        total = ((days * 24 + hour) * 60 + minute - _offset_minutes(times)) * 60 + second
        days, rest = total // 86400, total % 86400
        hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
        year, month, day = _civil_from_days(days)
    known = {"year": year, "month": month, "day": day, "hour": hour, "minute": minute, "second": second}
    known["day_of_week"] = (days + 3) % 7  # 1970-01-01 was a Thursday, day 3
    known["day_of_year"] = days - _days_from_civil(year, tf.ones_like(year), tf.ones_like(year)) + 1
    return {part: known[part] for part in parts}


def _check(times: tf.Tensor) -> Any:
    valid = tf.strings.regex_full_match(times, PATTERN)
    bad = tf.boolean_mask(tf.reshape(times, [-1]), tf.reshape(~valid, [-1]))
    checked = tf.where(valid, times, tf.constant("2000-01-01T00:00:00Z"))
    # a day that the month does not have (31 April) comes back as another day
    day = _digits(checked, 8, 2)
    same = tf.equal(_civil_from_days(_days_from_civil(_digits(checked, 0, 4), _digits(checked, 5, 2), day))[2], day)
    message = "not an RFC 3339 time, such as 2013-01-01T10:00:00Z"
    return tf.group(
        tf.debugging.Assert(tf.reduce_all(valid), [message, bad], summarize=1),
        tf.debugging.Assert(tf.reduce_all(same), [message, "(the month has fewer days)"]),
    )


def _digits(times: tf.Tensor, at: int, length: int) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.substr(times, at, length), tf.int64)


def _offset_minutes(times: tf.Tensor) -> tf.Tensor:
    """Minutes that the written clock is ahead of UTC."""
    zulu = tf.strings.regex_full_match(times, ".*[Zz]")
    tail = tf.where(zulu, tf.constant("+00:00"), tf.strings.substr(times, -6, 6))
    minutes = _digits(tail, 1, 2) * 60 + _digits(tail, 4, 2)
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
