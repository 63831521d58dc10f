"""The benchmark: its data, its sums, its arguments; and each kind of row once, on a few flights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from bench import report  # noqa: E402
from bench.data import SPOIL, TEXT_COLUMNS, Inputs, columns  # noqa: E402
from bench.per_row import INT_FEATURES, STRING_FEATURES, check  # noqa: E402
from bench.suite import FEATURES, SCHEMA, Plan, Suite  # noqa: E402
from bench.table import lines  # noqa: E402

from pipeline.core.decoding import make_decoder  # noqa: E402
from pipeline.core.records import Split  # noqa: E402
from pipeline.core.schema import load_schema  # noqa: E402
from pipeline.features.spec import parse_features  # noqa: E402
from pipeline.transforms import files  # noqa: E402


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "benchmark.py"), *arguments], capture_output=True, text=True, check=False
    )


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def schema():
    return load_schema(Path(SCHEMA).read_text(encoding="utf-8"))


def rejected_reasons(path: Path) -> list[str]:
    decoder = make_decoder("jsonl", schema())
    split = Split(str(path), 0, path.stat().st_size, path.stat().st_size)
    blocks = decoder.blocks(split, files.open_read)
    return [rejection.reason.value for block in blocks for rejection in decoder.decode(block).rejections]


def test_data_is_the_same_flights_in_both_formats_and_repeats(tmp_path):
    inputs = Inputs(tmp_path, rows=500)
    once, thrice = lines_of(inputs.json_lines(1)), lines_of(inputs.json_lines(3))
    assert len(once) == 500
    assert thrice == once * 3
    rows = [json.loads(line) for line in once]
    assert all(
        value is None or type(value) is (str if name in TEXT_COLUMNS else int)
        for row in rows
        for name, value in row.items()
    )
    assert any(value is None for row in rows for value in row.values())
    cells = [line.decode().split(",") for line in lines_of(inputs.csv(1))]
    assert cells == [["" if value is None else str(value) for value in row.values()] for row in rows]


def test_clean_rows_are_valid_for_us_and_for_the_peer(tmp_path):
    path = Inputs(tmp_path, rows=2000).json_lines(1)
    assert rejected_reasons(path) == []
    assert {check(json.loads(line)) for line in lines_of(path)} == {None}


def test_one_line_in_a_hundred_is_malformed_each_way_in_turn(tmp_path):
    inputs = Inputs(tmp_path, rows=1400)
    clean, spoilt = lines_of(inputs.json_lines(1)), lines_of(inputs.malformed(1))
    changed = [number for number, (one, other) in enumerate(zip(clean, spoilt, strict=True)) if one != other]
    assert changed == list(range(50, 1400, 100))
    reasons = [
        *("invalid_json", "wrong_type", "missing_feature", "invalid_utf8"),
        *("not_in_domain", "out_of_range", "not_an_object"),
    ]
    assert len(SPOIL) == len(reasons)
    assert rejected_reasons(inputs.malformed(1)) == reasons * 2


def test_the_per_row_peer_checks_by_the_same_rules_as_the_schema():
    for feature in schema().features:
        if feature.name in INT_FEATURES:
            assert INT_FEATURES[feature.name] == (feature.required, feature.int_min, feature.int_max)
        else:
            required, allowed = STRING_FEATURES[feature.name]
            assert required == feature.required
            assert (feature.domain is None) == (allowed is None)
            assert {word.encode() for word in allowed or ()} == set(feature.domain or ())


def test_every_column_is_a_feature_with_a_transform():
    spec = parse_features(Path(FEATURES).read_text(), schema())
    assert sorted(spec.sources) == sorted(columns()) == sorted(feature.name for feature in schema().features)


def sample(rows: int, seconds: float, cpu: float, peak: float = 100.0) -> report.Sample:
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "process_seconds": seconds + 5, "peak_mb": peak}


def test_rows_are_medians_and_ratios_of_medians():
    peer = [sample(1000, seconds, 2 * seconds) for seconds in (10.0, 30.0, 11.0)]
    ours = [sample(2000, seconds, seconds) for seconds in (2.0, 2.0, 90.0)]
    row = report.row_of("ours", ours, [report.speedup("peer", ours, peer, least=10)])
    assert row.rows_per_second == 1000
    (comparison,) = row.comparisons
    assert comparison.ratio == pytest.approx(1000 / (1000 / 11))
    assert comparison.cpu_ratio == pytest.approx(1000 / (1000 / 22))
    assert comparison.reached
    assert not report.Comparison("peer", 9.99, least=10).reached
    assert not report.Comparison("1x", 1.3, most=1.3).reached
    assert report.Comparison("peer", 5.0).reached is None


def test_a_plain_table_lines_up():
    text = report.plain_table(("what", "n"), [("a", "1"), ("long", "1,000")], left=(0,))
    assert text.splitlines() == ["what      n", "----  -----", "a         1", "long  1,000"]


def test_stages_are_shares_of_cpu_time():
    text = report.stage_table([{"rows": 1_000_000, "stages": {"decode": [2.0, 1.0], "encode": [5.0, 3.0]}}])
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["encode", "5.00", "5.00", "3.00", "75.0%"],
        ["decode", "2.00", "2.00", "1.00", "25.0%"],
        ["total", "7.00", "7.00", "4.00", "100.0%"],
    ]


class Rehearsal(Suite):
    """Measures nothing; ``order`` is what would have been, job by job."""

    def __init__(self, folder: Path, *, only: str = "", scale: int = 2, repeat: int = 3) -> None:
        super().__init__(Plan(folder, rows=20, scale=scale, large=4, repeat=repeat, say=print), re.compile(only))
        self.order: list[str] = []

    def take(self, key, job, what):
        self.order.append(key)
        taken = sample(1000, 1.0, 1.0)
        self._samples.setdefault(key, []).append(taken)
        return taken


@pytest.mark.parametrize("scale", [1, 2])
def test_every_line_is_measured_and_what_a_job_needs_comes_before_it(tmp_path, scale):
    steps = list(Rehearsal(tmp_path).steps().items())
    for number, (_, step) in enumerate(steps):
        assert set(step.needs) <= {name for name, _ in steps[:number]}
    for line in lines(scale=scale, large=4):
        assert {*line.keys, *(key for _, key, _ in line.against)} <= {name for name, _ in steps}


def test_what_must_be_reached():
    least = {(line.key, key): ratio for line in lines(scale=3, large=10) for _, key, ratio in line.against if ratio}
    assert least == {
        ("rows", "per_row"): 10,
        ("rows", "canonical"): 6,
        ("packed", "per_row"): 14,
        ("packed", "canonical"): 8,
        ("blocks", "per_row"): 25,
        ("blocks", "canonical"): 14,
        ("malformed", "rows"): 0.7,
        ("large rows, all cores", "large rows, 1 thread"): 1.6,
        ("large blocks, all cores", "large blocks, 1 thread"): 1.6,
        ("stream 1000", "stream per_row"): 8,
        ("read rows", "read one_by_one"): 10,
        ("read packed", "read one_by_one"): 20,
        ("read blocks", "read one_by_one"): 100,
    }


def test_only_measures_what_the_chosen_rows_need(tmp_path):
    suite = Rehearsal(tmp_path, only="(packed|blocks) shards")
    (packed, blocks) = suite.run()
    assert suite.order[:5] == ["analysis", "packed", "blocks", "read packed", "read blocks"]
    assert sorted(suite.order[5:]) == ["read blocks", "read packed"]  # what only they need is made once
    assert packed.comparisons == blocks.comparisons == ()
    (_, blocks) = Rehearsal(tmp_path, only="single|blocks shards").run()
    assert [comparison.least for comparison in blocks.comparisons] == [100]


def test_rounds_begin_with_another_job_and_long_ones_are_left_out_of_the_third(tmp_path):
    suite = Rehearsal(tmp_path, only="per-row|^ours: ")
    suite.run()
    assert suite.order == [
        *("analysis", "per_row", "rows", "packed", "blocks"),
        *("rows", "packed", "blocks", "per_row"),
        *("blocks", "rows", "packed"),
    ]


def test_memory_is_compared_with_scale_1_whatever_the_scale(tmp_path):
    for scale, small in ((1, "rows"), (3, "scale 1")):
        suite = Rehearsal(tmp_path, only="peak memory", scale=scale, repeat=1)
        (row,) = suite.run()
        assert suite.order == ["analysis", small, "large rows, 1 thread"]
        assert row.comparisons[0].ratio == 1


def test_unknown_flags_and_bad_numbers_are_errors():
    for arguments in (["--qick"], ["--scale", "0"], ["--repeat", "many"], ["--only", "("], ["--only", "nothing"]):
        done = benchmark(*arguments)
        assert done.returncode == 2
        assert arguments[0] in done.stderr


def test_help_says_how_it_is_measured():
    done = benchmark("--help")
    assert done.returncode == 0
    for word in ("--quick", "--profile", "--only PATTERN", "pipeline.run alone", "interleaved", "analysis"):
        assert word in done.stdout


def examples_of(folder: Path, pattern: str) -> list[dict[str, float]]:
    import tensorflow as tf

    found = []
    for path in folder.glob(pattern):
        for record in tf.data.TFRecordDataset(str(path)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            found.append({name: [*f.int64_list.value, *f.float_list.value][0] for name, f in sorted(features.items())})
    return sorted(found, key=lambda row: [round(value, 3) for value in row.values()])


@pytest.mark.slow
def test_the_canonical_peer_makes_the_same_examples_as_we_do(tmp_path):
    suite = Suite(Plan(tmp_path, rows=300, scale=1, large=1, repeat=1, say=print))
    steps = suite.steps()
    for name in ("analysis", "peer analysis", "canonical", "rows"):
        suite.take(name, replace(steps[name].make(), keep=True), name)
    ours = examples_of(tmp_path / "ours" / "rows", "out/run=*/*/*.tfrecord")
    theirs = examples_of(tmp_path / "canonical", "examples*.tfrecord")
    assert len(ours) == len(theirs) == 300
    assert list(ours[0]) == list(theirs[0])
    np.testing.assert_allclose([[*row.values()] for row in ours], [[*row.values()] for row in theirs], atol=1e-4)


@pytest.mark.slow
def test_each_kind_of_row_on_a_few_flights(tmp_path):
    arguments = ("--quick", "--rows", "400", "--work", str(tmp_path / "work"))
    # One of each kind: the others differ by a scale or a layout.
    only = "Beam|TFT:|^ours: |malformed|blocks.*cores|memory|by message|1,000|single|blocks shards|analysis|--help"
    done = benchmark(*arguments, "--only", only, "--json")
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table["settings"] == {"rows": 400, "scale": 1, "large_scale": 4, "repeat": 1}
    by_name = {row["what"]: row for row in table["rows"]}
    assert {row["rows"] for name, row in by_name.items() if name.startswith(("per-row", "canonical", "ours:"))} == {400}
    assert all(row["rows"] > 1024 for name, row in by_name.items() if "shards" in name)
    bounds = [c for row in table["rows"] for c in row["comparisons"] if c["reached"] is not None]
    assert len(bounds) == 11
    assert all(row["peak_mb"] > 0 for row in table["rows"] if row["rows"])
    profile = benchmark(*arguments, "--profile")
    assert profile.returncode == 0, profile.stderr
    for stage in ("Arrow's JSON parser", "statistics", "transform: TFT graph", "encode", "frame"):
        assert stage in profile.stdout
