"""What flows from op to op, and what all ops have in common."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar

from pipeline.core.schema import Kind
from pipeline.features.params import Refusal

KIND_NAMES = {Kind.INT: "whole numbers", Kind.FLOAT: "floats", Kind.BYTES: "strings"}
"""What people call the kinds."""


@dataclass(frozen=True)
class Value:
    """What flows from op to op: one row's ``shape`` (None: a list of any length), and whether it can be missing.

    ``classes`` is set for ids: they lie in [0, classes).
    """

    kind: Kind
    shape: tuple[int, ...] | None
    missing: bool = False
    classes: int | None = None


@dataclass(frozen=True)
class Op:
    """One step of a feature. Subclasses are the steps; their fields are the parameters."""

    name: ClassVar[str] = ""

    def result(self, value: Value) -> Value:
        """What comes out when ``value`` goes in. Raises Refusal where the op cannot take it."""
        return value

    def to_json(self) -> dict[str, Any]:
        """``{name: {parameter: value}}``, as the op is written in YAML; parameters at None are left out."""
        given = {yaml_name(f): getattr(self, f.name) for f in fields(self)}
        return {self.name: {k: list(v) if isinstance(v, tuple) else v for k, v in given.items() if v is not None}}

    def dense(self, value: Value, *kinds: Kind, fix: str) -> Value:
        """Check that ``value`` is of one of ``kinds``, of fixed shape, and never missing."""
        if value.kind not in kinds:
            raise Refusal(f"{self.name} cannot take {KIND_NAMES[value.kind]}; {fix}")
        if value.shape is None:
            raise Refusal(
                f"{self.name} cannot take a list of varying length; only pass_through, vocabulary, hash_strings and "
                "drop can. Give the feature a fixed shape in the schema, or drop it"
            )
        if value.missing:
            raise Refusal(
                f"the feature can be missing and {self.name} needs a value; put `fill_missing: {{value: ...}}` "
                "first, or make the feature required in the schema (presence { min_fraction: 1.0 })"
            )
        return value


def yaml_name(declared: Field[Any]) -> str:
    """What a parameter is called in YAML."""
    return declared.metadata.get("key") or declared.name
