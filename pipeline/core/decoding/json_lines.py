"""JSON lines: the decoder, columnar through pyarrow with the row-wise oracle for rows in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.core.decoding import DEFAULT_BLOCK_BYTES, DEFAULT_MAX_RECORD_BYTES, UnknownFeatures
from pipeline.core.decoding.assembly import Piece, assemble, batch_of_rows
from pipeline.core.decoding.json_columns import usual_readings
from pipeline.core.decoding.json_fitting import TemplateParse, Templates
from pipeline.core.decoding.json_native import NativeParse
from pipeline.core.decoding.json_rows import RowParser
from pipeline.core.decoding.json_screens import unsafe_rows
from pipeline.core.decoding.lines import line_blocks, line_splits, oversized_rejections
from pipeline.core.records import DecodedBlock, InputFile, Int64Array, Opener, RawBlock, Rejection, Split
from pipeline.core.schema import Schema

_FEW_ROWS = 12
"""So few rows are decoded sooner one by one than by a native call."""
_ROWS_FOR_TEMPLATES = 600
"""Fewer are decoded sooner by the native parser: a template costs a thousand calls, however many rows there are."""
_FEW_LEFT = 64
"""One of so many rows, if it fits no template, is mostly malformed: the native parser would only fail on it."""


class JsonLinesDecoder:
    """A ``Decoder`` of JSON lines: one object a line, UTF-8, keys that are features of ``schema``.

    ``unknown_features`` says whether other keys are ignored or refused. A row over ``max_record_bytes``
    is refused unread, one nested deeper than ``max_depth`` brackets unparsed. What exactly is accepted
    is written in ``core.decoding.json_rows``. Instances can be shared by threads and pickled.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        unknown_features: UnknownFeatures = "ignore",
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
        max_depth: int = 64,
    ) -> None:
        self._schema = schema
        self._unknown = unknown_features
        self._block_bytes = block_bytes
        self._max_record_bytes = max_record_bytes
        self._max_depth = max_depth
        self._parser = RowParser(schema, unknown_features, max_depth)
        # Only hints, what was read best in the last block: results do not depend on them.
        self._readings = usual_readings(schema)
        self._templates: Templates = ()

    def splits(self, file: InputFile, split_bytes: int, open_file: Opener) -> list[Split]:
        """Splits of nearly equal size that tile the file, cut anywhere."""
        return line_splits(file, split_bytes)

    def blocks(self, split: Split, open_file: Opener) -> Iterator[RawBlock]:
        """The lines that start in the split, in blocks of about ``block_bytes``."""
        return line_blocks(
            split, open_file, block_bytes=self._block_bytes, max_record_bytes=self._max_record_bytes, may_trail=True
        )

    def decode(self, block: RawBlock) -> DecodedBlock:
        """The valid rows of ``block`` as columns and all others as rejections; the same as ``decode_rows``."""
        if block.num_rows <= _FEW_ROWS:
            return self.decode_rows(block)
        pieces, rest = self._fit_templates(block)
        if len(rest) > max(_FEW_ROWS, block.num_rows // _FEW_LEFT):
            pieces += self._parse_natively(block, rest)
        left = np.ones(block.num_rows, np.bool_)
        for piece in pieces:
            left[piece.rows] = False
        return self._decode(block, pieces, rows=np.flatnonzero(left))

    def _fit_templates(self, block: RawBlock) -> tuple[list[Piece], Int64Array]:
        """The rows that fit a template and are valid, and those that fit none."""
        if block.num_rows < _ROWS_FOR_TEMPLATES:
            return [], np.arange(block.num_rows)
        fitted = TemplateParse(block, self._schema, self._templates, unknown=self._unknown, max_depth=self._max_depth)
        self._templates = fitted.templates
        return fitted.pieces, np.flatnonzero(fitted.left)

    def _parse_natively(self, block: RawBlock, rows: Int64Array) -> list[Piece]:
        """Those of ``rows`` that the native parser takes and that are valid."""
        some = block if len(rows) == block.num_rows else _only(block, rows)
        parse = NativeParse(
            some,
            self._schema,
            self._readings,
            doubtful=unsafe_rows(some, self._max_depth),
            unknown=self._unknown,
        )
        pieces = list(parse.pieces())
        self._readings = parse.readings
        return pieces if some is block else [Piece(rows[piece.rows], piece.batch) for piece in pieces]

    def decode_rows(self, block: RawBlock) -> DecodedBlock:
        """The same row by row: *defines* what is accepted and which faults a row has."""
        return self._decode(block, [], rows=np.arange(block.num_rows))

    def _decode(self, block: RawBlock, pieces: Sequence[Piece], *, rows: Int64Array) -> DecodedBlock:
        """``pieces``, and the verdict of the oracle on the other ``rows``."""
        accepted, accepted_rows = [], []
        rejections = oversized_rejections(block, self._max_record_bytes)
        for row in rows.tolist():
            payload = block.payload(row)
            parsed = self._parser.parse(payload)
            if isinstance(parsed, list):
                stage = parsed[0].reason.stage
                rejections.append(Rejection(block.uri, block.offset(row), len(payload), payload, stage, tuple(parsed)))
            else:
                accepted.append(parsed)
                accepted_rows.append(row)
        if accepted:
            batch = batch_of_rows(accepted, self._schema)
            pieces = [*pieces, Piece(np.array(accepted_rows, np.int64), batch)]
        return assemble(block, pieces, rejections=rejections, schema=self._schema)


def _only(block: RawBlock, rows: Int64Array) -> RawBlock:
    """``rows`` of ``block`` as a block of their own, at no place of any file."""
    payloads = [block.payload(row) for row in rows.tolist()]
    ends = np.cumsum([len(payload) + 1 for payload in payloads]) - 1
    starts = np.append(0, ends[:-1] + 1)
    return RawBlock(block.uri, 0, b"\n".join(payloads), starts, ends)
