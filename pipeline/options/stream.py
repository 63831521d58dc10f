"""The options of ``headrace stream``."""

from __future__ import annotations

from pipeline.options import data
from pipeline.options.kinds import Option, byte_size, count, duration


def _of(options: tuple[Option, ...], *names: str) -> tuple[Option, ...]:
    return tuple(option for option in options if option.name in names)


MESSAGES = (
    Option(
        "input_subscription",
        "The subscription to read, projects/<project>/subscriptions/<name>. One job a subscription: two share "
        "messages.",
        required=True,
        metavar="NAME",
    ),
    Option(
        "payload_format",
        "What a message holds: one JSON object, or one Avro datum without a container.",
        default="json",
        choices=("json", "avro"),
    ),
    Option(
        "avro_schema",
        "The schema that avro payloads were written with: a file, or a Pub/Sub schema, "
        "projects/<project>/schemas/<name>.",
        metavar="FILE|NAME",
    ),
    *_of(data.INPUT, "max_record_bytes"),
    Option(
        "timestamp_attribute",
        "The attribute that holds a message's event time, RFC 3339 or milliseconds since 1970 (default: the time at "
        "which "
        "it was published). The watermark follows it.",
        metavar="NAME",
    ),
    Option(
        "event_time_feature",
        "The feature that holds a row's event time, which decides its window. The watermark follows the messages' "
        "times "
        "all the same, so that --allowed_lateness has to cover how long rows are under way before they are published.",
        metavar="FEATURE",
    ),
    Option(
        "max_event_ahead",
        "A row whose event time lies further ahead of its publishing is refused (out_of_range): it would hold a window "
        "open until then.",
        type=duration,
        default="1d",
        metavar="TIME",
    ),
    Option(
        "id_attribute",
        "The attribute by which Dataflow drops repeated messages within ten minutes (default: the message id). "
        "Not on the local runner.",
        metavar="NAME",
    ),
)
TRANSFORM = (
    Option(
        "transform",
        "The transform that a batch run learnt (OUTPUT/run=<id>/transform_fn), made with this schema. Without one, "
        "rows "
        "are written as they are.",
        metavar="FOLDER",
    ),
)
WINDOWS = (
    Option(
        "output",
        "Folder for the shards, local or gs://: window=<start>_<end>/ with its manifest.json.",
        required=True,
        metavar="FOLDER",
    ),
    Option(
        "window",
        "How much event time a window holds; whole seconds. Windows begin at multiples of it since 1970 UTC.",
        type=duration,
        default="10m",
        metavar="TIME",
    ),
    Option(
        "allowed_lateness",
        "How long after its end a window takes rows; those that come within a window's time make a further shard. "
        "Later "
        "rows are dead letters (late_data).",
        type=duration,
        default="1h",
        metavar="TIME",
    ),
    Option(
        "shards_per_window",
        "How many shards of a window are filled side by side, each by one worker thread at a time; a row's is chosen "
        "by "
        "a hash of its message.",
        type=count,
        default=4,
        metavar="N",
    ),
    Option(
        "target_shard_bytes",
        "A shard is written at this size, or when its window ends. A worker thread holds it in memory to write it.",
        type=byte_size,
        default=64 << 20,
        metavar="BYTES",
    ),
    *_of(data.OUTPUT, "layout", "rows_per_record", "compression", "allow_non_finite"),
)
DEAD_LETTERS = (
    Option(
        "dead_letter_topic",
        "Topic for refused messages, projects/<project>/topics/<name>: original bytes and attributes, and why. It "
        "needs a "
        "subscription, or messages are lost. This or --dead_letters, or both.",
        metavar="NAME",
    ),
    Option(
        "dead_letters",
        "Folder for the dead-letter archive (Avro), local or gs://: run=<run_id>/.",
        metavar="FOLDER",
    ),
    Option(
        "run_id",
        "Name of the archive's folder; a job that is updated or started again goes on in it (default: --job_name, or "
        "headrace-<subscription>).",
        metavar="ID",
    ),
    Option(
        "max_archive_wait",
        "A dead letter is archived after this time at the latest; longer gives fewer and larger files.",
        type=duration,
        default="1m",
        metavar="TIME",
    ),
    *_of(data.OUTPUT, "redact_features"),
)
BATCHES = (
    Option(
        "max_batch_rows",
        "Messages are worked on together: a call costs about 2.5 ms whatever it carries, so 1 a call is 400 rows/s, "
        "100 are "
        "33,000 and 1,000 are 115,000. A batch is worked on at this many messages ...",
        type=count,
        default=1000,
        metavar="N",
    ),
    Option(
        "max_batch_bytes",
        "... or at this many bytes ...",
        type=byte_size,
        default=8 << 20,
        metavar="BYTES",
    ),
    Option(
        "max_batch_wait",
        "... or this long after its first message. On Dataflow a bundle of a stream can be a few messages, so that a "
        "batch "
        "comes together over many: at R messages a second a batch has about R * wait / --batch_keys.",
        type=duration,
        default="1s",
        metavar="TIME",
    ),
    Option(
        "batch_keys",
        "How many batches come together side by side; one worker thread works on each. Fewer give larger batches, more "
        "give more workers something to do: not fewer than the job has worker threads.",
        type=count,
        default=8,
        metavar="N",
    ),
)
LOCAL = (
    Option(
        "duration",
        "End a local run after this time (default: at Ctrl-C). It then takes no more messages, works on those that it "
        "has, "
        "writes all windows and ends.",
        type=duration,
        metavar="TIME",
    ),
)
STREAM_OPTIONS = (*MESSAGES, *data.SCHEMA, *TRANSFORM, *WINDOWS, *DEAD_LETTERS, *BATCHES, *LOCAL, *data.GENERAL)
