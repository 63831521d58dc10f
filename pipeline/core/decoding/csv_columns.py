"""Well-formed CSV rows to canonical columns with pyarrow, and which rows hold a cell it cannot vouch for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.decoding.csv_rows import FLOAT_SYNTAX
from pipeline.core.decoding.lines import BOM
from pipeline.core.records import BoolArray
from pipeline.core.schema import Feature, Kind, Schema

# Numbers are read as texts and cast a column at a time: one bad cell then costs its column, not the block.
_READ_TYPES = {Kind.INT: pa.large_string(), Kind.FLOAT: pa.large_string(), Kind.BYTES: pa.large_binary()}
_NUMBER_TYPES = {Kind.INT: pa.int64(), Kind.FLOAT: pa.float64()}
# Of the integers of the row-wise parser: those that a cast to int64 takes, and others that float64 holds exactly.
_PLAIN_INT = r"^-?0*[0-9]{1,18}$"
_DECIMAL_INT = r"^[+-]?0*[0-9]{1,15}(?:\.0*)?$"
_SURE_FLOAT = f"^(?:{FLOAT_SYNTAX.decode()})$"
_MAX_NATIVE_BYTES = 1 << 30  # pyarrow counts the bytes of a block in 32 bits


@dataclass(frozen=True)
class ColumnReader:
    """Reads rows that all have the cells of ``header`` and strict quotes; knows nothing of the schema's domains."""

    schema: Schema
    options: CsvOptions
    header: tuple[str, ...]

    def read(self, text: bytes, rows: int, *, hexadecimal: bool) -> tuple[pa.RecordBatch, BoolArray] | None:
        """The canonical columns of ``rows`` rows, and which rows need another look, shape (rows,).

        ``hexadecimal``: an integer may be written so, and is not to be taken. None where pyarrow does
        not see ``rows`` rows: then nothing can be said.
        """
        if len(text) > _MAX_NATIVE_BYTES:
            return None
        if text.startswith(BOM):  # pyarrow would take it away, but it is a part of a cell: not the file begins here
            text = b"\n" + text
        try:
            table = self._table(text)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != rows:
            return None
        doubt = np.zeros(rows, np.bool_)
        columns = [self._canonical(table, feature, doubt, hexadecimal=hexadecimal) for feature in self.schema.features]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow_schema), doubt

    def _table(self, text: bytes) -> pa.Table:
        types = {
            str(self.header.index(feature.name)): _READ_TYPES[feature.kind]
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

    def _canonical(self, table: pa.Table, feature: Feature, doubt: BoolArray, *, hexadecimal: bool) -> pa.Array:
        if feature.name not in self.header:
            return pa.nulls(table.num_rows, feature.arrow_type)
        values = _one_array(table.column(str(self.header.index(feature.name))))
        if feature.kind is not Kind.BYTES:
            values = _numbers(values, feature, doubt, hexadecimal=hexadecimal)
        if feature.kind is Kind.FLOAT:
            values = _to_float32(values, doubt)
        return values if feature.scalar else _to_lists(values)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _numbers(texts: pa.Array, feature: Feature, doubt: BoolArray, *, hexadecimal: bool) -> pa.Array:
    """Numbers from their texts; a text that is not surely the number of the row-wise parser is null and doubted."""
    if not hexadecimal or feature.kind is Kind.FLOAT:
        try:
            return texts.cast(_NUMBER_TYPES[feature.kind])
        except pa.ArrowInvalid:
            pass  # some text is at fault: find out which
    if feature.kind is Kind.INT:
        values = _integers(_truth_as_digits(texts) if feature.bool_domain is not None else texts)
    else:
        values = _only(texts, _SURE_FLOAT).cast(pa.float64())
    if values.null_count > texts.null_count:
        doubt |= pc.and_not(texts.is_valid(), values.is_valid()).to_numpy(zero_copy_only=False)
    return values


def _integers(texts: pa.Array) -> pa.Array:
    values = _only(texts, _PLAIN_INT).cast(pa.int64())
    if values.null_count > texts.null_count:
        values = pc.coalesce(values, _only(texts, _DECIMAL_INT).cast(pa.float64()).cast(pa.int64()))
    return values


def _truth_as_digits(texts: pa.Array) -> pa.Array:
    words = pc.index_in(pc.ascii_lower(texts), pa.array(["false", "true"], pa.large_string()))
    return pc.coalesce(words.cast(pa.large_string()), texts)


def _only(texts: pa.Array, pattern: str) -> pa.Array:
    """``texts``, null where they do not match."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, texts.type))


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
