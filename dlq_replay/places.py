"""Where a replay reads and where it writes: beside the archive, in a folder that no replay reads by accident. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pipeline.core.errors import UsageError
from pipeline.core.names import parse_run_folder
from pipeline.core.records import InputFile

OWN = "_replay"
"""The folder, beside the runs of an archive, that holds all that replays write."""


@dataclass(frozen=True)
class Places:
    """The files of replays under ``root``, the folder that holds an archive's runs."""

    root: str

    @property
    def ledger(self) -> str:
        """The ledger, which all replays share."""
        return self._below("ledger")

    @property
    def parked(self) -> str:
        """Archives of parked letters, by replay."""
        return self._below("parked")

    def letters(self, replay_id: str) -> str:
        """Archives of letters as they came from a subscription."""
        return self._below("letters", f"replay={replay_id}")

    def rows(self, replay_id: str) -> str:
        """Repaired payloads as JSON lines, for a batch run."""
        return self._below("rows", f"replay={replay_id}")

    def plan(self, replay_id: str) -> str:
        """The archives that a replay reads."""
        return self._below("plans", f"{replay_id}.jsonl")

    def report(self, replay_id: str) -> str:
        """What a replay did."""
        return self._below("reports", f"{replay_id}.json")

    def _below(self, *names: str) -> str:
        return "/".join([self.root.rstrip("/"), OWN, *names])


def is_own(uri: str) -> bool:
    """Whether a file was written by replays."""
    return OWN in uri.split("/")


def root_of(archive: str) -> str:
    """The folder beside whose runs replays of ``archive`` write, however the archive was named on the command line.

    That is the parent of its ``run=<id>`` folder, the folder that an own file lies below, or else its folder.
    """
    parts = archive.split("/")[:-1]
    if OWN in parts:
        parts = parts[: parts.index(OWN)]
    else:
        runs = [index for index, part in enumerate(parts) if _is_run(part)]
        parts = parts[: runs[-1]] if runs else parts
    return "/".join(parts) or ("/" if archive.startswith("/") else ".")


def common_root(archives: Sequence[str]) -> str:
    """The one root of all archives. Raises UsageError where there are several: which ledger would count?"""
    roots = sorted({root_of(archive) for archive in archives})
    if len(roots) > 1:
        shown = ", ".join(roots[:3])
        raise UsageError(
            f"the archives belong to {len(roots)} dead-letter folders ({shown}); replay them one after the other, or "
            "name the folder of their common ledger with --ledger"
        )
    return roots[0]


def older_than(found: Iterable[InputFile], start: datetime) -> tuple[list[str], list[str]]:
    """The files that were there before ``start``, and those that were written since (which are not read)."""
    older: list[str] = []
    newer: list[str] = []
    for file in found:
        written = written_at(file)
        (older if written is None or written <= start else newer).append(file.uri)
    return older, newer


def written_at(file: InputFile) -> datetime | None:
    """When a file was last written, by its version; None where that is not told."""
    kind, _, value = file.version.partition("=")
    try:
        seconds = int(value) / 1e9 if kind == "mtime" else float(value) if kind == "updated" else None
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def spelt_one_way(path: str) -> str:
    """A local path with links and ``..`` followed, so that a folder has one ledger; others as they are."""
    return path if "://" in path else os.path.realpath(path)


def is_below(uri: str, folder: str) -> bool:
    """Whether a file lies in ``folder`` or below it, wherever links and ``..`` lead."""
    if "://" in uri and any(part in (".", "..") for part in uri.split("/")):
        return False  # some file systems would follow them
    return bool(folder) and spelt_one_way(uri).startswith(spelt_one_way(folder).rstrip("/") + "/")


def _is_run(name: str) -> bool:
    try:
        parse_run_folder(name)
    except ValueError:
        return False
    return True
