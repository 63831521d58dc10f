"""A stream played without Pub/Sub and TensorFlow: events on a test clock, a processor that copies payloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.utils.timestamp import Timestamp

from fakes.runs import files_below, letters_in, records_of
from pipeline.core.framing import frame
from pipeline.core.manifest import Code
from pipeline.core.messages import Message, RefusedMessage, StreamSettings, WindowedChunk
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault
from pipeline.core.settings import InputSettings
from pipeline.core.windows import is_late, window_start
from pipeline.jobs.streaming import Ports, StreamJob, build_stream
from pipeline.transforms.streaming_letters import LetterSettings
from pipeline.transforms.streaming_windows import WindowSettings

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SUBSCRIPTION = "projects/test-proj/subscriptions/flights"
FEATURE_SPEC = {"features": {}, "labels": [], "layout": {"name": "rows", "rows_per_record": 1}}


@dataclass(frozen=True)
class Copied:
    """What ``CopyProcessor`` made."""

    chunks: list[WindowedChunk]
    refused: list[RefusedMessage]


class CopyProcessor:
    """Each payload is a record, unless it begins with ``bad``. Event time is the message's; the shard its length."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings

    def process(self, messages: Sequence[Message], *, closed_before_s: int) -> Copied:
        """Deal messages into windows and shards."""
        settings, refused = self._settings, []
        groups: dict[tuple[int, int], list[bytes]] = {}
        for message in messages:
            start = window_start(message.event_time_us, settings.window_seconds)
            if message.payload.startswith(b"bad"):
                refused.append(_refused(message, Reason.INVALID_JSON))
            elif is_late(
                start,
                window_seconds=settings.window_seconds,
                allowed_lateness_seconds=settings.allowed_lateness_seconds,
                closed_before=closed_before_s,
            ):
                refused.append(_refused(message, Reason.LATE_DATA))
            else:
                shard = len(message.payload) % settings.shards_per_window
                groups.setdefault((start, shard), []).append(message.payload)
        chunks = [
            WindowedChunk(*key, len(payloads), len(payloads), bytes(frame(payloads)))
            for key, payloads in sorted(groups.items())
        ]
        return Copied(chunks, refused)


def _refused(message: Message, reason: Reason) -> RefusedMessage:
    return RefusedMessage(message, (Fault(reason, f"refused: {reason.value}"),), message.event_time_us)


class Published:
    """A topic in memory, over all bundles of a test."""

    letters: ClassVar[list[Any]] = []

    def __init__(self, settings: LetterSettings) -> None:
        self.settings = settings

    def publish(self, letters: Sequence[Any]) -> int:
        """Keep them."""
        Published.letters.extend(letters)
        return len(letters)


def no_time() -> float:
    """The processing time of a TestStream that has not moved its clock."""
    return 0.0


def quiet_ports() -> Ports:
    """Ports that neither load TensorFlow nor talk to anybody."""
    return Ports(CopyProcessor, Published, no_time)


def stream_settings(**given: Any) -> StreamSettings:
    """Settings of a small stream: windows of 60 s, 60 s of lateness, two shards, one batch key."""
    fields: dict[str, Any] = {
        "input": InputSettings("json", b""),
        "subscription": SUBSCRIPTION,
        "window_seconds": 60,
        "allowed_lateness_seconds": 60,
        "shards_per_window": 2,
        "max_batch_wait_seconds": 5.0,
        "batch_keys": 1,
        "job": "test-job",
    }
    return StreamSettings(**(fields | given))


@dataclass(frozen=True)
class Play:
    """A stream to be played: where it writes, and how it is set."""

    folder: Path
    settings: StreamSettings = field(default_factory=stream_settings)
    compression: Any = "none"
    archive: bool = True
    topic: str = "projects/test-proj/topics/dead"
    ports: Ports = field(default_factory=quiet_ports)

    @property
    def output(self) -> Path:
        """Where windows are."""
        return self.folder / "out"

    @property
    def dead(self) -> Path:
        """Where the archive is."""
        return self.folder / "dead"

    def job(self) -> StreamJob:
        """The job."""
        settings = replace(self.settings, output=str(self.output))
        windows = WindowSettings(
            output=settings.output,
            window_seconds=settings.window_seconds,
            allowed_lateness_seconds=settings.allowed_lateness_seconds,
            target_shard_bytes=settings.target_shard_bytes,
            compression=self.compression,
            layout=settings.layout,
            job_name=settings.job,
            code=Code("test"),
            schema_fingerprint="schema",
            transform_fingerprint=None,
            feature_spec=FEATURE_SPEC,
        )
        letters = LetterSettings(self.topic, str(self.dead) if self.archive else "", str(self.dead))
        return StreamJob(settings, windows, letters)

    def run(self, events: TestStream, runner: str = "BundleBasedDirectRunner") -> None:
        """Play ``events`` to their end, which is a drain. Raises what the pipeline raises."""
        Published.letters = []
        options = PipelineOptions([f"--runner={runner}", "--streaming"])
        pipeline = beam.Pipeline(options=options)
        build_stream(pipeline, self.job(), ports=self.ports, messages=pipeline | "Events" >> events)
        pipeline.run().wait_until_finish()

    def manifests(self) -> dict[str, Any]:
        """The manifest of each window, by folder."""
        return {
            path.parent.name: json.loads(path.read_bytes())
            for path in sorted(self.output.glob("window=*/manifest.json"))
        }

    def windows(self) -> dict[str, list[bytes]]:
        """The records that the manifests name, sorted, by the first time in the window's name."""
        found = {}
        for folder, manifest in self.manifests().items():
            records = []
            for shard in manifest["shards"]:
                mine = records_of(self.output / folder / shard["name"])
                assert len(mine) == shard["rows"] == shard["records"] > 0
                records += mine
            assert manifest["counts"]["written"] == len(records)
            found[folder.removeprefix("window=").partition("_")[0]] = sorted(records)
        return found

    def letters(self) -> list[Any]:
        """The dead letters in the archive."""
        return letters_in(self.dead)

    def assert_once_each(self, payloads: Sequence[bytes]) -> None:
        """Every payload is once in a shard that a manifest names, or once in the archive."""
        written = [record for records in self.windows().values() for record in records]
        refused = [letter["payload"] for letter in self.letters()]
        assert Counter(written) + Counter(refused) == Counter(payloads)

    def strangers(self) -> set[str]:
        """Files in windows that no manifest names."""
        named = {"manifest.json"}
        for manifest in self.manifests().values():
            named |= {shard["name"] for shard in manifest["shards"]}
        return {path.name for path in files_below(self.output)} - named if self.output.exists() else set()


def message(payload: bytes, second: float, *, message_id: str | None = None, **attributes: str) -> Any:
    """A timestamped element of a subscription."""
    element = PubsubMessage(
        payload,
        attributes,
        message_id=message_id or f"{payload.decode('latin-1')}@{second}",
        publish_time=EPOCH + timedelta(seconds=second),
    )
    return beam.window.TimestampedValue(element, Timestamp(second))
