"""``headrace preflight``: would this job find everything it needs? Takes the job's own flags, starts nothing."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

from apache_beam.options.pipeline_options import PipelineOptions

from pipeline import preflight
from pipeline.apart import check_apart
from pipeline.commands.beam_options import is_local, pipeline_options
from pipeline.commands.local_stream import NAME as STREAM_RUNNER
from pipeline.commands.prepare import analysis_of, check_redacted, required_by_features
from pipeline.commands.prepare_stream import prepare_stream
from pipeline.commands.stream import check_remote
from pipeline.core.errors import UsageError
from pipeline.core.findings import Finding, Level, problem, problems
from pipeline.core.pubsub_creation import Step
from pipeline.core.schema import Schema, load_schema
from pipeline.features.artefact import load_artefact
from pipeline.readiness import stream
from pipeline.readiness.places import attempt, folder_finding
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print all findings; 0 where the job can be launched, 2 where not. Raises UsageError where no job is named."""
    with redirect_stdout(sys.stderr):  # where a preprocessing module may print
        options = pipeline_options(beam_arguments, threads=1, default_runner=STREAM_RUNNER)
        made, findings = _look(arguments, options)
    bad = problems(findings)
    if arguments.json:
        created = [str(step) for step in made]
        print(
            json.dumps({"ok": not bad, "created": created, "findings": [one.as_json() for one in findings]}, indent=2)
        )
    else:
        _print(made, findings)
    return UsageError.exit_code if bad else 0


def _look(arguments: Namespace, options: PipelineOptions) -> tuple[list[Step], list[Finding]]:
    if arguments.input_subscription and arguments.input:
        raise UsageError("--input_subscription is a stream, --input a batch run: give the flags of one job")
    if arguments.input:
        return [], [*_given(arguments, "schema", "output", "dead_letters"), *_batch(arguments), *_cloud(options)]
    if not arguments.input_subscription:
        raise UsageError(
            "which job? Give the flags of 'headrace stream' (--input_subscription ...) or 'headrace run' (--input ...)"
        )
    made: list[Step] = []
    wanted = stream.wanted_of(arguments, local=is_local(options), account=_account(options))
    if arguments.create:
        made = stream.create(wanted)
    findings = [*_given(arguments, "schema", "output"), *stream.check(wanted, made=made)]
    findings += [*_places(arguments), *_cloud(options)]
    if not wanted.local:
        findings.append(attempt("the runner", lambda: _remote(arguments)))
    if not problems(findings):
        findings.append(attempt("the flags", lambda: _all_flags(arguments, options)))
    return made, findings


def _given(arguments: Namespace, *names: str) -> Iterator[Finding]:
    for name in names:
        if not getattr(arguments, name):
            yield problem(f"--{name}", "it is not given, and the job needs it")


def _batch(arguments: Namespace) -> Iterator[Finding]:
    """Findings of ``headrace run``."""
    yield attempt("--input", lambda: _input(arguments))
    yield from _places(arguments)
    if arguments.schema and (arguments.features or arguments.preprocessing_module):
        yield attempt("the features", lambda: _features(arguments))


def _input(arguments: Namespace) -> str:
    found = preflight.resolve_inputs(arguments.input)
    name = preflight.input_format(found, arguments.format)
    if arguments.output and arguments.dead_letters:
        check_apart(arguments.output, arguments.dead_letters, read=[file.uri for file in found])
    size = sum(file.size_bytes for file in found)
    if not size:
        raise UsageError(f"the input is empty: {len(found)} files, 0 bytes")
    return f"{len(found):,} {name} files, {size:,} bytes"


def _features(arguments: Namespace) -> str:
    sources = required_by_features(arguments, preflight.open_sources(arguments))
    analysis_of(arguments, sources, folder="")
    return f"{arguments.features or arguments.preprocessing_module} fits the schema"


def _places(arguments: Namespace) -> Iterator[Finding]:
    """The schema, the transform made with it, and the folders."""
    if arguments.schema:
        yield attempt("--schema", lambda: _schema_words(arguments))
    for flag in ("output", "dead_letters"):
        if folder := getattr(arguments, flag):
            yield folder_finding(flag, folder)
    if arguments.transform and arguments.schema:
        yield attempt("--transform", lambda: _transform(arguments), "headrace analyze, or name the folder it wrote")


def _schema(arguments: Namespace) -> Schema:
    text = preflight.read_text(arguments.schema, "schema")
    return load_schema(text, environment=arguments.environment, origin=arguments.schema)


def _schema_words(arguments: Namespace) -> str:
    schema = _schema(arguments)
    check_redacted(arguments.redact_features, schema)
    return f"{len(schema.features)} features, fingerprint {schema.fingerprint[:12]}"


def _transform(arguments: Namespace) -> str:
    with files.local_copy(arguments.transform) as folder:
        artefact = load_artefact(folder, _schema(arguments))
    return f"{arguments.transform} gives {len(artefact.features)} features and was made with this schema"


def _cloud(options: PipelineOptions) -> Iterator[Finding]:
    """The folders that a remote runner stages in."""
    given = options.get_all_options()
    for flag in ("temp_location", "staging_location"):
        if folder := given.get(flag):
            yield folder_finding(flag, str(folder))


def _remote(arguments: Namespace) -> str:
    check_remote(arguments)
    return "its workers see all folders"


def _account(options: PipelineOptions) -> str | None:
    return options.get_all_options().get("service_account_email") or None


def _all_flags(arguments: Namespace, options: PipelineOptions) -> str:
    prepare_stream(arguments, job_name=options.get_all_options().get("job_name"))
    return "they fit together"


def _print(made: Sequence[Step], findings: Sequence[Finding]) -> None:
    for step in made:
        print(f"created  {step}")
    for finding in findings:
        print("\n".join(finding.lines()))
    counts = {level: sum(one.level is level for one in findings) for level in Level}
    verdict = "the job can be launched" if not counts[Level.PROBLEM] else "NOT READY: mend the problems first"
    told = ", ".join(f"{counts[level]} {level.value}" for level in Level if counts[level])
    print(f"\n{verdict} ({told})")
