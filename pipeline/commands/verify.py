"""``headrace verify``: is a committed run whole? Every shard, checksum, record and count."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from pipeline.console import size, watching
from pipeline.core import reading
from pipeline.core.errors import GuardError, UsageError
from pipeline.core.manifest import Manifest
from pipeline.core.names import MANIFEST
from pipeline.core.progress import Progress
from pipeline.core.verify import CheckRecords, VerifyReport, verify_run
from pipeline.logs import silent_imports
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Verify and print what was found; 0 for a good run, 3 for a damaged one. Raises UsageError where there is none."""
    run_dir = find_run(arguments.run_dir)
    progress = Progress()

    def add(count: int) -> None:
        progress.add(bytes_done=count)

    manifest = _manifest(run_dir)
    total = sum(shard.size_bytes for shard in manifest.shards) if manifest else 0
    with watching(progress, title="verify", total_bytes=total):
        report = verify_run(
            run_dir,
            files.list_folder,
            files.open_read,
            progress=add,
            check_records=None if arguments.checksums_only else _record_check(manifest),
        )
    if arguments.json:
        print(json.dumps({"run_dir": run_dir, **report.as_json()}))
    else:
        _print(run_dir, report)
    return 0 if report.ok else GuardError.exit_code


def find_run(folder: str) -> str:
    """The run that ``folder`` is, or the latest one of the output that it is. Raises UsageError for anything else."""
    return reading.find_run(folder, exists=_exists, read_bytes=files.read_bytes)


def _exists(uri: str) -> bool:
    return files.size_of(uri) is not None


def _manifest(run_dir: str) -> Manifest | None:
    """The manifest, or None where it is damaged: verifying says what is wrong with it."""
    try:
        uri = files.join(run_dir, MANIFEST)
        return Manifest.from_json(files.read_bytes(uri), uri)
    except (FileNotFoundError, UsageError):
        return None


def _record_check(manifest: Manifest | None) -> CheckRecords | None:
    """Parsing by the manifest's feature spec. Raises UsageError for a layout that is not known."""
    if manifest is None:
        return None
    with silent_imports():
        from pipeline.features.parsing import make_parser
        from pipeline.features.record_check import RecordCheck
    return RecordCheck(make_parser(manifest.feature_spec, where=MANIFEST))


def _print(run_dir: str, report: VerifyReport) -> None:
    for finding in report.findings:
        print(f"{'warning' if finding.warning else 'DAMAGED'}: {finding}")
    counts = f"{report.shards} shards, {report.rows:,} rows, {report.records:,} records, {size(report.size_bytes)}"
    print(f"{run_dir}: {'good' if report.ok else 'DAMAGED'}; whole and verified: {counts}")
