"""Dead letters of a batch run over replayed rows, given back the identity that they had before: same id, next attempt.

A row of JSON lines has no place for an id. ``RowsSender`` writes beside each file which letter each row was; with
that, what the batch run refuses is told as a further failure of the same letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from dlq_replay.senders import IDS_FOLDER
from pipeline.core.dead_letter import DeadLetter, original_attributes, parse_source
from pipeline.core.records import Json, Opener

_OPEN_FILES = 64


@dataclass
class Identities:
    """Who the rows below ``folder`` were. Reads one small index a file of rows, and keeps some of them."""

    folder: str
    open_file: Opener
    _known: dict[str, dict[int, Json]] = field(default_factory=dict)

    def restored(self, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """The letters, those of replayed rows with their identity. Raises OSError."""
        for letter in letters:
            yield self._restored(letter)

    def _restored(self, letter: DeadLetter) -> DeadLetter:
        place = parse_source(letter.source)
        if place is None or not place[0].startswith(self.folder.rstrip("/") + "/"):
            return letter
        found = self._index(place[0]).get(place[1])
        if found is None:
            return letter
        attributes = dict(found["attributes"])
        return replace(
            letter,
            dlq_id=found["dlq_id"],
            attempt=found["attempt"],
            attributes=original_attributes(attributes.items()),
            ordering_key=found["ordering_key"],
            event_time=attributes.get("dlq_event_time", letter.event_time),
        )

    def _index(self, uri: str) -> dict[int, Json]:
        """Byte offset of each row of a file -> who it was."""
        if uri not in self._known:
            if len(self._known) >= _OPEN_FILES:
                self._known.clear()
            folder, _, name = uri.rpartition("/")
            with self.open_file(f"{folder}/{IDS_FOLDER}/{name}") as stream:
                lines = [json.loads(line) for line in stream.read().splitlines()]
            self._known[uri] = {
                offset: {"dlq_id": dlq_id, "attempt": attempt, "attributes": attributes, "ordering_key": key}
                for offset, dlq_id, attempt, attributes, key in lines
            }
        return self._known[uri]
