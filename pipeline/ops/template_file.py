"""The specification of a flex template (JSON that its build wrote): its image, and parameters checked against it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.core.errors import UsageError
from pipeline.core.json_fields import Fields, load_json
from pipeline.core.records import Json
from pipeline.core.text import printable


@dataclass(frozen=True)
class TemplateFile:
    """A template: its ``image``, the digest in the image's name where there is one, its parameters by name."""

    where: str
    image: str
    parameters: Mapping[str, Json]
    streaming: bool | None = None

    @property
    def image_digest(self) -> str | None:
        """``sha256:…`` where the template names its image by digest."""
        _, at, digest = self.image.partition("@")
        return digest if at else None

    def check(self, given: Mapping[str, str], *, spec: str) -> None:
        """Raise UsageError for parameters that the template does not have, needs, or would not accept."""
        if not self.parameters:
            return
        wrong = [self._unknown(name) for name in given if name not in self.parameters]
        for name, parameter in self.parameters.items():
            if name not in given:
                if not parameter.get("isOptional", False):
                    wrong.append(f"parameter {name!r} is missing: {parameter.get('helpText', '')}")
                continue
            wrong += _mismatch(name, given[name], parameter)
        if wrong:
            raise UsageError("\n".join([f"{spec}: the template {self.where} does not take this:", *wrong]))

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.parameters, n=1)
        beam = "; Beam's own options go into environment.additional_pipeline_options, as name=value"
        return f"unknown parameter {printable(name, 80)!r}" + (f"; did you mean {near[0]!r}?" if near else beam)


def _mismatch(name: str, value: str, parameter: Json) -> list[str]:
    patterns = parameter.get("regexes")
    if value and isinstance(patterns, list) and not all(_fits(pattern, value) for pattern in patterns):
        return [f"parameter {name!r} is {value[:100]!r}, which does not match {' and '.join(map(str, patterns))}"]
    return []


def _fits(pattern: Any, value: str) -> bool:
    """As the service matches: its ``$`` is the very end, Python's also stands before a last line end."""
    text = str(pattern)
    ends = text.endswith("$") and not text.endswith("\\$")
    try:
        return re.search(f"{text[:-1]}\\Z" if ends else text, value) is not None
    except re.error:  # the service's dialect; it will judge
        return True


def read_template(data: bytes, where: str) -> TemplateFile:
    """Read a template's specification. Raises UsageError where it is none."""
    fields = Fields(load_json(data, where), where)
    metadata = fields.value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    listed = metadata.get("parameters")
    parameters = {
        str(one["name"]): one
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and "name" in one
    }
    streaming = metadata.get("streaming")
    return TemplateFile(where, fields.text("image"), parameters, streaming if isinstance(streaming, bool) else None)
