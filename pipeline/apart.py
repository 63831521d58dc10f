"""What a run writes, deletes and reads must lie apart; checked before any work, for a run clears its own folders.

They are OUTPUT/run=<id>, OUTPUT/.staging-<id>, DEAD_LETTERS/run=<id>.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from pipeline.core.errors import UsageError
from pipeline.core.names import parse_run_folder, parse_staging_folder
from pipeline.transforms import files


def check_named(flag: str, folder: str) -> None:
    """Raise UsageError for an empty ``folder``, which would otherwise mean the root of the file system."""
    if not folder.strip():
        raise UsageError(f"--{flag} is empty; name a folder (is a shell variable not set?)")


def check_apart(output: str, dead_letters: str, *, read: Iterable[str]) -> None:
    """Raise UsageError where a run could delete its own dead letters or input, or read what runs have written.

    ``read`` names every file that is read. Paths are compared after links and ``..`` are followed.
    """
    check_named("output", output)
    check_named("dead_letters", dead_letters)
    out, dead = _place(output), _place(dead_letters)
    if out == dead:
        raise UsageError("--output and --dead_letters are one folder; give dead letters a folder of their own")
    for inner, outer, flag, other in (
        (dead, out, "dead_letters", "output"),
        (out, dead, "output", "dead_letters"),
    ):
        if _within_a_run(inner, outer):
            raise UsageError(
                f"--{flag} lies within a run's folder of --{other}, which each run of that name clears; move it out"
            )
    places: dict[str, str] = {}  # of folders: links are followed once a folder, not once a file
    for uri in read:
        folder, slash, name = uri.rpartition("/")
        at = places.get(folder)
        if at is None:
            at = places[folder] = _place(folder + slash or ".")
        for other, root in (("output", out), ("dead_letters", dead)):
            if _within_a_run(f"{at}/{name}", root):
                raise UsageError(
                    f"{uri} would be read, but lies within a run's folder of --{other}, which holds what runs write "
                    f"and is cleared by a run of that name; name the input more narrowly, or move --{other}"
                )


def _place(path: str) -> str:
    """Where ``path`` really is, so that two spellings of a place are one; without a slash at the end."""
    return path.rstrip("/") if files.is_remote(path) else os.path.realpath(path).rstrip("/")


def _within_a_run(place: str, root: str) -> bool:
    """Whether ``place`` is, or lies below, a folder of a run in ``root``."""
    if not place.startswith(root + "/"):
        return False
    first = place[len(root) + 1 :].split("/", 1)[0]
    for parse in (parse_run_folder, parse_staging_folder):
        try:
            parse(first)
        except ValueError:
            continue
        return True
    return False
