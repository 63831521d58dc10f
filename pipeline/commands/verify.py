"""``headrace verify``: is a committed run whole, or are a stream's windows? Every shard, checksum, record and count."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from pipeline.console import size, watching
from pipeline.core import reading
from pipeline.core.errors import GuardError, UsageError
from pipeline.core.manifest import Manifest
from pipeline.core.names import LATEST, MANIFEST
from pipeline.core.progress import Progress
from pipeline.core.verify import CheckRecords, VerifyReport, verify_run, window_in
from pipeline.core.windows import WindowManifest
from pipeline.logs import silent_imports
from pipeline.transforms import files


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Verify and print what was found; 0 for good, 3 for damaged. Raises UsageError where nothing is committed."""
    windows = [] if _is_run(arguments.run_dir) else find_windows(arguments.run_dir)
    folders = windows or [find_run(arguments.run_dir)]
    reports = [_verify(folder, checksums_only=arguments.checksums_only) for folder in folders]
    if not arguments.json:
        for folder, report in zip(folders, reports, strict=True):
            _print(folder, report)
    elif windows:
        found = [{"run_dir": folder, **report.as_json()} for folder, report in zip(folders, reports, strict=True)]
        total = {"rows": sum(report.rows for report in reports), "shards": sum(report.shards for report in reports)}
        print(json.dumps({"ok": all(report.ok for report in reports), **total, "windows": found}))
    else:
        print(json.dumps({"run_dir": folders[0], **reports[0].as_json()}))
    return 0 if all(report.ok for report in reports) else GuardError.exit_code


def _verify(folder: str, *, checksums_only: bool) -> VerifyReport:
    progress = Progress()

    def add(count: int) -> None:
        progress.add(bytes_done=count)

    manifest = _manifest(folder)
    total = sum(shard.size_bytes for shard in manifest.shards) if manifest else 0
    with watching(progress, title="verify", total_bytes=total):
        return verify_run(
            folder,
            files.list_folder,
            files.open_read,
            progress=add,
            check_records=None if checksums_only else _record_check(manifest),
        )


def find_run(folder: str) -> str:
    """The run that ``folder`` is, or the latest one of the output that it is. Raises UsageError for anything else."""
    return reading.find_run(folder, exists=_exists, read_bytes=files.read_bytes)


def find_windows(folder: str) -> list[str]:
    """The committed windows of the output of a stream, in the order of time; none where ``folder`` is no such thing."""
    root = folder.rstrip("/") + "/"
    names = {uri[len(root) :].partition("/")[0] for uri in files.list_folder(folder) if uri.endswith("/" + MANIFEST)}
    return [root + name for name in sorted(names) if window_in(name)]


def _is_run(folder: str) -> bool:
    return _exists(files.join(folder, MANIFEST)) or _exists(files.join(folder, LATEST))


def _exists(uri: str) -> bool:
    return files.size_of(uri) is not None


def _manifest(folder: str) -> Manifest | WindowManifest | None:
    """The manifest, or None where it is damaged: verifying says what is wrong with it."""
    uri = files.join(folder, MANIFEST)
    read = WindowManifest.from_json if window_in(folder) else Manifest.from_json
    try:
        return read(files.read_bytes(uri), uri)
    except (FileNotFoundError, UsageError):
        return None


def _record_check(manifest: Manifest | WindowManifest | None) -> CheckRecords | None:
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
