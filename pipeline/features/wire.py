"""Columns to serialised tf.train.Examples, whole columns at a time: no Python and no message object for a row.

tfx_bsl's encoder builds a message a row and writes its features in the order of a hash table that
differs from process to process, so the same rows do not give the same bytes twice. This one writes
the canonical encoding with features sorted by name, several times faster.

The format (tensorflow/core/example/{example,feature}.proto): each level is ``tag, length, content``.

    Example  = 0A len Features        Features = (0A len Entry)*      Entry = 0A len name, 12 len Feature
    Feature  = 0A len BytesList | 12 len FloatList | 1A len Int64List
    FloatList, Int64List = 0A len packed values, empty without values      BytesList = (0A len value)*

Neighbouring features whose entries have one width throughout the batch (floats, small ids, codes)
are filled into one byte matrix; all others become a column of headers and a column of bodies, and
one join puts them together row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.records import BoolArray, Int64Array

_Bytes2D = npt.NDArray[np.uint8]
_BYTES, _FLOAT, _INT = 0x0A, 0x12, 0x1A
_TAGS = {pa.float32().id: _FLOAT, pa.int64().id: _INT, pa.large_binary().id: _BYTES}
_NOTHING = pa.scalar(b"", pa.large_binary())
# The words in which varints are put together, and how many bits of a number each can take.
_WORDS = tuple((np.dtype(f"<u{size}"), 7 * size) for size in (1, 2, 4, 8))
_FULL_TABLE = 1 << 16  # below this many distinct lengths a count is cheaper than a sort


def encode_examples(batch: pa.RecordBatch) -> pa.LargeBinaryArray:
    """One serialised Example a row. Columns are large_list of float32, int64 or large_binary, values without nulls.

    A null list is a feature that the row does not have; an empty list is one without values.
    """
    rows = batch.num_rows
    if not rows:
        return pa.array([], pa.large_binary())
    names = batch.schema.names
    pieces: list[pa.Array] = []
    spans = _Spans()
    slab = _Slab(rows)
    total: Int64Array = np.zeros(rows, np.int64)
    for name, index in sorted((name.encode(), index) for index, name in enumerate(names)):
        column = _Column.of(name, batch.column(index), spans)
        fixed = column.fixed()
        if fixed is not None:
            slab.add(*fixed)
            continue
        pieces += slab.flush()
        variable = column.variable()
        pieces += variable
        total += sum(np.diff(_offsets(piece)) for piece in variable)
    pieces += slab.flush()
    total += slab.width
    sizes = _by_length(total, lambda length: b"\x0a" + varint(length))
    return pc.binary_join_element_wise(sizes, *pieces, _NOTHING)


@lru_cache(1 << 14)
def varint(number: int) -> bytes:
    """``number`` in base 128, low digits first (protobuf encoding guide); below 0 as 64-bit two's complement."""
    number &= (1 << 64) - 1
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


@lru_cache(1 << 14)
def _header(name: bytes, tag: int, length: int) -> bytes:
    """All that stands before the list content of ``length`` bytes, in the entry of feature ``name``."""
    inner = b"\x0a" + varint(length) if tag != _BYTES and length else b""  # the tag of packed values
    listed = bytes([tag]) + varint(len(inner) + length) + inner
    key = b"\x0a" + varint(len(name)) + name + b"\x12" + varint(len(listed) + length)
    return b"\x0a" + varint(len(key) + len(listed) + length) + key + listed


class _Slab:
    """Neighbouring entries of fixed width, as one matrix of bytes. ``width`` sums over all that was ever added."""

    def __init__(self, rows: int) -> None:
        self._rows, self.width = rows, 0
        self._template, self._fills = bytearray(), list[tuple[int, _Bytes2D]]()

    def add(self, header: bytes, body: _Bytes2D) -> None:
        """Append a constant and then the columns of ``body``, shape (rows, bytes)."""
        self._template += header
        self._fills.append((len(self._template), body))
        self._template += bytes(body.shape[1])
        self.width += len(header) + body.shape[1]

    def flush(self) -> list[pa.Array]:
        """What was added since the last flush, as at most one binary column."""
        if not self._template:
            return []
        matrix = np.empty((self._rows, len(self._template)), np.uint8)
        matrix[:] = np.frombuffer(bytes(self._template), np.uint8)
        for at, body in self._fills:
            matrix[:, at : at + body.shape[1]] = body
        self._template, self._fills = bytearray(), []
        return [_binary(np.arange(self._rows + 1) * matrix.shape[1], matrix)]


class _Spans:
    """Where the lists of columns begin and end: looked at once for all columns that share their offsets."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Int64Array, int | None, int]] = {}

    def of(self, column: pa.LargeListArray) -> tuple[Int64Array, int | None, int]:
        """Offsets from 0 on of a column without nulls; the length of all lists, if it is one above 0; what 0 was."""
        key = (column.buffers()[1].address, column.offset)
        if key not in self._known:
            offsets = column.offsets.to_numpy()
            begin = int(offsets[0])
            offsets = offsets - begin if begin else offsets
            each = int(offsets[1])
            same = each > 0 and (np.diff(offsets) == each).all()
            self._known[key] = (offsets, each if same else None, begin)
        return self._known[key]


@dataclass(frozen=True)
class _Column:
    """One feature: flat ``values``, where each row's begin and end (``offsets``), and which rows have it at all."""

    name: bytes
    values: pa.Array
    offsets: Int64Array
    present: BoolArray | None
    tag: int
    each: int | None = field(default=None)
    """How many values every row has, where that is one number above 0 and no row misses the feature."""

    @classmethod
    def of(cls, name: bytes, column: pa.LargeListArray, spans: _Spans) -> _Column:
        """Read a column; raises TypeError for a type that an Example cannot hold."""
        tag = _TAGS.get(column.type.value_type.id)
        if tag is None:
            raise TypeError(f"feature {name!r} has type {column.type}, which a tf.train.Example cannot hold")
        if column.null_count:
            present = column.is_valid().to_numpy(zero_copy_only=False)
            counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            return cls(name, column.flatten(), np.append(0, np.cumsum(counts)), present, tag)
        offsets, each, begin = spans.of(column)
        values = column.values
        values = values.slice(begin, int(offsets[-1])) if begin or len(values) != offsets[-1] else values
        return cls(name, values, offsets, None, tag, each)

    def fixed(self) -> tuple[bytes, _Bytes2D] | None:
        """Header and body of an entry that has one width in all rows, or None."""
        rows = len(self.offsets) - 1
        if self.each is None:
            return None
        if self.tag == _FLOAT:
            body = np.ascontiguousarray(self.values.to_numpy(zero_copy_only=False)).view(np.uint8).reshape(rows, -1)
            return _header(self.name, self.tag, body.shape[1]), body
        if self.tag == _INT:
            numbers = self.values.to_numpy(zero_copy_only=False)
            width = _common_width(numbers)
            if width is None:
                return None
            body = _varints(numbers)[0][:, :width].reshape(rows, -1)
            return _header(self.name, self.tag, body.shape[1]), body
        return self._fixed_bytes(rows)

    def _fixed_bytes(self, rows: int) -> tuple[bytes, _Bytes2D] | None:
        ends = _offsets(self.values)
        length = int(ends[1] - ends[0])
        if self.each != 1 or not length or (np.diff(ends) != length).any():
            return None
        body = np.frombuffer(self.values.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(rows, length)
        value = b"\x0a" + varint(length)
        return _header(self.name, self.tag, len(value) + length) + value, body

    def variable(self) -> list[pa.Array]:
        """Header and body of each row's entry, both empty where the feature is missing."""
        if self.tag == _FLOAT:
            body = _binary(self.offsets * 4, self.values.to_numpy(zero_copy_only=False))
        elif self.tag == _INT and self.each == 1:
            return [self._single_ints()]
        elif self.tag == _INT:
            body = _varint_lists(self.values.to_numpy(zero_copy_only=False), self.offsets)
        elif self.each == 1:
            return self._single_bytes()
        else:
            body = _bytes_lists(self.values, self.offsets)
        lengths = np.diff(_offsets(body))
        if self.present is not None:
            lengths = np.where(self.present, lengths, -1)
        return [_by_length(lengths, lambda length: _header(self.name, self.tag, length) if length >= 0 else b""), body]

    def _single_ints(self) -> pa.LargeBinaryArray:
        """Header and number of each row, put together in a matrix out of which the unused bytes are left."""
        digits, narrow = _varints(self.values.to_numpy(zero_copy_only=False))
        widths = narrow.astype(np.int64)
        headers = [_header(self.name, self.tag, width) for width in range(1, digits.shape[1] + 1)]
        size = len(headers[-1])
        table = np.array([list(header.rjust(size, b"\0")) for header in headers], np.uint8)
        spare = np.array([size - len(header) for header in headers])
        matrix = np.concatenate([table[widths - 1], digits], axis=1)
        places = np.arange(matrix.shape[1])
        used = places < (size + widths)[:, None]
        if spare.any():  # a long name: its length takes another byte with the wider numbers
            used &= places >= spare[widths - 1][:, None]
        return _binary(np.append(0, np.cumsum(size - spare[widths - 1] + widths)), matrix[used])

    def _single_bytes(self) -> list[pa.Array]:
        def header(length: int) -> bytes:
            value = b"\x0a" + varint(length)
            return _header(self.name, self.tag, len(value) + length) + value

        return [_by_length(np.diff(_offsets(self.values)), header), self.values]


def _by_length(lengths: Int64Array, write: Callable[[int], bytes]) -> pa.LargeBinaryArray:
    """``write(length)`` for each of ``lengths`` (-1 or more), written once for each different one."""
    shifted = lengths + 1
    top = int(shifted.max())
    if top < _FULL_TABLE:
        distinct = np.flatnonzero(np.bincount(shifted, minlength=1))
        index = np.zeros(top + 1, np.int64)
        index[distinct] = np.arange(len(distinct))
        codes = index[shifted]
    else:
        distinct, codes = np.unique(shifted, return_inverse=True)
    table = [write(int(length) - 1) for length in distinct]
    return pa.array(table, pa.large_binary()).take(pa.array(codes))


def _common_width(numbers: Int64Array) -> int | None:
    """The width of all varints, if they have one."""
    unsigned = numbers.view(np.uint64)
    low, high = len(varint(int(unsigned.min()))), len(varint(int(unsigned.max())))
    return low if low == high else None


def _varints(numbers: Int64Array) -> tuple[_Bytes2D, npt.NDArray[np.uint8]]:
    """The varint of each number at the start of a row of bytes, shape (numbers, 1 to 10), and how many it takes.

    All digits of a number are spread at once inside the smallest word that holds them.
    """
    unsigned = numbers.view(np.uint64)
    top = int(unsigned.max())
    word = next((word for word, bits in _WORDS if top < 1 << bits), None)
    if word is None:
        return _wide_varints(unsigned)
    small = unsigned.astype(word)
    spread = small & 0x7F
    widths = np.ones(len(numbers), np.uint8)
    for digit in range(1, word.itemsize):
        if top < 1 << 7 * digit:
            break
        more = small >= 1 << 7 * digit
        widths += more
        spread |= more.astype(word) << (8 * digit - 1)  # says that another digit follows
        spread |= (small & (0x7F << 7 * digit)) << digit
    return spread.view(np.uint8).reshape(len(numbers), word.itemsize), widths


def _wide_varints(unsigned: npt.NDArray[np.uint64]) -> tuple[_Bytes2D, npt.NDArray[np.uint8]]:
    """As ``_varints``, for numbers of any size (those below 0 take 10 bytes)."""
    digits = (unsigned[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)).astype(np.uint8)
    digits &= 0x7F
    widths = np.ones(len(unsigned), np.uint8)
    for digit in range(1, 10):
        more = unsigned >= np.uint64(1 << 7 * digit)
        widths += more
        digits[:, digit - 1] |= more.astype(np.uint8) << 7
    return digits, widths


def _varint_lists(numbers: Int64Array, offsets: Int64Array) -> pa.LargeBinaryArray:
    """The varints of each list, packed."""
    if not len(numbers):
        return _binary(np.zeros(len(offsets), np.int64), np.empty(0, np.uint8))
    digits, widths = _varints(numbers)
    ends = np.append(0, np.cumsum(widths, dtype=np.int64))
    return _binary(ends[offsets], digits[np.arange(digits.shape[1], dtype=np.uint8) < widths[:, None]])


def _bytes_lists(values: pa.LargeBinaryArray, offsets: Int64Array) -> pa.LargeBinaryArray:
    """Each list's values, every one behind its tag and length."""
    if not len(values):
        return _binary(np.zeros(len(offsets), np.int64), np.empty(0, np.uint8))
    prefixes = _by_length(np.diff(_offsets(values)), lambda length: b"\x0a" + varint(length))
    joined = pc.binary_join_element_wise(prefixes, values, _NOTHING)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(_offsets(joined)[offsets]), joined.buffers()[2]]
    )


def _binary(offsets: Int64Array, data: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """A binary column over the bytes of ``data``."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _offsets(values: pa.LargeBinaryArray) -> Int64Array:
    """Where each value begins in the data buffer, and the end of the last: shape (values + 1,)."""
    if not len(values):
        return np.zeros(1, np.int64)
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
