"""What is held back: limits, the wait, and the timer that holds the watermark at the oldest of it."""

from __future__ import annotations

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from fakes.states import Bag, Timer, Value

from pipeline.transforms.streaming_buffer import Buffer, Limits


class Key:
    """One key's buffer, and the time."""

    def __init__(self, rows: int = 10, size_bytes: int = 1000) -> None:
        self.bag, self.fill, self.wait, self.last = Bag(), Value(), Timer(), Timer()
        self.limits, self.now = Limits(rows, size_bytes, 2.5), 100.0

    def buffer(self) -> Buffer:
        return Buffer(self.bag, self.fill, wait=self.wait, last=self.last, limits=self.limits)

    def add(self, item: bytes, second: float, rows: int = 1):
        return self.buffer().add(item, rows=rows, timestamp=Timestamp(second), now=lambda: self.now)

    def take(self):
        return self.buffer().take()


def test_the_first_item_starts_the_wait_and_later_ones_do_not_lengthen_it():
    key = Key()
    assert key.add(b"a", 5) is None
    key.now = 102.0
    assert key.add(b"b", 6) is None
    assert key.wait.sets == [Timestamp(102.5)]
    assert key.last.at == GlobalWindow().max_timestamp()


def test_an_older_item_sets_the_timer_again_to_the_same_moment_so_that_it_holds_the_watermark():
    """A runner holds the watermark at the timestamp of the element that set the timer last."""
    key = Key()
    key.add(b"a", 5)
    key.now = 101.0
    key.add(b"b", 3)
    key.add(b"c", 4)
    assert key.wait.sets == [Timestamp(102.5), Timestamp(102.5)]
    held = key.take()
    assert (sorted(held.items), held.oldest) == ([b"a", b"b", b"c"], Timestamp(3))


def test_enough_rows_or_bytes_end_the_wait_at_once():
    for key, item, rows in ((Key(rows=3), b"x", 2), (Key(size_bytes=10), b"x" * 6, 1)):
        assert key.add(item, 5, rows) is None
        held = key.add(item, 4, rows)
        assert (held.items, held.oldest) == ([item, item], Timestamp(4))
        assert (key.bag.items, key.fill.value, key.wait.at, key.last.at) == ([], None, None, None)


def test_an_item_that_is_enough_by_itself_never_sees_state():
    key = Key(rows=3)
    held = key.add(b"many", 5, rows=3)
    assert held.items == [b"many"]
    assert key.wait.sets == []


def test_there_is_nothing_to_take_twice():
    key = Key()
    key.add(b"a", 5)
    assert key.take().items == [b"a"]
    assert key.take() is None
    assert key.add(b"b", 9) is None
    assert key.take().oldest == Timestamp(9)
