"""Valid rows through transform and encoder, without Beam: what fails is narrowed to its rows and refused.

Batch tasks and batches of messages both come through here, which is why both give the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import tensorflow as tf

from pipeline.core.errors import HeadraceError
from pipeline.core.isolation import isolate
from pipeline.core.reasons import Reason
from pipeline.core.records import BoolArray, Fault, Int64Array
from pipeline.features.layouts import Layout
from pipeline.features.transformer import RowTransformer, non_finite_rows

Reject = Callable[[int, Fault], None]
"""Takes a row, named as its caller names rows, and why it is refused."""

# What TensorFlow says of a machine in trouble, as against a row in trouble.
_TF_FAULTS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.NotFoundError,
)


def is_machine_fault(error: Exception) -> bool:
    """Whether ``error`` speaks of storage, memory or quota, and not of a row."""
    return isinstance(error, (OSError, MemoryError, *_TF_FAULTS))


def is_infrastructure_fault(error: Exception) -> bool:
    """Whether ``error`` speaks of storage, memory or quota, or of the whole transform, and not of a row."""
    return isinstance(error, HeadraceError) or is_machine_fault(error)


@dataclass(frozen=True)
class RowWork:
    """The two steps after decoding. Shared by threads.

    ``is_fault`` says which exceptions are raised at once. ``redacted``: an exception's text, which can hold values
    of the row, is left out of faults.
    """

    transformer: RowTransformer
    layout: Layout
    allow_non_finite: bool = False
    redacted: bool = False
    is_fault: Callable[[Exception], bool] = is_infrastructure_fault

    def transform(
        self, batch: pa.RecordBatch, rows: Int64Array, reject: Reject
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """(rows, transformed rows) in order, in one piece unless rows failed. ``rows`` names those of ``batch``."""
        if faults := self.transformer.faults(batch):
            for row, fault in faults.items():
                reject(int(rows[row]), fault)
            keep = np.setdiff1d(np.arange(len(rows)), np.fromiter(faults, np.int64, len(faults)))
            rows, batch = rows[keep], batch.take(pa.array(keep))
        transformed = isolate(self.transformer.transform, batch, rows, is_fault=self.is_fault)
        self._refuse(transformed.failed, Reason.TRANSFORM_ERROR, reject)
        for done, output in transformed.done:
            yield self._without_non_finite(done, output, reject)

    def encode(
        self, batch: pa.RecordBatch, rows: Int64Array, reject: Reject
    ) -> Iterator[tuple[Int64Array, pa.LargeBinaryArray]]:
        """(rows, their records) in order, in one piece unless rows failed; records as full as the layout can."""
        encoded = isolate(self.layout.encode_array, batch, rows, is_fault=self.is_fault)
        self._refuse(encoded.failed, Reason.ENCODE_ERROR, reject)
        yield from encoded.done

    def _refuse(self, failed: list[tuple[int, Exception]], reason: Reason, reject: Reject) -> None:
        for row, error in failed:
            text = type(error).__name__ if self.redacted else f"{type(error).__name__}: {error}"
            reject(row, Fault(reason, f"the {reason.stage.value} step failed on this row: {text}"))

    def _without_non_finite(
        self, rows: Int64Array, output: pa.RecordBatch, reject: Reject
    ) -> tuple[Int64Array, pa.RecordBatch]:
        if self.allow_non_finite:
            return rows, output
        bad: BoolArray = non_finite_rows(output)
        if not bad.any():
            return rows, output
        for row in rows[bad]:
            reject(int(row), Fault(Reason.TRANSFORM_ERROR, "the transform gave NaN or infinity for this row"))
        keep = np.flatnonzero(~bad)
        return rows[keep], output.take(pa.array(keep))
