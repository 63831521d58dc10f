"""From the arguments of ``dlq replay`` to its settings: everything that can be refused is refused here."""

from __future__ import annotations

import getpass
import os
import socket
from argparse import Namespace
from dataclasses import asdict, dataclass
from datetime import datetime

from dlq_replay.archives import resolve_archives
from dlq_replay.fix_file import digest_of, parse_fixes
from dlq_replay.fix_module import FixModule, split_module
from dlq_replay.fixes import Fix
from dlq_replay.places import common_root, older_than, root_of, spelt_one_way
from dlq_replay.policy import Policy
from dlq_replay.report import Asked
from dlq_replay.settings import ReplaySettings, Target
from pipeline import preflight
from pipeline.commands.dlq_letters import filters_of, subscription_of
from pipeline.core.errors import UsageError
from pipeline.core.records import InputFile
from pipeline.transforms import files

_SLOWEST = 0.01
NEWER = "archives written after the replay began"


@dataclass(frozen=True)
class Prepared:
    """A replay ready to be tried or made: archives, or the subscription. ``skipped`` are objects that are too new."""

    settings: ReplaySettings
    asked: Asked
    archives: tuple[InputFile, ...]
    subscription: str | None
    skipped: int

    @property
    def has_ledger(self) -> bool:
        """Whether there is a place for a ledger."""
        return bool(self.settings.root)


def prepare(arguments: Namespace, now: datetime) -> Prepared:
    """Check the arguments. Raises UsageError; writes only a probe, and that only where something will be sent."""
    _check_together(arguments)
    subscription = subscription_of(arguments.archive)
    archives, skipped = ((), 0) if subscription else _archives(arguments, now)
    root = _root(arguments, subscription, archives)
    fixes, fix_file = _fixes(arguments.fix)
    settings = ReplaySettings(
        replay_id=preflight.run_id_of(arguments.replay_id, now),
        root=root,
        start=now,
        target=_target(arguments),
        filters=filters_of(arguments, now),
        fixes=fixes,
        fix_module=_fix_module(arguments.fix_module),
        policy=Policy(arguments.max_attempts, arguments.timestamp_attribute),
        parking_topic=arguments.parking_topic or "",
        rate=arguments.rate,
        senders=arguments.senders,
        limit=arguments.limit,
        lease_seconds=arguments.claim_lease,
        force=arguments.force,
        keep_letters=subscription is not None,
        payload_folders=_payload_folders(arguments, archives),
    )
    settings.repair()  # here, since a module that does not load would fail on every worker
    if arguments.execute:
        preflight.check_folder("ledger", root)
    code = {name: value for name, value in asdict(preflight.code_version()).items() if value}
    asked = Asked(arguments.by or _somebody(), tuple(arguments.archive), fix_file, code)
    return Prepared(settings, asked, archives, subscription, skipped)


def _check_together(arguments: Namespace) -> None:
    if arguments.execute and arguments.dry_run:
        raise UsageError("give --execute or --dry_run, not both")
    if arguments.to and arguments.to_shards:
        raise UsageError("give --to or --to_shards, not both: a letter is sent once")
    if arguments.execute and not (arguments.to or arguments.to_shards):
        raise UsageError(
            "say where repaired letters go: --to projects/<project>/topics/<name>, --to original, or --to_shards FOLDER"
        )
    if arguments.transform and not arguments.schema:
        raise UsageError("--transform needs --schema, the schema that it was made with")
    if arguments.to_shards and not arguments.schema:
        raise UsageError("--to_shards makes shards of rows that are valid under a schema: give --schema")
    if arguments.rate is not None and arguments.rate < _SLOWEST:
        raise UsageError(f"--rate must be at least {_SLOWEST}: one letter in {1 / _SLOWEST:,.0f} s")
    if arguments.claim_lease < 1:
        raise UsageError("--claim_lease must be at least 1s: within it a batch has to be sent")


def _archives(arguments: Namespace, now: datetime) -> tuple[tuple[InputFile, ...], int]:
    """The archives that were there before ``now``, and how many came since."""
    found = resolve_archives(arguments.archive, files.list_files)
    older, newer = older_than(found, now)
    kept = set(older)
    return tuple(file for file in found if file.uri in kept), len(newer)


def _root(arguments: Namespace, subscription: str | None, archives: tuple[InputFile, ...]) -> str:
    if arguments.ledger:
        return spelt_one_way(arguments.ledger)
    if subscription is None:
        return common_root([spelt_one_way(file.uri) for file in archives]) if archives else ""
    if arguments.execute:
        raise UsageError(
            "a replay from a subscription needs --ledger FOLDER: the dead-letter folder beside whose runs it keeps its "
            "ledger, its report, and the letters as they were"
        )
    return ""


def _payload_folders(arguments: Namespace, archives: tuple[InputFile, ...]) -> tuple[str, ...]:
    """Where large payloads may lie: beside the archives that are read, and where the user says."""
    own = sorted({root_of(spelt_one_way(file.uri)) for file in archives})
    return (*own, *(spelt_one_way(folder) for folder in arguments.payload_folder or ()))


def _target(arguments: Namespace) -> Target:
    if arguments.to_shards:
        return Target("rows", arguments.to_shards)
    return Target("original") if arguments.to == "original" else Target("topic", arguments.to or "")


def _fixes(path: str | None) -> tuple[tuple[Fix, ...], tuple[str, str] | None]:
    """The fixes in a file, and what a report says of it."""
    if path is None:
        return (), None
    text = preflight.read_text(path, "fix")
    return parse_fixes(text, path), (path, digest_of(text))


def _fix_module(text: str | None) -> FixModule | None:
    if text is None:
        return None
    path, function = split_module(text)
    return FixModule(path, function, preflight.read_text(path, "fix module"))


def _somebody() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{name}@{socket.gethostname()}"
