"""Safe text: nothing invisible gets through, limits hold, good text is left alone."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.text import cut_utf8, printable

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)
LIMITS = st.integers(1, 80)


@given(data=st.one_of(st.binary(max_size=60), ANY_TEXT), limit=LIMITS)
def test_shown_text_is_visible_and_bounded(data, limit):
    shown = printable(data, limit)
    assert shown.isprintable()
    assert len(shown) <= limit


@given(text=ANY_TEXT)
def test_visible_text_that_fits_is_left_alone(text):
    if text.isprintable():
        assert printable(text, max(1, len(text))) == text
        assert printable(text.encode(), max(1, len(text))) == text


@given(text=ANY_TEXT, limit=LIMITS)
def test_bytes_and_text_are_shown_alike(text, limit):
    clean = text.encode("utf-8", "ignore")
    assert printable(clean, limit) == printable(clean.decode(), limit)


@given(text=ANY_TEXT, limit=LIMITS)
def test_an_ellipsis_tells_of_a_cut(text, limit):
    whole, shown = printable(text, 1000), printable(text, limit)
    assert shown == whole or (shown.endswith("…") and whole.startswith(shown[:-1]))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain", "plain"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("a\r\nb\tc", "a\\x0d\\x0ab\\x09c"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
        ("\x85\u2028\u200b", "\\x85\\u2028\\u200b"),
        ("café", "café"),
    ],
)
def test_examples(data, shown):
    assert printable(data, 100) == shown


def test_an_escape_is_never_cut_in_two():
    assert printable("ab\x1bcd", 5) == "ab…"


def test_a_giant_is_shown_at_once():
    started = time.perf_counter()
    printable(b"\x00" * (50 << 20), 10)
    assert time.perf_counter() - started < 1  # reading all of it takes several seconds


@given(text=ANY_TEXT, limit=st.integers(0, 80))
def test_a_cut_is_the_longest_start_that_fits(text, limit):
    cut = cut_utf8(text, limit)
    full = text.encode("utf-8", "backslashreplace").decode()
    assert full.startswith(cut)
    assert len(cut.encode()) <= limit
    if cut != full:
        assert len(full[: len(cut) + 1].encode()) > limit
