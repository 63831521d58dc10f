"""Fixtures for tests that go through the command line: schemas, data and a transform, made once a session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `fakes`, whatever pytest's import mode

from fakes.bench import Workbench, row_lines
from fakes.cli import headrace
from fakes.pubsub import pubsub, pubsub_emulator  # noqa: F401 fixtures for every test

hypothesis.settings.register_profile("headrace", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("headrace")

CASE_SCHEMA = """
feature { name: "a" type: INT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "x" type: FLOAT value_count { min: 1 max: 1 } }
feature { name: "s" type: BYTES value_count { min: 1 max: 1 } }
feature { name: "l" type: FLOAT shape { dim { size: 3 } } }
feature { name: "d" type: BYTES value_count { min: 1 max: 1 } string_domain { value: "red" value: "green" } }
"""
ROW_SCHEMA = """
feature { name: "id" type: INT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "x" type: FLOAT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "w" type: BYTES value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
"""
FEATURES = """
id: {pass_through: {}}
x: {scale_to_z_score: {}}
w: {vocabulary: {top_k: 5, num_oov_buckets: 1}}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A workbench of the test's own."""
    return Workbench(tmp_path)


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's folder for what is made once."""
    return tmp_path_factory.mktemp("artefacts")


@pytest.fixture(scope="session")
def case_schema(artefacts: Path) -> Path:
    """The schema of CASES: a required int, and an optional float, string, list of three and colour."""
    return _written(artefacts / "cases.pbtxt", CASE_SCHEMA)


@pytest.fixture(scope="session")
def row_schema(artefacts: Path) -> Path:
    """Three required features: ``id`` (int), ``x`` (float), ``w`` (string)."""
    return _written(artefacts / "rows.pbtxt", ROW_SCHEMA)


@pytest.fixture(scope="session")
def features(artefacts: Path) -> Path:
    """A features.yaml for ``row_schema``."""
    return _written(artefacts / "features.yaml", FEATURES)


@pytest.fixture(scope="session")
def transform(artefacts: Path, row_schema: Path, features: Path) -> Path:
    """A transform that ``headrace analyze`` learnt from 100 rows."""
    source = artefacts / "learn.jsonl"
    source.write_bytes(b"\n".join(row_lines(100)))
    folder = artefacts / "transform"
    done = headrace(
        *("analyze", "--input", source, "--schema", row_schema, "--features", features, "--output", folder),
        *("--threads", 1),
    )
    assert done.code == 0, done.err
    return folder


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[bytes]]:
    """``rows(count, start=0)``: valid lines for ``row_schema``."""
    return row_lines


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
