"""Checks a committed run or window: every shard, checksum and count against the manifest, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import google_crc32c

from pipeline.core.compression import COMPRESSIONS, CompressedDataError, Compression, Decompressed
from pipeline.core.errors import UsageError
from pipeline.core.framing import HEADER_BYTES, CorruptRecordError, Frames, scan_frames
from pipeline.core.json_fields import crc_text
from pipeline.core.manifest import Manifest, ShardEntry
from pipeline.core.names import MANIFEST, WindowName
from pipeline.core.records import Json, Opener
from pipeline.core.text import printable
from pipeline.core.windows import WindowManifest


@dataclass(frozen=True, slots=True)
class Checked:
    """What parsing a block of records gave: the rows in them, and (index, what is wrong) of those that do not parse."""

    rows: int
    bad: tuple[tuple[int, str], ...] = ()


CheckRecords = Callable[[list[bytes]], Checked]
"""Parses the payloads of a block of records by what the manifest says is in them."""

_BAD_RECORDS_SHOWN = 10
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with ``file`` (relative to the run), at byte ``offset`` where that is known.

    A warning does not make the run bad: readers, who trust the manifest, will not notice.
    """

    file: str
    what: str
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at byte {self.offset}"
        return f"{printable(self.file, 300)}{place}: {self.what}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verifying found. ``shards``, ``rows``, ``records`` and ``size_bytes`` count good shards only.

    ``run_id`` is the name of the window's folder where it is a window.
    """

    run_id: str
    findings: tuple[Finding, ...]
    shards: int = 0
    rows: int = 0
    records: int = 0
    size_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether the run can be trusted: no finding, warnings aside."""
        return all(finding.warning for finding in self.findings)

    def as_json(self) -> Json:
        """The report for ``--json``."""
        return {
            "ok": self.ok,
            "run_id": self.run_id,
            "shards": self.shards,
            "rows": self.rows,
            "records": self.records,
            "bytes": self.size_bytes,
            "findings": [
                {"file": f.file, "offset": f.offset, "what": f.what, "warning": f.warning} for f in self.findings
            ],
        }


def verify_run(
    run_dir: str,
    list_files: Callable[[str], Iterable[str]],
    open_file: Opener,
    *,
    progress: Callable[[int], None] | None = None,
    check_records: CheckRecords | None = None,
) -> VerifyReport:
    """Verifies the run, or the window of a stream, in ``run_dir``.

    ``list_files(run_dir)`` gives the URIs of all files below it. ``progress`` is called with the bytes read since
    it was last called. Whatever is wrong with the run is a finding; only storage faults are raised (OSError).
    On a busy machine: 1.2 M records of 80 bytes, or 1.4 GB of large ones, a second.
    """
    folder = run_dir.rstrip("/") + "/"
    manifest = _read_manifest(folder, open_file)
    if isinstance(manifest, Finding):
        return VerifyReport(window_in(run_dir) or "", (manifest,))
    present = sorted(uri[len(folder) :] for uri in list_files(run_dir) if uri.startswith(folder))
    findings: list[Finding] = []
    good: list[ShardEntry] = []
    for shard in manifest.shards:
        found = [Finding(shard.name, "missing: the manifest names it")]
        if shard.name in set(present):
            with open_file(folder + shard.name) as stream:
                found = list(
                    _verify_shard(
                        shard,
                        _Summed(stream, progress),
                        compression=cast(Compression, manifest.compression),
                        check_records=check_records,
                    )
                )
        findings += found
        good += [shard] if not found else []
    findings += _strangers(manifest, present)
    return VerifyReport(
        manifest.name,
        tuple(findings),
        shards=len(good),
        rows=sum(shard.rows for shard in good),
        records=sum(shard.records for shard in good),
        size_bytes=sum(shard.size_bytes for shard in good),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """What a manifest says there is: the run's id or the window's name, and its shards."""

    name: str
    shards: tuple[ShardEntry, ...]
    splits: frozenset[str]
    compression: str


def window_in(folder: str) -> str | None:
    """The name of the window that a folder is named after; None for any other name."""
    name = folder.rstrip("/").rpartition("/")[2]
    try:
        return str(WindowName.parse(name))
    except ValueError:
        return None


def _read_manifest(folder: str, open_file: Opener) -> _Named | Finding:
    try:
        with open_file(folder + MANIFEST) as stream:
            named = _named(stream.read(), window_in(folder))
    except FileNotFoundError:
        kind = "window" if window_in(folder) else "run"
        return Finding(MANIFEST, f"missing: this is not a committed {kind} (no manifest, no {kind})")
    except UsageError as error:
        return Finding(MANIFEST, str(error).removeprefix(f"{MANIFEST}: "))
    if named.compression not in COMPRESSIONS:
        return Finding(MANIFEST, f"shards are compressed with {printable(named.compression, 40)}: cannot be verified")
    return named


def _named(data: bytes, window: str | None) -> _Named:
    """What the manifest ``data`` names. Raises UsageError for a damaged one, and for that of another window."""
    if window is None:
        run = Manifest.from_json(data, MANIFEST)
        return _Named(run.run_id, run.shards, frozenset(name for name, _ in run.splits), run.compression)
    manifest = WindowManifest.from_json(data, MANIFEST)
    if str(manifest.window) != window:
        raise UsageError(f"{MANIFEST}: it is that of {manifest.window}, in the folder of {window}")
    return _Named(window, manifest.shards, frozenset(), manifest.compression)


def _verify_shard(
    shard: ShardEntry, stream: _Summed, *, compression: Compression, check_records: CheckRecords | None
) -> Iterator[Finding]:
    """What is wrong with one shard: damage first, since it says where; then what only the whole file shows."""
    records, rows, damaged, bad = 0, 0, False, 0
    where = "" if compression == "none" else " (in the decompressed stream)"
    try:
        plain = Decompressed(cast(BinaryIO, stream), compression)
        for frames in scan_frames(cast(BinaryIO, plain)):
            records += len(frames.starts)
            checked = _checked(frames, check_records) if check_records else Checked(0)
            rows, bad = rows + checked.rows, bad + len(checked.bad)
            for offset, what in checked.bad[: max(_BAD_RECORDS_SHOWN - bad + len(checked.bad), 0)]:
                yield Finding(shard.name, what + where, offset)
    except (CorruptRecordError, CompressedDataError) as error:
        damaged = True
        yield Finding(shard.name, error.what + (where if isinstance(error, CorruptRecordError) else ""), error.offset)
    if bad > _BAD_RECORDS_SHOWN:
        yield Finding(shard.name, f"{bad - _BAD_RECORDS_SHOWN} more bad records")
    stream.drain()
    if stream.size_bytes != shard.size_bytes:
        yield Finding(shard.name, f"{stream.size_bytes} bytes long, but the manifest says {shard.size_bytes}")
    elif not damaged and stream.crc32c != shard.crc32c:
        found, wanted = crc_text(stream.crc32c), crc_text(shard.crc32c)
        yield Finding(shard.name, f"its crc32c is {found}, but the manifest says {wanted}: not the file of this run")
    if not damaged and records != shard.records:
        yield Finding(shard.name, f"{records} records, but the manifest says {shard.records}")
    if check_records and not damaged and not bad and rows != shard.rows:
        yield Finding(shard.name, f"its records hold {rows} rows, but the manifest says {shard.rows}")


def _checked(frames: Frames, check_records: CheckRecords) -> Checked:
    """The check of a block of records, with offsets in the file in place of indices."""
    payloads = [frames.data[start:end] for start, end in zip(frames.starts, frames.ends, strict=True)]
    checked = check_records(payloads)
    bad = tuple((frames.base + frames.starts[index] - HEADER_BYTES, what) for index, what in checked.bad)
    return Checked(checked.rows, bad)


def _strangers(manifest: _Named, present: Iterable[str]) -> Iterator[Finding]:
    """Files that a reader who globs instead of reading the manifest would take for shards of the run."""
    named = {shard.name for shard in manifest.shards}
    folders = tuple(f"{name}/" for name in manifest.splits | {shard.split for shard in manifest.shards})
    for name in present:
        if name not in named and (name.startswith(folders) or name.endswith(".tfrecord")):
            yield Finding(name, "not named by the manifest; readers that list files would read it", warning=True)


class _Summed:
    """A stream being read, with the size and checksum of what has been read."""

    def __init__(self, stream: BinaryIO, progress: Callable[[int], None] | None):
        self._stream, self._progress = stream, progress
        self.size_bytes = self.crc32c = 0

    def read(self, size: int) -> bytes:
        data: Any = self._stream.read(size)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        self.size_bytes += len(data)
        if self._progress is not None:
            self._progress(len(data))
        return cast(bytes, data)

    def drain(self) -> None:
        while self.read(_PIECE_BYTES):
            pass
