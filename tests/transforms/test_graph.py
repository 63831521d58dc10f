"""The batch graph's shape: every step has a written name, and options change values, not the shape."""

from __future__ import annotations

import re

import apache_beam as beam
import pytest
from fakes.serial import prepare

from pipeline.jobs.batch import build_batch
from pipeline.transforms import analysis, names

OWN_LABELS = {value for module in (names, analysis) for key, value in vars(module).items() if key.isupper()}
_INTERNAL = re.compile(r"lambda|\.py|:\d+|<|>")


@pytest.fixture
def words(bench, row_schema, rows):
    """The arguments of a small run."""
    return bench.flags(bench.write("f.jsonl", rows(5)), schema=row_schema)


def steps_of(words: list[object]) -> dict[str, str]:
    """Full label of every step, and the kind of transform (urn) it is."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    job = prepare(words)
    build_batch(pipeline, job, scratch=f"{job.build.staging}/analysis")
    proto = pipeline.to_runner_api()
    roots = set(proto.root_transform_ids)
    return {step.unique_name: step.spec.urn for key, step in proto.components.transforms.items() if key not in roots}


@pytest.mark.parametrize("shuffle", ["blocks", "none", "global"])
def test_top_level_steps_have_names_from_names_py(words, shuffle):
    labels = {label.split("/")[0] for label in steps_of([*words, f"--shuffle={shuffle}"])}
    assert labels <= OWN_LABELS
    assert {names.PLAN, names.SETTLE, names.PUBLISH_SHARD, names.COMMIT, names.WRITE_DEAD_LETTERS} <= labels
    assert (names.BUILD_SHARD in labels) == (shuffle != "global")
    assert (names.WRITE_BUCKET in labels) == (shuffle == "global")


def test_steps_of_the_analysis_have_names_down_to_those_of_tft(words, features):
    labels = set(steps_of([*words, "--features", features]))
    below = {label.split("/")[1] for label in labels if label.startswith(f"{names.ANALYZE}/")}
    assert below <= OWN_LABELS
    assert {analysis.TO_TFXIO, analysis.ANALYZE_DATASET, analysis.PUBLISH} <= below


@pytest.mark.parametrize("shuffle", ["blocks", "global"])
def test_no_label_holds_a_lambda_or_a_place_in_a_file(words, features, shuffle):
    tft = f"{names.ANALYZE}/{analysis.ANALYZE_DATASET}"
    for label in steps_of([*words, "--features", features, f"--shuffle={shuffle}"]):
        if not label.startswith(tft):
            assert not _INTERNAL.search(label), label


def test_options_change_values_and_not_the_shape(words):
    plain = steps_of(words)
    assert steps_of([*words, "--seed=5", "--splits=train=0.5,eval=0.5", "--min_shards=3", "--shuffle=none"]) == plain
    assert steps_of([*words, "--max_rejected_fraction=0.1", "--redact_features=x", "--allow_non_finite"]) == plain


def test_labels_are_distinct_and_say_what_they_are():
    labels = [value for key, value in vars(names).items() if key.isupper() and value[:1].isupper()]
    assert len(labels) == len(set(labels))
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", label) for label in labels)


def test_tasks_are_not_in_the_graph(bench, row_schema, rows):
    bench.write("f.jsonl", rows(2000))
    sizes = []
    for words in ([], ["--min_shards=500"]):
        pipeline = beam.Pipeline(runner="FnApiRunner")
        job = prepare([*bench.flags(bench.folder / "f.jsonl", schema=row_schema), *words])
        build_batch(pipeline, job, scratch=f"{job.build.staging}/analysis")
        sizes.append(len(pipeline.to_runner_api().SerializeToString()))
    assert sizes[1] < sizes[0] + 1000
