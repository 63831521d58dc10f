"""Bisection: which rows of a batch make a columnar step fail, and the results of all the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from pipeline.core.records import Int64Array

T = TypeVar("T")


@dataclass
class Isolated(Generic[T]):
    """What came of a batch: (rows, result) for what worked, in order, and (row, exception) for what did not."""

    done: list[tuple[Int64Array, T]] = field(default_factory=list)
    failed: list[tuple[int, Exception]] = field(default_factory=list)


def isolate(
    step: Callable[[pa.RecordBatch], T],
    batch: pa.RecordBatch,
    rows: Int64Array,
    *,
    is_fault: Callable[[Exception], bool],
) -> Isolated[T]:
    """Run ``step`` on ``batch``; where it raises, halve until the rows at fault stand alone.

    ``rows`` (shape (batch.num_rows,)) names the rows to the caller. An exception for which
    ``is_fault`` is true (storage, memory, quota: nothing to do with the data) is raised at once.
    One bad row in n costs about 2 log2(n) extra calls.
    """
    result: Isolated[T] = Isolated()
    _narrow(step, batch, rows, is_fault, result)
    return result


def _narrow(
    step: Callable[[pa.RecordBatch], T],
    batch: pa.RecordBatch,
    rows: Int64Array,
    is_fault: Callable[[Exception], bool],
    result: Isolated[T],
) -> None:
    if batch.num_rows == 0:
        return
    try:
        result.done.append((rows, step(batch)))
    except Exception as error:  # whatever a library throws at a row is that row's fault, unless is_fault says no
        if is_fault(error):
            raise
        if batch.num_rows == 1:
            result.failed.append((int(rows[0]), error))
            return
        middle = batch.num_rows // 2
        _narrow(step, batch.slice(0, middle), rows[:middle], is_fault, result)
        _narrow(step, batch.slice(middle), rows[middle:], is_fault, result)
