"""The options of the commands that work on files: schema, analyze, run, verify, bench."""

from __future__ import annotations

from pipeline.options.kinds import Option, byte_size, count, fraction, positive, seed_number, words

INPUT = (
    Option(
        "input",
        "What to read: a file, a folder, or a glob (quote it), local or gs://. Repeat the flag for several.",
        required=True,
        many=True,
        metavar="PATH",
    ),
    Option(
        "format",
        "Format of the input; auto goes by the file names (.jsonl .ndjson .json, .csv .tsv).",
        default="auto",
        choices=("auto", "jsonl", "csv", "tsv"),
    ),
    Option(
        "csv_delimiter",
        "One character between CSV cells (default: a comma; a tab for .tsv).",
        type=str,  # a tab is white space
        metavar="CHAR",
    ),
    Option("csv_quote", "The character that quotes CSV cells.", type=str, default='"', metavar="CHAR"),
    Option(
        "csv_header",
        "Column names of CSV files that have no header line, separated by commas.",
        type=words,
        metavar="NAMES",
    ),
    Option(
        "csv_null_tokens",
        "Unquoted CSV cells that mean 'no value', separated by commas (the default: an empty cell, and NA).",
        type=words,
        default=("", "NA"),
        metavar="TOKENS",
    ),
    Option(
        "csv_multiline",
        "Quoted CSV cells may hold line ends. Such files cannot be split: one thread reads each.",
        flag=True,
    ),
    Option(
        "max_record_bytes",
        "A row longer than this is refused (record_too_large) without being held in memory.",
        type=byte_size,
        default=16 << 20,
        metavar="BYTES",
    ),
)
SCHEMA = (
    Option(
        "schema",
        "The schema: a tensorflow_metadata Schema proto in text form. 'headrace schema infer' writes one.",
        required=True,
        metavar="FILE",
    ),
    Option("environment", "The schema environment that decides which features are expected.", default="TRAINING"),
    Option(
        "unknown_features",
        "What to do with keys and columns that the schema does not name.",
        default="ignore",
        choices=("ignore", "reject"),
    ),
)
FEATURES = (
    Option("features", "features.yaml: one line a feature says how it is transformed.", metavar="FILE"),
    Option(
        "preprocessing_module",
        "A Python file with a TFT preprocessing_fn(inputs); use it instead of --features.",
        metavar="FILE",
    ),
)
SPLITTING = (
    Option(
        "splits",
        "Parts of the data and their fractions, by a seeded hash, e.g. train=0.9,eval=0.1.",
        default="train=1",
        metavar="NAME=F,...",
    ),
    Option(
        "split_key",
        "A feature whose value decides the split, so that rows which share it stay together (default: the whole row).",
        metavar="FEATURE",
    ),
    Option(
        "seed",
        "Seed of the shuffle and of the splits: same seed and input, same bytes.",
        type=seed_number,
        default=0,
        metavar="N",
    ),
)
OUTPUT = (
    Option(
        "output",
        "Folder for the results, local or gs://: run=<run_id>/ with the shards, and LATEST.",
        required=True,
        metavar="FOLDER",
    ),
    Option(
        "dead_letters",
        "Folder for the dead-letter archive (Avro), local or gs://: run=<run_id>/.",
        required=True,
        metavar="FOLDER",
    ),
    Option("run_id", "Name of the run; the same name again replaces that run (default: the UTC time).", metavar="ID"),
    Option(
        "transform",
        "A transform made earlier (OUTPUT/run=<id>/transform_fn), instead of analysing this input.",
        metavar="FOLDER",
    ),
    Option(
        "layout",
        "What one TFRecord record holds. rows: a row, every feature by its name; every tool reads it. packed: a row, "
        "its numbers in two vectors; faster to read. blocks: many rows, column by column; smallest, fastest by far, "
        "for features of fixed shape. pipeline.features.reader gives the same tensors from all of them.",
        default="rows",
        choices=("rows", "packed", "blocks"),
    ),
    Option("rows_per_record", "Rows in a record of --layout=blocks.", type=count, default=256, metavar="N"),
    Option(
        "compression",
        "Compress whole shards. Worth it where the network is slower than the trainer; blocks are small without.",
        default="none",
        choices=("none", "gzip", "zlib"),
    ),
    Option(
        "target_shard_bytes",
        "How large shards become, about; 100 to 200 MiB suits tf.data on object storage.",
        type=byte_size,
        default=128 << 20,
        metavar="BYTES",
    ),
    Option("min_shards", "At least this many shards a split, given as many rows.", type=count, default=1, metavar="N"),
    Option(
        "shuffle",
        "blocks: blocks of the input are dealt out at random and rows permuted inside shards, no data crosses workers. "
        "global: every row goes to a random shard (for sorted input that cannot be split). none: the input's order.",
        default="blocks",
        choices=("blocks", "global", "none"),
    ),
    Option(
        "max_rejected_fraction",
        "Commit nothing (exit code 3) if more than this share of the rows is refused.",
        type=fraction,
        default=1.0,
        metavar="F",
    ),
    Option(
        "redact_features",
        "Features whose values must not appear in messages, logs and reports, separated by commas.",
        type=words,
        default=(),
        metavar="NAMES",
    ),
    Option(
        "allow_non_finite",
        "Let NaN and infinity out of the transform; without it such a row is refused (transform_error).",
        flag=True,
    ),
)
LOCAL = (
    Option(
        "threads",
        "Workers of a local run (default: all cores): processes on Linux, if there are several tasks and all files are "
        "on this machine; else threads.",
        type=count,
        metavar="N",
    ),
)
GENERAL = (
    Option("json", "Print the result as one JSON document on stdout.", flag=True),
    Option(
        "log_format",
        "How log lines on stderr look; json is Cloud Logging's structure (default: text on a terminal, else json).",
        choices=("text", "json"),
    ),
)
INFER = (
    Option("output", "Where to write the schema (default: stdout).", metavar="FILE"),
    Option("max_rows", "Learn from this many rows at most, spread over the input.", type=count, metavar="N"),
)
VERIFY = (
    Option(
        "checksums_only",
        "Do not parse the records: only files, checksums and counts (no TensorFlow needed).",
        flag=True,
    ),
)
BENCH = (
    Option("batch_size", "Rows a batch.", type=count, default=1024, metavar="N"),
    Option(
        "step_ms",
        "Milliseconds that the accelerator works on a batch: how much it would wait is then measured.",
        type=positive,
        metavar="MS",
    ),
    Option("seconds", "How long each reader is measured at most.", type=positive, default=10.0, metavar="S"),
    Option("split", "Which split to read.", default="train", metavar="NAME"),
)
ANALYZE = (Option("output", "Folder to write the transform to, local or gs://.", required=True, metavar="FOLDER"),)

RUN_OPTIONS = (*INPUT, *SCHEMA, *FEATURES, *SPLITTING, *OUTPUT, *LOCAL, *GENERAL)
ANALYZE_OPTIONS = (*ANALYZE, *INPUT, *SCHEMA, *FEATURES, *SPLITTING, *LOCAL, *GENERAL)
