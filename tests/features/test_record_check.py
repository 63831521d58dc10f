"""Records are parsed as trainers parse them, and bad ones are named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.features.layouts import make_layout
from pipeline.features.parsing import make_parser
from pipeline.features.record_check import RecordCheck

FEATURES = {"a": {"dtype": "int64", "shape": []}, "x": {"dtype": "float32", "shape": [3]}}


def batch_of(rows: int) -> pa.RecordBatch:
    ints = pa.LargeListArray.from_arrays(np.arange(rows + 1), pa.array(range(rows), pa.int64()))
    floats = pa.LargeListArray.from_arrays(np.arange(rows + 1) * 3, pa.array(np.arange(rows * 3), pa.float32()))
    return pa.RecordBatch.from_arrays([ints, floats], ["a", "x"])


@pytest.mark.parametrize("name", ["rows", "packed", "blocks"])
def test_rows_are_counted_and_bad_records_named(name: str) -> None:
    layout = make_layout(name, features=FEATURES, rows_per_record=4)
    check = RecordCheck(make_parser({"features": FEATURES, "layout": layout.describe()}, where="test"))
    records = layout.encode(batch_of(10))
    assert check(records) == check([*records])
    assert (check(records).rows, check(records).bad) == (10, ())
    damaged = [*records, b"\xff not an example", *records]
    checked = check(damaged)
    assert checked.rows == 20
    assert [index for index, _ in checked.bad] == [len(records)]
    assert "does not parse" in checked.bad[0][1]


def test_a_record_that_lacks_a_feature_is_bad() -> None:
    layout = make_layout("rows", features=FEATURES)
    check = RecordCheck(make_parser({"features": FEATURES, "layout": layout.describe()}, where="test"))
    lacking = make_layout("rows", features={"a": FEATURES["a"]}).encode(batch_of(2).select(["a"]))
    assert [index for index, _ in check(lacking).bad] == [0, 1]
