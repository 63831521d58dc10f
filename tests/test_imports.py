"""Imports point one way: templates -> main -> commands, jobs, ops -> transforms -> features -> core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fakes.cli import ROOT, python

# From the bottom up: a module may import from its own layer and from those before it.
LAYERS = (
    ("pipeline.core",),
    ("pipeline.features",),
    ("pipeline.transforms",),
    ("pipeline.jobs", "pipeline.ops", "pipeline.apart", "pipeline.preflight", "pipeline.readiness"),
    ("dlq_replay",),
    ("pipeline.commands",),
    ("pipeline.main",),
    ("templates",),
)
# Shared by all commands; they import next to nothing, so that help is fast.
ANYWHERE = ("pipeline.options", "pipeline.logs", "pipeline.console")
MAY_USE = {
    "dlq_replay": ("pipeline.core", "pipeline.transforms", "pipeline.features.yaml_lines", *ANYWHERE),
    "pipeline.options": ("pipeline.core",),
    "pipeline.logs": ("pipeline.core",),
    "pipeline.console": ("pipeline.core",),
}
HEAVY = {
    "pipeline.core": {"apache_beam", "tensorflow", "tensorflow_transform", "tfx_bsl"},
    "pipeline.features": {"apache_beam"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("pipeline", "dlq_replay", "templates"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports_of(name: str, path: Path) -> Iterator[str]:
    """Full names of what a module imports, wherever in it."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(name: str) -> int | None:
    for level, packages in enumerate(LAYERS):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            return level
    return None


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def ours(name: str) -> bool:
    return any(below(name, package) for package in ("pipeline", "dlq_replay", "templates"))


def test_every_module_has_a_layer():
    known = {name for name, _ in modules()}
    assert len(known) > 40
    for name in known - {"pipeline"}:
        assert layer_of(name) is not None or any(below(name, package) for package in ANYWHERE), name


def test_no_arrow_runs_back():
    wrong = []
    for name, path in modules():
        for imported in filter(ours, imports_of(name, path)):
            if any(below(imported, package) for package in ("pipeline.__version__", *ANYWHERE)):
                continue
            level, other = layer_of(name), layer_of(imported)
            if level is not None and other is not None and other > level:
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_packages_with_a_rule_of_their_own():
    wrong = []
    for name, path in modules():
        for package, allowed in MAY_USE.items():
            if not below(name, package):
                continue
            for imported in filter(ours, imports_of(name, path)):
                if not any(below(imported, one) for one in (package, *allowed, "pipeline.__version__")):
                    wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_low_layers_do_not_name_heavy_libraries():
    wrong = []
    for name, path in modules():
        for package, heavy in HEAVY.items():
            if below(name, package):
                wrong += [f"{name}: {found}" for found in imports_of(name, path) if found.split(".")[0] in heavy]
    assert wrong == []


def test_importing_all_of_core_loads_neither_beam_nor_tensorflow():
    code = """
import importlib, pkgutil, sys
import pipeline.core
names = [found.name for found in pkgutil.walk_packages(pipeline.core.__path__, "pipeline.core.")]
for name in names:
    importlib.import_module(name)
assert len(names) > 30, names
print(sorted({"apache_beam", "tensorflow", "tensorflow_transform", "tfx_bsl"} & set(sys.modules)))
"""
    done = python("-c", code)
    assert done.code == 0, done.err
    assert done.out.strip() == "[]"


def test_nothing_evaluates_or_unpickles_data():
    """But for what a worker process of a run has packed for another one: no input is ever unpickled."""
    wrong = []
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "hash", "os.system"):
                    wrong.append(f"{name}:{node.lineno} {called}")
    own = [found for found in wrong if found.startswith("pipeline.transforms.processes:")]
    assert [found.split()[1] for found in own] == ["pickle.loads"]
    assert wrong == own


def test_no_lambda_becomes_a_step():
    """A lambda's label contains file and line, so that moving it would break an update."""
    wrong = []
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("beam."):
                wrong += [f"{name}:{node.lineno}" for given in node.args if isinstance(given, ast.Lambda)]
    assert wrong == []
