"""The judge of a dry run: what the live job would make of messages, by the same decoder, schema and transform."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime

from dlq_replay.dry_run import Judge
from dlq_replay.policy import Outgoing
from dlq_replay.selection import read_time
from dlq_replay.senders import TABLE_ROW, is_table_row
from pipeline import preflight
from pipeline.commands.prepare_stream import avro_schema
from pipeline.core.decoding import DecoderSettings
from pipeline.core.messages import Message, StreamSettings
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.schema import Schema, load_schema
from pipeline.core.settings import InputSettings
from pipeline.features.artefact import load_artefact
from pipeline.features.spec import required_features
from pipeline.features.stream import MessageProcessor
from pipeline.features.transformer import load_transformer
from pipeline.transforms import files

_NEVER = -(2**53)  # no window is closed: only the running job knows which are


def make_judge(arguments: Namespace, now: datetime) -> Judge:
    """The judge that the arguments describe. Raises UsageError where schema and transform do not go together."""
    text = preflight.read_text(arguments.schema, "schema")
    schema = load_schema(text, environment=arguments.environment, origin=arguments.schema)
    settings = StreamSettings(
        input=InputSettings(
            format=arguments.payload_format,
            schema=schema.proto.SerializeToString(deterministic=True),
            environment=arguments.environment,
            required=_required(arguments.transform, schema),
            decoding=DecoderSettings(unknown_features=arguments.unknown_features),
        ),
        subscription="projects/dry/subscriptions/run",
        avro_schema=avro_schema(arguments.avro_schema) if arguments.payload_format == "avro" else "",
        event_time_feature=arguments.event_time_feature,
    )
    transformer = load_transformer(
        arguments.transform, settings.input.load_schema(), list_folder=files.list_folder, open_file=files.open_read
    )
    return _Judge(MessageProcessor(settings, transformer=transformer), int(now.timestamp() * 1_000_000))


def _required(transform: str | None, schema: Schema) -> tuple[str, ...]:
    """The features that the transform cannot do without."""
    if not transform:
        return ()
    with files.local_copy(transform) as folder:
        artefact = load_artefact(folder, schema)
    return tuple(sorted(required_features(artefact.spec) & {f.name for f in schema.features})) if artefact.spec else ()


class _Judge:
    def __init__(self, processor: MessageProcessor, now_us: int) -> None:
        self._processor, self._now_us = processor, now_us

    def __call__(self, batch: Sequence[Outgoing]) -> list[tuple[Fault, ...]]:
        """The faults of each message; raises what speaks of the machine."""
        messages = [self._message(number, outgoing) for number, outgoing in enumerate(batch)]
        processed = self._processor.process(messages, closed_before_s=_NEVER)
        faults = {refused.message.message_id: refused.faults for refused in processed.refused}
        found = [faults.get(message.message_id, ()) for message in messages]
        table = (Fault(Reason.INVALID_JSON, TABLE_ROW),)
        return [table if is_table_row(outgoing) else one for outgoing, one in zip(batch, found, strict=True)]

    def _message(self, number: int, outgoing: Outgoing) -> Message:
        event = read_time(dict(outgoing.attributes).get("dlq_event_time", ""))
        event_us = int(event.timestamp() * 1_000_000) if event else self._now_us
        return Message(
            outgoing.payload, outgoing.attributes, str(number), self._now_us, event_us, outgoing.ordering_key
        )
