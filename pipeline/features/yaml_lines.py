"""YAML read safely and strictly: plain values, and the line on which each was written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from pipeline.core.errors import UsageError

_MAX_NODES, _MAX_DEPTH = 100_000, 20  # aliases that multiply ("billion laughs") stop here
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")  # 1e5, which YAML 1.1 takes for a string

Path = tuple[str | int, ...]


@dataclass
class Document:
    """The values of a YAML file (dict, list, str, int, float, bool, None) and where each path lies."""

    where: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def fail(self, path: Path, message: str) -> NoReturn:
        """Raise a UsageError that begins with ``file:line`` of ``path`` (or of its nearest known parent)."""
        while path and path not in self.lines:
            path = path[:-1]
        raise UsageError(f"{self.where}:{self.lines.get(path, 1)}: {message}")


def read_yaml(text: str, where: str) -> Document:
    """Parse ``text``; ``where`` names the file in errors.

    Mapping keys are taken literally as strings, so that a feature may be called ``no`` or ``on``.
    Raises UsageError for a syntax error, a key used twice, tags that are not plain data, or a
    document too large to be meant for people.
    """
    document = Document(where)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{where}:{line}: this is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{where}: this is not valid YAML: {error}") from error
    if node is not None:
        document.value = _Builder(document).value(node, ())
    return document


class _Builder:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = _MAX_NODES
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._left -= 1
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if self._left < 0 or len(path) > _MAX_DEPTH:
            self._document.fail(path, "the document is too large or too deep (or its aliases go in a circle)")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # the three kinds of node that there are
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise UsageError(f"{self._document.where}:{line}: a key must be a name")
            key = str(key_node.value)
            if key in result:
                first = self._document.lines[(*path, key)]
                raise UsageError(f"{self._document.where}:{line}: '{key}' is given twice (first on line {first})")
            self._document.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if node.style is None and _EXPONENT.fullmatch(node.value):
            return float(node.value)
        try:
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._document.fail(path, f"this value cannot be read: {error}")
        if value is None or isinstance(value, str | int | float):
            return value
        return str(node.value)  # dates and the like: what was written
