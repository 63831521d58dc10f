"""What an update changes: parameters, environment, code, image, schema and transform, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.core.records import Json
from pipeline.core.text import printable
from pipeline.ops.launch_record import LaunchRecord, Provenance
from pipeline.ops.launch_spec import LaunchSpec

Change = tuple[str, Any, Any]
_VALUE = 100


def differences(record: LaunchRecord, spec: LaunchSpec, provenance: Provenance) -> tuple[Change, ...]:
    """(name, before, after) of all that differs between a launch and ``spec``; None for what is not there."""
    return (
        *_of("parameters", record.spec.parameters, spec.parameters),
        *_of("environment", record.spec.environment, spec.environment),
        *_of("", _facts(record.spec, record.provenance), _facts(spec, provenance)),
    )


def as_lines(changes: tuple[Change, ...]) -> Iterator[str]:
    """One line a change, safe to print."""
    for name, before, after in changes:
        yield f"{printable(name, _VALUE)}: {_shown(before)} -> {_shown(after)}"


def as_json(changes: tuple[Change, ...]) -> Json:
    """Plain values."""
    return {name: {"before": before, "after": after} for name, before, after in changes}


def _facts(spec: LaunchSpec, provenance: Provenance) -> Json:
    return {
        "template": spec.template,
        "image": provenance.image,
        "version": provenance.version,
        "commit": provenance.commit,
        "beam": provenance.graph["sdk"] if provenance.graph else None,
        "schema": provenance.schema_fingerprint,
        "transform": provenance.transform_fingerprint,
    }


def _of(group: str, before: Any, after: Any) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{group}.{name}" if group else name, before.get(name), after.get(name)


def _shown(value: Any) -> str:
    return "none" if value is None else printable(str(value), _VALUE)
