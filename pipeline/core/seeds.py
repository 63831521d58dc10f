"""Seeded mixing: the only source of randomness, the same in every process, release and machine.

numpy promises no stable streams across releases for its generators (NEP 19), and Python's ``hash`` differs per
process. So everything random here is the finaliser of splitmix64 over counters, written out once.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int64Array, UInt64Array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: splitmix64's increment
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


def seed_of(*parts: str | int) -> int:
    """A 64-bit seed out of names and numbers, in [0, 2^64).

    Parts are told apart by kind and length: ``seed_of("ab", "c") != seed_of("a", "bc")`` and
    ``seed_of(1) != seed_of("1")``.
    """
    digest = hashlib.sha256()
    for part in parts:
        kind, text = ("i", str(part)) if isinstance(part, int) else ("s", part)
        data = text.encode("utf-8", "surrogatepass")
        digest.update(f"{kind}{len(data)}:".encode() + data)
    return int.from_bytes(digest.digest()[:8], "little")


def mix64(values: npt.ArrayLike, seed: int) -> UInt64Array:
    """Mixes 64-bit values with a seed; same shape. For one seed a bijection: distinct in, distinct out.

    The finaliser is that of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13),
    applied to the value plus the mixed seed. ``seed`` is taken modulo 2^64.
    """
    start = _finalise(np.array([seed & _MASK], np.uint64) + _GOLDEN)[0]
    with np.errstate(over="ignore"):
        return _finalise(np.asarray(values, np.uint64) + start)


def _finalise(mixed: UInt64Array) -> UInt64Array:
    with np.errstate(over="ignore"):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))


def permutation(n: int, seed: int) -> Int64Array:
    """A seeded order of ``range(n)``, shape (n,). About 0.1 us an element.

    Sorts distinct keys, so the result does not depend on the sorting algorithm.
    """
    return np.argsort(mix64(np.arange(n, dtype=np.uint64), seed)).astype(np.int64, copy=False)
