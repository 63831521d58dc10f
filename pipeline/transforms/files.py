"""Storage: local paths by the standard library, everything with a scheme by Beam's filesystems.

Local paths are taken literally (Beam's own local filesystem treats brackets in a path as a pattern).
Every fault is an OSError, so that callers raise and runners retry.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from pipeline.core.records import InputFile

_REMOTE = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COPY_BYTES = 8 << 20


def is_remote(uri: str) -> bool:
    """Whether ``uri`` has a scheme such as gs://."""
    return bool(_REMOTE.match(uri))


def join(folder: str, *names: str) -> str:
    """``folder`` and ``names`` with single slashes between them."""
    return "/".join([folder.rstrip("/") or "/", *names])


@contextlib.contextmanager
def _storage_fault(what: str, uri: str) -> Iterator[None]:
    """Turn the many exception types of cloud clients into OSError that names the object."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(f"cannot {what} {uri}: {type(error).__name__}: {error}") from error


def open_read(uri: str) -> BinaryIO:
    """A seekable file of the raw bytes of ``uri``; raises OSError."""
    if not is_remote(uri):
        try:
            return open(uri, "rb")
        except NotADirectoryError as error:  # what would lie below a file does not exist
            raise FileNotFoundError(error.errno, error.strerror, uri) from None
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    with _storage_fault("read", uri):
        stream = FileSystems.open(uri, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast(BinaryIO, _RemoteFile(stream, uri))


class _RemoteFile:
    """A remote file being read, whose faults are OSErrors too."""

    def __init__(self, stream: BinaryIO, uri: str) -> None:
        self._stream, self._uri = stream, uri

    def read(self, size: int = -1) -> bytes:
        with _storage_fault("read", self._uri):
            return self._stream.read(size)

    def readline(self, size: int = -1) -> bytes:
        with _storage_fault("read", self._uri):
            return self._stream.readline(size)

    def __enter__(self) -> _RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:  # seek, tell, close
        return getattr(self._stream, name)


@contextlib.contextmanager
def create(uri: str) -> Iterator[BinaryIO]:
    """Write ``uri`` so that it appears whole or not at all, replacing what was there; raises OSError.

    Locally that is a temporary name and a rename. Object stores show an object only once it is
    closed; there, an attempt that fails half-way may leave a cut object, so names are trusted only
    after this has returned.
    """
    if is_remote(uri):
        from apache_beam.io.filesystem import CompressionTypes
        from apache_beam.io.filesystems import FileSystems

        with _storage_fault("write", uri):
            stream = FileSystems.create(uri, compression_type=CompressionTypes.UNCOMPRESSED)
        yield cast(BinaryIO, stream)
        with _storage_fault("write", uri):
            stream.close()
        return
    os.makedirs(os.path.dirname(uri) or ".", exist_ok=True)
    aside = f"{uri}.{uuid.uuid4().hex}.tmp"  # two attempts at once must not share it; never part of a result
    try:
        with open(aside, "wb") as stream:
            yield stream
        os.replace(aside, uri)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)


def write_bytes(uri: str, data: bytes) -> None:
    """Write ``data`` to ``uri`` in one step; raises OSError."""
    with create(uri) as stream:
        stream.write(data)


def read_bytes(uri: str) -> bytes:
    """The whole of ``uri``; raises FileNotFoundError where it is missing, else OSError."""
    if is_remote(uri) and size_of(uri) is None:
        raise FileNotFoundError(uri)
    with open_read(uri) as stream:
        return stream.read()


def size_of(uri: str) -> int | None:
    """Size in bytes, or None where there is no such file; raises OSError for any other trouble."""
    if not is_remote(uri):
        return os.path.getsize(uri) if os.path.isfile(uri) else None
    from apache_beam.io.filesystems import FileSystems

    with _storage_fault("look at", uri):
        found = FileSystems.match([_literal(uri)])[0].metadata_list
    return next((m.size_in_bytes for m in found if m.path == uri), None)


def list_files(pattern: str) -> list[InputFile]:
    """Files that a glob, or a folder (recursively, hidden names left out), or a path names, sorted by URI."""
    found = _list_remote(pattern) if is_remote(pattern) else _list_local(pattern)
    return sorted(found)


def _list_local(pattern: str) -> list[InputFile]:
    if os.path.isfile(pattern):
        names = [pattern]
    elif os.path.isdir(pattern):
        names = [
            os.path.join(folder, name)
            for folder, found in _walk(pattern)
            for name in found
            if not name.startswith((".", "_")) and not _hidden(os.path.relpath(folder, pattern))
        ]
    else:
        names = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
    stats = [(name, os.stat(name)) for name in names]
    return [InputFile(name, stat.st_size, f"mtime={stat.st_mtime_ns}") for name, stat in stats]


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Folders below ``root`` and their files, through symbolic links, each folder once. Raises OSError."""
    seen: set[str] = set()
    for folder, below, found in os.walk(root, followlinks=True, onerror=_raise):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below.sort()
        yield folder, found


def _raise(error: OSError) -> None:
    raise error


def _hidden(relative: str) -> bool:
    return any(part.startswith(("_", ".")) and part != "." for part in relative.split(os.sep))


def _list_remote(pattern: str) -> list[InputFile]:
    from apache_beam.io.filesystems import FileSystems

    with _storage_fault("list", pattern):
        found = FileSystems.match([pattern])[0].metadata_list
        if not found and not re.search(r"[*?\[]", pattern):
            found = [
                m
                for m in FileSystems.match([pattern.rstrip("/") + "/**"])[0].metadata_list
                if not _hidden(m.path[len(pattern.rstrip("/")) + 1 :].replace("/", os.sep))
            ]
    return [
        InputFile(m.path, m.size_in_bytes, f"updated={m.last_updated_in_seconds}")
        for m in found
        if not m.path.endswith("/")
    ]


def list_folder(folder: str) -> list[str]:
    """Every file below ``folder``, hidden or not, sorted; empty where there is none."""
    if is_remote(folder):
        from apache_beam.io.filesystems import FileSystems

        with _storage_fault("list", folder):
            found = FileSystems.match([_literal(folder.rstrip("/")) + "/**"])[0].metadata_list
        return sorted(m.path for m in found)
    return sorted(os.path.join(at, name) for at, _, files in os.walk(folder) for name in files)


def rename(source: str, target: str) -> None:
    """Move a file, replacing the target; raises FileNotFoundError where the source is missing, else OSError."""
    if not is_remote(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(source, target)
        return
    from apache_beam.io.filesystems import FileSystems

    if size_of(source) is None:
        raise FileNotFoundError(source)
    with _storage_fault("rename", source):
        FileSystems.rename([source], [target])


def delete(uris: list[str]) -> None:
    """Delete files; those already gone are fine. Raises OSError."""
    for uri in uris:
        if is_remote(uri):
            from apache_beam.io.filesystems import FileSystems

            if size_of(uri) is not None:
                with _storage_fault("delete", uri):
                    FileSystems.delete([_literal(uri)])
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(uri)


def delete_folder(folder: str) -> None:
    """Delete a folder and all below it; one already gone is fine. Raises OSError."""
    if is_remote(folder):
        delete(list_folder(folder))
    elif os.path.isdir(folder):
        shutil.rmtree(folder)


def copy_stream(source: BinaryIO, target: BinaryIO) -> Iterator[bytes]:
    """Copy the rest of ``source`` to ``target`` in pieces of 8 MiB, yielding each so that it can be summed."""
    while piece := source.read(_COPY_BYTES):
        target.write(piece)
        yield piece


def _literal(uri: str) -> str:
    """``uri`` with glob characters in brackets, so that Beam matches just it."""
    return re.sub(r"([\[*?])", r"[\1]", uri)


@contextlib.contextmanager
def local_copy(folder: str) -> Iterator[str]:
    """``folder`` as a local folder: itself, or a temporary copy of what lies below a remote one."""
    if not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as local:
        for uri in list_folder(folder):
            write_bytes(join(local, uri[len(folder.rstrip("/")) + 1 :]), read_bytes(uri))
        yield local


@dataclass(frozen=True)
class Writable:
    """Whether a folder can be written to, and why not."""

    ok: bool
    why: str = ""


def check_writable(folder: str) -> Writable:
    """Write and delete a small file in ``folder`` (made if missing), so that trouble shows before any work."""
    probe = join(folder, ".headrace-probe")  # one name: what a fault leaves behind, the next probe takes away
    try:
        write_bytes(probe, b"")
        delete([probe])
    except OSError as error:
        return Writable(False, str(error))
    return Writable(True)
