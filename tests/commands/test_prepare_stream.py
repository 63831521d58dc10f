"""What an update of a running stream may not change: what waits in its state was made in the old way."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from fakes.plays import Play

from pipeline.commands.prepare_stream import check_update
from pipeline.core.errors import RefusedError
from pipeline.core.windows import window_start

NOW = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def windows(tmp_path):
    """The settings of a job, which has written a window an hour before NOW, and one of another kind long ago."""
    settings = Play(tmp_path).job().windows
    for seconds, made in ((3600, settings), (30 * 86_400, replace(settings, compression="gzip"))):
        start = window_start(round(NOW.timestamp() - seconds) * 1_000_000, made.window_seconds)
        folder = tmp_path / "out" / made.folder(start).rpartition("/")[2]
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_bytes(made.manifest(start).to_json())
    return settings


def test_what_is_not_about_shards_may_change(windows):
    check_update(windows, NOW)
    check_update(replace(windows, target_shard_bytes=7, transform_fingerprint="new", job_name="new"), NOW)


@pytest.mark.parametrize(
    "changed", [{"window_seconds": 120}, {"compression": "zlib"}, {"feature_spec": {"features": {"new": {}}}}]
)
def test_what_says_what_a_shard_or_a_window_is_may_not(windows, changed):
    with pytest.raises(RefusedError, match="Drain it"):
        check_update(replace(windows, **changed), NOW)


def test_a_job_that_has_written_nothing_lately_is_not_judged(windows):
    check_update(replace(windows, compression="zlib"), datetime(2024, 6, 1, tzinfo=timezone.utc))
