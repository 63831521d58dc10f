"""From the arguments of ``run`` to a BatchJob: settings, plan, fingerprints. Nothing is started here."""

from __future__ import annotations

import difflib
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline import preflight
from pipeline.apart import check_apart
from pipeline.core.errors import GuardError, UsageError
from pipeline.core.manifest import Manifest
from pipeline.core.names import LATEST, MANIFEST, OWNER, attempt_folder, run_folder, staging_folder
from pipeline.core.records import Json, Task
from pipeline.core.schema import Schema
from pipeline.core.settings import BuildSettings
from pipeline.core.shards import plan_tasks, split_bytes_for, task_count
from pipeline.features.artefact import load_artefact
from pipeline.features.build import estimate_output_ratio
from pipeline.features.layouts import ROWS_PER_RECORD, estimate_row_bytes, make_layout
from pipeline.features.outputs import features_of_spec
from pipeline.features.preprocessing import load_preprocessing_module, preprocessing_fn_of
from pipeline.features.spec import FeatureSpec, parse_features, required_features
from pipeline.features.transformer import IdentityTransformer
from pipeline.jobs.batch import BatchJob
from pipeline.transforms import files
from pipeline.transforms.analysis import AnalysisSettings, Preprocessing, spec_of
from pipeline.transforms.dead_letters import ArchiveSettings
from pipeline.transforms.plan import write_inputs, write_plan
from pipeline.transforms.publish import CommitSettings, feature_spec_of

_MOST_TASKS = 1_000_000  # 128 TB in shards of 128 MiB; more is a unit forgotten, and a plan that never ends


@dataclass(frozen=True)
class Plan:
    """How a job's input is dealt out: its tasks, and the shards it is expected to fill."""

    tasks: tuple[Task, ...]
    expected_shards: int
    files: int

    @property
    def total_bytes(self) -> int:
        """Bytes of input in all tasks."""
        return sum(task.size_bytes for task in self.tasks)


def required_by_features(arguments: Namespace, sources: preflight.Sources) -> preflight.Sources:
    """The sources, with the features that the spec cannot do without required."""
    if not arguments.features:
        return sources
    return sources.requiring(required_features(_spec(arguments.features, sources.schema)))


def analysis_of(arguments: Namespace, sources: preflight.Sources, *, folder: str) -> AnalysisSettings | None:
    """The analysis that the arguments ask for, or None. Raises UsageError for two ways at once."""
    given = [name for name in ("features", "preprocessing_module", "transform") if getattr(arguments, name, None)]
    if len(given) > 1:
        raise UsageError(f"give one of --{' and --'.join(given)}, not both: each says how rows are transformed")
    preprocessing: Preprocessing
    if arguments.features:
        spec = _spec(arguments.features, sources.schema)
        preprocessing = preprocessing_fn_of(spec, sources.schema)
    elif path := arguments.preprocessing_module:
        preprocessing = load_preprocessing_module(path, preflight.read_text(path, "preprocessing module"))
    else:
        return None
    return AnalysisSettings.of(preprocessing, sources.schema, folder=folder)


def _spec(path: str, schema: Schema) -> FeatureSpec:
    return parse_features(preflight.read_text(path, "feature"), schema, where=path)


def plan_of(sources: preflight.Sources, build: BuildSettings, *, features: Json, min_shards: int) -> Plan:
    """Deal the input into tasks; ``features`` is what will be written, as far as it is known.

    Raises GuardError for an input without a byte, UsageError for more shards than anyone can want.
    """
    if not sources.total_bytes:
        raise GuardError(f"the input is empty: {len(sources.files)} files, 0 bytes; nothing was committed")
    ratio = estimate_output_ratio(
        sources.files,
        sources.settings.make_decoder(sources.schema),
        row_bytes=estimate_row_bytes(build.layout, features=features, rows_per_record=build.rows_per_record),
        open_file=files.open_read,
    )
    tasks = task_count(
        sources.total_bytes,
        output_ratio=ratio,
        target_shard_bytes=build.target_shard_bytes,
        min_shards=min_shards,
    )
    if tasks > _MOST_TASKS:
        raise UsageError(
            f"the input would be cut into {tasks:,} shards, more than {_MOST_TASKS:,}; give a larger "
            "--target_shard_bytes (128MiB, say: a number alone is bytes) or a smaller --min_shards"
        )
    split_bytes = split_bytes_for(
        sources.total_bytes,
        output_ratio=ratio,
        target_shard_bytes=build.target_shard_bytes,
        min_shards=min_shards,
    )
    planned = plan_tasks(
        sources.split(split_bytes),
        output_ratio=ratio,
        target_shard_bytes=build.target_shard_bytes,
        min_shards=min_shards,
        seed=build.seed,
        shuffle=build.shuffle,
    )
    return Plan(tuple(planned), tasks, len(sources.files))


def check_redacted(names: Sequence[str], schema: Schema) -> None:
    """Raise UsageError for a name that the schema does not have: misspelt, it would keep nothing back."""
    known = [feature.name for feature in schema.proto.feature]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--redact_features: the schema has no feature {name!r}{hint}")


def prepare_run(arguments: Namespace, *, job_name: str | None) -> tuple[BatchJob, Plan]:
    """Check everything that can be checked, then plan. Raises UsageError or GuardError; writes only the plan."""
    now = preflight.utc_now()
    run_id = preflight.run_id_of(arguments.run_id, now)
    sources = preflight.open_sources(arguments)
    check_apart(arguments.output, arguments.dead_letters, read=[file.uri for file in sources.files])
    preflight.check_folder("output", arguments.output)
    preflight.check_folder("dead_letters", arguments.dead_letters)
    check_redacted(arguments.redact_features, sources.schema)
    sources = required_by_features(arguments, sources)
    staging = files.join(arguments.output, staging_folder(run_id))
    analysis = analysis_of(arguments, sources, folder=files.join(staging, "transform_fn"))
    sources, features = _with_transform(arguments, sources, analysis)
    build = build_settings(arguments, sources, staging=staging)
    if not arguments.preprocessing_module:  # what a module gives is known once it has been traced
        make_layout(build.layout, features=features["features"], rows_per_record=build.rows_per_record)
    plan = plan_of(sources, build, features=features["features"], min_shards=arguments.min_shards)
    started = now.isoformat(timespec="seconds")
    name = job_name or "headrace-" + re.sub(r"[^a-z0-9-]", "-", run_id.lower())
    attempt = preflight.run_id_of(None, now)
    dead_letters = files.join(arguments.dead_letters, run_folder(run_id), attempt_folder(attempt))
    commit = CommitSettings(
        build=build,
        run_id=run_id,
        output=arguments.output,
        run_folder=files.join(arguments.output, run_folder(run_id)),
        dead_letter_folder=dead_letters,
        attempt=attempt,
        plan_uri=files.join(staging, "plan.jsonl"),
        job_name=name,
        started=started,
        code=preflight.code_version(),
        inputs_uri=files.join(staging, "inputs.jsonl"),
        feature_spec=features,
        min_shards=arguments.min_shards,
        max_rejected_fraction=arguments.max_rejected_fraction,
        previous_run_id=previous_run(arguments.output, run_id),
        options=_options(arguments),
    )
    archive = ArchiveSettings(
        dead_letters, name, sources.schema.fingerprint, started, frozenset(arguments.redact_features)
    )
    files.delete_folder(staging)  # what an attempt that died left behind
    files.write_bytes(files.join(staging, OWNER), attempt.encode())
    write_plan(commit.plan_uri, plan.tasks)
    write_inputs(commit.inputs_uri, sources.files)
    buckets = max(plan.expected_shards, arguments.min_shards)
    return BatchJob(commit, archive, arguments.transform, analysis, buckets), plan


def _with_transform(
    arguments: Namespace, sources: preflight.Sources, analysis: AnalysisSettings | None
) -> tuple[preflight.Sources, Json]:
    """The sources as a given artefact wants them, and what is known of the outputs before the analysis."""
    if analysis and (spec := spec_of(analysis.preprocessing)):
        features = features_of_spec(spec, sources.schema)
        return sources, feature_spec_of({"features": features, "labels": spec.labels})
    if arguments.transform:
        with files.local_copy(arguments.transform) as folder:
            artefact = load_artefact(folder, sources.schema)
        if artefact.spec:
            sources = sources.requiring(required_features(artefact.spec) & {f.name for f in sources.schema.features})
        return sources, feature_spec_of({"features": artefact.features, "labels": artefact.labels})
    identity = IdentityTransformer(sources.schema)
    return sources, feature_spec_of({"features": identity.features, "labels": identity.labels})


def build_settings(arguments: Namespace, sources: preflight.Sources, *, staging: str) -> BuildSettings:
    """The settings that travel to workers. Raises UsageError for bad splits or a bad key."""
    return BuildSettings(
        input=sources.settings,
        staging=staging,
        splits=preflight.data_splits(arguments.splits, arguments.split_key, sources.schema),
        split_key=arguments.split_key,
        seed=arguments.seed,
        shuffle=getattr(arguments, "shuffle", "blocks"),
        target_shard_bytes=getattr(arguments, "target_shard_bytes", 128 << 20),
        layout=getattr(arguments, "layout", "rows"),
        rows_per_record=getattr(arguments, "rows_per_record", ROWS_PER_RECORD),
        compression=getattr(arguments, "compression", "none"),
        allow_non_finite=getattr(arguments, "allow_non_finite", False),
        redact_features=frozenset(getattr(arguments, "redact_features", ())),
    )


def previous_run(output: str, run_id: str) -> str | None:
    """The run that LATEST names; for a run that is being replaced, the one that came before it."""
    try:
        latest = files.read_bytes(files.join(output, LATEST)).decode("utf-8", "replace").strip()
        if latest != run_id:
            return latest or None
        manifest = files.join(output, run_folder(run_id), MANIFEST)
        return Manifest.from_json(files.read_bytes(manifest), manifest).previous_run_id
    except (FileNotFoundError, UsageError):  # a damaged run is one to replace, not to trip over
        return None


def _options(arguments: Namespace) -> Json:
    """The options of the run, for the manifest: what was asked, by the names on the command line."""
    hidden = {"command", "parser", "json", "log_format"}
    given = {name: value for name, value in sorted(vars(arguments).items()) if name not in hidden and value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
