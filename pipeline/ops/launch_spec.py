"""The launch spec: one YAML file that says what job is launched, from which template, with what, and where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import yaml

from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.core.text import printable
from pipeline.features.yaml_lines import Document, Path, read_yaml

PIPELINES = ("streaming", "batch", "replay")
STRATEGIES = ("in_place", "parallel", "drain")
_NAMES: Mapping[str, tuple[str, str]] = {
    "template": (r"gs://[a-z0-9][-_.a-z0-9]{1,221}/.+", "gs://bucket/path/template.json"),
    "project": (r"([a-z0-9.]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]", "a project id"),
    "region": (r"[a-z]+-[a-z]+[0-9]+", "a region such as europe-west1"),
    "job_name": (
        r"[a-z]([-a-z0-9]{0,1021}[a-z0-9])?",
        "a job name: lower-case letters, digits and dashes, starting with a letter and not ending with a dash",
    ),
}
_TEXTS = (
    *("machine_type", "service_account_email", "network", "subnetwork", "kms_key_name", "worker_region"),
    *("worker_zone", "staging_location", "temp_location", "sdk_container_image", "launcher_machine_type"),
)
_COUNTS = ("num_workers", "max_workers", "disk_size_gb")
_SWITCHES = ("enable_streaming_engine", "enable_launcher_vm_serial_port_logging")
_LISTS = ("additional_experiments", "additional_pipeline_options")
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "ip_configuration": {"public": "WORKER_IP_PUBLIC", "private": "WORKER_IP_PRIVATE"},
    "flexrs_goal": {"speed": "FLEXRS_SPEED_OPTIMIZED", "cost": "FLEXRS_COST_OPTIMIZED"},
    "autoscaling_algorithm": {"none": "AUTOSCALING_ALGORITHM_NONE", "basic": "AUTOSCALING_ALGORITHM_BASIC"},
    "streaming_mode": {
        "exactly_once": "STREAMING_MODE_EXACTLY_ONCE",
        "at_least_once": "STREAMING_MODE_AT_LEAST_ONCE",
    },
}
_LABELS = "additional_user_labels"
ENVIRONMENT = (*_TEXTS, *_COUNTS, *_SWITCHES, *_LISTS, *_CHOICES, _LABELS)
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][-_a-z0-9]{0,62}"), re.compile(r"[-_a-z0-9]{0,63}")
OUR_LABELS = ("headrace_launch",)
MAX_NAME = 1023
"""Characters of a job's name."""

_MAX_TEXT = 1_000_000
_KEYS = (*_NAMES, "pipeline", "parameters", "environment", "update")
_MAX_MINUTES = 7 * 24 * 60


@dataclass(frozen=True)
class UpdateSettings:
    """How an update is made. ``parallel_minutes`` is how long both jobs run with the strategy ``parallel``."""

    strategy: str = "in_place"
    transform_name_mapping: Mapping[str, str] = field(default_factory=dict)
    parallel_minutes: int = 10
    new_job_name: str = ""


@dataclass(frozen=True)
class LaunchSpec:
    """A launch spec. ``parameters`` are texts as they stand in the file; ``environment`` has the API's values."""

    template: str
    project: str
    region: str
    job_name: str
    pipeline: str = "streaming"
    parameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    update: UpdateSettings = field(default_factory=UpdateSettings)

    @property
    def staging_location(self) -> str:
        """Where the launch record goes, a gs:// folder."""
        return str(self.environment["staging_location"])

    @property
    def streaming_engine(self) -> bool:
        """Whether the job uses Streaming Engine: Python streaming jobs do unless told otherwise."""
        return bool(self.environment.get("enable_streaming_engine", True))

    @property
    def place(self) -> str:
        """Where the workers run: a zone or a region."""
        given = self.environment
        return str(given.get("worker_zone") or given.get("worker_region") or self.region)

    def pipeline_option(self, name: str) -> str | None:
        """The value of one of Beam's options: a parameter, or the last of ``additional_pipeline_options``."""
        pairs = (
            one.removeprefix("--").partition("=") for one in self.environment.get("additional_pipeline_options", ())
        )
        given = [value for key, _, value in pairs if key == name]
        return given[-1] if given else self.parameters.get(name)

    def with_environment(self, **changes: Any) -> LaunchSpec:
        """This spec with other values in its environment; None takes one out."""
        merged = {**self.environment, **changes}
        return replace(self, environment={name: value for name, value in merged.items() if value is not None})

    def as_json(self) -> Json:
        """Plain values, as ``spec_of_json`` reads them."""
        return {
            **{name: getattr(self, name) for name in (*_NAMES, "pipeline")},
            "parameters": dict(self.parameters),
            "environment": dict(self.environment),
        }


def require_place(project: str, region: str) -> None:
    """Raise UsageError for what is no project's id or no region: both become parts of addresses."""
    for name, value in (("project", project), ("region", region)):
        pattern, wanted = _NAMES[name]
        if not re.fullmatch(pattern, value):
            raise UsageError(f"the {name} must be {wanted}, not {printable(value, 100)!r}")


def read_spec(text: str, where: str) -> LaunchSpec:
    """Read a launch spec strictly. Raises UsageError that begins with ``where:line`` for anything out of place."""
    if len(text) > _MAX_TEXT:
        raise UsageError(f"{where} has {len(text):,} characters: this is no launch spec")
    document = read_yaml(text, where)
    raw = yaml.compose(text, Loader=yaml.BaseLoader)
    top = _mapping(document, (), document.value, _KEYS)
    spec = _spec(document, top, _parameters(document, top.get("parameters"), raw))
    return replace(spec, update=_update(document, top.get("update")))


def spec_of_json(value: Json, where: str) -> LaunchSpec:
    """The spec in a launch record, read as strictly as one that a person wrote. Raises UsageError."""
    document = Document(where, value)
    parameters = _mapping(document, ("parameters",), value.get("parameters"), None)
    for name, text in parameters.items():
        if not isinstance(text, str):
            document.fail(("parameters", name), f"parameter {name!r} must be a text")
    return _spec(document, _mapping(document, (), value, _KEYS), parameters)


def _spec(document: Document, top: Mapping[str, Any], parameters: Mapping[str, str]) -> LaunchSpec:
    for name in _NAMES:
        if name not in top:
            document.fail((), f"'{name}' is missing; a launch spec needs {', '.join(_NAMES)}")
        _match(document, (name,), top[name], *_NAMES[name])
    pipeline = top.get("pipeline", "streaming")
    if pipeline not in PIPELINES:
        document.fail(("pipeline",), f"'pipeline' must be one of {', '.join(PIPELINES)}")
    named = {name: top[name] for name in _NAMES}
    environment = _environment(document, top.get("environment"))
    return LaunchSpec(**named, pipeline=pipeline, parameters=parameters, environment=environment)


def _mapping(document: Document, path: Path, value: Any, keys: tuple[str, ...] | None) -> dict[str, Any]:
    if value is None and path:
        return {}
    if not isinstance(value, dict):
        document.fail(path, f"{_name(path)} must hold names and values")
    for key in value:
        if keys is not None and key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(keys)}"
            document.fail((*path, key), f"unknown key {key!r} in {_name(path)}{hint}")
    return value


def _name(path: Path) -> str:
    return f"'{'.'.join(map(str, path))}'" if path else "the launch spec"


def _match(document: Document, path: Path, value: Any, pattern: str, wanted: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        document.fail(path, f"{_name(path)} must be {wanted}, not {str(value)[:100]!r}")
    return value


def _parameters(document: Document, value: Any, raw: yaml.Node | None) -> dict[str, str]:
    """Each parameter as the text that stands in the file: ``0.10`` stays ``0.10``, ``on`` stays ``on``."""
    texts = {}
    for name, given in _mapping(document, ("parameters",), value, None).items():
        path = ("parameters", name)
        if given is None:
            document.fail(path, f"parameter {name!r} has no value; leave it out, or write '' for an empty one")
        if isinstance(given, dict | list):
            document.fail(path, f'parameter {name!r} must be one text; write a list as JSON in quotes: \'["a","b"]\'')
        texts[name] = _text(document, path, _scalar(raw, path))
    return texts


def _text(document: Document, path: Path, text: str) -> str:
    """The text with pairs of surrogates, as JSON escapes them, made the characters that they stand for."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        document.fail(path, f"{_name(path)} holds half a character (a lone surrogate), which no service takes")


def _scalar(node: yaml.Node | None, path: Path) -> str:
    for key in path:
        assert isinstance(node, yaml.MappingNode)
        node = next(value for name, value in node.value if name.value == key)
    return str(node.value if node is not None else "")


def _environment(document: Document, value: Any) -> dict[str, Any]:
    given = _mapping(document, ("environment",), value, ENVIRONMENT)
    made = {name: _environment_value(document, ("environment", name), value) for name, value in given.items()}
    for name in ("staging_location", "temp_location"):
        if name in made and not re.fullmatch(r"gs://[a-z0-9][-_.a-z0-9]{1,221}(/.*)?", made[name]):
            document.fail(("environment", name), f"'environment.{name}' must be a gs:// folder, not {made[name]!r}")
    if "staging_location" not in made:
        document.fail(
            ("environment",), "'environment.staging_location' is missing: the launch record goes there, for updates"
        )
    if "worker_region" in made and "worker_zone" in made:
        document.fail(("environment", "worker_zone"), "give worker_region or worker_zone, not both")
    if made.get("num_workers", 0) > made.get("max_workers", 1000):
        document.fail(("environment", "num_workers"), "num_workers is more than max_workers")
    return made


def _environment_value(document: Document, path: Path, value: Any) -> Any:
    name = str(path[-1])
    if name in _CHOICES:
        choices = _CHOICES[name]
        if isinstance(value, str) and value in choices:
            return choices[value]
        if value in choices.values():
            return value
        document.fail(path, f"{_name(path)} must be one of {', '.join(choices)}")
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            document.fail(path, f"{_name(path)} must be a list of texts")
        return [_text(document, path, item) for item in value]
    if name == _LABELS:
        return _labels(document, path, value)
    if name in _SWITCHES and isinstance(value, bool):
        return value
    if name in _COUNTS and isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31:
        return value
    if name in _TEXTS and isinstance(value, str) and value.strip():
        return _text(document, path, value)
    _refuse_kind(document, path, name)


def _refuse_kind(document: Document, path: Path, name: str) -> NoReturn:
    wanted = "true or false" if name in _SWITCHES else "a whole number of at least 1" if name in _COUNTS else "a text"
    document.fail(path, f"{_name(path)} must be {wanted}")


def _labels(document: Document, path: Path, value: Any) -> dict[str, str]:
    labels = _mapping(document, path, value, None)
    for key, text in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not isinstance(text, str) or not _LABEL_VALUE.fullmatch(text):
            document.fail(
                (*path, key),
                f"label {key!r}: keys and values are texts of lower-case letters, digits, _ and -, up to 63",
            )
        if key in OUR_LABELS:
            document.fail((*path, key), f"label {key!r} is set by the launch itself")
    return dict(labels)


def _update(document: Document, value: Any) -> UpdateSettings:
    keys = ("strategy", "transform_name_mapping", "parallel_minutes", "new_job_name")
    given = _mapping(document, ("update",), value, keys)
    strategy = given.get("strategy", "in_place")
    if strategy not in STRATEGIES:
        document.fail(("update", "strategy"), f"'update.strategy' must be one of {', '.join(STRATEGIES)}")
    path: Path = ("update", "transform_name_mapping")
    mapping = _mapping(document, path, given.get("transform_name_mapping"), None)
    for old, new in mapping.items():
        if not isinstance(new, str):
            document.fail((*path, old), f"{old!r} must map to the step's new name, or to '' where it is removed")
    minutes = given.get("parallel_minutes", 10)
    if not isinstance(minutes, int) or isinstance(minutes, bool) or not 1 <= minutes <= _MAX_MINUTES:
        document.fail(("update", "parallel_minutes"), f"'update.parallel_minutes' must be 1 to {_MAX_MINUTES}")
    name = given.get("new_job_name", "")
    if name != "":
        _match(document, ("update", "new_job_name"), name, *_NAMES["job_name"])
    return UpdateSettings(strategy, dict(mapping), minutes, name)
