"""The transform is loaded beside the first task: once, and with errors where they belong."""

from __future__ import annotations

import threading

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.settings import BuildSettings, InputSettings
from pipeline.transforms import loading

PROTO = text_format.Parse('feature { name: "n" type: INT value_count { min: 1 max: 1 } }', schema_pb2.Schema())
SETTINGS = BuildSettings(InputSettings("jsonl", PROTO.SerializeToString(deterministic=True)), "staging")


@pytest.fixture
def loads(monkeypatch):
    """What was loaded, in order; every load waits until ``go`` is set."""
    found, go = [], threading.Event()

    def load(artefact, schema, **_):
        found.append(artefact)
        assert go.wait(30)
        if artefact == "broken":
            raise OSError("storage is away")
        return object()

    monkeypatch.setattr(loading, "load_transformer", load)
    monkeypatch.setattr(loading, "_SHARED", {})
    yield found, go
    go.set()
    settle()


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "load the transform":
            thread.join(30)


def test_one_load_however_many_tasks_begin(loads):
    found, go = loads
    for _ in range(5):
        loading.load_ahead(SETTINGS, "artefact")
    go.set()
    transformer = loading.shared_transformer(SETTINGS, "artefact")
    settle()
    loading.load_ahead(SETTINGS, "artefact")
    assert loading.shared_transformer(SETTINGS, "artefact") is transformer
    assert found == ["artefact"]


def test_an_error_is_raised_to_the_one_who_needs_the_transform(loads):
    found, go = loads
    go.set()
    loading.load_ahead(SETTINGS, "broken")
    settle()
    with pytest.raises(OSError, match="away"):
        loading.shared_transformer(SETTINGS, "broken")
    assert found == ["broken", "broken"]
    loading.load_ahead(SETTINGS, "whole")
    assert loading.shared_transformer(SETTINGS, "whole") is not None


def test_without_a_transform_there_is_nothing_to_load(loads):
    loading.load_ahead(SETTINGS, None)
    assert loads[0] == []
