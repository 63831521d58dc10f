"""Well-formed CSV rows to canonical columns with pyarrow, and which rows hold a cell it cannot vouch for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.decoding.csv_rows import FLOAT_SYNTAX
from pipeline.core.records import BoolArray
from pipeline.core.schema import Feature, Kind, Schema

_READ_TYPES = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BYTES: pa.large_binary()}
_SURE_INT = r"^[+-]?0*[0-9]{1,18}(?:\.0*)?$"  # what INT_SYNTAX takes and surely fits in 64 bits
_NOT_IN_INT64 = r"^\+|\.0*$"  # what a cast to int64 does not take
_SURE_FLOAT = f"^(?:{FLOAT_SYNTAX.decode()})$"
_MAX_NATIVE_BYTES = 1 << 30  # pyarrow counts the bytes of a block in 32 bits


@dataclass(frozen=True)
class ColumnReader:
    """Reads rows that all have the cells of ``header`` and strict quotes; knows nothing of the schema's domains."""

    schema: Schema
    options: CsvOptions
    header: tuple[str, ...]

    def read(self, text: bytes, rows: int, *, care: bool) -> tuple[pa.RecordBatch, BoolArray] | None:
        """The canonical columns of ``rows`` rows, and which rows need another look, shape (rows,).

        With ``care`` numbers are checked by their syntax, not left to pyarrow. None where pyarrow
        does not see ``rows`` rows: then nothing can be said.
        """
        if len(text) > _MAX_NATIVE_BYTES:
            return None
        table = None
        if not care:
            try:
                table = self._table(text, numbers=True)
            except pa.ArrowInvalid:  # some cell is not of its type
                table = None
        try:
            table = self._table(text, numbers=False) if table is None else table
        except pa.ArrowInvalid:
            return None
        if table.num_rows != rows:
            return None
        doubt = np.zeros(rows, np.bool_)
        columns = [self._canonical(table, feature, doubt, care=care) for feature in self.schema.features]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow_schema), doubt

    def _table(self, text: bytes, *, numbers: bool) -> pa.Table:
        types = {
            str(self.header.index(feature.name)): _READ_TYPES[feature.kind] if numbers else pa.large_binary()
            for feature in self.schema.features
            if feature.name in self.header
        }
        options = self.options
        return pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(
                use_threads=False,
                column_names=[str(index) for index in range(len(self.header))],
                block_size=len(text) + 1,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                double_quote=bool(options.quote),
                newlines_in_values=options.multiline,
            ),
            convert_options=pa_csv.ConvertOptions(
                check_utf8=False,  # checked already
                column_types=types or {"0": pa.large_binary()},
                include_columns=list(types) or ["0"],  # none would mean all
                null_values=list(options.null_tokens),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _canonical(self, table: pa.Table, feature: Feature, doubt: BoolArray, *, care: bool) -> pa.Array:
        if feature.name not in self.header:
            return pa.nulls(table.num_rows, feature.arrow_type)
        values = _one_array(table.column(str(self.header.index(feature.name))))
        if feature.kind is not Kind.BYTES and pa.types.is_large_binary(values.type):
            values = _numbers(values, feature, doubt, care=care)
        if feature.kind is Kind.FLOAT:
            values = _to_float32(values, doubt)
        return values if feature.scalar else _to_lists(values)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _numbers(texts: pa.Array, feature: Feature, doubt: BoolArray, *, care: bool) -> pa.Array:
    """Numbers from their texts; a text that is not surely the number of the row-wise parser is null and doubted."""
    target = _READ_TYPES[feature.kind]
    if not care:
        try:
            return _cast(texts, target)
        except pa.ArrowInvalid:
            pass  # some text is at fault: find out which
    if feature.bool_domain is not None and feature.kind is Kind.INT:
        lower = pc.ascii_lower(texts.cast(pa.large_string()))
        words = pc.index_in(lower, pa.array(["false", "true"], pa.large_string())).cast(pa.large_string())
        texts = pc.coalesce(words.cast(pa.large_binary()), texts)
    sure = pc.match_substring_regex(texts, _SURE_INT if feature.kind is Kind.INT else _SURE_FLOAT)
    doubt |= pc.fill_null(pc.invert(sure), False).to_numpy(zero_copy_only=False)
    texts = pc.if_else(sure, texts, pa.scalar(None, texts.type))
    try:
        return _cast(texts, target)
    except pa.ArrowInvalid:
        return _cast(pc.replace_substring_regex(texts, _NOT_IN_INT64, ""), target)


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return texts.cast(pa.large_string()).cast(target)


def _to_float32(values: pa.Array, doubt: BoolArray) -> pa.Array:
    """To float32; what is not finite there is doubted."""
    narrow = values.cast(pa.float32(), safe=False)
    finite = np.isfinite(narrow.to_numpy(zero_copy_only=False))
    if not finite.all():
        doubt |= ~finite & pc.is_valid(narrow).to_numpy(zero_copy_only=False)
    return narrow


def _to_lists(values: pa.Array) -> pa.LargeListArray:
    """One value a row as lists of one; a null as a null list."""
    present = pc.is_valid(values).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(present)))
    mask = pa.array(~present) if values.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values.drop_null(), mask=mask)
