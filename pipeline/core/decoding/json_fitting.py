"""The templates at work on a block: rows that fit one become columns, all others are left for other decoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.decoding import UnknownFeatures
from pipeline.core.decoding.assembly import Piece
from pipeline.core.decoding.json_columns import wrapped
from pipeline.core.decoding.json_matching import Cursor, read_floats, read_integers, read_strings, read_words
from pipeline.core.decoding.json_screens import non_utf8_rows
from pipeline.core.decoding.json_template import Slot, Template, learn_template
from pipeline.core.decoding.json_words import PADDING_BYTES, WORD_BYTES, Words
from pipeline.core.records import BoolArray, Int64Array, RawBlock
from pipeline.core.schema import Feature, Schema
from pipeline.core.validation import valid_mask

Templates = tuple[Template, ...]

_CHUNK_ROWS = 16_384  # 128 KiB for an array of words: what is at work stays in the processor's cache
_SAMPLE_ROWS = 32
_LOOK_EVERY = 8  # values, whether any row still fits
_MOST_TEMPLATES = 4
_FEW_LEFT = 32  # one of so many rows may be left over without another template being sought
_LEAST_GAIN = 8


class TemplateParse:
    """One block's rows through ``templates``, and through new ones where many rows fit none.

    ``pieces`` are the valid rows; ``left`` says which rows fitted no template, shape (rows,); rows in
    neither fitted and are not valid. ``templates`` are those to begin with at the next block.
    """

    def __init__(
        self, block: RawBlock, schema: Schema, templates: Templates, *, unknown: UnknownFeatures, max_depth: int
    ) -> None:
        self._block, self._schema = block, schema
        self._unknown, self._max_depth = unknown, max_depth
        self.pieces: list[Piece] = []
        self._hopeless = non_utf8_rows(block)
        self.left: BoolArray = ~self._hopeless
        self._gains: dict[Template, int] = {}
        for template in templates:
            self._try(template)
        while len(self._gains) < _MOST_TEMPLATES and self._many_left() and (learned := self._learn()) is not None:
            if learned in self._gains or not self._try(learned):
                break
        self.left |= self._hopeless
        least = block.num_rows // _FEW_LEFT
        best = sorted(self._gains, key=self._gains.__getitem__, reverse=True)
        self.templates: Templates = tuple(template for template in best if self._gains[template] > least)

    def _many_left(self) -> bool:
        return int(np.count_nonzero(self.left)) * _FEW_LEFT > self._block.num_rows

    def _learn(self) -> Template | None:
        """A template of the rows that are left, if it is good for some of those that it was learned from."""
        rows = np.flatnonzero(self.left)
        rows = rows[np.linspace(0, len(rows) - 1, min(_SAMPLE_ROWS, len(rows))).astype(np.int64)]
        sample = [self._block.payload(row) for row in rows.tolist()]
        template = learn_template(sample, self._schema, unknown=self._unknown, max_depth=self._max_depth)
        if template is None:
            return None
        fits = _Fit(self._block, rows, template).fits
        return template if int(np.count_nonzero(fits)) * _LEAST_GAIN > len(rows) else None

    def _try(self, template: Template) -> int:
        """Take the rows that fit; how many they are."""
        rows = np.flatnonzero(self.left)
        if not len(rows) or not self._many_left():
            return 0
        fit = _Fit(self._block, rows, template)
        rows = rows if fit.fits.all() else rows[fit.fits]
        self._gains[template] = len(rows)
        if len(rows):
            self.left[rows] = False
            batch = fit.batch(self._schema)
            valid = valid_mask(batch, self._schema)
            self.pieces.append(Piece(rows, batch) if valid.all() else Piece(rows[valid], batch.filter(pa.array(valid))))
        return len(rows)


@dataclass
class _Values:
    """What one slot holds: numbers, or the (begins, ends) of strings; and which rows are null, if any are."""

    values: npt.NDArray[Any]
    ends: Int64Array | None
    null: BoolArray | None = None

    def mark_null(self, rows: Int64Array, count: int) -> None:
        if len(rows):
            if self.null is None:
                self.null = np.zeros(count, np.bool_)
            self.null[rows] = True


class _Fit:
    """``rows`` of ``block`` matched against ``template``: ``fits`` says which are like it, shape (rows,)."""

    def __init__(self, block: RawBlock, rows: Int64Array, template: Template) -> None:
        self._block, self._template = block, template
        self._rows = rows
        self.fits: BoolArray = np.zeros(len(rows), np.bool_)
        self._columns = [None if slot.feature is None else _empty(slot, len(rows)) for slot in template.slots]
        for at in range(0, len(rows), _CHUNK_ROWS):
            self._match(at, rows[at : at + _CHUNK_ROWS])

    def _match(self, at: int, rows: Int64Array) -> None:
        base = int(self._block.starts[rows[0]]) // WORD_BYTES * WORD_BYTES
        ends = self._block.ends[rows]
        cursor = Cursor(Words(_padded_text(self._block.data, base, int(ends[-1]))), self._block.starts[rows] - base)
        slots = zip(self._template.literals, self._template.slots, self._columns, strict=False)
        for number, (literal, slot, column) in enumerate(slots):
            _read(cursor, literal, slot, column, at=at, base=base)
            if number % _LOOK_EVERY == 0 and not cursor.fitting().any():
                return
        cursor.pass_literal(self._template.literals[-1])
        self.fits[at : at + len(rows)] = cursor.fitting() & (cursor.places + base == ends)

    def batch(self, schema: Schema) -> pa.RecordBatch:
        """The canonical columns of the rows that fit."""
        kept = None if self.fits.all() else np.flatnonzero(self.fits)
        columns = [
            self._column(feature, place, kept, rows=int(np.count_nonzero(self.fits)))
            for place, feature in enumerate(schema.features)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)

    def _column(self, feature: Feature, place: int, kept: Int64Array | None, *, rows: int) -> pa.Array:
        slots = self._template.values[place]
        if slots is None:
            return pa.nulls(rows, feature.arrow_type)
        values = [self._array(self._columns[slot], kept) for slot in slots]
        if not self._template.listed[place]:
            return values[0] if feature.scalar else wrapped(values[0])
        return values[0] if feature.scalar else _interleaved(values, feature, rows=rows)

    def _array(self, column: _Values | None, kept: Int64Array | None) -> pa.Array:
        assert column is not None  # slots of a feature have values
        values, ends, null = column.values, column.ends, column.null
        if kept is not None:
            values = values[kept]
            ends = None if ends is None else ends[kept]
            null = None if null is None else null[kept]
        if ends is None:
            return pa.array(values, mask=null)
        return _cut_strings(self._block.data, values, ends, null)


def _empty(slot: Slot, rows: int) -> _Values:
    dtype = np.float32 if slot.kind == "float" else np.int64
    return _Values(np.empty(rows, dtype), np.empty(rows, np.int64) if slot.kind == "string" else None)


def _read(cursor: Cursor, literal: bytes, slot: Slot, column: _Values | None, *, at: int, base: int) -> None:
    """Go past ``literal`` and the value behind it, which goes to ``column`` from row ``at`` on."""
    word = cursor.pass_literal(literal)
    here = slice(at, at + len(word))
    values: npt.NDArray[Any]
    if slot.kind == "word":
        read_words(cursor, word)
        return
    if slot.kind == "string":
        values, ends, null = read_strings(cursor, word)
        if column is not None and column.ends is not None:
            np.add(ends, base, out=column.ends[here])
            values += base
    elif slot.kind == "int":
        values, null = read_integers(cursor, word, truth=slot.truth)
    else:
        values, null = read_floats(cursor, word)
    if len(null) and not slot.nullable:
        cursor.misfit(null)
    if column is not None:
        column.values[here] = values
        column.mark_null(null + at, len(column.values))


def _padded_text(data: bytes, base: int, end: int) -> npt.NDArray[np.uint8]:
    """The bytes from ``base`` to ``end`` and some more: what follows in ``data``, or zeros where it ends."""
    text = np.frombuffer(data, np.uint8)
    stop = end + PADDING_BYTES
    if stop <= len(text):
        return text[base:stop]
    padded = np.zeros(stop - base, np.uint8)
    padded[: len(text) - base] = text[base:]
    return padded


def _cut_strings(data: bytes, starts: Int64Array, ends: Int64Array, null: BoolArray | None) -> pa.LargeBinaryArray:
    """Pieces of ``data``, which do not overlap and are in order, as a column.

    The pieces and the gaps between them are values over ``data`` itself, out of which every second one is taken.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.large_binary())
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2], bounds[1::2] = starts, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
    return pieces.take(pa.array(np.arange(0, 2 * count, 2), mask=null))


def _interleaved(values: list[pa.Array], feature: Feature, *, rows: int) -> pa.LargeListArray:
    """A list a row, of one value of each array in turn."""
    offsets = pa.array(np.arange(rows + 1) * len(values))
    if not values:
        return pa.LargeListArray.from_arrays(offsets, pa.array([], feature.arrow_type.value_type))
    order = np.arange(rows)[:, None] + np.arange(len(values)) * rows
    return pa.LargeListArray.from_arrays(offsets, pa.concat_arrays(values).take(pa.array(order.reshape(-1))))
