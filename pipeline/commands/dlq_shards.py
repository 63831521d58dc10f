"""``dlq replay --to_shards``: a batch run over the repaired rows, whose dead letters keep the ids that they had."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from contextlib import redirect_stdout

from dlq_replay.archives import Damage, read_letters
from dlq_replay.identity import Identities
from dlq_replay.job import ReplayJob
from pipeline.commands import run
from pipeline.core.archive import write_archive
from pipeline.core.names import run_folder
from pipeline.core.records import Json
from pipeline.options.data import RUN_OPTIONS
from pipeline.transforms import files

_LOG = logging.getLogger(__name__)
_TAKEN = ("schema", "environment", "unknown_features", "transform", "log_format")


def run_rows(arguments: Namespace, job: ReplayJob, report: Json) -> None:
    """Run ``headrace run`` over all rows of this replay; nothing where there are none.

    Raises what the run raises: the rows stay, and the same replay id tries again.
    """
    settings = job.settings
    rows = settings.places.rows(settings.replay_id)
    if not files.list_files(rows):
        _LOG.info("no row is new: no batch run")
        return
    try:
        with redirect_stdout(sys.stderr):
            run.execute(_run_arguments(arguments, job, rows), [])
    finally:
        restored = _restore(job, rows)
        if restored:
            _LOG.info("%d of the rows were refused again; they keep their ids, with the next attempt", restored)
    report["run_id"] = settings.replay_id
    report["refused_again"] = restored


def _run_arguments(arguments: Namespace, job: ReplayJob, rows: str) -> Namespace:
    """What ``headrace run`` would be told on the command line."""
    defaults = {option.name: False if option.flag else option.default for option in RUN_OPTIONS}
    given = {name: getattr(arguments, name) for name in _TAKEN}
    own = {
        "input": [rows],
        "format": "jsonl",
        "output": job.settings.target.where,
        "dead_letters": job.settings.root,
        "run_id": job.settings.replay_id,
        "json": False,
    }
    return Namespace(**{**defaults, **given, **own})


def _restore(job: ReplayJob, rows: str) -> int:
    """Write the archives of the run anew, with the identity of each letter; how many letters that concerns.

    Each file appears whole, and doing it twice changes nothing.
    """
    folder = files.join(job.settings.root, run_folder(job.settings.replay_id))
    identities = Identities(rows, files.open_read)
    count = 0
    for uri in files.list_folder(folder):
        if not uri.endswith(".avro"):
            continue
        letters = [item for item in read_letters([uri], files.open_read) if not isinstance(item, Damage)]
        renewed = list(identities.restored(letters))
        if renewed != letters:
            with files.create(uri) as stream:
                write_archive(stream, renewed)
        count += len(letters)
    return count
