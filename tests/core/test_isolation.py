"""Isolation: each row at fault stands alone, every other row's result is kept, and infrastructure faults pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.isolation import isolate


def batch_of(values):
    return pa.RecordBatch.from_pydict({"v": pa.array(values, pa.int64())})


class Step:
    """Fails on batches that hold a bad value; counts its calls."""

    def __init__(self, bad):
        self.bad, self.calls = set(bad), 0

    def __call__(self, batch):
        self.calls += 1
        found = self.bad & set(batch.column(0).to_pylist())
        if found:
            raise ValueError(f"bad {sorted(found)}")
        return batch.column(0).to_pylist()


def never(error):
    return False


@given(n=st.integers(0, 70), bad=st.sets(st.integers(0, 69), max_size=12))
def test_bad_rows_stand_alone_and_all_others_are_done_in_order(n, bad):
    step = Step(bad)
    result = isolate(step, batch_of(range(n)), np.arange(n) + 1000, is_fault=never)
    expected = [v for v in range(n) if v not in bad]
    assert [v for _, values in result.done for v in values] == expected
    assert [row for rows, _ in result.done for row in rows] == [v + 1000 for v in expected]
    assert [row for row, _ in result.failed] == [v + 1000 for v in sorted(bad) if v < n]
    assert all(str(error) == f"bad [{row - 1000}]" for row, error in result.failed)


@given(n=st.integers(1, 5000), at=st.integers(0, 4999))
def test_one_bad_row_costs_a_logarithm_of_calls(n, at):
    step = Step({at % n})
    isolate(step, batch_of(range(n)), np.arange(n), is_fault=never)
    assert step.calls <= 2 * np.ceil(np.log2(n)) + 1


def test_a_good_batch_costs_one_call():
    step = Step(())
    assert len(isolate(step, batch_of(range(9)), np.arange(9), is_fault=never).done) == 1
    assert step.calls == 1


def test_an_infrastructure_fault_is_raised_at_once():
    step = Step({3})
    with pytest.raises(ValueError, match="bad"):
        isolate(step, batch_of(range(9)), np.arange(9), is_fault=lambda error: isinstance(error, ValueError))
    assert step.calls == 1


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_no_rows_fault_passes(raised):
    def step(batch):
        raise raised

    with pytest.raises(raised):
        isolate(step, batch_of([1]), np.arange(1), is_fault=lambda error: isinstance(error, MemoryError))


def test_a_step_that_fails_on_size_but_on_no_row_alone_loses_nothing():
    def step(batch):
        if batch.num_rows > 2:
            raise ValueError("too many at once")
        return batch.column(0).to_pylist()

    result = isolate(step, batch_of(range(9)), np.arange(9), is_fault=never)
    assert [v for _, values in result.done for v in values] == list(range(9))
    assert result.failed == []
