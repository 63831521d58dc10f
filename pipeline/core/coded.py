"""String columns as codes into their different values, found once and used by all that only looks at these.

A coded column is an Arrow dictionary array whose codes have no nulls: a missing value is a null in the dictionary.
Rows of it are taken and cut for the price of integers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.core.records import Int64Array


def coded(column: pa.Array) -> pa.Array:
    """A binary column coded; any other (a coded one too) as it is."""
    return column.dictionary_encode(null_encoding="encode") if pa.types.is_large_binary(column.type) else column


def is_coded(column: pa.Array) -> bool:
    """Whether ``column`` is coded."""
    return bool(pa.types.is_dictionary(column.type))


def with_codes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with its columns of single strings coded."""
    return pa.RecordBatch.from_arrays([coded(column) for column in batch.columns], batch.schema.names)


def missing_in(column: pa.Array) -> int:
    """How many rows of a column, coded or not, have no value."""
    if not is_coded(column) or not column.dictionary.null_count:
        return int(column.null_count)
    nulls = column.dictionary.is_null().to_numpy(zero_copy_only=False)
    return int(np.count_nonzero(nulls[codes_of(column)]))


def codes_of(column: pa.DictionaryArray) -> Int64Array:
    """The place in ``column.dictionary`` of each row's value, shape (rows,)."""
    return column.indices.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def distinct_of(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The different values of a column, a null for missing ones, and which of them each row has.

    Only values that some row has: those of rows that were cut off a coded column are left out.
    """
    column = coded(column)
    codes, values = codes_of(column), column.dictionary
    used = np.zeros(len(values), np.bool_)
    used[codes] = True
    if used.all():
        return values, column.indices
    places = np.cumsum(used) - 1
    return values.filter(pa.array(used)), pa.array(places[codes])
