"""Storage on local disk: literal names, whole files or none, faults as OSError."""

from __future__ import annotations

import pytest

from pipeline.transforms import files

NAMES = ["plain", "with space", "a[b]*c?", "ünï", "a#b=c", "-dash"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_as_they_are(tmp_path, name):
    uri = files.join(str(tmp_path), name, "x.jsonl")
    files.write_bytes(uri, b"abc")
    assert files.read_bytes(uri) == b"abc"
    assert files.size_of(uri) == 3
    assert [found.uri for found in files.list_files(uri)] == [uri]
    assert [found.uri for found in files.list_files(files.join(str(tmp_path), name))] == [uri]
    moved = files.join(str(tmp_path), "moved", name)
    files.rename(uri, moved)
    assert (files.size_of(uri), files.list_folder(str(tmp_path))) == (None, [moved])
    files.delete([uri, moved])
    assert files.list_folder(str(tmp_path)) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    uri = str(tmp_path / "f")
    files.write_bytes(uri, b"old")
    with pytest.raises(KeyError):
        _half_written(uri)
    assert files.read_bytes(uri) == b"old"
    with files.create(uri) as stream:
        stream.write(b"new")
        assert files.read_bytes(uri) == b"old"
    assert files.list_folder(str(tmp_path)) == [uri]
    assert files.read_bytes(uri) == b"new"


def _half_written(uri):
    with files.create(uri) as stream:
        stream.write(b"half")
        raise KeyError


def test_two_writers_at_once_do_not_mix(tmp_path):
    uri = str(tmp_path / "f")
    with files.create(uri) as one, files.create(uri) as two:
        one.write(b"1" * 10)
        two.write(b"2" * 5)
    assert files.read_bytes(uri) in (b"1" * 10, b"2" * 5)
    assert files.list_folder(str(tmp_path)) == [uri]


def test_folders_are_listed_without_hidden_files_for_input_and_with_them_for_tidying(tmp_path):
    for name in ("b/2", "a/1", ".hidden", "_temporary/x", "b/_SUCCESS", ".staging/y"):
        files.write_bytes(files.join(str(tmp_path), name), b"")
    listed = [found.uri.removeprefix(f"{tmp_path}/") for found in files.list_files(str(tmp_path))]
    assert listed == ["a/1", "b/2"]
    assert len(files.list_folder(str(tmp_path))) == 6


def test_an_input_file_has_size_and_version(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    (found,) = files.list_files(str(path))
    assert (found.size_bytes, found.version) == (3, f"mtime={path.stat().st_mtime_ns}")


def test_what_is_missing(tmp_path):
    gone = str(tmp_path / "gone")
    assert files.size_of(gone) is None
    assert files.list_files(gone) == []
    assert files.list_folder(gone) == []
    files.delete([gone])
    files.delete_folder(gone)
    for attempt in (
        lambda: files.read_bytes(gone),
        lambda: files.rename(gone, gone + "2"),
        lambda: files.open_read(gone),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()


def test_check_writable_leaves_nothing_and_says_why_not(tmp_path):
    assert files.check_writable(str(tmp_path / "new" / "folder")).ok
    assert files.list_folder(str(tmp_path)) == []
    (tmp_path / "file").write_bytes(b"")
    refused = files.check_writable(str(tmp_path / "file" / "below"))
    assert not refused.ok
    assert "file" in refused.why


@pytest.mark.parametrize(
    ("folder", "names", "joined"),
    [("a", ["b"], "a/b"), ("a/", ["b", "c"], "a/b/c"), ("gs://b/", ["c"], "gs://b/c"), ("a/", [], "a")],
)
def test_join(folder, names, joined):
    assert files.join(folder, *names) == joined


def test_exceptions_of_clients_become_storage_faults():
    with pytest.raises(OSError, match="cannot read x://y: KeyError"), files._storage_fault("read", "x://y"):
        raise KeyError("z")
    with pytest.raises(MemoryError), files._storage_fault("read", "x://y"):
        raise MemoryError


def test_copy_stream_copies_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_COPY_BYTES", 3)
    (tmp_path / "f").write_bytes(b"abcdefgh")
    with (tmp_path / "f").open("rb") as source, (tmp_path / "g").open("wb") as target:
        assert list(files.copy_stream(source, target)) == [b"abc", b"def", b"gh"]
    assert (tmp_path / "g").read_bytes() == b"abcdefgh"
