"""A schema inferred from data: for every key seen a type, a presence, a count of values and maybe a domain.

What is inferred, in the order in which the keys first appear:

- type: INT where all numbers are integral and fit in 64 bits (``517.0`` is integral), FLOAT for other numbers, BYTES
  for strings; truth values are INT with a ``bool_domain``. Where a key holds several types, the one that accepts most
  rows is taken and the rest are told as warnings: a run will refuse those rows. In CSV everything is a string, so a
  column is numeric when ``NUMERIC_SHARE`` of its cells are; numbers with leading zeros are strings (identifiers).
- presence: required where no row read is without a value, else ``min_count: 1``.
- values: one value (``shape {}`` where required), lists of constant length (``shape`` where required), other lists;
  a length that ``FIXED_SHARE`` of the rows have is taken for constant, and the rest are told as warnings.
- ``string_domain``: where at most ``MAX_DOMAIN_VALUES`` distinct strings came ``MIN_SEEN_PER_VALUE`` times on average.
- never a numeric range: the extremes of a sample are not rules.
- left out, with a warning: keys that only held nulls or nested values, and names that no feature can have.

The law: a row that was read passes the inferred schema unless a warning counts it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.errors import UsageError
from pipeline.core.inference_facts import MAX_DOMAIN_VALUES, Facts, Shape, Shapes
from pipeline.core.schema import schema_text
from pipeline.core.text import printable

MIN_SEEN_PER_VALUE = 50
NUMERIC_SHARE = FIXED_SHARE = 0.99
MAX_KEYS = 5000
MAX_EXACT_FLOAT32 = 2**24
_CHUNK_ROWS = 1000

_TRUTHS = frozenset((Shape.TRUTH, Shape.BIT))
_INTS = frozenset((Shape.BIT, Shape.INT))
_FLOATS = frozenset((Shape.BIT, Shape.INT, Shape.BIG, Shape.REAL))
_TEXTS = frozenset((Shape.TEXT,))
_PADDED = frozenset((Shape.PADDED,))


@dataclass(frozen=True)
class InferenceResult:
    """An inferred schema; ``rows`` were parsed, ``refused`` could not be, whatever the schema.

    The schema refuses at most ``doubtful`` of the others; ``warnings`` are sentences on what a person
    should look at.
    """

    schema: schema_pb2.Schema
    warnings: tuple[str, ...]
    rows: int
    refused: int = 0
    doubtful: int = 0

    @property
    def text(self) -> str:
        """The schema file: a comment on what to check, then the proto in text form."""
        return schema_text(self.schema, header=self._header())

    def _header(self) -> list[str]:
        lines = [f"Inferred by headrace from {self.rows} rows. Before you rely on it, check:"]
        lines.append("- presence { min_fraction: 1 } refuses a row without the feature: it was in every row so far.")
        lines.append("- string_domain refuses every other value: remove it where new values may come.")
        lines.append("- ranges are not inferred: add int_domain or float_domain { min: … max: … } where you know them.")
        lines.append('- a label is not known when serving: add not_in_environment: "SERVING" to it.')
        return lines + [f"- {warning}" for warning in self.warnings]


@dataclass
class SchemaInference:
    """What was seen so far. Chunks may be added here and there and the parts merged in the order of the data."""

    rows: int = 0
    csv: bool = False
    keys: dict[str, Facts] = field(default_factory=dict)

    def add_rows(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Adds a chunk of parsed JSON objects. Raises UsageError over ``MAX_KEYS`` different keys."""
        self.rows += len(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            self._facts(name).add_values([row.get(name) for row in rows])

    def add_cells(self, header: Sequence[str], rows: Sequence[Sequence[bytes | None]]) -> None:
        """Adds a chunk of CSV rows, each with a cell for each name of ``header``; None is a missing value."""
        self.csv = True
        self.rows += len(rows)
        for name, column in zip(header, zip(*rows, strict=True), strict=False):
            self._facts(name).add_cells(column)

    def merge(self, later: SchemaInference) -> SchemaInference:
        """What was seen in both; ``later`` holds rows that come after this one's."""
        merged = SchemaInference(self.rows + later.rows, self.csv or later.csv, dict(self.keys))
        for name, facts in later.keys.items():
            merged.keys[name] = merged.keys[name].merge(facts) if name in merged.keys else facts
        merged._check_size()
        return merged

    def result(self, *, refused: int = 0, warnings: Iterable[str] = ()) -> InferenceResult:
        """The schema of what was seen. Raises UsageError where no feature is left."""
        schema, notes, doubtful = schema_pb2.Schema(), list(warnings), 0
        for name, facts in self.keys.items():
            reading = _Reading(facts, rows=self.rows, csv=self.csv)
            notes += [f'feature "{printable(name, 80)}": {note}' for note in reading.warnings(name)]
            if reading.usable(name):
                reading.write(schema.feature.add(name=name))
                doubtful += reading.conflicts
        if not schema.feature:
            problem = "; ".join(notes[:5]) or "it holds no rows with a value"
            raise UsageError(f"no feature can be inferred from the input ({self.rows} rows): {problem}")
        return InferenceResult(schema, tuple(notes), self.rows, refused, doubtful)

    def _facts(self, name: str) -> Facts:
        if name not in self.keys:
            self.keys[name] = Facts()
            self._check_size()
        return self.keys[name]

    def _check_size(self) -> None:
        if len(self.keys) > MAX_KEYS:
            raise UsageError(
                f"the input has more than {MAX_KEYS} different keys: these are not features but data used as keys; "
                "write such data as lists, one feature for the keys and one for the values"
            )


def infer_schema(rows: Iterable[Mapping[str, object]]) -> schema_pb2.Schema:
    """The schema of parsed JSON objects. Raises UsageError where no feature can be inferred."""
    inference, chunk = SchemaInference(), []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK_ROWS:
            inference.add_rows(chunk)
            chunk = []
    inference.add_rows(chunk)
    return inference.result().schema


class _Reading:
    """How one key is best read: as which type, and as how many values."""

    def __init__(self, facts: Facts, *, rows: int, csv: bool) -> None:
        self._facts = facts
        self._rows = rows
        self._shapes = _choose(facts, csv=csv)
        self._length = _fixed_length(facts)
        of_type = _accepted(facts.rows, self._accepts(csv))
        of_length = facts.present if self._length is None else facts.lengths[self._length]
        self.plain = of_type > 0
        self.conflicts = 2 * facts.present - of_type - of_length

    def _accepts(self, csv: bool) -> Shapes:
        if self._shapes in (_INTS, _FLOATS):
            return self._shapes | _PADDED
        return frozenset(Shape) if csv and self._shapes == _TEXTS else self._shapes

    def usable(self, name: str) -> bool:
        """Whether a feature can hold what was seen."""
        return self.plain and name != "" and not any(unicodedata.category(char) in ("Cc", "Cs") for char in name)

    def warnings(self, name: str) -> list[str]:
        """What a person should know of this key."""
        if not self._facts.present:
            return ["left out, it held only nulls; add it by hand if it will hold values"]
        if not self.usable(name):
            return ["left out, " + ("its name is no feature name" if self.plain else "it held no plain values")]
        notes = []
        if self.conflicts:
            notes.append(
                f"up to {self.conflicts} of {self._facts.present} rows will be refused: they do not hold "
                f"{self._label()} but {self._others()}"
            )
        if self._shapes == _FLOATS and self._facts.largest > MAX_EXACT_FLOAT32:
            notes.append("holds integers over 16777216, which lose digits in float32; an identifier should be BYTES")
        return notes

    def write(self, feature: schema_pb2.Feature) -> None:
        """Writes the rules into ``feature``, whose name is set."""
        if self._facts.present == self._rows:
            feature.presence.min_fraction = 1
        feature.presence.min_count = 1
        types = {_TRUTHS: schema_pb2.INT, _INTS: schema_pb2.INT, _FLOATS: schema_pb2.FLOAT}
        feature.type = types.get(self._shapes, schema_pb2.BYTES)
        self._write_counts(feature)
        if self._shapes == _TRUTHS:
            feature.bool_domain.SetInParent()
        if self._shapes == _TEXTS:
            self._write_domain(feature)

    def _write_counts(self, feature: schema_pb2.Feature) -> None:
        if self._length is None:
            feature.value_count.min = min(1, *self._facts.lengths)
        elif feature.presence.min_fraction < 1:  # TFT takes a shape only for required features
            feature.value_count.min = feature.value_count.max = self._length
        else:
            feature.shape.SetInParent()
            if self._length > 1:
                feature.shape.dim.add(size=self._length)

    def _write_domain(self, feature: schema_pb2.Feature) -> None:
        texts = self._facts.texts
        if texts and len(texts) <= MAX_DOMAIN_VALUES and texts.total() >= MIN_SEEN_PER_VALUE * len(texts):
            feature.string_domain.value.extend(value.decode() for value in sorted(texts))

    def _label(self) -> str:
        names = {_TRUTHS: "true or false", _INTS: "64-bit integers", _FLOATS: "float32 numbers"}
        label = names.get(self._shapes, "strings")
        return label if self._length is None else f"{self._length} {label}" if self._length > 1 else f"one of {label}"

    def _others(self) -> str:
        shapes = {shape for seen in self._facts.rows for shape in seen if not seen <= self._shapes | _PADDED}
        lengths = {length for length in self._facts.lengths if self._length not in (None, length)}
        others = sorted(shape.value for shape in shapes - self._shapes)
        return ", ".join(others + [f"lists of {length}" for length in sorted(lengths)[:5]])


def _choose(facts: Facts, *, csv: bool) -> Shapes:
    """The type that accepts most rows; of equal ones the narrowest."""
    seen = {shape for shapes in facts.rows for shape in shapes}
    big = sum(count for shapes, count in facts.rows.items() if Shape.BIG in shapes)
    types = [_TRUTHS] if Shape.TRUTH in seen else []
    types.append(_INTS)
    # Integers beyond 64 bits alone do not make a column of identifiers FLOAT, unless they are the rule.
    if Shape.REAL in seen or 2 * big > facts.present:
        types.append(_FLOATS)
    if csv:
        best = max(types, key=lambda shapes: _accepted(facts.rows, shapes))
        return best if _accepted(facts.rows, best) >= NUMERIC_SHARE * facts.present else _TEXTS
    return max([*types, _TEXTS], key=lambda shapes: _accepted(facts.rows, shapes))


def _fixed_length(facts: Facts) -> int | None:
    """The number of values of a row, or None where it varies."""
    length, rows = max(facts.lengths.items(), key=lambda pair: (pair[1], pair[0]), default=(1, 0))
    return length if length and rows >= FIXED_SHARE * facts.present else None


def _accepted(rows: Mapping[Shapes, int], shapes: Shapes) -> int:
    return sum(count for seen, count in rows.items() if seen <= shapes)
