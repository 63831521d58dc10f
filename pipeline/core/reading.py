"""Which records each reader reads: runs and windows found through their manifests, shards dealt to readers. Pure."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pipeline.core.errors import UsageError
from pipeline.core.json_fields import Fields, load_json
from pipeline.core.manifest import Manifest
from pipeline.core.names import LATEST, MANIFEST, WindowName, run_folder
from pipeline.core.records import Json
from pipeline.core.text import printable

_WINDOW_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*\.tfrecord")
_MAX_BUFFER_BYTES, _MAX_BUFFER_ROWS = 64 << 20, 65_536


@dataclass(frozen=True)
class SourceShard:
    """A shard as a reader sees it; ``uri`` is where it lies."""

    uri: str
    split: str
    rows: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class Source:
    """What a manifest tells a reader: how records are to be read, and which shards there are. ``where`` names it."""

    where: str
    feature_spec: Json
    compression: str
    shards: tuple[SourceShard, ...]

    @classmethod
    def of_run(cls, manifest: Manifest, folder: str) -> Source:
        """The shards of a committed run in ``folder``."""
        shards = tuple(
            SourceShard(_join(folder, shard.name), shard.split, shard.rows, shard.records, shard.size_bytes)
            for shard in manifest.shards
        )
        described = {"layout": {"name": manifest.layout, "rows_per_record": 1}} | manifest.feature_spec
        return cls(_join(folder, MANIFEST), described, manifest.compression, shards)

    @classmethod
    def of_window(cls, data: bytes, folder: str) -> Source:
        """The shards of a committed window in ``folder``: the fields of a run's manifest that reading needs.

        Raises UsageError for a damaged one. A shard that names no split is of ``train``.
        """
        where = _join(folder, MANIFEST)
        fields = Fields(load_json(data, where), where)
        shards = []
        for item in fields.objects("shards"):
            name = item.text("name")
            if _WINDOW_SHARD.fullmatch(name) is None:  # the name becomes a path: one like ../x must go no further
                raise UsageError(f"{where}: {printable(name, 100)!r} cannot be a shard's name. The file is damaged")
            split = item.optional_text("split") or "train"
            counts = (item.count("rows"), item.count("records"), item.count("bytes"))
            shards.append(SourceShard(_join(folder, name), split, *counts))
        return cls(where, fields.json("feature_spec"), fields.text("compression"), tuple(shards))

    def of_split(self, split: str) -> tuple[SourceShard, ...]:
        """The shards of one data split."""
        return tuple(shard for shard in self.shards if shard.split == split)


@dataclass(frozen=True)
class Portion:
    """What a reader reads of a shard: the records ``index``, ``index + of``, ``index + 2 * of``, ... of it."""

    shard: SourceShard
    index: int = 0
    of: int = 1

    @property
    def records(self) -> int:
        """How many records that is."""
        return len(range(self.index, self.shard.records, self.of))

    def rows(self, rows_per_record: int) -> int | None:
        """How many rows that is; None where it is not known (which records of a shard are short is not)."""
        if self.of == 1:
            return self.shard.rows
        return self.records if rows_per_record == 1 else None


def deal(shards: Sequence[SourceShard], *, num_readers: int, reader_index: int) -> tuple[Portion, ...]:
    """The portions of one reader. Over all ``num_readers`` of them every record is read exactly once.

    Whole shards where there are enough of them, balanced by rows (no reader has more than another by more than
    one shard). Otherwise each shard goes to as many readers as its size is worth, which take turns in its records.
    Raises UsageError for a reader that does not exist, and for more readers than there are records.
    """
    if num_readers < 1 or not 0 <= reader_index < num_readers:
        raise UsageError(f"reader {reader_index} of {num_readers}: the index must lie in [0, num_readers)")
    records = sum(shard.records for shard in shards)
    if num_readers > records:
        raise UsageError(
            f"{num_readers} readers are more than the {records} records that there are, so some would get nothing; "
            "use fewer readers, or write smaller records (--layout=rows, or a smaller --rows_per_record)"
        )
    if num_readers <= len(shards):
        dealt = _deal_whole(shards, num_readers)[reader_index]
        return tuple(Portion(shards[place]) for place in dealt)
    return (_deal_parts(shards, num_readers)[reader_index],)


def _deal_whole(shards: Sequence[SourceShard], readers: int) -> list[list[int]]:
    """Largest shard first, each to the reader with the fewest rows (Graham 1969); as many as shards at most."""
    heap = [(0, 0, reader) for reader in range(readers)]
    dealt: list[list[int]] = [[] for _ in range(readers)]
    for place in sorted(range(len(shards)), key=lambda place: (-shards[place].rows, place)):
        rows, count, reader = heap[0]
        dealt[reader].append(place)
        heapq.heapreplace(heap, (rows + shards[place].rows, count + 1, reader))
    return [sorted(places) for places in dealt]


def _deal_parts(shards: Sequence[SourceShard], readers: int) -> list[Portion]:
    """One portion a reader: every shard gets a reader, and each further reader goes where the share is largest."""
    counts = [1] * len(shards)
    heap = [(-float(shard.records), place) for place, shard in enumerate(shards)]
    heapq.heapify(heap)
    for _ in range(readers - len(shards)):
        _, place = heap[0]
        counts[place] += 1
        heapq.heapreplace(heap, (-shards[place].records / counts[place], place))
    return [Portion(shard, index, count) for shard, count in zip(shards, counts, strict=True) for index in range(count)]


def buffer_rows(shards: Iterable[SourceShard], *, compressed: bool = False) -> int:
    """How many rows to keep for shuffling: 65,536, or as many as fit into 64 MiB if that is fewer."""
    rows = size = 0
    for shard in shards:
        rows, size = rows + shard.rows, size + shard.size_bytes * (8 if compressed else 1)
    return max(1, min(_MAX_BUFFER_ROWS, math.floor(_MAX_BUFFER_BYTES * rows / size))) if size else 1


def find_run(folder: str, *, exists: Callable[[str], bool], read_bytes: Callable[[str], bytes]) -> str:
    """The run that ``folder`` is, or the latest one of the output that it is. Raises UsageError for anything else.

    ``read_bytes`` raises FileNotFoundError for a file that does not exist.
    """
    if exists(_join(folder, MANIFEST)):
        return folder
    try:
        latest = read_bytes(_join(folder, LATEST)).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is no committed run ({MANIFEST} is missing) and no output folder ({LATEST} is missing); "
            "give OUTPUT/run=<id>, or OUTPUT for its latest run; of a stream's output, give a window or a range of time"
        ) from None
    return _join(folder, run_folder(latest))


def windows_inside(names: Iterable[str], start: str | datetime, end: str | datetime) -> list[str]:
    """Those of the folder ``names`` that are windows inside [start, end), in the order of time; others are ignored.

    Times are RFC 3339 with their offset, or datetimes with one. Raises UsageError for anything else.
    """
    first, last = parse_time(start), parse_time(end)
    if first >= last:
        raise UsageError(f"the time range from {start} to {end} is empty")
    found = []
    for name in names:
        try:
            window = WindowName.parse(name.rstrip("/"))
        except ValueError:
            continue
        if first <= window.start and window.end <= last:
            found.append(window)
    return [str(window) for window in sorted(found)]


def parse_time(value: str | datetime) -> datetime:
    """A moment out of text such as 2024-05-01T06:00Z. Raises UsageError for other text, and for one without a zone."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value))
    except ValueError:
        raise UsageError(f"{value!r} is not a time; write for example 2024-05-01T06:00Z") from None
    if moment.tzinfo is None:
        raise UsageError(f"{value!r} does not say in which time zone; write for example 2024-05-01T06:00Z")
    return moment.astimezone(timezone.utc)


def merged(sources: Sequence[Source], where: str) -> Source:
    """All shards of ``sources``, which must be written alike. Raises UsageError naming two that are not."""
    first = sources[0]
    for other in sources[1:]:
        if (other.feature_spec, other.compression) != (first.feature_spec, first.compression):
            raise UsageError(
                f"{first.where} and {other.where} were written with different features, layout or compression; "
                "read them apart"
            )
    shards = tuple(shard for source in sources for shard in source.shards)
    return Source(where, first.feature_spec, first.compression, shards)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/') or ''}/{name}"
