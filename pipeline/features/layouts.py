"""Layouts: how transformed rows are packed into records. A record is a serialised tf.train.Example in all of them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from pipeline.core.errors import UsageError
from pipeline.core.records import Json
from pipeline.core.schema_text import nearest
from pipeline.features.wire import encode_examples


class Layout(Protocol):
    """Encodes large_list batches (float32, int64, large_binary) into records, in row order. Holds no state."""

    name: str
    rows_per_record: int

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """The records of the batch; the same batch gives the same bytes in any process."""
        ...

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """As ``encode_array``, as Python bytes."""
        ...

    def describe(self) -> Json:
        """What a reader must know, for the manifest."""
        ...


class RowsLayout:
    """One row a record, one feature a column: what every tool reads. A null list is a feature left out."""

    name = "rows"
    rows_per_record = 1

    def encode_array(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """One record a row."""
        return encode_examples(batch)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """One record a row."""
        return encode_examples(batch).to_pylist()  # type: ignore[no-any-return]

    def describe(self) -> Json:
        """Rows in a record: 1."""
        return {"name": self.name, "rows_per_record": 1}


_LAYOUTS: dict[str, type[Layout]] = {"rows": RowsLayout}


def make_layout(name: str) -> Layout:
    """The layout called ``name``. Raises UsageError for an unknown one."""
    if name not in _LAYOUTS:
        raise UsageError(f"unknown layout '{name}': {nearest(name, _LAYOUTS)}")
    return _LAYOUTS[name]()
