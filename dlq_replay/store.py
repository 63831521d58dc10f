"""Where a ledger lies: small files that are made once and never changed, on local disk or Cloud Storage.

The one operation that matters is ``create``: of several who make a file of one name, exactly one succeeds.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any, Protocol

from pipeline.core.errors import UsageError
from pipeline.transforms import files


class Store(Protocol):
    """Small files by relative name."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False where there is one already. Raises OSError."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content; None where there is no such file. Raises OSError."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files below ``folder``, sorted. Raises OSError."""
        ...


class NoStore:
    """No ledger: nothing is done, and nothing can be written. For a dry run of what has none yet."""

    def create(self, name: str, data: bytes) -> bool:
        """Nothing is made. Raises OSError."""
        raise OSError("there is no ledger to write to")

    def read(self, name: str) -> bytes | None:
        """Nothing is there."""
        return None

    def names(self, folder: str) -> list[str]:
        """Nothing is there."""
        return []


class FolderStore:
    """A folder on local disk (or on a file system that has hard links, or at least exclusive creation)."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def create(self, name: str, data: bytes) -> bool:
        """See ``Store``. A hard link is made to a finished file, so that nobody reads half of one."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.parent / f".{uuid.uuid4().hex}.tmp"
        try:
            with aside.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(aside, target)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
        return True

    def read(self, name: str) -> bytes | None:
        """See ``Store``."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        try:
            found = os.listdir(self._folder / folder)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name}" for name in found if not name.startswith("."))


class BucketStore:
    """A prefix of a Cloud Storage bucket; creation is exclusive by ``if_generation_match=0``."""

    def __init__(self, uri: str, client: Any = None) -> None:
        self._bucket_name, _, prefix = uri.removeprefix("gs://").rstrip("/").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client

    def create(self, name: str, data: bytes) -> bool:
        """See ``Store``. Where our own first try went through unheard, the retry is refused: then ours is there."""
        from google.api_core.exceptions import PreconditionFailed

        try:
            with _as_storage_fault(name):
                self._blob(name).upload_from_string(data, "application/jsonl", if_generation_match=0, timeout=60)
        except PreconditionFailed:
            return self.read(name) == data
        return True

    def read(self, name: str) -> bytes | None:
        """See ``Store``."""
        from google.api_core.exceptions import NotFound

        try:
            with _as_storage_fault(name):
                return bytes(self._blob(name).download_as_bytes(timeout=60))
        except NotFound:
            return None

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        with _as_storage_fault(folder):
            found = [blob.name for blob in self._bucket().list_blobs(prefix=f"{self._prefix}{folder}/", timeout=60)]
        return sorted(name[len(self._prefix) :] for name in found)

    def _bucket(self) -> Any:
        if self._client is None:
            from google.cloud import storage

            with _as_storage_fault(self._bucket_name):
                self._client = storage.Client()
        return self._client.bucket(self._bucket_name)

    def _blob(self, name: str) -> Any:
        return self._bucket().blob(self._prefix + name)


@contextlib.contextmanager
def _as_storage_fault(name: str) -> Any:
    """Whatever the client raises becomes OSError, but for the two answers that are no faults."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    try:
        yield
    except (NotFound, PreconditionFailed, OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(f"cannot reach {name} in the ledger: {type(error).__name__}: {error}") from error


def open_store(folder: str) -> Store:
    """The store at ``folder``, local or gs://. Raises UsageError for any other place."""
    if folder.startswith("gs://"):
        return BucketStore(folder)
    if files.is_remote(folder):
        raise UsageError(
            f"a ledger cannot lie at {folder}: it needs files that only one can make; use gs:// or a folder"
        )
    return FolderStore(folder)
