"""What names a dead letter in a ledger: its id and attempt; and millions of such names in little memory. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pipeline.core.dead_letter import DeadLetter

LANES = 8
"""Parts of a ledger. Never changed: a letter's lane must be the same in every replay."""

_DIGITS = 16  # of a payload's digest, in hexadecimal
_KEPT = 14  # bytes of a digest that are kept; 12 bits more choose the bucket
_SHIFT = 4  # 4,096 buckets a set: an empty one costs more than ten keys, and each lane has its own


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One failure of one row: a replayed letter that fails again has the same id and the next attempt.

    ``payload`` begins the sha256 of its bytes: who may publish can forge an id, and a forged letter must not stand for
    the genuine one.
    """

    dlq_id: str
    attempt: int
    payload: str = ""

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for the key."""
        return hashlib.sha256(f"{self.attempt} {self.payload} {self.dlq_id}".encode("utf-8", "surrogatepass")).digest()[
            :16
        ]


def key_of(letter: DeadLetter) -> Key:
    """The key of a letter."""
    return Key(letter.dlq_id, letter.attempt, letter.payload_sha256[:_DIGITS])


def lane_of(letter: DeadLetter) -> int:
    """The lane that a letter belongs to, in [0, LANES): letters of one ordering key, and of one id, share theirs."""
    kind, text = ("o", letter.ordering_key) if letter.ordering_key else ("i", letter.dlq_id)
    return hashlib.sha256(f"headrace lane {kind} {text}".encode("utf-8", "surrogatepass")).digest()[0] % LANES


class KeySet:
    """A set of keys by 124 bits of their digests: about 16 bytes each, where a set of objects would take 200."""

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        digest = key.digest
        bucket = self._buckets.get(int.from_bytes(digest[:2], "big") >> _SHIFT)
        return bucket is not None and _holds(bucket, digest[2:])

    def add(self, key: Key) -> bool:
        """Add ``key``; False where it is there."""
        digest = key.digest
        bucket = self._buckets.setdefault(int.from_bytes(digest[:2], "big") >> _SHIFT, bytearray())
        if _holds(bucket, digest[2:]):
            return False
        bucket += digest[2:]
        self._count += 1
        return True


def _holds(bucket: bytearray, rest: bytes) -> bool:
    at = bucket.find(rest)
    while at >= 0 and at % _KEPT:  # a match across two neighbours is none
        at = bucket.find(rest, at + 1)
    return at >= 0
