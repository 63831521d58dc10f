"""From the arguments of ``stream`` to a StreamJob: settings, schema, transform. Nothing is started here."""

from __future__ import annotations

import re
from argparse import Namespace
from dataclasses import replace
from datetime import datetime, timedelta

from pipeline import preflight
from pipeline.apart import check_apart
from pipeline.commands.prepare import check_redacted
from pipeline.core.decoding import DecoderSettings
from pipeline.core.errors import RefusedError, UsageError
from pipeline.core.messages import StreamSettings
from pipeline.core.names import MANIFEST, run_folder
from pipeline.core.pubsub import spill_folder
from pipeline.core.schema import Schema, load_schema
from pipeline.core.settings import InputSettings
from pipeline.core.windows import MAX_WINDOW_SECONDS, WindowManifest, window_start
from pipeline.features.artefact import Artefact, load_artefact
from pipeline.features.layouts import make_layout
from pipeline.features.spec import required_features
from pipeline.features.stream import MessageProcessor
from pipeline.features.transformer import IdentityTransformer, RowTransformer, Transformer
from pipeline.jobs.streaming import StreamJob
from pipeline.transforms import files
from pipeline.transforms.publish import feature_spec_of
from pipeline.transforms.streaming_letters import LetterSettings
from pipeline.transforms.streaming_windows import WindowSettings

_NAME_CHARACTERS = 50  # of a subscription's name in a job's
_CENTURY = 100 * 366 * 86_400
_PROJECT = r"projects/([a-z][a-z0-9.:-]{4,98}[a-z0-9])"
_NAME = r"([A-Za-z][A-Za-z0-9._~+%-]{2,254})"
_PUBSUB_SCHEMA = re.compile(rf"{_PROJECT}/schemas/{_NAME}(@[A-Za-z0-9-]+)?")


def prepare_stream(
    arguments: Namespace, *, job_name: str | None, probe: bool = True, updating: bool = False
) -> StreamJob:
    """Check everything that can be checked without Pub/Sub. Raises UsageError; writes and deletes only a probe.

    Without ``probe`` it does not even do that: whoever launches a job need not be allowed to write what it writes.
    ``updating`` a running job, it raises RefusedError for options that the job cannot change in place.
    """
    now = preflight.utc_now()
    check_names(arguments)
    schema = load_schema(
        preflight.read_text(arguments.schema, "schema"), environment=arguments.environment, origin=arguments.schema
    )
    check_redacted(arguments.redact_features, schema)
    check_folders(arguments, probe=probe)
    job = job_name or job_name_of(arguments.input_subscription)
    run_id = preflight.run_id_of(arguments.run_id or job, now)
    settings = stream_settings(arguments, schema, job=job)
    transformer, artefact = load_transform(arguments.transform, schema)
    settings = replace(settings, input=replace(settings.input, required=required_by(artefact, schema)))
    MessageProcessor(settings, transformer=transformer)  # what does not go together would fail for ever later
    described = feature_spec_of({"features": transformer.features, "labels": transformer.labels})
    layout = make_layout(settings.layout, features=transformer.features, rows_per_record=settings.rows_per_record)
    windows = WindowSettings(
        output=settings.output,
        window_seconds=settings.window_seconds,
        allowed_lateness_seconds=settings.allowed_lateness_seconds,
        target_shard_bytes=settings.target_shard_bytes,
        compression=arguments.compression,
        layout=settings.layout,
        job_name=job,
        code=preflight.code_version(),
        schema_fingerprint=schema.fingerprint,
        transform_fingerprint=artefact.content_fingerprint if artefact else None,
        feature_spec=described | {"layout": layout.describe()},
    )
    check_same_kind(windows, round(now.timestamp()))
    if updating:
        check_update(windows, now)
    archive = files.join(arguments.dead_letters, run_folder(run_id)) if arguments.dead_letters else ""
    spill = spill_folder(output=arguments.output, archive=archive)
    letters = LetterSettings(arguments.dead_letter_topic or "", archive, spill, arguments.max_archive_wait)
    return StreamJob(settings, windows, letters, arguments.timestamp_attribute, arguments.id_attribute)


def job_name_of(subscription: str) -> str:
    """The name of a job that was given none: the same for the same subscription, so that it can be updated."""
    words = re.sub(r"[^a-z0-9]+", "-", subscription.rpartition("/")[2].lower()).strip("-")
    return f"headrace-{words[:_NAME_CHARACTERS]}".rstrip("-")


def check_names(arguments: Namespace) -> None:
    """Raise UsageError for names that Pub/Sub cannot have, and for a job whose refused messages would go nowhere."""
    _check_name("input_subscription", arguments.input_subscription, "subscriptions")
    if arguments.dead_letter_topic:
        _check_name("dead_letter_topic", arguments.dead_letter_topic, "topics")
    elif not arguments.dead_letters:
        raise UsageError(
            "refused messages would be lost: give --dead_letter_topic projects/<project>/topics/<name>, "
            "--dead_letters <folder>, or both"
        )


def _check_name(flag: str, name: str, kind: str) -> None:
    if re.fullmatch(rf"{_PROJECT}/{kind}/{_NAME}", name) is None:
        raise UsageError(
            f"--{flag} {name[:200]!r} is not projects/<project>/{kind}/<name>, with a project of 6 to 100 and a name "
            f"of "
            "3 to 255 characters"
        )


def check_folders(arguments: Namespace, *, probe: bool = True) -> None:
    """Raise UsageError unless the folders are apart and, with ``probe``, can be written to."""
    if arguments.dead_letters:
        check_apart(arguments.output, arguments.dead_letters, read=())
    if not probe:
        return
    if arguments.dead_letters:
        preflight.check_folder("dead_letters", arguments.dead_letters)
    preflight.check_folder("output", arguments.output)


def stream_settings(arguments: Namespace, schema: Schema, *, job: str) -> StreamSettings:
    """The settings that travel to workers. Raises UsageError for values that cannot be, or do not go together."""
    return StreamSettings(
        input=input_settings(arguments, schema),
        subscription=arguments.input_subscription,
        output=arguments.output,
        transform=arguments.transform,
        avro_schema=avro_schema(arguments.avro_schema) if arguments.payload_format == "avro" else "",
        window_seconds=whole_seconds("window", arguments.window, least=1, most=MAX_WINDOW_SECONDS),
        allowed_lateness_seconds=whole_seconds("allowed_lateness", arguments.allowed_lateness),
        shards_per_window=arguments.shards_per_window,
        target_shard_bytes=arguments.target_shard_bytes,
        layout=arguments.layout,
        rows_per_record=arguments.rows_per_record,
        compression=arguments.compression,
        event_time_feature=arguments.event_time_feature,
        max_event_ahead_seconds=whole_seconds("max_event_ahead", arguments.max_event_ahead),
        max_batch_rows=arguments.max_batch_rows,
        max_batch_bytes=arguments.max_batch_bytes,
        max_batch_wait_seconds=arguments.max_batch_wait,
        batch_keys=arguments.batch_keys,
        allow_non_finite=arguments.allow_non_finite,
        redact_features=frozenset(arguments.redact_features),
        job=job,
    )


def whole_seconds(flag: str, seconds: float, *, least: int = 0, most: int = _CENTURY) -> int:
    """``seconds`` as they are. Raises UsageError for a fraction of one, and outside of [least, most]."""
    if seconds != int(seconds) or not least <= seconds <= most:
        raise UsageError(f"--{flag} is {seconds:g} seconds; give whole seconds, from {least}s to {most // 86_400}d")
    return int(seconds)


def avro_schema(source: str | None) -> str:
    """The JSON text of a schema in a file or in Pub/Sub. Raises UsageError where there is none."""
    if source is None:
        raise UsageError("--payload_format=avro needs --avro_schema, the schema that payloads were written with")
    if _PUBSUB_SCHEMA.fullmatch(source) is None:
        return preflight.read_text(source, "Avro schema")
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.pubsub_v1 import SchemaServiceClient

    try:
        return str(SchemaServiceClient().get_schema(name=source, timeout=30).definition)
    except GoogleAPICallError as error:
        raise UsageError(f"--avro_schema {source}: {error}") from error


def input_settings(arguments: Namespace, schema: Schema) -> InputSettings:
    """How messages are read and judged."""
    return InputSettings(
        format=arguments.payload_format,
        schema=schema.proto.SerializeToString(deterministic=True),
        environment=arguments.environment,
        decoding=DecoderSettings(
            unknown_features=arguments.unknown_features, max_record_bytes=arguments.max_record_bytes
        ),
    )


def required_by(artefact: Artefact | None, schema: Schema) -> tuple[str, ...]:
    """The features of the schema that the transform cannot do without, sorted."""
    needed = required_features(artefact.spec) if artefact and artefact.spec else frozenset()
    return tuple(sorted(needed & {feature.name for feature in schema.features}))


def load_transform(folder: str | None, schema: Schema) -> tuple[RowTransformer, Artefact | None]:
    """The transform, its graph loaded, and its artefact. Raises UsageError where it is damaged or of another schema."""
    if not folder:
        return IdentityTransformer(schema), None
    with files.local_copy(folder) as local:
        artefact = load_artefact(local, schema)
        return Transformer(artefact, schema), artefact


def check_same_kind(windows: WindowSettings, now: int) -> None:
    """Raise UsageError where the window of ``now`` (seconds), or the one before, was written in another way.

    One manifest cannot name shards of two kinds, and the job would find out when the window ends.
    """
    for moment in (now, now - windows.window_seconds):
        start = window_start(moment * 1_000_000, windows.window_seconds)
        uri = files.join(windows.folder(start), MANIFEST)
        try:
            there = WindowManifest.from_json(files.read_bytes(uri), uri)
        except FileNotFoundError:
            continue
        if (there.feature_spec, there.compression) != (windows.feature_spec, windows.compression):
            raise UsageError(
                f"{uri} was written with other features, layout or compression, by job {there.job_name!r}; give this "
                "job another --output"
            )


def check_update(windows: WindowSettings, now: datetime) -> None:
    """Raise RefusedError where the newest window of the last two days was written in another way, or has another size.

    What waits in the running job's state was made in that way, and would end in shards and windows of this one.
    """
    days = [f"{now - timedelta(days=ago):%Y%m%d}" for ago in (1, 0)]
    found = [
        file.uri for day in days for file in files.list_files(files.join(windows.output, f"window={day}*", MANIFEST))
    ]
    if not found:
        return
    there = WindowManifest.from_json(files.read_bytes(found[-1]), found[-1])
    size = round((there.window.end - there.window.start).total_seconds())
    mine = (windows.window_seconds, windows.feature_spec, windows.compression)
    if (size, there.feature_spec, there.compression) != mine:
        raise RefusedError(
            f"{found[-1]} was written with another --window, layout, compression or other features: a running job "
            f"cannot "
            "change these in place. Drain it, and start one with another --output"
        )
