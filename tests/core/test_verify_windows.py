"""Verifying windows of a stream: damage, strangers, and a manifest in the wrong folder."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import pytest

from pipeline.core.framing import frame
from pipeline.core.manifest import Code, ShardEntry
from pipeline.core.names import WindowShardName
from pipeline.core.verify import verify_run, window_in
from pipeline.core.windows import WindowManifest, window_name


@pytest.fixture
def window(tmp_path: Path) -> Path:
    """A committed window of two shards, six rows."""
    name = window_name(1_714_521_600, 600)
    manifest = WindowManifest(name, "job", Code("1"), "s", None, "rows", {"features": {}}, "none")
    folder = tmp_path / str(name)
    folder.mkdir()
    for shard in (0, 1):
        data = bytes(frame([b"row %d" % (shard + 10 * row) for row in range(3)]))
        shard_name = str(WindowShardName(shard, "0123456789abcdef"))
        (folder / shard_name).write_bytes(data)
        manifest = manifest.with_shards([ShardEntry(shard_name, "train", 3, 3, len(data), google_crc32c.value(data))])
    (folder / "manifest.json").write_bytes(manifest.to_json())
    return folder


def verify(folder: Path):
    return verify_run(
        str(folder), lambda root: [str(path) for path in Path(root).rglob("*")], lambda uri: open(uri, "rb")
    )


def test_a_good_window_passes(window):
    report = verify(window)
    assert (report.findings, report.shards, report.rows, report.records) == ((), 2, 6, 6)
    assert report.run_id == window.name


def test_a_damaged_shard_is_named(window):
    shard = window / "part-00001-0123456789abcdef.tfrecord"
    data = bytearray(shard.read_bytes())
    data[30] ^= 1
    shard.write_bytes(data)
    report = verify(window)
    assert [finding.file for finding in report.findings] == [shard.name]
    assert (report.ok, report.rows) == (False, 3)


def test_a_missing_shard_and_a_missing_manifest_are_named(window):
    (window / "part-00001-0123456789abcdef.tfrecord").unlink()
    assert "missing" in str(verify(window).findings[0])
    (window / "manifest.json").unlink()
    assert "not a committed window" in str(verify(window).findings[0])


def test_a_file_that_no_manifest_names_is_a_warning_and_one_written_aside_is_nothing(window):
    (window / "part-00002-0123456789abcdef.tfrecord").write_bytes(b"")
    (window / ".part-00003-0123456789abcdef.tfrecord.aside").write_bytes(b"")
    report = verify(window)
    assert [(finding.file[:10], finding.warning) for finding in report.findings] == [("part-00002", True)]
    assert report.ok


def test_the_manifest_of_another_window_is_no_manifest(window):
    moved = window.rename(window.parent / str(window_name(0, 600)))
    assert "it is that of window=2024" in str(verify(moved).findings[0])


def test_only_names_of_windows_are_windows():
    name = str(window_name(0, 600))
    assert window_in(f"gs://b/out/{name}/") == name
    assert window_in("gs://b/out/run=1") is None
    assert window_in("out") is None
