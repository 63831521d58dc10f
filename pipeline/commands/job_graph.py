"""What a launch comes from: the template's image, the graph that this code builds for its parameters, fingerprints."""

from __future__ import annotations

from argparse import Namespace

from pipeline import preflight
from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.core.schema import load_schema
from pipeline.logs import silent_imports
from pipeline.ops.launch_record import Provenance
from pipeline.ops.launch_spec import LaunchSpec
from pipeline.ops.template_file import TemplateFile, read_template
from pipeline.options import kinds
from pipeline.options.template import arguments as launcher_arguments
from pipeline.options.template import template_named
from pipeline.transforms import files


def open_template(spec: LaunchSpec, *, where: str) -> TemplateFile:
    """The template of ``spec``, its parameters checked. Raises UsageError that names what is wrong in ``where``."""
    try:
        data = files.read_bytes(spec.template)
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no template {spec.template}; scripts/build_template makes one") from None
    template = read_template(data, spec.template)
    template.check(spec.parameters, spec=where)
    if template.streaming is not None and template.streaming != (spec.pipeline == "streaming"):
        kind = "a streaming" if template.streaming else "not a streaming"
        raise UsageError(f"{where}: pipeline is {spec.pipeline!r}, but {spec.template} is {kind} template")
    return template


def provenance_of(spec: LaunchSpec, template: TemplateFile) -> Provenance:
    """Code, image, graph and fingerprints of a launch. Raises UsageError where the job could not be built."""
    code, arguments = preflight.code_version(), parameters_as_arguments(spec)
    graph, schema, transform = (
        _graph_of(spec, arguments) if spec.pipeline == "streaming" else (None, _schema_of(spec), None)
    )
    return Provenance(code.version, code.git_commit, template.image, template.image_digest, graph, schema, transform)


def _schema_of(spec: LaunchSpec) -> str | None:
    uri = spec.parameters.get("schema")
    return load_schema(preflight.read_text(uri, "schema"), origin=uri).fingerprint if uri else None


def _graph_of(spec: LaunchSpec, arguments: Namespace) -> tuple[Json, str, str | None]:
    """The streaming graph of these parameters, as the template's launcher would build it, and what it works by."""
    with silent_imports():
        import apache_beam as beam

        from pipeline.commands.prepare_stream import prepare_stream
        from pipeline.jobs.streaming import build_stream
        from pipeline.ops.graph import snapshot
    job = prepare_stream(arguments, job_name=spec.job_name, probe=False)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build_stream(pipeline, job)
    graph = snapshot(pipeline.to_runner_api())
    return graph, job.windows.schema_fingerprint, job.windows.transform_fingerprint


def parameters_as_arguments(spec: LaunchSpec) -> Namespace:
    """The parameters as the command's own arguments, read as the template's launcher reads them.

    Raises UsageError for what the command does not take; Beam's own options among them are left to Beam.
    """
    template = template_named(spec.pipeline)
    words = launcher_arguments(template, [f"--{name}={value}" for name, value in spec.parameters.items()])
    parser = kinds.Parser(prog=f"headrace {' '.join(template.words)}", allow_abbrev=False)
    kinds.add_options(parser, template.command.options)
    known, rest = parser.parse_known_args(words[len(template.words) :])
    with silent_imports():
        from pipeline.commands.beam_options import split_known
    unknown, flags = split_known(rest)
    kinds.refuse_unknown(parser.prog, unknown, [*(f"--{option.name}" for option in template.command.options), *flags])
    return known
