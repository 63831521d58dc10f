"""CSV: lines under a header, strict quotes, null tokens; one split a file where cells may hold newlines.

What is accepted, exactly, is defined by ``csv_rows``; which lines make a row by ``csv_spans``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pipeline.core.decoding.csv_blocks import CsvBlock, decode_by_columns, decode_by_rows
from pipeline.core.decoding.csv_header import Header, check_header, read_header
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.decoding.csv_spans import SpanRule, join_lines, row_start
from pipeline.core.decoding.lines import line_blocks, line_splits, oversized_rejections
from pipeline.core.records import DecodedBlock, InputFile, Opener, RawBlock, Split
from pipeline.core.schema import Schema

__all__ = ["CsvBlock", "CsvDecoder", "CsvOptions"]


class CsvDecoder:
    """Decodes CSV rows under ``schema`` (a ``records.Decoder``).

    One cell is one value: a list feature that needs more is refused as ``too_few_values``. Files may
    have their columns in different orders. A feature without a column is missing in all rows.
    """

    def __init__(
        self,
        schema: Schema,
        options: CsvOptions | None = None,
        *,
        unknown_features: Literal["ignore", "reject"] = "ignore",
        block_bytes: int = 8 << 20,
        max_record_bytes: int = 16 << 20,
    ) -> None:
        self.schema = schema
        self.options = options or CsvOptions()
        self.unknown_features = unknown_features
        self.block_bytes = block_bytes
        self.max_record_bytes = max_record_bytes

    def splits(self, file: InputFile, split_bytes: int, open_file: Opener) -> list[Split]:
        """Splits of about ``split_bytes`` that tile the file; one for the file with ``multiline``.

        Raises UsageError for a header that cannot be read, or does not go with the schema.
        """
        self._header(file.uri, open_file)
        return line_splits(file, file.size_bytes if self.options.multiline else split_bytes)

    def blocks(self, split: Split, open_file: Opener) -> Iterator[CsvBlock]:
        """The rows that start in ``split``, in order, in blocks of about ``block_bytes``.

        The header is no row. Raises UsageError as ``splits``, OSError where the file cannot be read.
        """
        header = self._header(split.uri, open_file)
        rule = SpanRule.of(self.options, header.names, max_record_bytes=self.max_record_bytes)
        start, end = (self._row_start(offset, split, header, rule, open_file) for offset in (split.start, split.end))
        counted = split.start
        if start < end:
            lines = line_blocks(
                Split(split.uri, start, end, split.file_bytes),
                open_file,
                block_bytes=self.block_bytes,
                max_record_bytes=self.max_record_bytes,
                white_is_blank=not self.options.delimiter.isspace(),
            )
            position = start
            for block in join_lines(lines, rule):
                position += block.bytes_read
                upto = max(counted, min(position, split.end))
                yield replace(block, bytes_read=upto - counted)
                counted = upto
        if counted < split.end:  # nothing but the header, or lines of a row that starts before
            yield CsvBlock.empty(split.uri, counted, header.names, bytes_read=split.end - counted)

    def decode(self, block: RawBlock) -> DecodedBlock:
        """Rows in columns with pyarrow; those it cannot vouch for as ``decode_rows`` has them."""
        return self._whole(decode_by_columns(_csv(block), self.schema, options=self.options))

    def decode_rows(self, block: RawBlock) -> DecodedBlock:
        """Row by row: the definition of what is accepted, and with which faults a row is refused."""
        return self._whole(decode_by_rows(_csv(block), self.schema, options=self.options))

    def _header(self, uri: str, open_file: Opener) -> Header:
        header = read_header(uri, open_file, options=self.options)
        check_header(header, uri, schema=self.schema, options=self.options, unknown_features=self.unknown_features)
        return header

    def _row_start(self, offset: int, split: Split, header: Header, rule: SpanRule, open_file: Opener) -> int:
        file = Split(split.uri, 0, split.file_bytes, split.file_bytes)
        return row_start(offset, file=file, first=header.end, open_file=open_file, rule=rule)

    def _whole(self, decoded: DecodedBlock) -> DecodedBlock:
        """``decoded`` with the rows of its block that are too large, in file order."""
        too_large = oversized_rejections(decoded.block, self.max_record_bytes)
        if not too_large:
            return decoded
        return replace(decoded, rejections=sorted(decoded.rejections + too_large, key=lambda found: found.offset))


def _csv(block: RawBlock) -> CsvBlock:
    if not isinstance(block, CsvBlock):
        raise TypeError(f"a CSV decoder decodes the blocks that it read itself, not a {type(block).__name__}")
    return block
