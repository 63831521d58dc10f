"""``headrace dlq export``: dead letters as JSON lines or CSV, to a file or stdout."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence

from dlq_replay.archives import Damage
from dlq_replay.export import as_csv, jsonl
from dlq_replay.selection import take
from pipeline import preflight
from pipeline.commands.dlq_letters import filters_of, opened, view_of
from pipeline.core.dead_letter import DeadLetter
from pipeline.core.errors import GuardError
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Write the selection; 0, or 3 where a part of an archive could not be read. Raises UsageError for no archive."""
    filters = filters_of(arguments, preflight.utc_now())
    view = view_of(arguments, arguments.max_payload_bytes)
    with opened(arguments, title="dlq export") as letters:
        export = _Export(take(letters.items, filters, limit=arguments.limit))
        lines = (as_csv if arguments.format == "csv" else jsonl)(export, view)
        if arguments.output:
            with files.create(arguments.output) as stream:
                for line in lines:
                    stream.write(line.encode())
        else:
            for line in lines:
                sys.stdout.write(line)
    if arguments.output:
        _say(arguments, export)
    for damage in export.damage:
        print(f"DAMAGED: {damage} (the rest was read)", file=sys.stderr)
    return GuardError.exit_code if export.damage else 0


def _say(arguments: Namespace, export: _Export) -> None:
    if arguments.json:
        print(
            json.dumps({"output": arguments.output, "dead_letters": export.count, "damaged_parts": len(export.damage)})
        )
    else:
        print(f"{export.count:,} dead letters written to {arguments.output}")


class _Export:
    """Letters as they pass, counted; damage kept aside."""

    def __init__(self, items: Iterable[DeadLetter | Damage]) -> None:
        self._items = items
        self.count = 0
        self.damage: list[Damage] = []

    def __iter__(self) -> Iterator[DeadLetter]:
        for item in self._items:
            if isinstance(item, Damage):
                self.damage.append(item)
            else:
                self.count += 1
                yield item
