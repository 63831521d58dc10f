"""Statistics as bytes: an Arrow stream of one row a feature, so that states can travel between workers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.schema import Kind
from pipeline.core.sketches import Distinct, Sample
from pipeline.core.statistics import BatchStatistics, FeatureStatistics, Numbers

_VERSION = b"1"
_PLAIN = ("name", "present", "missing", "values", "fewest", "most", "total_bytes")
_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("present", pa.int64()),
        ("missing", pa.int64()),
        ("values", pa.int64()),
        ("fewest", pa.int64()),
        ("most", pa.int64()),
        ("total_bytes", pa.int64()),
        ("priorities", pa.large_list(pa.uint64())),
        ("sampled_numbers", pa.large_list(pa.float64())),
        ("sampled_tokens", pa.large_list(pa.large_binary())),
        ("count", pa.int64()),
        ("total", pa.string()),
        ("squares", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("zeros", pa.int64()),
        ("nans", pa.int64()),
        ("infinities", pa.int64()),
        ("distinct_values", pa.large_list(pa.large_binary())),
        ("distinct_counts", pa.large_list(pa.int64())),
        ("complete", pa.bool_()),
    ]
)


def write_state(statistics: BatchStatistics) -> bytes:
    """The bytes of ``statistics``: equal states, equal bytes."""
    rows = [_row(feature) for feature in statistics.features]
    metadata = {b"version": _VERSION, b"num_examples": str(statistics.num_examples).encode()}
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in _SCHEMA]
    batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_state(data: bytes) -> BatchStatistics:
    """The statistics that ``write_state`` wrote. Raises ValueError for bytes of another origin or version."""
    try:
        table = pa.ipc.open_stream(data).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not the bytes of statistics: {error}") from error
    metadata = table.schema.metadata or {}
    if metadata.get(b"version") != _VERSION or not table.schema.equals(_SCHEMA):
        raise ValueError(f"statistics of another version: {metadata.get(b'version')!r}, not {_VERSION!r}")
    features = tuple(_feature(row) for row in _rows(table))
    return BatchStatistics(int(metadata[b"num_examples"]), features)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts; lists of numbers as numpy arrays."""
    rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for field in _SCHEMA:
        numbers = pa.types.is_large_list(field.type) and field.type.value_type != pa.large_binary()
        for row, cell in zip(rows, table.column(field.name), strict=True):
            if numbers and cell.is_valid:
                row[field.name] = cell.values.to_numpy()
            else:
                row[field.name] = cell.as_py()
    return rows


def _row(feature: FeatureStatistics) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(feature, name) for name in _PLAIN}
    row.update(kind=feature.kind.value, priorities=feature.sample.priorities)
    if feature.numbers:
        numbers = feature.numbers
        row.update({name: getattr(numbers, name) for name in ("count", "low", "high", "zeros", "nans", "infinities")})
        row.update(total=_write_fraction(numbers.total), squares=_write_fraction(numbers.squares))
        row.update(sampled_numbers=feature.sample.values)
    if feature.distinct:
        distinct = feature.distinct
        row.update(distinct_values=list(distinct.values), distinct_counts=distinct.counts, complete=distinct.complete)
        row.update(sampled_tokens=list(feature.sample.values))
    return row


def _feature(row: dict[str, Any]) -> FeatureStatistics:
    kind = Kind(row["kind"])
    numbers = distinct = None
    if kind is Kind.BYTES:
        sampled = np.empty(len(row["sampled_tokens"]), object)
        sampled[:] = row["sampled_tokens"]
        distinct = Distinct(tuple(row["distinct_values"]), row["distinct_counts"], row["complete"])
    else:
        sampled = row["sampled_numbers"]
        numbers = Numbers(
            row["count"],
            _read_fraction(row["total"]),
            _read_fraction(row["squares"]),
            *(row[name] for name in ("low", "high", "zeros", "nans", "infinities")),
        )
    counts = {name: row[name] for name in _PLAIN}
    return FeatureStatistics(
        kind=kind, sample=Sample(row["priorities"], sampled), numbers=numbers, distinct=distinct, **counts
    )


def _write_fraction(value: Fraction) -> str:
    # Hexadecimal: Python limits the decimal digits that it converts.
    return f"{value.numerator:x}/{value.denominator:x}"


def _read_fraction(text: str) -> Fraction:
    numerator, denominator = text.split("/")
    return Fraction(int(numerator, 16), int(denominator, 16))
