"""The manifest of a run, to and from JSON.

Readers trust manifests, never globs: it says which shards there are and how to read them, with no other file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.core.errors import UsageError
from pipeline.core.json_fields import Fields, crc_text, dump_json, load_json
from pipeline.core.names import MANIFEST, ShardName, check_run_id
from pipeline.core.records import Json
from pipeline.core.shards import Shard

FORMAT_MAJOR, FORMAT_MINOR = 1, 0
"""A minor version adds fields that old readers may ignore; a major one changes what is there."""

Pairs = tuple[tuple[str, int], ...]
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Code:
    """The code that made a run."""

    version: str
    git_commit: str | None = None
    image_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """A file that was read; ``version`` is its mtime or generation when the run was planned."""

    uri: str
    size_bytes: int
    version: str = ""
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard: ``name`` is relative to the run's folder; ``crc32c`` is over the file's bytes."""

    name: str
    split: str
    rows: int
    records: int
    size_bytes: int
    crc32c: int

    @classmethod
    def of(cls, shard: Shard) -> ShardEntry:
        """The entry of a planned shard."""
        return cls(str(shard.name), shard.split, shard.rows, shard.records, shard.size_bytes, shard.crc32c)


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows: read = written + dead-lettered. Blank lines are no rows and are counted apart. Pairs sorted by name."""

    read: int
    written: int
    written_by_split: Pairs
    dead_lettered_by_reason: Pairs
    blank: int

    @property
    def dead_lettered(self) -> int:
        """Rows refused, all reasons together."""
        return sum(count for _, count in self.dead_lettered_by_reason)


@dataclass(frozen=True)
class Manifest:
    """What a run read, made and refused. Times are RFC 3339; fingerprints are sha256 in hexadecimal.

    ``layout``, ``feature_spec`` and ``compression`` are enough to read the shards. ``extra`` holds
    top-level fields of a newer minor version, kept when the manifest is written again.
    """

    run_id: str
    job_name: str
    job_id: str
    started: str
    finished: str
    code: Code
    inputs: tuple[Input, ...]
    schema_fingerprint: str
    transform_fingerprint: str | None
    layout: str
    feature_spec: Json
    compression: str
    splits: tuple[tuple[str, float], ...]
    shards: tuple[ShardEntry, ...]
    counts: Counts
    quality: Json
    previous_run_id: str | None = None
    options: Json = field(default_factory=dict)
    format_version: str = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"
    extra: Json = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The file's bytes: the same manifest, the same bytes."""
        return dump_json(self.extra | _as_json(self))

    @classmethod
    def from_json(cls, data: bytes, where: str = MANIFEST) -> Manifest:
        """Reads a manifest; ``where`` names it in messages.

        Raises UsageError, with the path of the field, for one that is damaged or of a newer major version.
        """
        fields = Fields(load_json(data, where), where)
        _check_version(fields.text("format_version"), where)
        manifest = _from_fields(fields)
        problems = manifest.inconsistencies()
        if problems:
            raise UsageError(f"{where}: {problems[0]}. The file is damaged or was edited")
        return manifest

    def inconsistencies(self) -> list[str]:
        """What contradicts itself in the manifest, one sentence each; none in one that we wrote."""
        return [*_time_problems(self), *_shard_problems(self.shards), *_count_problems(self.counts, self.shards)]


def _as_json(manifest: Manifest) -> Json:
    counts, code = manifest.counts, manifest.code
    return {
        "format_version": manifest.format_version,
        "run_id": manifest.run_id,
        "job": {"name": manifest.job_name, "id": manifest.job_id},
        "started": manifest.started,
        "finished": manifest.finished,
        "code": {"version": code.version, "git_commit": code.git_commit, "image_digest": code.image_digest},
        "inputs": [
            {
                "uri": item.uri,
                "bytes": item.size_bytes,
                "version": item.version,
                "crc32c": None if item.crc32c is None else crc_text(item.crc32c),
            }
            for item in manifest.inputs
        ],
        "schema_fingerprint": manifest.schema_fingerprint,
        "transform_fingerprint": manifest.transform_fingerprint,
        "layout": manifest.layout,
        "feature_spec": manifest.feature_spec,
        "compression": manifest.compression,
        "splits": [{"name": name, "fraction": fraction} for name, fraction in manifest.splits],
        "shards": [
            {
                "name": shard.name,
                "split": shard.split,
                "rows": shard.rows,
                "records": shard.records,
                "bytes": shard.size_bytes,
                "crc32c": crc_text(shard.crc32c),
            }
            for shard in manifest.shards
        ],
        "counts": {
            "read": counts.read,
            "written": counts.written,
            "written_by_split": dict(counts.written_by_split),
            "dead_lettered": counts.dead_lettered,
            "dead_lettered_by_reason": dict(counts.dead_lettered_by_reason),
            "blank": counts.blank,
        },
        "quality": manifest.quality,
        "previous_run_id": manifest.previous_run_id,
        "options": manifest.options,
    }


def _from_fields(fields: Fields) -> Manifest:
    job, code, counts = fields.object("job"), fields.object("code"), fields.object("counts")
    manifest = Manifest(
        run_id=check_run_id(fields.text("run_id")),
        job_name=job.text("name"),
        job_id=job.text("id"),
        started=fields.text("started"),
        finished=fields.text("finished"),
        code=Code(code.text("version"), code.optional_text("git_commit"), code.optional_text("image_digest")),
        inputs=tuple(
            Input(item.text("uri"), item.count("bytes"), item.text("version"), item.optional_crc("crc32c"))
            for item in fields.objects("inputs")
        ),
        schema_fingerprint=fields.text("schema_fingerprint"),
        transform_fingerprint=fields.optional_text("transform_fingerprint"),
        layout=fields.text("layout"),
        feature_spec=fields.json("feature_spec"),
        compression=fields.text("compression"),
        splits=tuple((item.text("name"), item.number("fraction")) for item in fields.objects("splits")),
        shards=tuple(_shard_from(item) for item in fields.objects("shards")),
        counts=Counts(
            counts.count("read"),
            counts.count("written"),
            counts.counts("written_by_split"),
            counts.counts("dead_lettered_by_reason"),
            counts.count("blank"),
        ),
        quality=fields.json("quality"),
        previous_run_id=fields.optional_text("previous_run_id"),
        options=fields.json("options"),
        format_version=fields.text("format_version"),
    )
    known = _as_json(manifest)
    manifest.extra.update({key: value for key, value in fields.value.items() if key not in known})
    return manifest


def _shard_from(item: Fields) -> ShardEntry:
    return ShardEntry(
        item.text("name"),
        item.text("split"),
        item.count("rows"),
        item.count("records"),
        item.count("bytes"),
        item.crc("crc32c"),
    )


def _check_version(version: str, where: str) -> None:
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", version, re.ASCII)
    if match is None:
        raise UsageError(f"{where}: format_version {version[:80]!r} is not <major>.<minor>. The file is damaged")
    if int(match[1]) != FORMAT_MAJOR:
        raise UsageError(
            f"{where}: format version {version}, but this headrace reads {FORMAT_MAJOR}.x. "
            "Install the headrace that wrote it (the manifest's code.version), or a newer one"
        )


def _time_problems(manifest: Manifest) -> list[str]:
    times = {"started": manifest.started, "finished": manifest.finished}
    return [
        f"{name} is no RFC 3339 time: {time[:40]!r}" for name, time in times.items() if not _RFC3339.fullmatch(time)
    ]


def _shard_problems(shards: Sequence[ShardEntry]) -> list[str]:
    problems = []
    for shard in shards:
        try:  # the name becomes a path: one like ../../x must go no further
            name = ShardName.parse(shard.name)
        except (ValueError, UsageError):
            problems.append(f"{shard.name[:200]!r} cannot be a shard's name")
            continue
        if name.split != shard.split:
            problems.append(f"shard {shard.name} is said to be of split {shard.split[:100]!r}")
    repeated = [name for name, count in Counter(shard.name for shard in shards).items() if count > 1]
    return problems + [f"shard {name[:200]} is named twice" for name in repeated]


def _count_problems(counts: Counts, shards: Sequence[ShardEntry]) -> list[str]:
    problems = []
    if counts.read != counts.written + counts.dead_lettered:
        problems.append(f"{counts.read} rows read, but {counts.written} written + {counts.dead_lettered} dead-lettered")
    by_split: Counter[str] = Counter()
    for shard in shards:
        by_split[shard.split] += shard.rows
    if {name: count for name, count in counts.written_by_split if count} != {n: c for n, c in by_split.items() if c}:
        problems.append(f"rows by split are {dict(counts.written_by_split)}, but the shards hold {dict(by_split)}")
    if counts.written != sum(by_split.values()):
        problems.append(f"{counts.written} rows written, but the shards hold {sum(by_split.values())}")
    return problems
