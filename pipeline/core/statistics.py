"""Statistics of canonical batches that merge exactly, whatever the order, and travel as bytes.

Presence, counts, ranges, zeros and lengths are exact. Mean and deviation are sums of float64 batch sums, added up as
fractions: no rounding depends on the order of merging. Quantiles come from a uniform sample, frequent values from
counts of distinct values (see ``core.sketches`` for both bounds). ``core.statistics_proto`` writes the TFDV proto.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.core.coded import coded, is_coded, missing_in
from pipeline.core.schema import Kind
from pipeline.core.seeds import seed_of
from pipeline.core.sketches import Distinct, Priorities, Sample, Tokens

_KINDS = {pa.int64(): Kind.INT, pa.float32(): Kind.FLOAT, pa.large_binary(): Kind.BYTES}


@dataclass(frozen=True, eq=False)
class Numbers:
    """Of the finite values of a feature: ``count``, exact ``total`` and ``squares`` of float64 batch sums, range.

    ``low`` and ``high`` are None where there is no finite value. ``nans`` and ``infinities`` are counted apart.
    """

    count: int
    total: Fraction
    squares: Fraction
    low: float | None
    high: float | None
    zeros: int
    nans: int = 0
    infinities: int = 0

    def merge(self, other: Numbers) -> Numbers:
        """Those of both together."""
        return Numbers(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            _least(self.low, other.low),
            _most(self.high, other.high),
            self.zeros + other.zeros,
            self.nans + other.nans,
            self.infinities + other.infinities,
        )

    @property
    def mean(self) -> float:
        """The mean; 0 of no values, as in TFDV."""
        return float(self.total / self.count) if self.count else 0.0

    @property
    def std_dev(self) -> float:
        """The standard deviation of the whole population (divided by n); 0 of no values."""
        if not self.count:
            return 0.0
        # Exact, so that a large mean cannot cancel the variance away; rounded sums can leave it just below 0.
        variance = self.squares / self.count - (self.total / self.count) ** 2
        return math.sqrt(max(variance, Fraction(0)))


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """What is known of one feature. ``present`` rows hold ``values`` values, ``fewest`` to ``most`` a row.

    ``fewest`` and ``most`` are None where no row has the feature. ``numbers`` is set for INT and
    FLOAT, ``distinct`` and ``total_bytes`` (the sum of lengths) for BYTES.
    """

    name: str
    kind: Kind
    present: int
    missing: int
    values: int
    fewest: int | None
    most: int | None
    sample: Sample
    numbers: Numbers | None = None
    distinct: Distinct | None = None
    total_bytes: int = 0

    def merge(self, *others: FeatureStatistics) -> FeatureStatistics:
        """Those of all together. Raises ValueError for another feature."""
        for other in others:
            if (self.name, self.kind) != (other.name, other.kind):
                raise ValueError(
                    f"statistics of {self.name} ({self.kind}) and {other.name} ({other.kind}) do not merge"
                )
        every = (self, *others)
        return FeatureStatistics(
            self.name,
            self.kind,
            sum(part.present for part in every),
            sum(part.missing for part in every),
            sum(part.values for part in every),
            reduce(_least, (part.fewest for part in every)),
            reduce(_most, (part.most for part in every)),
            self.sample.merge(*(other.sample for other in others)),
            reduce(Numbers.merge, (part.numbers for part in every if part.numbers)) if self.numbers else None,
            self.distinct.merge(*(other.distinct for other in others if other.distinct)) if self.distinct else None,
            sum(part.total_bytes for part in every),
        )


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """Statistics of any number of rows; ``BatchStatistics()`` is that of none and merges with all."""

    num_examples: int = 0
    features: tuple[FeatureStatistics, ...] = ()

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, seed: int | None = None) -> BatchStatistics:
        """Statistics of a batch of canonical columns (``Schema.arrow_schema``); a null is a missing value.

        Columns can be coded (see ``core.coded``), which makes no difference. ``seed`` chooses the sample; by
        default it comes from the batch's sums, so that two batches do not sample the same places. Raises
        KeyError for a column of another type.
        """
        columns = [_Column(name, batch.column(at)) for at, name in enumerate(batch.schema.names)]
        if seed is None:
            seed = seed_of("statistics", batch.num_rows, *(column.digest for column in columns))
        size = max((len(column.finite) for column in columns), default=0)
        priorities = Priorities(size, seed)
        return cls(batch.num_rows, tuple(column.statistics(priorities) for column in columns))

    def merge(self, *others: BatchStatistics) -> BatchStatistics:
        """Statistics of all together: exactly associative and commutative. ValueError where features differ."""
        every = (self, *others)
        columns = zip(*(part.features for part in every if part.features), strict=True)
        features = tuple(first.merge(*rest) if rest else first for first, *rest in columns)
        return BatchStatistics(sum(part.num_examples for part in every), features)

    @classmethod
    def merge_all(cls, parts: Iterable[BatchStatistics]) -> BatchStatistics:
        """Statistics of all ``parts`` together, in any order: at once, which costs less than one after the other."""
        return cls().merge(*parts)

    def feature(self, name: str) -> FeatureStatistics | None:
        """Statistics of the feature ``name``, or None where no batch had it."""
        return next((feature for feature in self.features if feature.name == name), None)

    def to_proto(
        self, dataset_name: str, *, redact: Container[str] = ()
    ) -> statistics_pb2.DatasetFeatureStatisticsList:
        """The TFDV-compatible proto, one data set called ``dataset_name``, without values of features in ``redact``."""
        from pipeline.core.statistics_proto import proto_of

        return proto_of(self, dataset_name, redact=redact)

    def to_bytes(self) -> bytes:
        """The whole state, the same bytes for the same state; ``from_bytes`` reads it back."""
        from pipeline.core.statistics_state import write_state

        return write_state(self)

    @staticmethod
    def from_bytes(data: bytes) -> BatchStatistics:
        """The state that ``to_bytes`` wrote. Raises ValueError for anything else."""
        from pipeline.core.statistics_state import read_state

        return read_state(data)


class _Column:
    """One column of a batch, measured; ``finite`` holds its values without nulls, NaN and infinities."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self._name = name
        column = coded(column)
        self._missing = missing_in(column)
        self._present = len(column) - self._missing
        self._fewest = self._most = 1 if self._present else None
        self._numbers: Numbers | None = None
        self.finite: Any
        if is_coded(column):
            self._kind, self.finite = Kind.BYTES, Tokens.of_coded(column)
        else:
            values = column.drop_null() if column.null_count else column
            if pa.types.is_large_list(column.type):
                if self._present:
                    counts = np.diff(values.offsets.to_numpy())
                    self._fewest, self._most = int(counts.min()), int(counts.max())
                values = values.flatten()
            self._kind = _KINDS[values.type]
            if self._kind is Kind.BYTES:
                self.finite = Tokens.of_coded(coded(values))
            else:
                self._numbers, self.finite = _numbers_of(values.to_numpy(zero_copy_only=False))
        self._values = len(values) if self._numbers else len(self.finite)

    @property
    def digest(self) -> str:
        """A summary that differs between batches, to seed the sample."""
        total = self._numbers.total if self._numbers else self.finite.total_bytes
        return f"{self._name},{self._present},{self._values},{total}"

    def statistics(self, priorities: Priorities) -> FeatureStatistics:
        places, chosen = priorities.smallest(len(self.finite))
        is_text = self._kind is Kind.BYTES
        return FeatureStatistics(
            self._name,
            self._kind,
            self._present,
            self._missing,
            self._values,
            self._fewest,
            self._most,
            Sample(chosen, self.finite.at(places) if is_text else self.finite[places].astype(np.float64) + 0.0),
            self._numbers,
            self.finite.distinct() if is_text else None,
            self.finite.total_bytes if is_text else 0,
        )


def _numbers_of(values: npt.NDArray[Any]) -> tuple[Numbers, npt.NDArray[Any]]:
    """The measures of ``values``, shape (values,), and its finite ones."""
    nans = infinities = 0
    if values.dtype.kind == "f" and not np.isfinite(values.sum(dtype=np.float64)):
        nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        values = values[np.isfinite(values)]
    count = len(values)
    if not count:
        return Numbers(0, Fraction(0), Fraction(0), None, None, 0, nans, infinities), values
    centre = float(values.mean(dtype=np.float64))
    offsets = values.astype(np.float64) - centre
    rest = Fraction(float(offsets.sum()))
    # Not offsets @ offsets: BLAS wakes threads for it (20 ms on a busy machine), and its rounding depends on them.
    spread = Fraction(float(np.square(offsets, out=offsets).sum()))
    middle = Fraction(centre)
    numbers = Numbers(
        count,
        total=count * middle + rest,
        squares=spread + 2 * middle * rest + count * middle * middle,
        low=float(values.min()) + 0.0,  # one zero, not 0.0 and -0.0
        high=float(values.max()) + 0.0,
        zeros=count - int(np.count_nonzero(values)),
        nans=nans,
        infinities=infinities,
    )
    return numbers, values


def _least(one: Any, other: Any) -> Any:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: Any, other: Any) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)
