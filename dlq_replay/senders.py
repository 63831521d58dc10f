"""Where repaired and parked dead letters go: ports with one method each, and the real ones on files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from dlq_replay.json_members import NotJson, members_of
from dlq_replay.policy import Outgoing
from pipeline.core.archive import write_archive
from pipeline.core.dead_letter import DeadLetter
from pipeline.transforms import files

MAX_ROW_BYTES = 64 << 20
IDS_FOLDER = "_ids"
"""The folder, below that of the rows, that says which dead letter each row was; hidden from those who read rows."""


class Sender(Protocol):
    """Takes repaired letters. ``name`` is that of the batch: the same when it is sent again, no other batch has it."""

    @property
    def max_bytes(self) -> int:
        """Payloads longer than this are not loaded for it."""
        ...

    def refuses(self, outgoing: Outgoing) -> str:
        """Why a letter cannot be sent here; empty where it can."""
        ...

    def send(self, name: str, batch: Sequence[Outgoing]) -> dict[str, str]:
        """Send a batch; it is safe when this returns. Raises where that is not known (it is then sent again).

        Returns the ids of those that the other side finds invalid, which were not sent, and why.
        """
        ...


class Parking(Protocol):
    """Takes letters that are not replayed any more."""

    def park(self, name: str, letters: Sequence[DeadLetter]) -> None:
        """Keep all of ``letters``; they are safe when this returns. Raises where that is not known."""
        ...


class NullSender:
    """Sends nothing anywhere: to measure what a replay costs beside it."""

    max_bytes = MAX_ROW_BYTES

    def refuses(self, outgoing: Outgoing) -> str:
        """Nothing is refused."""
        return ""

    def send(self, name: str, batch: Sequence[Outgoing]) -> dict[str, str]:
        """Nothing."""
        return {}


class ArchiveParking:
    """Archives in ``folder``, one a batch; a batch that is parked again replaces its own file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def park(self, name: str, letters: Sequence[DeadLetter]) -> None:
        """See ``Parking``. Raises OSError."""
        with files.create(files.join(self._folder, f"{name}.avro")) as stream:
            write_archive(stream, letters)


class RowsSender:
    """JSON lines in ``folder``, one file a batch, for a batch run; beside it which letter each row was.

    ``index`` lines are ``[offset, dlq_id, attempt, attributes, ordering_key]``.
    """

    max_bytes = MAX_ROW_BYTES

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def refuses(self, outgoing: Outgoing) -> str:
        """A row must be one line that is not blank, so that it is read as what it is."""
        if not outgoing.payload.strip():
            return "an empty payload is no row of JSON lines"
        if is_table_row(outgoing):
            return TABLE_ROW
        if _holds_line_end(outgoing.payload) and not _is_object(outgoing.payload):
            return "a payload with a line end inside, and no JSON object, is no row of JSON lines"
        return ""

    def send(self, name: str, batch: Sequence[Outgoing]) -> dict[str, str]:
        """See ``Sender``. Raises OSError."""
        rows, index, offset = [], [], 0
        for outgoing in batch:
            # In a JSON object a raw line end stands between tokens only, where a space says the same.
            row = outgoing.payload.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
            about = [offset, outgoing.dlq_id, outgoing.attempt, dict(outgoing.attributes), outgoing.ordering_key]
            rows.append(row)
            index.append(json.dumps(about) + "\n")
            offset += len(row)
        files.write_bytes(files.join(self._folder, IDS_FOLDER, f"{name}.jsonl"), "".join(index).encode())
        files.write_bytes(files.join(self._folder, f"{name}.jsonl"), b"".join(rows))
        return {}


TABLE_ROW = "a row of a CSV or TSV file is no JSON; a fix module can make a JSON object of it"
"""Why a row of a table is neither judged nor sent where JSON is expected."""


def is_table_row(outgoing: Outgoing) -> bool:
    """Whether a letter is (still) a row of a CSV or TSV file."""
    return outgoing.place.lower().endswith((".csv", ".tsv")) and not outgoing.payload.lstrip().startswith(b"{")


def _holds_line_end(payload: bytes) -> bool:
    return b"\n" in payload or b"\r" in payload


def _is_object(payload: bytes) -> bool:
    try:
        members_of(payload)
    except NotJson:
        return False
    return True
