"""What the CSV tests share: a schema, files in memory, a whole file read, and a reader written the naive way."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.decoding.csv import CsvDecoder, CsvOptions
from pipeline.core.decoding.csv_rows import QuoteError, split_cells
from pipeline.core.records import DecodedBlock, InputFile, Rejection
from pipeline.core.schema import BoolDomain, Feature, Kind, Schema

INT, FLOAT, BYTES = Kind.INT, Kind.FLOAT, Kind.BYTES


def schema_of(*features: Feature) -> Schema:
    return Schema(features, schema_pb2.Schema())


def scalar(name: str, kind: Kind, **rules) -> Feature:
    return Feature(name, kind, min_values=1, max_values=1, **rules)


SCHEMA = schema_of(
    scalar("a", INT, required=True),
    scalar("x", FLOAT),
    scalar("s", BYTES),
    scalar("d", BYTES, domain=(b"red", b"green")),
    scalar("b", INT, bool_domain=BoolDomain()),
    Feature("l", FLOAT, max_values=3),
    Feature("m", INT, min_values=2),
)
HEADER = ("a", "x", "s", "d", "b", "l", "m")


def opener(data: bytes):
    return lambda _: io.BytesIO(data)


@dataclass
class Read:
    """All that came of a file: decoded blocks in order."""

    blocks: list[DecodedBlock]

    @property
    def rejections(self) -> list[Rejection]:
        return [rejection for block in self.blocks for rejection in block.rejections]

    @property
    def rows(self) -> list[dict]:
        return [row for block in self.blocks for row in block.batch.to_pylist()]

    @property
    def offsets(self) -> list[int]:
        return [block.block.offset(row) for block in self.blocks for row in block.rows.tolist()]

    @property
    def blank(self) -> int:
        return sum(block.block.blank for block in self.blocks)

    @property
    def summary(self):
        """What must not depend on how the file is cut."""
        return list(zip(self.offsets, map(repr, self.rows), strict=True)), self.rejections, self.blank


def read(data: bytes, decoder: CsvDecoder, *, split_bytes: int = 1 << 20, slow: bool = False) -> Read:
    """``data`` through ``decoder`` in splits; checks the accounts of every block and split on the way."""
    decoded = []
    splits = decoder.splits(InputFile("mem", len(data)), split_bytes, opener(data))
    assert [split.start for split in splits] == [0, *(split.end for split in splits)][: len(splits)]
    assert sum(split.size_bytes for split in splits) == len(data)
    for split in splits:
        blocks = list(decoder.blocks(split, opener(data)))
        assert sum(block.bytes_read for block in blocks) == split.size_bytes
        for block in blocks:
            found = decoder.decode_rows(block) if slow else decoder.decode(block)
            check_block(found, data, decoder.schema)
            decoded.append(found)
    return Read(decoded)


def check_block(found: DecodedBlock, data: bytes, schema: Schema) -> None:
    assert found.batch.schema == schema.arrow_schema
    found.batch.validate(full=True)
    assert found.batch.num_rows + len(found.rejections) == found.rows_read
    assert found.block.blank >= 0
    offsets = [found.block.offset(row) for row in found.rows.tolist()] + [r.offset for r in found.rejections]
    assert len(set(offsets)) == len(offsets)
    for rejection in found.rejections:
        if rejection.payload is not None:
            assert rejection.payload == data[rejection.offset : rejection.offset + rejection.length]
        assert rejection.faults
        assert all(len(fault.message) < 500 and fault.message.isprintable() for fault in rejection.faults)


def assert_same(fast: DecodedBlock, slow: DecodedBlock) -> None:
    assert fast.rejections == slow.rejections
    assert fast.rows.tolist() == slow.rows.tolist()
    assert pa.Table.from_batches([fast.batch]).equals(pa.Table.from_batches([slow.batch]))
    # Equality calls 0.0 and -0.0 the same; training does not.
    assert repr(fast.batch.to_pylist()) == repr(slow.batch.to_pylist())


def naive_rows(data: bytes, start: int, options: CsvOptions, *, cells: int, max_record_bytes: int):
    """(offset, payload) of each row of ``data`` from ``start``, and blank lines: line after line, as if by hand."""
    lines = _lines(data, start)
    near = min(64 << 10, max_record_bytes)
    rows, blank, index = [], 0, 0
    while index < len(lines):
        offset, end = lines[index]
        last = index
        if not data[offset:end].strip(None if not options.delimiter.isspace() else b""):
            blank += 1
        else:
            if end - offset <= max_record_bytes and _state(data[offset:end], options) == "open":
                for candidate in range(index + 1, len(lines)):
                    span = data[offset : lines[candidate][1]]
                    state = _state(span, options)
                    if state == "open" and len(span) <= max_record_bytes:
                        continue
                    if _is_row(span, state, options, cells=cells, near=near, most=max_record_bytes):
                        last = candidate
                    break
            rows.append((offset, data[offset : lines[last][1]]))
        index = last + 1
    return rows, blank


def _is_row(span: bytes, state, options: CsvOptions, *, cells: int, near: int, most: int) -> bool:
    if state == "open" or state == "wrong":
        return False
    if not options.multiline:
        return state == cells and len(span) <= near
    return len(span) <= (most if state == cells else near)


def _state(row: bytes, options: CsvOptions):
    """The number of cells of ``row``, ``open`` or ``wrong``."""
    try:
        return len(split_cells(row, replace(options, multiline=bool(options.quote))))
    except QuoteError as error:
        return "open" if "never closed" in str(error) else "wrong"


def _lines(data: bytes, start: int) -> list[tuple[int, int]]:
    lines, offset = [], start
    while offset < len(data):
        newline = data.find(b"\n", offset)
        end = len(data) if newline < 0 else newline
        stop = end - 1 if newline >= 0 and end > offset and data[end - 1 : end] == b"\r" else end
        lines.append((offset, stop))
        offset = end + 1
    return lines
