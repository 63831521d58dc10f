"""What people read while a run works."""

from __future__ import annotations

import pytest

from pipeline.console import Pace, size, watching
from pipeline.core.progress import Progress, Snapshot


def test_rate_leaves_out_the_time_before_the_first_row() -> None:
    pace = Pace(total_bytes=200)
    assert pace.rate(Snapshot(bytes_done=50), seconds=10) == 0
    assert pace.rate(Snapshot(bytes_done=100), seconds=20) == 0
    assert pace.rate(Snapshot(bytes_done=150, rows_read=500), seconds=25) == pytest.approx(100)


def test_a_line_tells_share_rows_rate_refused_and_time_left() -> None:
    line = Pace(total_bytes=1000).describe(Snapshot(250, 1000, 7), seconds=10)
    assert line == " 25% of 1.0 kB  1,000 rows  100 rows/s  7 refused  30 s left"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (104_500_000, "104.5 MB"), (2e12, "2000.0 GB")]
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert size(count) == text


def test_watching_ends_with_its_body_even_when_that_fails() -> None:
    with pytest.raises(RuntimeError), watching(Progress(), title="t", total_bytes=1):
        raise RuntimeError
