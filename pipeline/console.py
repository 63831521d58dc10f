"""What people see while a local run works: a progress bar on a terminal, plain lines elsewhere, all on stderr."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.core.progress import Progress, Snapshot

_LOG = logging.getLogger(__name__)
_LINE_SECONDS = 10.0
_BAR_SECONDS = 0.2


class Pace:
    """Rates and time left, from snapshots and the time since the start in seconds.

    Rows are counted in the last pass only (an analysis before it counts bytes), so their rate is taken from
    when the first ones were seen.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._rows_from: float | None = None
        self._before = 0.0

    def rate(self, now: Snapshot, *, seconds: float) -> float:
        """Rows a second; 0 until there are rows."""
        if not now.rows_read:
            self._before = seconds
            return 0.0
        if self._rows_from is None:
            self._rows_from = self._before
        return now.rows_read / max(seconds - self._rows_from, 1e-9)

    def describe(self, now: Snapshot, *, seconds: float) -> str:
        """One line: share done, bytes, rows, rows a second, refused so far, time left."""
        share = now.bytes_done / self._total_bytes if self._total_bytes else 1.0
        left = seconds / share - seconds if 0 < share < 1 else 0.0
        rate = self.rate(now, seconds=seconds)
        rows = f"  {now.rows_read:,} rows  {rate:,.0f} rows/s  {now.rows_rejected:,} refused" if rate else ""
        return f"{min(share, 1):4.0%} of {size(self._total_bytes)}{rows}  {left:,.0f} s left"


def size(count: float) -> str:
    """``count`` bytes for a person, e.g. ``104.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


@contextmanager
def watching(progress: Progress, *, title: str, total_bytes: int) -> Iterator[None]:
    """Show ``progress`` while the body runs."""
    done = threading.Event()
    show = _show_bar if sys.stderr.isatty() else _show_lines
    thread = threading.Thread(target=show, args=(progress, title, total_bytes, done), daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show_lines(progress: Progress, title: str, total_bytes: int, done: threading.Event) -> None:
    start, pace = time.monotonic(), Pace(total_bytes)
    while not done.wait(_LINE_SECONDS):
        _LOG.info("%s: %s", title, pace.describe(progress.snapshot(), seconds=time.monotonic() - start))


def _show_bar(progress: Progress, title: str, total_bytes: int, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]:,} rows  {task.fields[rate]:,.0f} rows/s  {task.fields[refused]:,} refused"),
        TimeRemainingColumn(),
    )
    start, pace = time.monotonic(), Pace(total_bytes)
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total_bytes, rows=0, rate=0.0, refused=0)
        while True:
            finished = done.wait(_BAR_SECONDS)
            now = progress.snapshot()
            rate = pace.rate(now, seconds=time.monotonic() - start)
            bar.update(task, completed=now.bytes_done, rows=now.rows_read, rate=rate, refused=now.rows_rejected)
            if finished:
                return
