"""A schema inferred from files: their rows read by the format's own decoder, then parsed without types.

``core.inference_rules`` says what is inferred.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn, Protocol

from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.decoding import DecoderSettings, csv_rows, json_rows, make_decoder
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.errors import UsageError
from pipeline.core.inference_rules import InferenceResult, SchemaInference, infer_schema
from pipeline.core.reasons import Reason
from pipeline.core.records import Decoder, Fault, InputFile, Opener, RawBlock
from pipeline.core.schema import Schema
from pipeline.core.text import printable

__all__ = ["DEFAULT_MAX_ROWS", "InferenceResult", "SchemaInference", "infer_from_files", "infer_schema"]

DEFAULT_MAX_ROWS = 1_000_000
_BLOCK_BYTES = 1 << 20
_SHOWN = 3
_EXACT_FLOAT_LIMIT = 2.0**53
_ANY_SCHEMA = Schema((), schema_pb2.Schema())


def infer_from_files(
    files: Sequence[InputFile],
    format_name: str,
    open_file: Opener,
    *,
    settings: DecoderSettings | None = None,
    max_rows: int = DEFAULT_MAX_ROWS,
) -> InferenceResult:
    """The schema of the first rows of each of ``files``, in this order; ``max_rows`` are dealt evenly over them.

    What a short file leaves goes to those after it. Rows that no schema could make readable are
    counted as ``refused`` and told in a warning. Raises UsageError for a format whose types are not
    to be inferred, for input without any feature, and for a bad CSV header.
    """
    settings = replace(settings or DecoderSettings(), block_bytes=_BLOCK_BYTES)
    decoder = make_decoder(format_name, _ANY_SCHEMA, settings)
    reader = _reader(format_name, settings)
    inference, refused, left = SchemaInference(), _Refused(), max_rows
    for index, file in enumerate(files):
        quota = -(-left // (len(files) - index))
        for block in _blocks(decoder, file, open_file=open_file, rows=quota):
            left -= block.num_rows + len(block.oversized)
            refused.count += len(block.oversized)
            reader.read(block, inference, refused)
    return inference.result(refused=refused.count, warnings=refused.warnings())


@dataclass
class _Refused:
    """Rows that could not be parsed, and a few of them to show."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, block: RawBlock, row: int, faults: Sequence[Fault]) -> None:
        self.count += 1
        if len(self.shown) < _SHOWN:
            message = printable(faults[0].message, 200)
            self.shown.append(f"{block.uri}#offset={block.offset(row)}: {message}")

    def warnings(self) -> list[str]:
        if not self.count:
            return []
        some = f", such as {'; '.join(self.shown)}" if self.shown else ""
        return [f"{self.count} rows cannot be read, whatever the schema{some}"]


class _Reader(Protocol):
    """Parses the rows of a block without a schema."""

    def read(self, block: RawBlock, inference: SchemaInference, refused: _Refused) -> None: ...


def _reader(format_name: str, settings: DecoderSettings) -> _Reader:
    if format_name == "jsonl":
        return _JsonReader(settings.max_depth)
    options = settings.csv or CsvOptions()
    if format_name == "csv":
        return _CsvReader(options)
    if format_name == "tsv":
        return _CsvReader(replace(options, delimiter="\t"))
    raise UsageError(f"a schema cannot be inferred from {format_name}: it can be from jsonl, csv and tsv")


def _blocks(decoder: Decoder, file: InputFile, *, open_file: Opener, rows: int) -> Iterator[RawBlock]:
    """The blocks that hold the first ``rows`` rows of ``file``, the last one cut."""
    for split in decoder.splits(file, max(1, file.size_bytes), open_file):
        for block in decoder.blocks(split, open_file):
            if rows <= 0:
                return
            cut = (
                block if block.num_rows <= rows else replace(block, starts=block.starts[:rows], ends=block.ends[:rows])
            )
            rows -= cut.num_rows
            yield cut


class _JsonReader:
    """Parses lines with the standard library; what it is not sure about goes through the row-wise decoder."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._oracle = json_rows.RowParser(_ANY_SCHEMA, max_depth=max_depth)
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_no_duplicates, parse_float=_exact_number, parse_constant=_refuse
        )

    def read(self, block: RawBlock, inference: SchemaInference, refused: _Refused) -> None:
        rows = []
        for row in range(block.num_rows):
            parsed = self._parse(block.payload(row))
            if isinstance(parsed, dict):
                rows.append(parsed)
            else:
                refused.add(block, row, parsed)
        inference.add_rows(rows)

    def _parse(self, payload: bytes) -> dict[str, object] | list[Fault]:
        try:
            text = payload.decode()
            if "\\u" in text or text.count("{") + text.count("[") > self._max_depth:
                faults = self._oracle.parse(payload)
                if isinstance(faults, list):
                    return faults
            value = self._decoder.decode(text)
        except (ValueError, RecursionError) as error:
            faults = self._oracle.parse(payload)
            return faults if isinstance(faults, list) else [_fault(error)]
        return value if isinstance(value, dict) else self._oracle.parse(payload)  # type: ignore[return-value]


class _CsvReader:
    """Splits rows into cells; rows that do not fit their header are refused by the row-wise decoder."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._nulls = options.null_cells

    def read(self, block: RawBlock, inference: SchemaInference, refused: _Refused) -> None:
        header: tuple[str, ...] = block.header  # type: ignore[attr-defined]
        parser = csv_rows.RowParser(_ANY_SCHEMA, self._options, header)
        rows = []
        for row in range(block.num_rows):
            payload = block.payload(row)
            if cells := self._plain_cells(payload, len(header)):
                rows.append(cells)
            elif isinstance(faults := parser.parse(payload), list):
                refused.add(block, row, faults)
            else:
                rows.append(self._quoted_cells(payload))
        inference.add_cells(header, rows)

    def _plain_cells(self, payload: bytes, count: int) -> list[bytes | None] | None:
        """The cells of a row that is surely sound; None where that takes a closer look."""
        options, nulls = self._options, self._nulls
        if (options.quote and options.quote_byte in payload) or b"\n" in payload or not payload.isascii():
            return None
        cells = payload.split(options.delimiter_byte)
        return [None if cell in nulls else cell for cell in cells] if len(cells) == count else None

    def _quoted_cells(self, payload: bytes) -> list[bytes | None]:
        cells = csv_rows.split_cells(payload, self._options)
        return [None if text in self._nulls and not quoted else text for text, quoted in cells]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return made


def _exact_number(text: str) -> float | Decimal:
    """A float where it is exact for our purpose: from 2**53 on, rounding could hide a fraction."""
    value = float(text)
    return value if abs(value) < _EXACT_FLOAT_LIMIT else Decimal(text)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"the row holds {word}, which JSON does not have")


def _fault(error: Exception) -> Fault:
    return Fault(Reason.INVALID_JSON, str(error))
