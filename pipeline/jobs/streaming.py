"""The streaming graph: messages -> chunks -> shards -> windows, with dead letters beside them.

    ReadMessages -> KeyMessages -> ProcessMessages -> WriteShards -> CommitWindow
                                          |-> PublishLetters
                                          '-> ArchiveLetters

Its shape is the same whatever the options are (a job without an archive has the step, which then does nothing), so
that a running job can be updated with other options. Labels, tags, state and timer ids are in ``transforms.names``;
what is kept in state is bytes of a versioned format (``core.codec``) under coders that are part of Beam's model.

Nothing is dropped. The places in which Beam can drop data, one by one, and why none of them does here:

Late data. Beam drops an element where it is grouped (a GroupByKey, or a trigger that has closed) in a window that the
  watermark has passed by the allowed lateness. All of this graph is in the one global window, which does not end, and
  it has no GroupByKey: elements are gathered in state, which drops nothing. Rows that come too late for *our* windows
  are refused by ProcessMessages and go to the dead letters.
State of an expired window. Beam collects it; the global window does not expire before the job ends.
The end of a job. A drain takes the watermark to the end of time: the timers WATCH, LAST, CLOSE and PANE are in event
  time, fire, and give out what is held back; WATCH stops setting itself again after some tens of times. Cancelling a
  job loses what it holds, on any runner: drain instead.
Acknowledgement. Dataflow acknowledges a message once it is in the state of ProcessMessages, which is durable. Beam's
  local runner acknowledges before it has worked on a message; a crash of it loses those.
Deduplication. By message id (for ten minutes, by Dataflow), or by --id_attribute where it is given: two messages with
  one value of it are one message, so that a producer who repeats a value has told Dataflow to drop the second.
Timestamps. A message whose --timestamp_attribute is missing or is no time is the service's to judge before we see it;
  --event_time_feature is judged by us, and a bad one is a dead letter.
Outputs without a consumer. A tagged output that nobody declares is dropped silently: ProcessMessages declares its two.
A watermark that overtakes. What is emitted behind the watermark is not dropped in the global window; it would only
  make further shards. The watermark is held back at the oldest message in a buffer (``streaming_buffer``), and at the
  end of a window while its shards are open (a timer holds it there), so that a manifest is written after its shards.
Failed bundles. They are retried: on Dataflow for ever, locally four times. What they had written is written again
  under the same name, or lies there and no manifest names it. Publishing is at least once; copies share a dlq_id.
Timers of a namesake. Beam's FnApiRunner, which runs the same worker code as Dataflow, keeps the timers
  that a bundle set under their bare id: of two steps that both call a timer "end", one gets the timers of both, which
  of them depends on the hash seed, and the other waits for ever. So no two steps here share a timer id.
A file system that lists late. Nothing is listed: a manifest is the union of what is in state and of itself.

An update in place may change every option but those that say what a shard is: --window, --layout, --rows_per_record,
--compression, and a --transform that gives other features. What waits in state was made with the old ones, and one
manifest cannot name both. For those, drain the job and start one with another --output.

On Dataflow a bundle of a stream is often a few messages, so that a batch comes together in state, not in a bundle.
Under R messages a second and K batch keys a batch has about R * max_batch_wait / K messages, and a call costs 2.5 ms
whatever it carries: keep that above 100, by fewer --batch_keys or a longer --max_batch_wait; but not fewer keys than
there are worker threads, since a key is worked on by one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.gcp.pubsub import ReadFromPubSub
from apache_beam.typehints import typehints

from pipeline.core.messages import StreamSettings
from pipeline.transforms import names
from pipeline.transforms.streaming import MakeProcessor, ProcessMessages, make_processor
from pipeline.transforms.streaming_buffer import Now, wall_clock
from pipeline.transforms.streaming_keys import KeyMessages
from pipeline.transforms.streaming_letters import (
    ArchiveLetters,
    LetterSettings,
    MakePublisher,
    PublishLetters,
    make_publisher,
)
from pipeline.transforms.streaming_windows import CommitWindow, WindowSettings, WriteShards

_KEYED_BYTES = typehints.KV[int, bytes]
_KEYED_CHUNKS = typehints.KV[typehints.Tuple[int, int], bytes]


@dataclass(frozen=True)
class StreamJob:
    """All of a streaming job. The two attributes are None, or names of attributes of the messages."""

    settings: StreamSettings
    windows: WindowSettings
    letters: LetterSettings
    timestamp_attribute: str | None = None
    id_attribute: str | None = None


@dataclass(frozen=True)
class Ports:
    """What the graph does through others: how a processor and a publisher are made, and what time it is."""

    processor: MakeProcessor = make_processor
    publisher: MakePublisher = make_publisher
    now: Now = wall_clock


@dataclass(frozen=True)
class Written:
    """URIs of what the graph wrote, each time that it did: ``manifests`` of windows, ``archives`` of dead letters."""

    manifests: beam.PCollection
    archives: beam.PCollection


def build_stream(root: beam.Pipeline, job: StreamJob, *, ports: Ports | None = None, messages: Any = None) -> Written:
    """Add the streaming graph to ``root``. ``messages`` (PubsubMessage) take the place of the subscription in tests."""
    ports = ports or Ports()
    source = messages if messages is not None else root | names.READ_MESSAGES >> _read(job)
    work = ProcessMessages(
        job.settings,
        ports.processor,
        schema_fingerprint=job.windows.schema_fingerprint,
        kind=job.windows.kind,
        now=ports.now,
    )
    processed = (
        source
        | names.KEY_MESSAGES >> beam.ParDo(KeyMessages(job.settings)).with_output_types(_KEYED_BYTES)
        | names.PROCESS_MESSAGES >> beam.ParDo(work).with_outputs(names.LETTERS, main=names.CHUNKS)
    )
    chunks, letters = processed[names.CHUNKS], processed[names.LETTERS]
    chunks.element_type, letters.element_type = _KEYED_CHUNKS, _KEYED_BYTES
    manifests = (
        chunks
        | names.WRITE_SHARDS >> beam.ParDo(WriteShards(job.windows)).with_output_types(_KEYED_BYTES)
        | names.COMMIT_WINDOW >> beam.ParDo(CommitWindow(job.windows)).with_output_types(str)
    )
    publish = PublishLetters(job.letters, ports.publisher, ports.now)
    _ = letters | names.PUBLISH_LETTERS >> beam.ParDo(publish).with_output_types(str)
    archives = letters | names.ARCHIVE_LETTERS >> beam.ParDo(ArchiveLetters(job.letters, ports.now)).with_output_types(
        str
    )
    return Written(manifests, archives)


def _read(job: StreamJob) -> ReadFromPubSub:
    return ReadFromPubSub(
        subscription=job.settings.subscription,
        with_attributes=True,
        id_label=job.id_attribute,
        timestamp_attribute=job.timestamp_attribute,
    )
