"""Windows of event time: which one a row falls into, when it is late, and the manifest of a window's shards. Pure.

Windows are ``[start, start + size)`` in whole seconds since 1970 UTC; starts are multiples of the size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.json_fields import Fields, crc_text, dump_json, load_json
from pipeline.core.manifest import Code, ShardEntry
from pipeline.core.names import MANIFEST, WindowName, WindowShardName
from pipeline.core.records import Json

SPLIT = "train"
"""The split of a window's shards: a stream has one."""

FIRST_EVENT_US = -30_547_152_000_000_000
"""Event times from here, 1002-01-01 in microseconds since 1970, have a window whose folder can be named ..."""

END_EVENT_US = 253_339_228_800_000_000
"""... up to here, 9998-01-01: a year remains on either side for where a window begins and ends."""

NEVER_CLOSED = FIRST_EVENT_US // 1_000_000 - 1
"""What ``closed_before`` is before anything is known of the watermark: no window is closed."""

MAX_WINDOW_SECONDS = 366 * 86_400
FORMAT_MAJOR, FORMAT_MINOR = 1, 0
_MAX_DOUBLINGS = 40
_PATIENCE = 8


def window_start(event_time_us: int, window_seconds: int) -> int:
    """The start, in seconds, of the window that an event time in microseconds falls into; also before 1970."""
    second = event_time_us // 1_000_000
    return second - second % window_seconds


def is_late(start: int, *, window_seconds: int, allowed_lateness_seconds: int, closed_before: int) -> bool:
    """Whether a row for the window from ``start`` comes after its end and the allowed lateness.

    ``closed_before`` is a second that the watermark is known to have passed.
    """
    return start + window_seconds + allowed_lateness_seconds <= closed_before


def shard_due(start: int, *, stamped_us: int, window_seconds: int) -> int:
    """When a shard of the window from ``start`` is written at the latest, in seconds of the watermark.

    At the window's end; for rows that come after it (their element is stamped ``stamped_us``, in microseconds),
    at the end of the window in which they came. So rows that are under way for some time make a shard a window's time,
    and not one each batch.
    """
    stamped_us = min(max(stamped_us, FIRST_EVENT_US), END_EVENT_US)
    return max(start, window_start(stamped_us, window_seconds)) + window_seconds


def window_name(start: int, window_seconds: int) -> WindowName:
    """The name of the window from ``start``, for event times in [FIRST_EVENT_US, END_EVENT_US)."""
    return WindowName(_moment(start), _moment(start + window_seconds))


@dataclass(frozen=True, slots=True)
class Clock:
    """What one batch key knows of the watermark, from a timer that it sets on it again and again. In seconds.

    ``closed_before`` was passed for certain; the timer is set to ``armed``; ``idle`` counts the times that it fired
    since the last message. While messages come, the timer goes from one window's closing to the next one's. Left
    alone it waits for twice as long after some firings, so that a drain, which takes the watermark to the end of time,
    and a backlog of years are over in tens of firings.

    So it never claims too much: what comes in time is never called late. It may know too little (of a key's first
    messages, or of the first ones after a pause of many windows), and then takes a row that is late.
    """

    closed_before: int = NEVER_CLOSED
    armed: int = NEVER_CLOSED
    idle: int = 0

    def on_message(self, event_time_us: int, *, window_seconds: int, allowed_lateness_seconds: int) -> Clock:
        """After a message with this timestamp: the timer falls back to the next closing that is not known of."""
        if self.closed_before == NEVER_CLOSED:
            event_time_us = min(max(event_time_us, FIRST_EVENT_US), END_EVENT_US)  # a runner's -infinity, say
            first = window_start(event_time_us, window_seconds) + window_seconds + allowed_lateness_seconds
            return Clock(armed=first if self.armed == NEVER_CLOSED else min(self.armed, first))
        return Clock(self.closed_before, min(self.armed, self.closed_before + window_seconds))

    def on_timer(self, fired: int, *, window_seconds: int) -> Clock:
        """After the timer fired at ``fired``; one that fires a second time changes nothing."""
        if fired <= self.closed_before:
            return self
        idle = self.idle + 1
        wait = window_seconds << min(max(idle - _PATIENCE, 0), _MAX_DOUBLINGS)
        return Clock(fired, fired + wait, idle)


@dataclass(frozen=True)
class WindowManifest:
    """What a window's folder holds and how to read it, with no other file.

    The same shards give the same bytes, whenever it is written: it holds no time but the window's.
    ``shards`` are sorted by name; their names are relative to the folder. ``extra`` holds top-level fields of a
    newer minor version.
    """

    window: WindowName
    job_name: str
    code: Code
    schema_fingerprint: str
    transform_fingerprint: str | None
    layout: str
    feature_spec: Json
    compression: str
    shards: tuple[ShardEntry, ...] = ()
    format_version: str = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"
    extra: Json = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows in all shards."""
        return sum(shard.rows for shard in self.shards)

    def with_shards(self, entries: Iterable[ShardEntry]) -> WindowManifest:
        """This manifest with ``entries`` too, each name once.

        Raises HeadraceError for two entries of one name that differ: one of the files was not written by us.
        """
        found = {shard.name: shard for shard in self.shards}
        for entry in entries:
            if found.setdefault(entry.name, entry) != entry:
                raise HeadraceError(f"{self.window}: {entry.name} was told of as {found[entry.name]} and as {entry}")
        return replace(self, shards=tuple(found[name] for name in sorted(found)))

    def taking_over(self, there: WindowManifest) -> WindowManifest:
        """This manifest with the shards of the one that is ``there`` already, by an earlier pane or job.

        Raises HeadraceError where the two are not read alike, so that one manifest cannot name both.
        """
        mine = (self.window, self.feature_spec, self.compression)
        if (there.window, there.feature_spec, there.compression) != mine:
            raise HeadraceError(
                f"{self.window} holds shards with other features, layout or compression, written by job "
                f"{there.job_name!r}; move that folder away, or give this job another --output"
            )
        return self.with_shards(there.shards)

    def to_json(self) -> bytes:
        """The file's bytes."""
        return dump_json(self.extra | _as_json(self))

    @classmethod
    def from_json(cls, data: bytes, where: str = MANIFEST) -> WindowManifest:
        """Reads a manifest; ``where`` names it in messages.

        Raises UsageError, with the path of the field, for one that is damaged or of a newer major version.
        """
        fields = Fields(load_json(data, where), where)
        major = fields.text("format_version").partition(".")[0]
        if major != str(FORMAT_MAJOR):
            raise UsageError(f"{where}: format version {major[:20]!r}, but this headrace reads {FORMAT_MAJOR}.x")
        return _from_fields(fields, where)


def _as_json(manifest: WindowManifest) -> Json:
    code = manifest.code
    return {
        "format_version": manifest.format_version,
        "window": str(manifest.window),
        "start": _rfc3339(manifest.window.start),
        "end": _rfc3339(manifest.window.end),
        "job": {"name": manifest.job_name},
        "code": {"version": code.version, "git_commit": code.git_commit, "image_digest": code.image_digest},
        "schema_fingerprint": manifest.schema_fingerprint,
        "transform_fingerprint": manifest.transform_fingerprint,
        "layout": manifest.layout,
        "feature_spec": manifest.feature_spec,
        "compression": manifest.compression,
        "shards": [shard_as_json(shard) for shard in manifest.shards],
        "counts": {"written": manifest.rows},
    }


def shard_as_json(shard: ShardEntry) -> Json:
    """An entry as it stands in a manifest."""
    return {
        "name": shard.name,
        "split": shard.split,
        "rows": shard.rows,
        "records": shard.records,
        "bytes": shard.size_bytes,
        "crc32c": crc_text(shard.crc32c),
    }


def shard_from_json(item: Fields) -> ShardEntry:
    """The reverse. Raises UsageError for fields that are missing or wrong."""
    return ShardEntry(
        item.text("name"),
        item.optional_text("split") or SPLIT,
        item.count("rows"),
        item.count("records"),
        item.count("bytes"),
        item.crc("crc32c"),
    )


def _from_fields(fields: Fields, where: str) -> WindowManifest:
    code = fields.object("code")
    try:
        window = WindowName.parse(fields.text("window"))
        shards = tuple(shard_from_json(item) for item in fields.objects("shards"))
        for shard in shards:
            WindowShardName.parse(shard.name)  # it becomes a path: one like ../x must go no further
    except ValueError as error:
        raise UsageError(f"{where}: {error}. The file is damaged or was edited") from None
    manifest = WindowManifest(
        window=window,
        job_name=fields.object("job").text("name"),
        code=Code(code.text("version"), code.optional_text("git_commit"), code.optional_text("image_digest")),
        schema_fingerprint=fields.text("schema_fingerprint"),
        transform_fingerprint=fields.optional_text("transform_fingerprint"),
        layout=fields.text("layout"),
        feature_spec=fields.json("feature_spec"),
        compression=fields.text("compression"),
        shards=shards,
        format_version=fields.text("format_version"),
    )
    if fields.object("counts").count("written") != manifest.rows:
        raise UsageError(f"{where}: counts.written is not the sum of the shards' rows. The file is damaged")
    known = _as_json(manifest)
    manifest.extra.update({key: value for key, value in fields.value.items() if key not in known})
    return manifest


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, timezone.utc)


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
