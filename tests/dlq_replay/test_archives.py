"""Which archives are meant, and reading them one after the other."""

import pytest

from dlq_replay.archives import Damage, read_letters, resolve_archives
from pipeline.core.errors import UsageError
from pipeline.core.records import InputFile
from tests.dlq_replay.helpers import archive_of, letter, opener

TREE = [
    "dead/_replay/parked/replay=1/lane-00-00000000.avro",
    "dead/run=a/task-00000.avro",
    "dead/run=a/oversized-1.bin",
    "dead/run=b/task-00000.avro",
    "odd.name",
]


def list_files(pattern):
    return [InputFile(name, 1) for name in TREE if name == pattern or name.startswith(pattern + "/")]


def resolved(patterns, list_files=list_files):
    return [file.uri for file in resolve_archives(patterns, list_files)]


def test_what_replays_wrote_is_read_only_where_it_is_named():
    assert resolved(["dead"]) == ["dead/run=a/task-00000.avro", "dead/run=b/task-00000.avro"]
    assert resolved(["dead/_replay/parked"]) == ["dead/_replay/parked/replay=1/lane-00-00000000.avro"]


def test_folders_files_and_overlaps_name_each_archive_once():
    expected = ["dead/run=a/task-00000.avro", "dead/run=b/task-00000.avro"]
    assert resolved(["dead"]) == expected
    assert resolved(["dead/run=b", "dead", expected[0]]) == expected


def test_a_file_given_by_name_is_taken_whatever_it_is_called():
    assert resolved(["odd.name"]) == ["odd.name"]


@pytest.mark.parametrize(
    ("pattern", "says"), [("nowhere", "no file at all"), ("dead/run=a/oversized-1.bin/x", "no file at all")]
)
def test_a_pattern_that_names_none_is_a_usage_error(pattern, says):
    with pytest.raises(UsageError, match=says):
        resolve_archives(["dead", pattern], list_files)


def test_a_folder_without_archives_says_what_it_holds():
    with pytest.raises(UsageError, match=r"1 files, none of which ends in \.avro"):
        resolve_archives(["d"], lambda _: [InputFile("d/x.bin", 1)])


def test_damage_names_its_archive_and_reading_goes_on():
    files = {"a": archive_of([letter(0)]), "b": b"junk", "c": archive_of([letter(1)])}
    assert list(read_letters(files, opener(files))) == [letter(0), Damage("b", 0, "not an Avro file"), letter(1)]


def test_a_missing_file_is_a_storage_fault():
    with pytest.raises(FileNotFoundError):
        list(read_letters(["gone"], opener({})))
