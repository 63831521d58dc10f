"""The native parse of a block of JSON lines: columns for the rows it takes, doubt for all others.

The parser takes a range of lines or fails; a failure mostly names a row. The rows in doubt are blanked
out in a copy of the block, and the ranges around them are parsed again, few and long as possible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.json

from pipeline.core.decoding import UnknownFeatures
from pipeline.core.decoding.assembly import Piece
from pipeline.core.decoding.json_columns import Reading, Readings, canonical_batch, other_readings
from pipeline.core.decoding.json_screens import odd_rows
from pipeline.core.records import BoolArray, Int64Array, RawBlock
from pipeline.core.schema import Schema
from pipeline.core.validation import valid_mask

_CHANGED = re.compile(r"Column\(/(?P<name>.*)\) changed from \w+ to (?P<found>\w+) in row (?P<row>\d+)$", re.DOTALL)
_ROW = re.compile(r" in row (?P<row>\d+)$")
_UNREAD = re.compile(r"couldn't parse:\s*(?P<token>\S+)$")

_WINDOW_ROWS = 1 << 16
_LEAF_ROWS = 16  # a range this short is not worth another call
_PATIENCE = 16  # failures that a block may have before their density matters
_SKIPPED_ROWS = 64
_SAMPLE_BYTES = 1 << 18
_FEW_ROUNDED = 16

_Range = tuple[int, int]


class NativeParse:
    """One block's parse. After ``pieces`` is exhausted, ``readings`` says how the columns were best read."""

    def __init__(
        self, block: RawBlock, schema: Schema, readings: Readings, *, doubtful: BoolArray, unknown: UnknownFeatures
    ) -> None:
        self._block = block
        self._schema = schema
        self._doubtful = doubtful
        self._behaviour = "error" if unknown == "reject" else "ignore"
        self._buffer: bytes | bytearray = block.data
        self._work = [(lo, min(lo + _WINDOW_ROWS, block.num_rows)) for lo in range(0, block.num_rows, _WINDOW_ROWS)]
        self._work.reverse()
        self._deferred: list[_Range] = []
        self._failures = 0
        self._screened = False
        self._settled: set[tuple[int, str]] = set()
        self.readings = readings

    def pieces(self) -> Iterator[Piece]:
        """The rows that were taken and are valid, in pieces; rows in none of them are in doubt."""
        self._blank_gaps()
        self._blank(np.flatnonzero(self._doubtful))
        while self._work or self._deferred:
            if not self._work:
                self._work, self._deferred = _joined(self._deferred), []
            lo, hi = self._work.pop()
            rows = np.flatnonzero(~self._doubtful[lo:hi]) + lo
            if len(rows) and (piece := self._parse(lo, hi, rows)) is not None:
                yield piece

    def _parse(self, lo: int, hi: int, rows: Int64Array) -> Piece | None:
        """The valid ones of ``rows``, which are those of [lo, hi) not in doubt; None when there is more to do."""
        try:
            table = self._read(rows)
        except pa.ArrowInvalid as error:
            self._failures += 1
            self._narrow(lo, hi, rows=rows, message=str(error))
            return None
        if table.num_rows != len(rows):  # two objects on a line
            self._failures += 1
            self._halve(lo, hi, rows)
            return None
        batch, sure, rounded = canonical_batch(table, self._schema, self.readings)
        if self._unround(rounded):
            self._work.append((lo, hi))
            return None
        sure &= valid_mask(batch, self._schema)
        return Piece(rows, batch) if sure.all() else Piece(rows[sure], batch.filter(pa.array(sure)))

    def _read(self, rows: Int64Array) -> pa.Table:
        start, end = int(self._block.starts[rows[0]]), int(self._block.ends[rows[-1]])
        fields = zip(self._schema.features, self.readings, strict=True)
        schema = pa.schema([(feature.name, reading.native_type) for feature, reading in fields])
        # open_json has a fifth of read_json's overhead; a block_size beyond the input makes it one block.
        reader = pyarrow.json.open_json(
            pa.BufferReader(pa.py_buffer(self._buffer).slice(start, end - start)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - start + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=self._behaviour),
        )
        return reader.read_all()

    def _narrow(self, lo: int, hi: int, *, rows: Int64Array, message: str) -> None:
        """After a failure: doubt what caused it, or read a column otherwise, and queue the rest."""
        found = _ROW.search(message)
        if found is None:
            self._narrow_rowless(lo, hi, rows=rows, message=message)
            return
        row = int(rows[min(int(found["row"]), len(rows) - 1)])
        changed = _CHANGED.search(message)
        if changed and self._read_otherwise(changed["name"], changed["found"], row=row, hi=hi):
            self._work.append((lo, hi))
            return
        if not self._screened:
            self._screened = True
            odd = odd_rows(self._block) & ~self._doubtful
            self._doubt(np.flatnonzero(odd[row:]) + row)
        dense = self._failures > _PATIENCE + row // _LEAF_ROWS
        self._doubt(np.arange(row, min(row + (_SKIPPED_ROWS if dense else 1), hi)))
        self._work.append((row + 1, hi))
        self._deferred.append((lo, row))

    def _narrow_rowless(self, lo: int, hi: int, *, rows: Int64Array, message: str) -> None:
        unread = _UNREAD.search(message)
        if unread is None:
            self._halve(lo, hi, rows)
            return
        token = unread["token"].encode()
        if not token.lstrip(b"-").isdigit() and self._read_ints_as_floats():
            self._work.append((lo, hi))
            return
        self._doubt(self._rows_holding(token, rows))
        self._halve(lo, hi, rows)

    def _halve(self, lo: int, hi: int, rows: Int64Array) -> None:
        if len(rows) <= _LEAF_ROWS or self._failures > _PATIENCE * _LEAF_ROWS:
            self._doubt(rows)
            return
        middle = int(rows[len(rows) // 2])
        self._work += [(middle, hi), (lo, middle)]

    def _rows_holding(self, token: bytes, rows: Int64Array) -> Int64Array:
        """The first few rows that hold ``token``."""
        found: list[int] = []
        position, end = int(self._block.starts[rows[0]]), int(self._block.ends[rows[-1]])
        while len(found) < _LEAF_ROWS and (position := self._buffer.find(token, position, end)) >= 0:
            row = int(np.searchsorted(self._block.ends, position, side="right"))
            found.append(row)
            position = int(self._block.ends[row])
        return np.array(found, np.int64)

    def _read_ints_as_floats(self) -> bool:
        """Read integers that may have a point as float64; whether this changed anything."""
        changed = tuple(
            Reading("float", reading.listed)
            if reading.value == "int" and (index, "int") not in self._settled
            else reading
            for index, reading in enumerate(self.readings)
        )
        differs, self.readings = changed != self.readings, changed
        return differs

    def _unround(self, rounded: list[int]) -> bool:
        """Read columns of big integers as such again, once; whether there are any."""
        columns = {
            index
            for index, (count, reading) in enumerate(zip(rounded, self.readings, strict=True))
            if count > _FEW_ROUNDED and reading.value == "float" and (index, "int") not in self._settled
        }
        self._settled |= {(index, "int") for index in columns}
        self.readings = tuple(
            Reading("int", reading.listed) if index in columns else reading
            for index, reading in enumerate(self.readings)
        )
        return bool(columns)

    def _read_otherwise(self, name: str, found: str, *, row: int, hi: int) -> bool:
        """Read column ``name`` in another way, where the schema allows it and most rows from ``row`` need it."""
        names = [feature.name for feature in self._schema.features]
        if name not in names:
            return False
        index = names.index(name)
        other = other_readings(self._schema.features[index], self.readings[index], found)
        if other is None or other == self.readings[index] or (index, found) in self._settled:
            return False
        self._settled.add((index, found))  # one try a block: files that mix both must not go to and fro
        start = int(self._block.starts[row])
        sample = self._block.data[start : min(int(self._block.ends[hi - 1]), start + _SAMPLE_BYTES)]
        if 2 * _share_found(sample, name, found) < 1:
            return False
        self.readings = (*self.readings[:index], other, *self.readings[index + 1 :])
        return True

    def _doubt(self, rows: Int64Array) -> None:
        self._doubtful[rows] = True
        self._blank(rows)

    def _blank(self, rows: Int64Array) -> None:
        if not len(rows):
            return
        self._blank_spans(self._block.starts[rows], self._block.ends[rows])

    def _blank_gaps(self) -> None:
        """Blank what lies between rows and is more than a line's end: blank lines (of any white space), huge ones."""
        starts, ends = self._block.ends[:-1], self._block.starts[1:]
        wide = ends - starts > 2
        if wide.any():
            self._blank_spans(starts[wide] + 1, ends[wide])

    def _blank_spans(self, starts: Int64Array, ends: Int64Array) -> None:
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(self._buffer)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._buffer[start:end] = b" " * (end - start)


def _joined(ranges: list[_Range]) -> list[_Range]:
    """Ranges, with those joined that only rows in doubt keep apart, last first."""
    joined: list[_Range] = []
    for lo, hi in sorted(ranges):
        if joined and lo <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], hi)
        else:
            joined.append((lo, hi))
    return joined[::-1]


def _share_found(sample: bytes, name: str, found: str) -> float:
    """In which share of its appearances in ``sample`` the key ``name`` has a ``found`` value; nulls not counted."""
    key = re.escape(json.dumps(name, ensure_ascii=False).encode())
    firsts = re.findall(key + rb"\s*:\s*([^\sn])", sample)
    wanted = {"array": b"[", "string": b'"', "boolean": b"tf", "number": b"-0123456789"}.get(found, b"")
    return sum(first in wanted for first in firsts) / max(len(firsts), 1)
