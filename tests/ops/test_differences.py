"""What an update changes, before and after."""

from __future__ import annotations

from dataclasses import replace

from fakes.graphs import graph

from pipeline.ops.differences import as_json, as_lines, differences
from pipeline.ops.launch_record import LaunchRecord, Provenance
from pipeline.ops.launch_spec import LaunchSpec

SPEC = LaunchSpec(
    "gs://b/t.json",
    "p",
    "r",
    "j",
    parameters={"window": "10m", "old": "1"},
    environment={"staging_location": "gs://b/s", "machine_type": "n2-standard-4"},
)
FROM = Provenance("0.1.0", "aaa", "image:1", None, graph(), "f" * 64, None)
RECORD = LaunchRecord("l", "launch", SPEC, {}, FROM, "me", "now")


def test_nothing_differs_from_itself():
    assert differences(RECORD, SPEC, FROM) == ()


def test_every_difference_is_named_with_both_values():
    spec = replace(
        SPEC,
        parameters={"window": "5m\x1b[0m", "new": "2"},
        environment={**SPEC.environment, "machine_type": "n2-highmem-4"},
    )
    provenance = replace(
        FROM,
        image="image:2",
        commit="bbb",
        graph=graph(sdk="2.78.0"),
        schema_fingerprint=None,
        transform_fingerprint="t",
    )
    changes = differences(RECORD, spec, provenance)
    assert list(as_lines(changes)) == [
        "parameters.new: none -> 2",
        "parameters.old: 1 -> none",
        "parameters.window: 10m -> 5m\\x1b[0m",
        "environment.machine_type: n2-standard-4 -> n2-highmem-4",
        "beam: 2.77.0 -> 2.78.0",
        "commit: aaa -> bbb",
        "image: image:1 -> image:2",
        f"schema: {'f' * 64} -> none",
        "transform: none -> t",
    ]
    assert as_json(changes)["parameters.new"] == {"before": None, "after": "2"}
