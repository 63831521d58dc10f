"""The bytes of a dead letter, from the letter itself or from the file beside the archive that holds a large one."""

from __future__ import annotations

import hashlib

from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Opener


class Unreadable(Exception):
    """The bytes cannot be had; says why. The letter stays where it is."""


def payload_of(letter: DeadLetter, open_file: Opener, *, max_bytes: int) -> bytes:
    """The original bytes of ``letter``.

    Raises Unreadable where they are longer than ``max_bytes``, gone, or not what the letter says. Raises OSError for a
    storage fault.
    """
    if letter.payload is not None:
        return letter.payload
    if not letter.payload_uri:
        raise Unreadable("the payload was too large for the archive, and nobody has told where it lies")
    if letter.payload_length > max_bytes:
        raise Unreadable(f"the payload is longer than the {max_bytes:,} bytes that can be sent")
    try:
        with open_file(letter.payload_uri) as stream:
            payload = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise Unreadable("the file that holds the payload is gone") from None
    if len(payload) > max_bytes:
        raise Unreadable(f"the payload is longer than the {max_bytes:,} bytes that can be sent")
    if letter.payload_sha256 and hashlib.sha256(payload).hexdigest() != letter.payload_sha256:
        raise Unreadable("the file that holds the payload does not match its sha256")
    return payload
