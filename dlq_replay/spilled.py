"""The bytes of a dead letter, from the letter itself or from the file beside the archive that holds a large one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dlq_replay.places import is_below
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.records import Opener


class Unreadable(Exception):
    """The bytes cannot be had; says why. The letter stays where it is."""


def payload_of(letter: DeadLetter, open_file: Opener, *, max_bytes: int, folders: Sequence[str]) -> bytes:
    """The original bytes of ``letter``.

    Only files in ``folders`` are opened: whoever may publish dead letters could name any other, and would have its
    content sent to a topic. Raises Unreadable where the bytes are longer than ``max_bytes``, gone, elsewhere, or not
    what the letter says. Raises OSError for a storage fault.
    """
    if letter.payload is not None:
        return letter.payload
    if not letter.payload_uri:
        raise Unreadable("the payload was too large for the archive, and nobody has told where it lies")
    if not any(is_below(letter.payload_uri, folder) for folder in folders):
        raise Unreadable(
            "the letter names a file outside the dead-letter folder for its payload, which is not opened; if that is "
            "where the job puts large payloads, name the folder with --payload_folder"
        )
    if not letter.payload_sha256:
        raise Unreadable("the letter names a file for its payload, but not the sha256 of it")
    if letter.payload_length > max_bytes:
        raise Unreadable(f"the payload is longer than the {max_bytes:,} bytes that can be sent")
    try:
        with open_file(letter.payload_uri) as stream:
            payload = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise Unreadable("the file that holds the payload is gone") from None
    if len(payload) > max_bytes:
        raise Unreadable(f"the payload is longer than the {max_bytes:,} bytes that can be sent")
    if hashlib.sha256(payload).hexdigest() != letter.payload_sha256:
        raise Unreadable("the file that holds the payload does not match its sha256")
    return payload
