"""gs:// end to end, against an emulator: input, output, dead letters, transform, verify, look at dead letters."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest
from fakes.bench import Workbench
from fakes.cli import headrace
from fakes.gcs import storage_emulator

from pipeline.transforms import files

if importlib.util.find_spec("gcp_storage_emulator") is None and not os.environ.get("CI"):
    pytest.skip("gcp-storage-emulator is not installed (pip install -e .[dev])", allow_module_level=True)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """The URI of an empty bucket."""
    with storage_emulator(tmp_path_factory.mktemp("gcs")) as uri:
        yield uri


def put(uri: str, lines: list[bytes]) -> None:
    files.write_bytes(uri, b"".join(line + b"\n" for line in lines))


@pytest.fixture(scope="module")
def ran(bucket, tmp_path_factory, row_schema, transform, rows):
    """Two runs of one name on gs://, the second with other shards, and the same run on local disk."""
    bad = [b'{"id":1.5}', b"\xff\xfe", b'{"id":1,"x":1.0,"w":"' + b"y" * 3000 + b'"}']
    for n in range(3):
        put(f"{bucket}/in/{n}.jsonl", [*rows(100, start=100 * n), *bad])
    put(f"{bucket}/in/_temporary/9.jsonl", rows(1, start=9999))
    local = Workbench(tmp_path_factory.mktemp("local"))
    files.write_bytes(f"{bucket}/schema.pbtxt", row_schema.read_bytes())
    for path in files.list_folder(str(transform)):
        files.write_bytes(f"{bucket}/transform{path.removeprefix(str(transform))}", files.read_bytes(path))
    for n in range(3):
        local.write(f"in/{n}.jsonl", [*rows(100, start=100 * n), *bad])
    common = ("--splits=train=0.8,eval=0.2", "--max_record_bytes=2000", "--threads=2", "--run_id=r", "--shuffle=none")
    where = ("--output", f"{bucket}/out", "--dead_letters", f"{bucket}/dead")
    what = ("--schema", f"{bucket}/schema.pbtxt", "--transform", f"{bucket}/transform")
    for words in (("--min_shards=4",), ("--min_shards=2", "--json")):
        done = headrace("run", "--input", f"{bucket}/in", *what, *where, *common, *words)
        assert done.code == 0, done.err
    on_disk = local.good_run(
        local.folder / "in", "--transform", transform, *common, "--min_shards=2", schema=row_schema
    )
    return done.json, on_disk


def test_the_run_is_the_same_as_on_local_disk(bucket, ran):
    said, local = ran
    assert (said["rows_read"], said["rows_written"], said["rows_dead_lettered"]) == (309, 300, 9)
    manifest = json.loads(files.read_bytes(said["manifest"]))
    assert manifest["shards"] == local.manifest["shards"]
    for shard in manifest["shards"]:
        remote = files.read_bytes(f"{bucket}/out/run=r/{shard['name']}")
        assert remote == (local.folder / shard["name"]).read_bytes()


def test_nothing_else_is_left(bucket, ran):
    _, local = ran
    expected = {f"run=r/{name}" for name in local.contents()} | {"LATEST"}
    assert {uri.removeprefix(f"{bucket}/out/") for uri in files.list_folder(f"{bucket}/out")} == expected
    dead = sorted(uri.rsplit("/", 1)[1] for uri in files.list_folder(f"{bucket}/dead"))
    assert [name for name in dead if name.endswith(".avro")]
    assert sum(name.endswith(".bin") for name in dead) == 3
    assert files.read_bytes(f"{bucket}/out/LATEST") == b"r\n"


def test_verify(bucket, ran):
    done = headrace("verify", f"{bucket}/out", "--json")
    assert (done.code, done.json["run_id"]) == (0, "r")
    put(f"{bucket}/copy/x", [b"x"])
    assert headrace("verify", f"{bucket}/copy").code == 2


def test_dead_letters(bucket, ran):
    done = headrace("dlq", "summary", f"{bucket}/dead", "--json")
    assert done.code == 0
    for reason in ("wrong_type", "invalid_utf8", "record_too_large"):
        assert reason in done.out
    shown = headrace("dlq", "show", f"{bucket}/dead", "--reason=wrong_type", "--limit=1")
    assert f"{bucket}/in/" in shown.out.replace("\n", "")


def test_a_transform_on_gs_is_used_by_another_run(bucket, ran, row_schema):
    where = ("--output", f"{bucket}/out", "--dead_letters", f"{bucket}/dead")
    what = ("--schema", row_schema, "--transform", f"{bucket}/out/run=r/transform_fn")
    done = headrace("run", "--input", f"{bucket}/in/*.jsonl", *what, *where, "--run_id=again", "--json")
    assert done.code == 0, done.err
    manifest = json.loads(files.read_bytes(done.json["manifest"]))
    assert manifest["previous_run_id"] == "r"
    assert manifest["transform_fingerprint"]


def test_what_is_not_there_is_told(bucket, row_schema, tmp_path):
    where = ("--output", f"{bucket}/o", "--dead_letters", f"{bucket}/d", "--schema", row_schema)
    done = headrace("run", "--input", f"{bucket}/nothing/*.jsonl", *where)
    assert (done.code, "matches no file" in done.err) == (2, True)
    done = headrace("run", "--input", f"{bucket}/in", *where[2:], "--output", "gs://headrace-no-such-bucket/o")
    assert done.code == 2
    assert "cannot be written to" in done.err
    assert files.list_folder(f"{bucket}/o") == []


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "a[b]x", "ünï"],  # the emulator does not escape ? and # in its links
)
def test_names_are_taken_as_they_are(bucket, name):
    uri = f"{bucket}/names/{name}/x.txt"
    files.write_bytes(uri, b"abc")
    files.write_bytes(f"{bucket}/names/axb/y.txt", b"other")
    assert files.read_bytes(uri) == b"abc"
    assert files.size_of(uri) == 3
    assert files.list_folder(f"{bucket}/names/{name}") == [uri]
    files.rename(uri, f"{uri}.moved")
    assert files.size_of(uri) is None
    with pytest.raises(FileNotFoundError):
        files.rename(uri, f"{uri}.moved")
    with pytest.raises(FileNotFoundError):
        files.read_bytes(uri)
    files.delete([uri, f"{uri}.moved"])
    assert files.list_folder(f"{bucket}/names/{name}") == []
    assert files.read_bytes(f"{bucket}/names/axb/y.txt") == b"other"
