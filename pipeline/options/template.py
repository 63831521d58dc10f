"""The flex templates: which command each one runs, its parameters (metadata.json), and parameters as arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.core.errors import UsageError
from pipeline.options import data, dlq, kinds, stream
from pipeline.options.commands import COMMANDS, Command
from pipeline.options.kinds import Option

Json = dict[str, object]

ON_YOUR_MACHINE = frozenset({"threads", "duration", "json", "log_format"})
"""Options without a meaning for a job on Dataflow: no template has them."""

IMAGE = "HEADRACE_IMAGE"
"""The variable in which an image knows its own name, so that workers run what the launcher runs."""

_GCS = r"^gs://[a-z0-9][-_.a-z0-9]*(/.*)?$"
_PARAM_TYPE = {"FILE": "GCS_READ_FILE", "PATH": "TEXT"}
_GROUPS = (
    (data.INPUT, "Input"),
    (data.SCHEMA, "Schema"),
    (data.FEATURES, "Features"),
    (data.SPLITTING, "Splits"),
    (data.OUTPUT, "Output"),
    (stream.MESSAGES, "Input"),
    (stream.TRANSFORM, "Features"),
    (stream.WINDOWS, "Output"),
    (stream.DEAD_LETTERS, "Dead letters"),
    (stream.BATCHES, "Batches"),
    (dlq.SELECTION, "Selection"),
    (dlq.REPAIR, "Repair"),
    (dlq.PROOF, "Proof"),
    (dlq.REPLAY, "Replay"),
)
_READ_FOLDERS = frozenset({"transform"})


@dataclass(frozen=True)
class Template:
    """A flex template: the folder's name, the command that it runs, and how it presents itself."""

    name: str
    words: tuple[str, ...]
    title: str
    description: str
    streaming: bool = False

    @property
    def command(self) -> Command:
        """The command that its launcher runs."""
        return next(command for command in COMMANDS if command.words == self.words)

    @property
    def options(self) -> tuple[Option, ...]:
        """The command's options that are parameters of the template."""
        return tuple(option for option in self.command.options if option.name not in ON_YOUR_MACHINE)


TEMPLATES = (
    Template(
        "batch",
        ("run",),
        "Headrace: files to training shards",
        "Validates and transforms records from Cloud Storage into TFRecord shards; refused rows go to the dead-letter "
        "archive, and nothing is committed unless every row is accounted for.",
    ),
    Template(
        "streaming",
        ("stream",),
        "Headrace: messages to training shards by windows",
        "Validates and transforms the messages of a subscription into TFRecord shards by windows of event time; "
        "refused messages go to a dead-letter topic, an archive, or both. Can be updated in place.",
        streaming=True,
    ),
    Template(
        "replay",
        ("dlq", "replay"),
        "Headrace: replay dead letters",
        "Repairs dead letters and sends them again, each once, at a rate that the live job can bear. Without "
        "execute=true it is a dry run, which sends nothing.",
    ),
)


def template_named(name: str) -> Template:
    """The template in the folder ``templates/<name>``."""
    return next(template for template in TEMPLATES if template.name == name)


def metadata(template: Template) -> Json:
    """The content of ``metadata.json``: every option of the command as a parameter, in the order of --help."""
    parameters = [_positional(template.command)] if template.command.positional else []
    parameters += [_parameter(option) for option in template.options]
    return {
        "name": template.title,
        "description": template.description,
        "streaming": template.streaming,
        "parameters": parameters,
    }


def _parameter(option: Option) -> Json:
    parameter: Json = {
        "name": option.name,
        "label": _label(option.name),
        "helpText": _help(option),
        "paramType": _param_type(option),
        "isOptional": not option.required,
        "groupName": _group(option),
    }
    if regex := _regex(option):
        parameter["regexes"] = [regex]
    if option.choices:
        parameter["enumOptions"] = [{"value": choice, "label": choice} for choice in option.choices]
    default = _default(option)
    return parameter if default is None else parameter | {"defaultValue": default}


def _positional(command: Command) -> Json:
    assert command.positional
    name, nargs, text = command.positional
    many = f" {_SEVERAL}" if nargs in "+*" else ""
    return {
        "name": name,
        "label": _label(name),
        "helpText": f"{text[:1].upper()}{text[1:]}.{many}",
        "paramType": "TEXT",
        "isOptional": nargs in ("*", "?"),
        "groupName": "Input",
    }


_SEVERAL = 'For several, write a JSON list: ["gs://a/*","gs://b/*"].'


def _label(name: str) -> str:
    return f"{name[:1].upper()}{name[1:]}".replace("_", " ")


def _group(option: Option) -> str:
    return next((group for table, group in _GROUPS if option in table), "Other")


def _help(option: Option) -> str:
    text = option.help.replace(" Repeat the flag for several.", f" {_SEVERAL}")
    return text.replace(", local or gs://", ", gs://")


def _param_type(option: Option) -> str:
    if option.flag:
        return "BOOLEAN"
    if option.choices:
        return "ENUM"
    if option.type is kinds.count:
        return "NUMBER"
    if option.name.endswith("_subscription"):
        return "PUBSUB_SUBSCRIPTION"
    if option.name.endswith("_topic"):
        return "PUBSUB_TOPIC"
    if option.metavar == "FOLDER":
        return "GCS_READ_FOLDER" if option.name in _READ_FOLDERS else "GCS_WRITE_FOLDER"
    return _PARAM_TYPE.get(option.metavar or "", "TEXT")


def _regex(option: Option) -> str | None:
    if option.flag:
        return "^(true|false)$"
    if option.choices:
        return "^(" + "|".join(option.choices) + ")$"
    if option.metavar in ("FILE", "FOLDER"):
        return _GCS
    pattern = option.pattern or kinds.PATTERNS.get(option.type)
    return f"^({pattern})$" if pattern else None


def _default(option: Option) -> str | None:
    if option.flag:
        return "false"
    if option.default is None or option.default == ():
        return None
    return ",".join(option.default) if isinstance(option.default, tuple) else str(option.default)


def arguments(template: Template, given: Sequence[str], *, image: str | None = None) -> list[str]:
    """The command line of a template's launcher: ``given`` holds ``--name=value`` as the service passes parameters.

    Switches come as true or false, lists as JSON, parameters that were left empty as empty text; Beam's own options
    pass as they are. ``image`` becomes the workers' image where none is named. Raises UsageError for a switch that is
    neither true nor false, and for a list that is no JSON list of texts.
    """
    words, values = list(template.words), [argument.partition("=") for argument in given]
    for argument, (flag, equals, value) in zip(given, values, strict=True):
        words += _words(template, argument, flag.removeprefix("--"), value if equals else None)
    named = {flag for flag, _, _ in values}
    if image and "--sdk_container_image" not in named and "--worker_harness_container_image" not in named:
        words.append(f"--sdk_container_image={image}")
    return words


def _words(template: Template, argument: str, name: str, value: str | None) -> Iterator[str]:
    option = next((one for one in template.command.options if one.name == name), None)
    positional = template.command.positional
    if positional and positional[0] == name and value is not None:
        yield from _listed(name, value)
    elif option is None or value is None:
        yield argument
    elif option.flag:
        if value.lower() not in ("true", "false", ""):
            raise UsageError(f"parameter {name!r} is a switch: write true or false, not {value[:50]!r}")
        yield from [f"--{name}"] if value.lower() == "true" else []
    elif option.many:
        yield from (f"--{name}={one}" for one in _listed(name, value))
    elif value:
        yield argument


def _listed(name: str, value: str) -> list[str]:
    """One text, or those of a JSON list."""
    if not value.lstrip().startswith("["):
        return [value] if value else []
    try:
        listed = json.loads(value)
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise UsageError(
            f'parameter {name!r} must be one text, or a JSON list of texts such as ["gs://a/*","gs://b/*"]'
        )
    return listed
