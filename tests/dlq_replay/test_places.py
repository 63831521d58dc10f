"""Where replays write and what they read: one ledger for an archive however it is named, nothing of their own."""

from datetime import datetime, timedelta, timezone

import pytest

from dlq_replay.places import Places, common_root, is_own, older_than, root_of, spelt_one_way, written_at
from pipeline.core.errors import UsageError
from pipeline.core.records import InputFile

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("archive", "root"),
    [
        ("gs://b/dead/run=1/attempt=2/task-00000.avro", "gs://b/dead"),
        ("gs://b/dead/run=1/x.avro", "gs://b/dead"),
        ("gs://b/dead/x.avro", "gs://b/dead"),
        ("gs://b/run=3/dead/run=1/x.avro", "gs://b/run=3/dead"),
        ("gs://b/dead/_replay/parked/replay=1/lane-00-00000000.avro", "gs://b/dead"),
        ("/data/dead/run=1/x.avro", "/data/dead"),
        ("/x.avro", "/"),
        ("x.avro", "."),
        ("run=1/x.avro", "."),
        ("dead/run=/x.avro", "dead/run="),
    ],
)
def test_the_root_is_the_folder_that_holds_the_runs(archive, root):
    assert root_of(archive) == root


def test_archives_of_two_roots_have_no_common_one():
    assert common_root(["d/run=1/a.avro", "d/run=2/b.avro", "d/_replay/parked/c.avro"]) == "d"
    with pytest.raises(UsageError, match="--ledger"):
        common_root(["d/run=1/a.avro", "e/run=1/a.avro"])


def test_everything_written_lies_in_one_folder_of_its_own():
    places = Places("gs://b/dead/")
    for uri in (
        places.ledger,
        places.parked,
        places.letters("r"),
        places.rows("r"),
        places.plan("r"),
        places.report("r"),
    ):
        assert uri.startswith("gs://b/dead/_replay/")
        assert is_own(uri)
        assert root_of(f"{uri}/x.avro") == "gs://b/dead"
    assert Places("/").ledger == "/_replay/ledger"
    assert not is_own("gs://b/dead/my_replay/x.avro")


def test_only_files_older_than_the_start_are_read():
    before, after = NOON - timedelta(seconds=1), NOON + timedelta(seconds=1)
    files = [
        InputFile("old", 1, f"mtime={int(before.timestamp() * 1e9)}"),
        InputFile("new", 1, f"mtime={int(after.timestamp() * 1e9)}"),
        InputFile("old in a bucket", 1, f"updated={before.timestamp()}"),
        InputFile("new in a bucket", 1, f"updated={after.timestamp()}"),
        InputFile("unknown", 1, ""),
        InputFile("odd", 1, "mtime=x"),
    ]
    assert older_than(files, NOON) == (["old", "old in a bucket", "unknown", "odd"], ["new", "new in a bucket"])
    assert written_at(InputFile("huge", 1, "updated=1e300")) is None


def test_links_lead_to_one_spelling(tmp_path):
    (tmp_path / "dead").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "dead")
    assert spelt_one_way(f"{tmp_path}/link/x.avro") == f"{tmp_path.resolve()}/dead/x.avro"
    assert spelt_one_way("gs://b/../x") == "gs://b/../x"
