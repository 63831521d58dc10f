"""The table of all commands: their words, options, help and where each is carried out."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.options import data, dlq, job, preflight, stream
from pipeline.options.kinds import Option


@dataclass(frozen=True)
class Command:
    """One subcommand: its words, what it does, where its ``execute(arguments, beam_arguments) -> int`` lives."""

    words: tuple[str, ...]
    help: str
    module: str
    options: tuple[Option, ...]
    positional: tuple[str, str, str] | None = None
    """(name, nargs, help) of its positional argument, if it has one."""
    takes_beam_options: bool = False
    example: str = ""


_INPUT_LESS = tuple(option for option in data.INPUT if option.name != "input")
_ENVIRONMENT = tuple(option for option in data.SCHEMA if option.name != "schema")

_DEAD_LETTERS = (
    "archive",
    "+",
    "archive files, folders or globs; or a dead-letter subscription, projects/<project>/subscriptions/<name>",
)

_JOB = ("job", "1", "the job's name or id, or its launch spec (a .yaml file)")

COMMANDS = (
    Command(
        ("schema", "infer"),
        "Write a schema (schema.pbtxt) from data, to be read and corrected by a person.",
        "schema_infer",
        (*data.INFER, *_INPUT_LESS, *data.GENERAL),
        ("input", "+", "files, folders or globs to learn from"),
        example="headrace schema infer 'data/*.jsonl' --output schema.pbtxt",
    ),
    Command(
        ("schema", "validate"),
        "Check a schema file: what is wrong with it, by line, and which of its rules are not judged.",
        "schema_validate",
        (*_ENVIRONMENT[:1], *data.GENERAL),
        ("schema", "?", "the schema file"),
        example="headrace schema validate schema.pbtxt",
    ),
    Command(
        ("analyze",),
        "Learn a transform (means, vocabularies, buckets) from the train split, without writing shards.",
        "analyze",
        data.ANALYZE_OPTIONS,
        takes_beam_options=True,
        example="headrace analyze --input 'data/*.jsonl' --schema schema.pbtxt --features features.yaml --output tf",
    ),
    Command(
        ("run",),
        "Validate and transform records into TFRecord shards; refused rows go to the dead-letter archive.",
        "run",
        data.RUN_OPTIONS,
        takes_beam_options=True,
        example="headrace run --input 'data/*.jsonl' --schema schema.pbtxt --features features.yaml "
        "--output out --dead_letters dead",
    ),
    Command(
        ("stream",),
        "Validate and transform the messages of a Pub/Sub subscription into TFRecord shards by windows of event time; "
        "refused messages go to a dead-letter topic, an archive, or both.",
        "stream",
        stream.STREAM_OPTIONS,
        takes_beam_options=True,
        example="headrace stream --input_subscription projects/my-project/subscriptions/clicks --schema schema.pbtxt "
        "--transform out/run=1/transform_fn --output gs://my-bucket/out "
        "--dead_letter_topic projects/my-project/topics/clicks-dead",
    ),
    Command(
        ("preflight",),
        "Check before a launch that a job finds everything it needs: subscription, topics, folders, transform, "
        "permissions. Takes the flags of 'headrace stream' or 'headrace run'; starts nothing.",
        "preflight",
        preflight.PREFLIGHT_OPTIONS,
        takes_beam_options=True,
        example="headrace preflight --create --input_topic projects/my-project/topics/clicks "
        "--input_subscription projects/my-project/subscriptions/clicks "
        "--dead_letter_topic projects/my-project/topics/clicks-dead --schema schema.pbtxt --output gs://my-bucket/out",
    ),
    Command(
        ("verify",),
        "Check a committed run, or the windows of a stream: every shard, checksum, record and count against the "
        "manifest.",
        "verify",
        (*data.VERIFY, *data.GENERAL),
        (
            "run_dir",
            "1",
            "a run (OUTPUT/run=<id>), a window (OUTPUT/window=<start>_<end>), or an output folder: its latest run, or "
            "all its windows",
        ),
        example="headrace verify out",
    ),
    Command(
        ("bench",),
        "Measure how fast a trainer can read a run, beside the reader most people write, with advice.",
        "bench",
        (*data.BENCH, *data.GENERAL),
        ("run_dir", "1", "a run folder (OUTPUT/run=<id>), or an output folder, whose latest run is taken"),
        example="headrace bench out --step_ms 5",
    ),
    Command(
        ("dlq", "summary"),
        "Count dead letters by reason, feature, stage, source, attempt and hour, with an example of each reason.",
        "dlq_summary",
        (*dlq.DLQ_SUMMARY, *data.GENERAL),
        _DEAD_LETTERS,
        example="headrace dlq summary dead --since 6h",
    ),
    Command(
        ("dlq", "show"),
        "Print dead letters: where each came from, what is wrong with it, and its bytes.",
        "dlq_show",
        (*dlq.DLQ_SHOW, *data.GENERAL),
        _DEAD_LETTERS,
        example="headrace dlq show dead --reason wrong_type --limit 5",
    ),
    Command(
        ("dlq", "export"),
        "Write dead letters as JSON lines, or as CSV for a spreadsheet.",
        "dlq_export",
        (*dlq.DLQ_EXPORT, *data.GENERAL),
        _DEAD_LETTERS,
        example="headrace dlq export dead --format csv --output letters.csv",
    ),
    Command(
        ("dlq", "replay"),
        "Repair dead letters and send them again, each once. Without --execute it is a dry run, which sends nothing.",
        "dlq_replay",
        dlq.REPLAY_OPTIONS,
        _DEAD_LETTERS,
        takes_beam_options=True,
        example="headrace dlq replay dead --fix fixes.yaml --schema schema.pbtxt --transform out/run=1/transform_fn\n"
        "  headrace dlq replay dead --fix fixes.yaml --to projects/my-project/topics/clicks --rate 500 --execute",
    ),
    Command(
        ("job", "launch"),
        "Launch a job from a launch spec (YAML): template, region, parameters, machines. Never twice, also where an "
        "answer is lost; a launch record beside the staged files is what later updates compare with.",
        "job_launch",
        job.LAUNCH_OPTIONS,
        ("spec", "1", "the launch spec, a .yaml file, local or gs://"),
        example="headrace job launch launch.yaml --dry_run",
    ),
    Command(
        ("job", "update"),
        "Replace the running job by what its launch spec says now. The new graph is compared with the running one, "
        "validated by the service, then launched; where it is refused the old job runs on (exit code 4).",
        "job_update",
        job.UPDATE_OPTIONS,
        ("spec", "1", "the launch spec, a .yaml file, local or gs://"),
        example="headrace job update launch.yaml --dry_run",
    ),
    Command(
        ("job", "resize"),
        "Give a running job other machines: same template, same parameters; says what that does to the memory of an "
        "SDK process. Worker limits alone are changed in flight, without replacing the job.",
        "job_resize",
        job.RESIZE_OPTIONS,
        _JOB,
        example="headrace job resize my-job --machine_type n2-highmem-4 --project p --region europe-west1",
    ),
    Command(
        ("job", "drain"),
        "Stop a streaming job without loss: it takes no more messages, finishes what it holds, and ends.",
        "job_drain",
        job.STOP_OPTIONS,
        _JOB,
        example="headrace job drain launch.yaml",
    ),
    Command(
        ("job", "cancel"),
        "Stop a job at once; what it holds is dropped (messages that a stream had taken are lost: drain it instead).",
        "job_cancel",
        job.STOP_OPTIONS,
        _JOB,
        example="headrace job cancel 2026-11-30_12_00_00-123 --project p --region europe-west1",
    ),
    Command(
        ("job", "status"),
        "The state of a job, its counters, its latest warnings and errors. Exit code 1 where it has failed.",
        "job_status",
        job.STATUS_OPTIONS,
        _JOB,
        example="headrace job status launch.yaml",
    ),
    Command(
        ("job", "list"),
        "The active jobs of a region, newest first.",
        "job_list",
        job.LIST_OPTIONS,
        example="headrace job list --project p --region europe-west1",
    ),
)
GROUPS = {
    "schema": "Write and check schemas.",
    "dlq": "Look at dead letters, and replay them.",
    "job": "Launch, change and watch jobs on Dataflow.",
}
