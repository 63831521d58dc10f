"""Preprocessing modules that do not do what they must: refused in words, and nothing stays behind."""

from __future__ import annotations

import pytest
from fakes.cli import headrace
from fakes.runs import files_below

TF = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys\nsys.exit(0)\n", "fails on import: SystemExit(0)"),
        ("def preprocessing_fn(i): raise SystemExit(0)\n", "SystemExit(0)"),
        ("def preprocessing_fn(i): return None\n", "returns NoneType"),
        ("def preprocessing_fn(i): return [i['id']]\n", "returns list"),
        ("def preprocessing_fn(i): return {}\n", "returns an empty dict"),
        ("def preprocessing_fn(i): return {1: i['id']}\n", "names an output 1"),
        ("def preprocessing_fn(i): return {'': i['id']}\n", "names an output ''"),
        ("def preprocessing_fn(i): return {'a\\x1b[31m': i['id']}\n", r"names an output 'a\x1b[31m'"),
        ("def preprocessing_fn(i): return {'y': 1.0}\n", "'y' as float"),
        (TF + "def preprocessing_fn(i): return {'y': tf.constant(1.0)}\n", "shape ()"),
        (TF + "def preprocessing_fn(i): return {'y': tf.cast(i['id'], tf.float64)}\n", "'y' as float64"),
        (
            TF + "def preprocessing_fn(i):\n"
            "    return {'y': tf.py_function(lambda v: v, [i['id'].values], tf.int64)}\n",
            "shape <unknown>",
        ),
        (
            TF + "def preprocessing_fn(i):\n"
            "    rows = tf.RaggedTensor.from_sparse(i['id'])\n"
            "    return {'y': tf.RaggedTensor.from_row_lengths(rows, tf.ones([rows.nrows()], tf.int64))}\n",
            "lists of lists",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "analyze"])
def test_what_a_module_may_not_do(bench, row_schema, rows, source, said, command):
    module, data = bench.write("m.py", source.encode()), bench.write("f.jsonl", rows(3))
    words = ["--preprocessing_module", module, "--output", bench.output, "--input", data, "--schema", row_schema]
    done = headrace(command, *words, *(["--dead_letters", bench.dead] if command == "run" else []))
    assert done.code == 2
    assert str(module) in done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert files_below(bench.output) == []


def test_what_a_module_prints_is_not_the_result(bench, row_schema, rows):
    source = b"print('loaded')\ndef preprocessing_fn(i):\n    print('traced')\n    return {'id': i['id']}\n"
    flags = ("--preprocessing_module", bench.write("m.py", source), "--json")
    done, _ = bench.run(bench.write("f.jsonl", rows(3)), *flags, schema=row_schema)
    assert done.json["rows_written"] == 3
    assert "loaded" in done.err


@pytest.mark.parametrize(
    "body",
    [
        "{'y': i['id'][1:]}",
        "{'y': i['id'][:0]}",
        "{'y': tf.concat([i['id'], i['id']], 0)}",
        "{'y': tf.zeros([3], tf.int64), 'id': i['id']}",
        "{'y': tf.cond(tf.size(i['id']) > 1, lambda: i['id'][:1], lambda: i['id'])}",
    ],
)
@pytest.mark.parametrize("shuffle", ["blocks", "global"])
def test_a_module_that_does_not_give_a_row_for_a_row_commits_nothing(bench, rows, body, shuffle):
    schema = bench.write("s.pbtxt", b'feature { name: "id" type: INT presence { min_fraction: 1 } shape {} }')
    module = bench.write("m.py", f"{TF}def preprocessing_fn(i): return {body}\n".encode())
    flags = ("--preprocessing_module", module, "--shuffle", shuffle)
    done, run = bench.run(bench.write("f.jsonl", rows(10)), *flags, schema=schema)
    assert done.code == 1
    assert "must give one row for each" in done.err
    assert not run.committed
