"""The report of a replay: who, when, what was asked, what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dlq_replay.fix_file import digest_of
from dlq_replay.ledger import utc_text
from dlq_replay.settings import ReplaySettings
from dlq_replay.tally import Tally
from pipeline.core.json_fields import dump_json
from pipeline.core.records import Json

FORMAT = 1


@dataclass(frozen=True)
class Asked:
    """What a report says beside the settings: who asked, for which source, with which fix file (path and sha256)."""

    by: str
    source: tuple[str, ...]
    fix_file: tuple[str, str] | None = None
    code: Json = field(default_factory=dict)


def report_of(asked: Asked, settings: ReplaySettings, tally: Tally, *, finished: datetime) -> Json:
    """The report as plain values."""
    module = settings.fix_module
    return {
        "format": FORMAT,
        "replay_id": settings.replay_id,
        "by": asked.by,
        "code": asked.code,
        "started": utc_text(settings.start),
        "finished": utc_text(finished),
        "source": list(asked.source),
        "filters": settings.filters.as_json(),
        "limit": settings.limit,
        "fix_file": {"path": asked.fix_file[0], "sha256": asked.fix_file[1]} if asked.fix_file else None,
        "fix_module": {"path": module.path, "function": module.function, "sha256": digest_of(module.source)}
        if module
        else None,
        "target": {"kind": settings.target.kind, "where": settings.target.where},
        "parking": settings.parking_topic or settings.places.parked,
        "ledger": settings.places.ledger,
        "max_attempts": settings.policy.max_attempts,
        "rate": settings.rate,
        "senders": settings.senders,
        "forced": settings.force,
        "counts": tally.as_json(),
    }


def report_bytes(report: Json) -> bytes:
    """The report as it is written."""
    return dump_json(report)
