"""Shards and manifests of windows: one file from any attempt, whole files only, and the last word to the newest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apache_beam.utils.timestamp import Timestamp
from fakes.faults import StorageFault, faulty_storage
from fakes.runs import records_of
from fakes.states import Bag, Timer, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.codec import decode_entry, encode_chunk, encode_entry
from pipeline.core.compression import COMPRESSIONS
from pipeline.core.errors import HeadraceError
from pipeline.core.framing import frame
from pipeline.core.manifest import Code
from pipeline.core.messages import WindowedChunk
from pipeline.transforms import files
from pipeline.transforms.streaming_windows import CommitWindow, WindowSettings, WriteShards, write_aside, write_shard


def window_settings(output: Path, **given) -> WindowSettings:
    fields = {
        "output": str(output),
        "window_seconds": 60,
        "allowed_lateness_seconds": 120,
        "target_shard_bytes": 1000,
        "compression": "none",
        "layout": "rows",
        "job_name": "job",
        "code": Code("1"),
        "schema_fingerprint": "s",
        "transform_fingerprint": None,
        "feature_spec": {"features": {}},
    }
    return WindowSettings(**(fields | given))


def chunk(*payloads: bytes) -> bytes:
    return encode_chunk(WindowedChunk(600, 0, len(payloads), len(payloads), bytes(frame(list(payloads)))), kind=KIND)


KIND = window_settings("").kind
CHUNKS = [chunk(b"a", b"b"), chunk(b"c"), chunk(b"d", b"e", b"f")]


@given(st.permutations(CHUNKS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_in_which_state_gives_chunks_back_does_not_matter(tmp_path_factory, order):
    output = tmp_path_factory.mktemp("out")
    entries = {write_shard(window_settings(output), (600, 3), held) for held in (CHUNKS, order)}
    (entry,) = entries
    (shard,) = output.rglob("*.tfrecord")
    assert shard.name == entry.name
    assert entry.name.startswith("part-00003-")
    assert shard.parent.name == "window=19700101T001000Z_19700101T001100Z"
    assert sorted(records_of(shard)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert (entry.rows, entry.records, entry.size_bytes) == (6, 6, shard.stat().st_size)


@pytest.mark.parametrize(
    "changed", [{"window_seconds": 30}, {"layout": "packed"}, {"feature_spec": {"features": {"x": {}}}}], ids=str
)
def test_rows_of_the_job_before_an_update_are_not_written_in_another_way(tmp_path, changed):
    with pytest.raises(HeadraceError, match="updated while rows"):
        write_shard(window_settings(tmp_path, **changed), (600, 0), CHUNKS)
    assert not list(tmp_path.rglob("*.tfrecord"))


def test_equal_rows_of_other_messages_are_another_shard(tmp_path):
    """A manifest holds each name once: with one name for both, the rows of one of them would be lost."""
    where = window_settings(tmp_path)
    twice = [encode_chunk(WindowedChunk(600, 0, 1, 1, bytes(frame([b"a"])), origin), kind=KIND) for origin in (1, 2, 2)]
    names = [write_shard(where, (600, 0), [data]).name for data in twice]
    assert names[0] != names[1] == names[2]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_shard_is_whole_after_a_fault_at_any_point(tmp_path, compression):
    with faulty_storage(0) as counted:
        write_shard(window_settings(tmp_path / "0", compression=compression), (600, 0), CHUNKS)
    assert counted.points >= 8
    expected = next((tmp_path / "0").rglob("*.tfrecord")).read_bytes()
    for at in range(1, counted.points + 1):
        where = window_settings(tmp_path / str(at), compression=compression)
        with faulty_storage(at), pytest.raises(StorageFault):
            write_shard(where, (600, 0), CHUNKS)
        for found in (tmp_path / str(at)).rglob("*.tfrecord"):
            assert found.read_bytes() == expected
        entry = write_shard(where, (600, 0), CHUNKS)
        (found,) = (tmp_path / str(at)).rglob("part-*.tfrecord")
        assert (found.name, found.read_bytes()) == (entry.name, expected)


def test_a_file_that_is_there_is_not_written_again(tmp_path):
    where = window_settings(tmp_path)
    first = write_shard(where, (600, 0), CHUNKS)
    with faulty_storage(0) as counted:
        assert write_shard(where, (600, 0), CHUNKS) == first
    assert counted.points == 2, "one look, before and after"


def test_a_cut_file_of_an_earlier_attempt_is_replaced(tmp_path):
    where = window_settings(tmp_path)
    entry = write_shard(where, (600, 0), CHUNKS)
    shard = Path(where.folder(600), entry.name)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:20])
    write_shard(where, (600, 0), CHUNKS)
    assert shard.read_bytes() == whole


def test_of_two_attempts_at_once_one_may_find_that_the_other_was_first(tmp_path, monkeypatch):
    rename = files.rename

    def taken(source: str, target: str) -> None:
        rename(source, target)
        raise FileNotFoundError(source)

    monkeypatch.setattr(files, "rename", taken)
    write_aside(str(tmp_path), "x", b"abc")
    assert (tmp_path / "x").read_bytes() == b"abc"


def test_a_file_that_vanishes_before_it_is_renamed_is_a_fault(tmp_path, monkeypatch):
    def gone(source: str, target: str) -> None:
        raise FileNotFoundError(source)

    monkeypatch.setattr(files, "rename", gone)
    with pytest.raises(OSError, match="taken away"):
        write_aside(str(tmp_path), "x", b"abc")


def test_a_shard_waits_for_its_target_or_the_end_of_its_window(tmp_path):
    writer, bag, fill, close = WriteShards(window_settings(tmp_path, target_shard_bytes=50)), Bag(), Value(), Timer()
    key = (600, 0)
    assert list(writer.process((key, CHUNKS[0]), Timestamp(1), bag, fill, close)) == []
    assert close.at == Timestamp(660)
    ((start, entry),) = writer.process((key, CHUNKS[1]), Timestamp(2), bag, fill, close)
    assert (start, decode_entry(entry, kind=KIND).rows) == (600, 3)
    assert (bag.items, fill.value, close.at) == ([], None, None)
    assert list(writer.on_close(key, bag, fill)) == []
    assert list(writer.process((key, CHUNKS[1]), Timestamp(2), bag, fill, close)) == []
    ((_, rest),) = writer.on_close(key, bag, fill)
    assert decode_entry(rest, kind=KIND).rows == 1
    assert (bag.items, fill.value) == ([], None)


class Window:
    """The state of one window in CommitWindow."""

    def __init__(self, output: Path, **given) -> None:
        self.settings = window_settings(output, **given)
        self.commit, self.entries, self.pane, self.settled = CommitWindow(self.settings), Bag(), Timer(), Timer()
        self.manifest = Path(self.settings.folder(600), "manifest.json")

    def shard(self, *payloads: bytes) -> str:
        entry = write_shard(self.settings, (600, 0), [chunk(*payloads)])
        self.commit.process((600, encode_entry(entry, kind=KIND)), self.entries, self.pane, self.settled)
        return entry.name

    def named(self) -> set[str]:
        return {shard["name"] for shard in json.loads(self.manifest.read_bytes())["shards"]}


def test_a_manifest_is_due_a_moment_after_the_shards_of_the_window(tmp_path):
    window = Window(tmp_path)
    window.shard(b"a")
    assert (window.pane.at, window.settled.at) == (Timestamp(660.001), Timestamp(840.002))


def test_each_pane_names_all_shards_and_writes_only_what_changed(tmp_path):
    window = Window(tmp_path)
    first = window.shard(b"a")
    assert list(window.commit.on_pane(600, window.entries)) == [str(window.manifest)]
    assert list(window.commit.on_pane(600, window.entries)) == []
    second = window.shard(b"b")
    assert list(window.commit.on_pane(600, window.entries)) == [str(window.manifest)]
    assert window.named() == {first, second}


def test_what_another_job_or_a_lost_state_had_written_stays_named(tmp_path):
    before, after = Window(tmp_path), Window(tmp_path, job_name="the next job", transform_fingerprint="t2")
    first = before.shard(b"a")
    list(before.commit.on_pane(600, before.entries))
    second = after.shard(b"b")
    list(after.commit.on_pane(600, after.entries))
    assert after.named() == {first, second}


def test_an_attempt_that_was_given_up_has_not_the_last_word(tmp_path):
    window = Window(tmp_path)
    window.shard(b"a")
    list(window.commit.on_pane(600, window.entries))
    older = window.manifest.read_bytes()
    window.shard(b"b")
    list(window.commit.on_pane(600, window.entries))
    newer = window.manifest.read_bytes()
    window.manifest.write_bytes(older)  # by a worker that the service had given up
    assert list(window.commit.on_settled(600, window.entries)) == [str(window.manifest)]
    assert window.manifest.read_bytes() == newer
    assert window.entries.items == []
    assert list(window.commit.on_settled(600, window.entries)) == []


def test_a_manifest_is_whole_and_complete_after_a_fault_at_any_point(tmp_path):
    window = Window(tmp_path / "0")
    names = {window.shard(b"a"), window.shard(b"b")}
    with faulty_storage(0) as counted:
        list(window.commit.on_pane(600, window.entries))
    for at in range(1, counted.points + 1):
        window = Window(tmp_path / str(at))
        window.shard(b"a")
        list(window.commit.on_pane(600, window.entries))
        window.shard(b"b")
        with faulty_storage(at), pytest.raises(StorageFault):
            list(window.commit.on_pane(600, window.entries))
        assert len(window.named()) in (1, 2)
        list(window.commit.on_pane(600, window.entries))
        assert window.named() == names


def test_shards_of_another_kind_are_not_named_in_one_manifest(tmp_path):
    before, after = Window(tmp_path), Window(tmp_path, compression="gzip")
    before.shard(b"a")
    list(before.commit.on_pane(600, before.entries))
    after.shard(b"b")
    with pytest.raises(HeadraceError, match="another --output"):
        list(after.commit.on_pane(600, after.entries))
