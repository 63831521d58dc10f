"""From parts written aside to a committed run: settle the accounts, publish shards, manifest last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import apache_beam as beam

from pipeline.core.accounts import balance
from pipeline.core.compression import Compression
from pipeline.core.errors import GuardError, HeadraceError
from pipeline.core.manifest import Code, Counts, Manifest, ShardEntry
from pipeline.core.names import LATEST, MANIFEST, OWNER
from pipeline.core.quality import RunCounts, judge
from pipeline.core.records import Json, ShardPart, TaskReport
from pipeline.core.schema import schema_text
from pipeline.core.settings import BuildSettings
from pipeline.core.shards import Shard, plan_shards
from pipeline.core.statistics import BatchStatistics
from pipeline.features.artefact import HEADER
from pipeline.features.layouts import make_layout
from pipeline.transforms import files, names
from pipeline.transforms.calling import CallingDoFn
from pipeline.transforms.dead_letters import ArchiveFile
from pipeline.transforms.plan import read_inputs, read_plan
from pipeline.transforms.shards import ShardMaker

_WAITING_STATES = 8  # of some 64 KB a feature
OUTCOME = "outcome.json"
"""Why a run was not committed, left in the staging folder for the launcher: exit code and message."""


@dataclass(frozen=True)
class CommitSettings:
    """All that committing needs to know of a run; ``artefact`` is the transform to keep with it, if any."""

    build: BuildSettings
    run_id: str
    output: str
    run_folder: str
    dead_letter_folder: str
    attempt: str
    plan_uri: str
    job_name: str
    started: str
    code: Code
    inputs_uri: str
    feature_spec: Json = field(hash=False)
    min_shards: int = 1
    max_rejected_fraction: float = 1.0
    previous_run_id: str | None = None
    options: Json = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Accounts:
    """What settling found: the counts, the verdict and the merged statistics."""

    counts: Counts
    quality: Json
    statistics: bytes


class Settle(beam.DoFn):  # type: ignore[misc]
    """All reports of a run -> its shards to publish, and its accounts (tagged); or an error and no commit."""

    def __init__(self, settings: CommitSettings) -> None:
        self._settings = settings

    def process(self, gathered: tuple[None, dict[str, Iterable[Any]]]) -> Iterator[Any]:
        """Balance and judge. Raises HeadraceError (accounts) or GuardError (data), leaving the reason in OUTCOME."""
        try:
            accounts, parts = self._settle(gathered[1])
        except HeadraceError as error:
            outcome = {"exit_code": error.exit_code, "message": str(error)}
            files.write_bytes(files.join(self._settings.build.staging, OUTCOME), json.dumps(outcome).encode())
            raise
        # From here the run of this name, if there is one, is being replaced: without its manifest it is no run.
        self._step_back()
        files.delete([files.join(self._settings.run_folder, MANIFEST)])
        yield beam.pvalue.TaggedOutput(names.ACCOUNTS, accounts)
        yield from plan_shards(
            parts,
            target_shard_bytes=self._settings.build.target_shard_bytes,
            min_shards=self._settings.min_shards,
        )

    def _step_back(self) -> None:
        """Let LATEST name the run before the one that is being replaced, so that it always names a run that is one."""
        settings, latest = self._settings, files.join(self._settings.output, LATEST)
        if files.size_of(latest) is None or files.read_bytes(latest).strip() != settings.run_id.encode():
            return
        if settings.previous_run_id:
            files.write_bytes(latest, f"{settings.previous_run_id}\n".encode())
        else:
            files.delete([latest])

    def _settle(self, gathered: dict[str, Iterable[Any]]) -> tuple[Accounts, list[ShardPart]]:
        settings = self._settings
        check_owner(settings)
        reports: list[TaskReport] = list(gathered[names.REPORTS])
        archives: list[ArchiveFile] = list(gathered[names.DEAD_LETTERS])
        shuffled: list[ShardPart] | None = list(gathered[names.PARTS]) if names.PARTS in gathered else None
        parts = [part for report in reports for part in report.parts] if shuffled is None else shuffled
        counts = balance(
            reports,
            planned=read_plan(settings.plan_uri),
            dead_letters_written=sum(archive.rows for archive in archives),
            shuffled_parts=shuffled,
        )
        statistics = BatchStatistics.from_bytes(next(iter(gathered[names.STATISTICS])))
        verdict = judge(
            statistics,
            settings.build.input.load_schema(),
            counts=RunCounts(counts.read, counts.written, counts.dead_lettered_by_reason, counts.blank),
            max_rejected_fraction=settings.max_rejected_fraction,
        )
        if not verdict.ok:
            raise GuardError("\n".join(finding.message for finding in verdict.findings))
        return Accounts(counts, verdict.as_json(), statistics.to_bytes()), parts


def check_owner(settings: CommitSettings) -> None:
    """Raise HeadraceError unless the staging folder is still this attempt's: two runs of one id may not both commit."""
    try:
        owner = files.read_bytes(files.join(settings.build.staging, OWNER)).decode("utf-8", "replace")
    except FileNotFoundError:
        owner = "nobody"
    if owner != settings.attempt:
        raise HeadraceError(
            f"another run with the id {settings.run_id} was started meanwhile and has taken over its folder; "
            "give runs that overlap different ids"
        )


def feature_spec_of(described: Json) -> Json:
    """What the manifest says of the features in a record, out of an artefact's header or a transformer's own words."""
    return {"features": described["features"], "labels": list(described["labels"])}


class MergeStatistics(beam.CombineFn):  # type: ignore[misc]
    """Serialised statistics -> one; merging is exact in any order, so the same run gives the same statistics.

    States wait until there are several, for reading and writing them costs more than merging.
    """

    def create_accumulator(self) -> list[bytes]:
        """Nothing merged yet."""
        return []

    def add_input(self, accumulator: list[bytes], state: bytes) -> list[bytes]:
        """One more state."""
        return self.merge_accumulators((accumulator, [state]))

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        """All states together, merged if they are many."""
        states = [state for accumulator in accumulators for state in accumulator]
        return states if len(states) < _WAITING_STATES else [_merged(states)]

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        """At most one state, to be sent to another worker."""
        return [_merged(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        """The merged state."""
        return _merged(accumulator)


def _merged(states: Iterable[bytes]) -> bytes:
    return BatchStatistics.merge_all(map(BatchStatistics.from_bytes, states)).to_bytes()


class PublishShard(CallingDoFn):
    """A planned shard -> its entry in the manifest. Safe to repeat at any point."""

    def __init__(self, run_folder: str, *, compression: Compression = "none") -> None:
        self._maker = ShardMaker(run_folder, compression)

    def process(self, shard: Shard) -> Iterator[ShardEntry]:
        """Publish one shard; raises OSError for storage faults and for a published file of the wrong size."""
        yield from self.call(self._maker.make, shard)


class Commit(beam.DoFn):  # type: ignore[misc]
    """All published shards -> the manifest, written last, and LATEST. Safe to repeat."""

    def __init__(self, settings: CommitSettings) -> None:
        self._settings = settings

    def process(
        self, published: tuple[None, Iterable[ShardEntry]], accounts: Accounts, artefact: str | None = None
    ) -> Iterator[str]:
        """Commit the run; yields the manifest's URI. Raises OSError for storage faults."""
        settings = self._settings
        check_owner(settings)
        shards = tuple(sorted(published[1], key=lambda entry: entry.name))
        kept = {files.join(settings.run_folder, shard.name) for shard in shards}
        kept |= self._write_beside(accounts, artefact)
        files.delete([uri for uri in files.list_folder(settings.run_folder) if uri not in kept])
        manifest_uri = files.join(settings.run_folder, MANIFEST)
        files.write_bytes(manifest_uri, self._manifest(shards, accounts, artefact).to_json())
        files.write_bytes(files.join(settings.output, LATEST), f"{settings.run_id}\n".encode())
        self._drop_other_attempts()
        yield manifest_uri

    def _drop_other_attempts(self) -> None:
        """Delete the dead letters of the run that is replaced, and of attempts that failed: now, after the commit."""
        mine = self._settings.dead_letter_folder
        letters = files.list_folder(mine.rpartition("/")[0])
        files.delete([uri for uri in letters if not uri.startswith(mine + "/")])

    def _write_beside(self, accounts: Accounts, artefact: str | None) -> set[str]:
        """Write what lies beside the shards; returns the files written."""
        settings = self._settings
        schema = settings.build.input.load_schema()
        statistics = BatchStatistics.from_bytes(accounts.statistics).to_proto(
            dataset_name=settings.run_id, redact=settings.build.redact_features
        )
        written = {
            "schema.pbtxt": schema_text(schema.proto).encode(),
            "stats.pb": statistics.SerializeToString(deterministic=True),
        }
        uris = set()
        for name, data in written.items():
            uris.add(files.join(settings.run_folder, name))
            files.write_bytes(files.join(settings.run_folder, name), data)
        for source in files.list_folder(artefact) if artefact else ():
            target = files.join(settings.run_folder, "transform_fn", source[len(artefact or "") :].lstrip("/"))
            uris.add(target)
            files.write_bytes(target, files.read_bytes(source))
        return uris

    def _manifest(self, shards: tuple[ShardEntry, ...], accounts: Accounts, artefact: str | None) -> Manifest:
        settings = self._settings
        features, fingerprint = settings.feature_spec, None
        if artefact:
            header = json.loads(files.read_bytes(files.join(artefact, HEADER)))
            features, fingerprint = feature_spec_of(header), header["content_fingerprint"]
        layout = make_layout(
            settings.build.layout,
            features=features["features"],
            rows_per_record=settings.build.rows_per_record,
        )
        return Manifest(
            run_id=settings.run_id,
            job_name=settings.job_name,
            job_id="",
            started=settings.started,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            code=settings.code,
            inputs=read_inputs(settings.inputs_uri),
            schema_fingerprint=settings.build.input.load_schema().fingerprint,
            transform_fingerprint=fingerprint,
            layout=settings.build.layout,
            feature_spec=features | {"layout": layout.describe()},
            compression=settings.build.compression,
            splits=settings.build.splits,
            shards=shards,
            counts=accounts.counts,
            quality=accounts.quality,
            previous_run_id=settings.previous_run_id,
            options=settings.options,
            extra={"dead_letters": settings.dead_letter_folder if accounts.counts.dead_lettered else None},
        )
