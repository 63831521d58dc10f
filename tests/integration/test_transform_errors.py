"""Rows that the transform fails on: each is refused alone, with its own bytes, and all others are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.bench import Workbench
from fakes.cli import headrace
from fakes.runs import Run, assert_whole

MODULE = """
import tensorflow as tf

def preprocessing_fn(inputs):
    id, x = inputs["id"], inputs["x"]
    fine = tf.debugging.Assert(tf.reduce_all(tf.not_equal(id, 77)), ["ä" * 2500])
    with tf.control_dependencies([fine]):
        share = 1000 // (id - 4321)
    return {"id": id, "share": share, "root": tf.sqrt(x)}
"""
BAD_IDS = {4321: "division", 77: "assert", 12: "non-finite"}


@pytest.fixture(scope="module")
def dense_schema(artefacts) -> Path:
    """``id``, ``x`` and ``w`` with shapes, so that a TFT function gets dense tensors."""
    path = artefacts / "dense.pbtxt"
    kinds = {"id": "INT", "x": "FLOAT", "w": "BYTES"}
    path.write_text(
        "".join(
            f'feature {{ name: "{n}" type: {k} presence {{ min_fraction: 1 }} shape {{ }} }}\n'
            for n, k in kinds.items()
        )
    )
    return path


@pytest.fixture(scope="module")
def failing(tmp_path_factory, dense_schema) -> Run:
    """10,000 rows, three of which a module's function cannot take."""
    bench = Workbench(tmp_path_factory.mktemp("transform"))
    module = bench.write("module.py", MODULE.encode())
    lines = [b'{"id":%d,"x":%s,"w":"w"}' % (n, b"-1.0" if n == 12 else b"4.0") for n in range(10_000)]
    source = bench.write("f.jsonl", lines)
    return bench.good_run(source, "--preprocessing_module", module, schema=dense_schema)


def test_all_other_rows_are_written(failing):
    assert sorted(failing.column("id")) == [n for n in range(10_000) if n not in BAD_IDS]
    assert_whole(failing)


def test_the_rows_at_fault_are_transform_errors_with_their_bytes(failing):
    letters = failing.letters()
    assert [letter["dlq_reason"] for letter in letters] == ["transform_error"] * 3
    assert [letter["dlq_stage"] for letter in letters] == ["transform"] * 3
    assert [letter["payload"][:9] for letter in letters] == [b'{"id":12,', b'{"id":77,', b'{"id":432']


def test_each_says_what_went_wrong(failing):
    nonfinite, asserted, division = (letter["errorMessage"] for letter in failing.letters())
    assert "NaN or infinity" in nonfinite
    assert "ä" * 2500 in asserted, "the archive has a message of 5,000 bytes in full"
    assert "division by zero" in division.lower()


def test_a_long_message_is_bounded_where_it_is_shown(failing):
    done = headrace("dlq", "show", failing.dead)
    assert done.code == 0
    assert "ä" * 100 in done.out
    assert "ä" * 2500 not in done.out.replace("\n", "")


def test_non_finite_outputs_can_be_let_through(bench, dense_schema):
    module = bench.write("m.py", b"import tensorflow as tf\ndef preprocessing_fn(i): return {'r': tf.sqrt(i['x'])}\n")
    source = bench.write("f.jsonl", [b'{"id":1,"x":-1.0,"w":"w"}', b'{"id":2,"x":4.0,"w":"w"}'])
    flags = ("--preprocessing_module", module)
    run = bench.good_run(source, *flags, "--allow_non_finite", schema=dense_schema)
    assert len(run.rows()) == 2
    again = bench.good_run(source, "--transform", run.folder / "transform_fn", schema=dense_schema, run_id="again")
    assert again.column("r") == [2.0]
    assert [letter["dlq_reason"] for letter in again.letters()] == ["transform_error"]


def test_every_row_fails_in_the_transform(bench, dense_schema, rows):
    module = bench.write(
        "m.py", b"import tensorflow as tf\ndef preprocessing_fn(i): return {'r': tf.math.log(i['x'] * 0)}\n"
    )
    done, run = bench.run(bench.write("f.jsonl", rows(5)), "--preprocessing_module", module, schema=dense_schema)
    assert done.code == 3
    assert "5 transform_error" in done.err
    assert not run.committed


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def preprocessing_fn(inputs)", "fails on import"),
        ("x = 1", "no function preprocessing_fn"),
        (None, "there is no preprocessing module file"),
    ],
)
def test_a_bad_module_is_refused_before_any_work(bench, row_schema, rows, source, said):
    module = bench.folder / "m.py"
    if source is not None:
        module.write_text(source)
    done, run = bench.run(bench.write("f.jsonl", rows(2)), "--preprocessing_module", module, schema=row_schema)
    assert done.code == 2
    assert said in done.err
    assert str(module) in done.err
    assert not run.folder.exists()


def test_a_module_that_fails_while_it_is_traced_is_bad_usage(bench, row_schema, rows):
    module = bench.write("m.py", b"def preprocessing_fn(inputs): return {'y': inputs['nothing']}\n")
    done, run = bench.run(bench.write("f.jsonl", rows(2)), "--preprocessing_module", module, schema=row_schema)
    assert done.code == 2
    assert "nothing" in done.err
    assert "Traceback" not in done.err
    assert not run.folder.exists()


def test_a_rule_of_the_spec_refuses_the_row_in_both_passes(bench, rows):
    schema = bench.write(
        "s.pbtxt", b'feature { name: "t" type: BYTES value_count { min: 1 max: 1 } presence { min_fraction: 1 } }'
    )
    features = bench.write("f.yaml", b"t: {time_parts: {parts: [hour]}}\n")
    lines = [b'{"t":"2024-05-01T13:00:00Z"}', b'{"t":"yesterday"}', b'{"t":"2024-13-01T13:00:00Z"}']
    run = bench.good_run(bench.write("f.jsonl", lines), "--features", features, schema=schema)
    assert [row["t_hour"] for row in run.rows()] == [(13,)]
    assert [(letter["payload"], letter["dlq_feature"]) for letter in run.letters()] == [
        (lines[1], "t"),
        (lines[2], "t"),
    ]
    assert_whole(run)


def test_path_of_the_transform_is_kept_with_the_run(bench, row_schema, transform, rows):
    run = bench.good_run(bench.write("f.jsonl", rows(5)), "--transform", transform, schema=row_schema)
    kept = run.folder / "transform_fn"
    names = {str(Path(p).relative_to(transform)) for p in transform.rglob("*") if p.is_file()}
    assert {str(p.relative_to(kept)) for p in kept.rglob("*") if p.is_file()} == names
    assert all((kept / name).read_bytes() == (transform / name).read_bytes() for name in names)
