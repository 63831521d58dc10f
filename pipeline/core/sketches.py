"""Summaries of bounded size that do not depend on order: a uniform sample, and counts of distinct values.

Both keep the ``k`` smallest of hashes ("bottom-k"; Cohen and Kaplan, PODC 2007), so merging is exactly
associative and commutative: the same data gives the same bytes, in whatever order tasks end. The sketches of
the ``datasketches`` library flip unseeded coins (two runs of KLL over one array differ), so they cannot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.coded import codes_of
from pipeline.core.records import Int64Array, UInt64Array
from pipeline.core.seeds import mix64

SAMPLE_SIZE = 4096
"""Values kept a feature: ranks are exact up to here, then off by 0.8 % of the rows (one standard deviation)."""
MAX_DISTINCT = 10_000
"""Distinct values counted a feature: exact up to here, then the number is estimated to 1 %."""
MAX_TOKEN_BYTES = 200
"""Longer values are kept as their beginning and a digest."""


class Priorities:
    """Random priorities of the values of one batch, shared by its columns: value ``i`` has ``mix64(i, seed)``."""

    def __init__(self, size: int, seed: int) -> None:
        self._all = mix64(np.arange(size, dtype=np.uint64), seed)
        self._chosen: dict[int, tuple[Int64Array, UInt64Array]] = {}

    def smallest(self, size: int) -> tuple[Int64Array, UInt64Array]:
        """Places and priorities of the ``SAMPLE_SIZE`` smallest among the first ``size``, ascending."""
        if size not in self._chosen:
            places = self._candidates(self._all[:size])
            order = np.argsort(self._all[places], kind="stable")[:SAMPLE_SIZE]
            places = places[order]
            self._chosen[size] = places, self._all[places]
        return self._chosen[size]

    @staticmethod
    def _candidates(priorities: UInt64Array) -> Int64Array:
        """Places of a few more than the smallest: uniform priorities make a threshold cheaper than a sort."""
        share = 1.2 * SAMPLE_SIZE / max(1, len(priorities))
        if share < 0.5:
            places = np.flatnonzero(priorities < np.uint64(int(share * 2**64)))
            if len(places) >= SAMPLE_SIZE:
                return places
        return np.arange(len(priorities))


@dataclass(frozen=True, eq=False)
class Sample:
    """A uniform sample without replacement: all values when there are at most ``SAMPLE_SIZE``.

    ``priorities`` ascend; ``values`` (float64 for numbers, objects for bytes) stand beside them; both
    have shape (min(values seen, SAMPLE_SIZE),).
    """

    priorities: UInt64Array
    values: npt.NDArray[Any]

    def merge(self, *others: Sample) -> Sample:
        """The sample of all together."""
        priorities = np.concatenate([sample.priorities for sample in (self, *others)])
        values = np.concatenate([sample.values for sample in (self, *others)])
        order = np.argsort(priorities, kind="stable")
        ordered = priorities[order]
        if (ordered[1:] == ordered[:-1]).any():  # equal batches: only the values can settle the order
            order = np.array(sorted(range(len(values)), key=lambda at: (priorities[at], values[at])), np.int64)
        order = order[:SAMPLE_SIZE]
        return Sample(priorities[order], values[order])


@dataclass(frozen=True, eq=False)
class Distinct:
    """Distinct values with exact counts, in ascending order of the values.

    All of them while ``complete``; after that those with the ``MAX_DISTINCT`` smallest hashes, which
    is a uniform sample of the distinct values whose counts are still exact.
    """

    values: tuple[bytes, ...]
    counts: Int64Array
    complete: bool = True

    def merge(self, *others: Distinct) -> Distinct:
        """The counts of all together."""
        counts = dict(zip(self.values, self.counts.tolist(), strict=True))
        for other in others:
            for value, count in zip(other.values, other.counts.tolist(), strict=True):
                counts[value] = counts.get(value, 0) + count
        complete = self.complete and all(other.complete for other in others)
        return _bounded(list(counts), np.array(list(counts.values()), np.int64), complete=complete)

    @property
    def number(self) -> int:
        """How many distinct values there are: exact while ``complete``, then estimated.

        The estimate is (k - 1) / (k-th smallest hash, scaled to 0..1), with a standard error of
        1/sqrt(k) (Beyer et al., SIGMOD 2007).
        """
        if self.complete:
            return len(self.values)
        largest = int(_hashes(self.values).max()) + 1
        return round((len(self.values) - 1) * 2.0**64 / largest)

    def most_common(self, limit: int) -> list[tuple[bytes, int]]:
        """The ``limit`` most frequent values kept, equal counts in ascending order of value."""
        order = np.argsort(-self.counts, kind="stable")[:limit]
        return [(self.values[at], int(self.counts[at])) for at in order]


class Tokens:
    """The values of a column, long ones by their stand-in (see ``token_of``); ``total_bytes`` is their own sum."""

    def __init__(self, words: pa.Array, codes: Int64Array) -> None:
        self._words, self._codes = words, codes
        self._counts = np.bincount(codes, minlength=len(words)).astype(np.int64, copy=False)
        lengths = pc.binary_length(words).to_numpy(zero_copy_only=False)
        self._longest = int(lengths.max(initial=0))
        self.total_bytes = int(self._counts @ lengths)

    @classmethod
    def of_coded(cls, column: pa.DictionaryArray) -> Tokens:
        """The values that are not missing (see ``core.coded``)."""
        words, codes = column.dictionary, codes_of(column)
        if words.null_count:
            present = words.is_valid().to_numpy(zero_copy_only=False)
            codes = (np.cumsum(present) - 1)[codes[present[codes]]]
            words = words.drop_null()
        return cls(words, codes)

    def __len__(self) -> int:
        return len(self._codes)

    def at(self, places: Int64Array) -> npt.NDArray[Any]:
        """The values at ``places``, as objects of the same shape."""
        found = np.empty(len(places), object)
        found[:] = self._texts(self._words.take(pa.array(self._codes[places])))
        return found

    def distinct(self) -> Distinct:
        """The different values and how often each is there."""
        used = np.flatnonzero(self._counts)
        words = self._words if len(used) == len(self._words) else self._words.take(pa.array(used))
        return _bounded(self._texts(words), self._counts[used], complete=True)

    def _texts(self, words: pa.Array) -> list[bytes]:
        texts: list[bytes] = words.to_pylist()
        return texts if self._longest <= MAX_TOKEN_BYTES else [token_of(text) for text in texts]


def token_of(value: bytes) -> bytes:
    """``value``, or for one over ``MAX_TOKEN_BYTES`` a stand-in of its beginning and a digest of the whole."""
    if len(value) <= MAX_TOKEN_BYTES:
        return value
    head = value[: MAX_TOKEN_BYTES - 40].decode("utf-8", "ignore").encode()
    return head + b"..." + hashlib.blake2b(value, digest_size=16).hexdigest().encode()


def _bounded(values: list[bytes], counts: Int64Array, *, complete: bool) -> Distinct:
    if len(values) > MAX_DISTINCT:
        complete = False
        hashes = _hashes(values)
        near = np.argpartition(hashes, MAX_DISTINCT)
        limit = hashes[near[MAX_DISTINCT]]
        places = np.flatnonzero(hashes <= limit).tolist()
        kept = sorted(places, key=lambda at: (hashes[at], values[at]))[:MAX_DISTINCT]
    else:
        kept = list(range(len(values)))
    kept.sort(key=values.__getitem__)
    return Distinct(tuple(values[at] for at in kept), counts[kept].astype(np.int64), complete)


def _hashes(values: Sequence[bytes]) -> UInt64Array:
    crc = google_crc32c.value
    keys = np.fromiter((len(value) << 32 | crc(value) for value in values), np.uint64, len(values))
    return mix64(keys, 0)
