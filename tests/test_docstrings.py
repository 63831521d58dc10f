"""Every public name says what it is: modules, classes, functions and methods of pipeline and dlq_replay."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cli import ROOT

MODULES = sorted(path for package in ("pipeline", "dlq_replay", "templates") for path in (ROOT / package).rglob("*.py"))
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: Documented, name: str, *, inside: str = "") -> Iterator[tuple[str, Documented]]:
    """The node and the public things in it, with dotted names; what is private hides what is in it."""
    yield inside + name, node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not child.name.startswith("_"):
            yield from public(child, child.name, inside=f"{inside}{name}.")


def override(node: Documented) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(one).endswith("overload") for one in decorators)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_have_docstrings(path: Path):
    tree = ast.parse(path.read_text())
    missing = [name for name, node in public(tree, path.stem) if not ast.get_docstring(node) and not override(node)]
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_first_line_of_a_module_is_a_sentence(path: Path):
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n", 1)[0]
    assert first.endswith((".", "?", "!")), first
    assert first[:1].isupper() or first[:1] in "`'\"<(" or first.split()[0][:2].islower(), first


def test_the_walk_sees_what_it_should():
    """The test's own test."""
    tree = ast.parse(
        "def f(): ...\nclass C:\n def m(self): ...\n def _p(self): ...\nclass _D:\n def x(self): ...\ndef _g(): ..."
    )
    assert [name for name, _ in public(tree, "m")] == ["m", "m.f", "m.C", "m.C.m"]
    assert len(MODULES) > 40


def test_modules_are_short():
    """All but those that are lists of declarations."""
    lengths = {str(path): len(path.read_text().splitlines()) for path in MODULES if path.parent.name != "options"}
    assert {name: lines for name, lines in lengths.items() if lines > 340} == {}
