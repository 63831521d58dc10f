"""Names: what formats also parses, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import names
from pipeline.core.errors import UsageError

SPLITS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
RUN_IDS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", fullmatch=True)
COUNTS = st.integers(0, 10**7)


@given(split=SPLITS, index=COUNTS, more=st.integers(1, 10**7))
def test_shard_names_parse_back(split, index, more):
    name = names.ShardName(split, index, index + more)
    assert names.ShardName.parse(str(name)) == name


@given(task=COUNTS, split=SPLITS, sequence=COUNTS)
def test_part_and_archive_names_parse_back(task, split, sequence):
    part = names.PartName(task, split, sequence)
    assert names.PartName.parse(str(part)) == part
    assert names.ArchiveName.parse(str(names.ArchiveName(task))) == names.ArchiveName(task)


@given(shard=COUNTS, digest=st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
def test_names_after_their_content_parse_back(shard, digest):
    name = names.WindowShardName(shard, digest)
    assert names.WindowShardName.parse(str(name)) == name
    assert names.LettersName.parse(str(names.LettersName(digest))) == names.LettersName(digest)


@given(run_id=RUN_IDS)
def test_folders_parse_back(run_id):
    assert names.parse_run_folder(names.run_folder(run_id)) == run_id
    assert names.parse_staging_folder(names.staging_folder(run_id)) == run_id


def test_golden_names():
    assert str(names.ShardName("train", 0, 8)) == "train/part-00000-of-00008.tfrecord"
    assert str(names.PartName(12, "train", 0)) == "task-00012.train.000.tfrecord"
    assert str(names.ArchiveName(12)) == "task-00012.avro"
    assert names.run_folder("a.b") == "run=a.b"
    assert names.staging_folder("a.b") == ".staging-a.b"
    assert names.spill_name("ab12") == "oversized-ab12.bin"
    assert str(names.WindowShardName(3, "0123456789abcdef")) == "part-00003-0123456789abcdef.tfrecord"
    assert str(names.LettersName("0123456789abcdef")) == "letters-0123456789abcdef.avro"
    assert names.aside_name("x.tfrecord") == ".x.tfrecord.aside"


@pytest.mark.parametrize(
    "name",
    [
        "train/part-0-of-8.tfrecord",
        "train/part-000000-of-00008.tfrecord",
        "train/part-00008-of-00008.tfrecord",
        "train/part-00000-of-00000.tfrecord",
        "Train/part-00000-of-00008.tfrecord",
        "../part-00000-of-00008.tfrecord",
        "train/part-00000-of-00008.tfrecord\n",
        "train/part-٠٠٠٠٠-of-00008.tfrecord",
        "x/train/part-00000-of-00008.tfrecord",
        "",
    ],
)
def test_other_shard_names_are_refused(name):
    with pytest.raises(ValueError, match=r"shard|spelt"):
        names.ShardName.parse(name)


@pytest.mark.parametrize("name", ["task-12.train.000.tfrecord", "task-00012.train.0000.tfrecord", "task-00012.avro"])
def test_other_part_names_are_refused(name):
    with pytest.raises(ValueError, match=r"part|spelt"):
        names.PartName.parse(name)


@pytest.mark.parametrize(
    "name",
    [
        "part-3-0123456789abcdef.tfrecord",
        "part-00003-0123456789ABCDEF.tfrecord",
        "part-00003-0123.tfrecord",
        "../part-00003-0123456789abcdef.tfrecord",
        "letters-0123.avro",
        "",
    ],
)
def test_other_names_after_content_are_refused(name):
    for kind in (names.WindowShardName, names.LettersName):
        with pytest.raises(ValueError, match="not the name"):
            kind.parse(name)


@pytest.mark.parametrize("run_id", ["", ".", "..", ".hidden", "a/b", "a b", "x" * 101, "a\n", "é", "a=b", "*"])
def test_bad_run_ids_are_usage_errors(run_id):
    for use in (names.check_run_id, names.run_folder, names.staging_folder):
        with pytest.raises(UsageError, match="run id"):
            use(run_id)
    with pytest.raises(ValueError, match="not a folder"):
        names.parse_run_folder("run=" + run_id)
