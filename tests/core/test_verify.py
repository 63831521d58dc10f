"""Verifying: a good run passes, and each kind of damage is named with its file and offset."""

import dataclasses
import io

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.framing import frame
from pipeline.core.manifest import Counts, ShardEntry
from pipeline.core.verify import Checked, Finding, VerifyReport, verify_run
from tests.core.test_manifest import SAMPLE

RECORDS = {
    "train/part-00000-of-00002.tfrecord": [b"a" * 50, b"b"],
    "train/part-00001-of-00002.tfrecord": [b"c" * 9] * 3,
}
FIRST, SECOND = RECORDS


def make_run(records=RECORDS):
    """{path: bytes} of a good run."""
    files = {f"run/{name}": bytes(frame(some)) for name, some in records.items()}
    shards = tuple(
        ShardEntry(
            name, "train", len(some), len(some), len(files[f"run/{name}"]), google_crc32c.value(files[f"run/{name}"])
        )
        for name, some in records.items()
    )
    rows = sum(map(len, records.values()))
    counts = Counts(rows, rows, (("train", rows),), (), 0)
    manifest = dataclasses.replace(SAMPLE, shards=shards, counts=counts, compression="none")
    return files | {"run/manifest.json": manifest.to_json(), "run/schema.pbtxt": b"", "run/transform_fn/x": b""}


def verify(files, run="run", **options):
    def open_file(uri):
        if uri not in files:
            raise FileNotFoundError(uri)
        return io.BytesIO(files[uri])

    return verify_run(run, lambda folder: [uri for uri in files if uri.startswith(folder)], open_file, **options)


def test_a_good_run_passes():
    seen = []
    files = make_run()
    report = verify(files, progress=seen.append)
    assert report == VerifyReport(
        "r1", (), shards=2, rows=5, records=5, size_bytes=sum(len(files[f"run/{n}"]) for n in RECORDS)
    )
    assert report.ok
    assert sum(seen) == report.size_bytes
    assert verify(files, "run/") == report
    assert report.as_json()["ok"] is True


def only(report):
    (finding,) = report.findings
    assert not report.ok
    return finding


@settings(max_examples=60, deadline=None)
@given(bit=st.integers(0, 8 * (67 + 16 + 1) - 1))
def test_any_flipped_bit_is_found_in_its_file(bit):
    files = make_run()
    data = bytearray(files[f"run/{FIRST}"])
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    report = verify(files | {f"run/{FIRST}": bytes(data)})
    finding = only(report)
    assert (finding.file, finding.offset) == (FIRST, 0 if bit // 8 % len(data) < 66 else 66)
    assert (report.shards, report.records) == (1, 3)


def test_a_shard_cut_by_7_bytes():
    files = make_run()
    report = verify(files | {f"run/{SECOND}": files[f"run/{SECOND}"][:-7]})
    assert [(f.file, f.offset) for f in report.findings] == [(SECOND, 50), (SECOND, None)]
    assert "ends inside a record" in report.findings[0].what
    assert "68 bytes long, but the manifest says 75" in report.findings[1].what
    assert str(report.findings[0]).startswith(f"{SECOND} at byte 50: ")


def test_damage_early_in_a_large_shard_is_one_finding():
    files = make_run({FIRST: [b"a" * (3 << 20)] * 4, SECOND: [b""]})
    data = bytearray(files[f"run/{FIRST}"])
    data[100] ^= 1
    assert only(verify(files | {f"run/{FIRST}": bytes(data)})).offset == 0


def test_a_shard_cut_between_records():
    files = make_run()
    report = verify(files | {f"run/{SECOND}": files[f"run/{SECOND}"][:50]})
    assert "50 bytes long, but the manifest says 75" in report.findings[0].what
    assert "2 records, but the manifest says 3" in report.findings[1].what


def test_gzip_read_as_plain():
    finding = verify(make_run() | {f"run/{FIRST}": b"\x1f\x8b\x08" + bytes(200)}).findings[0]
    assert (finding.file, finding.offset) == (FIRST, 0)
    assert "gzip" in finding.what


def test_a_missing_shard():
    files = make_run()
    del files[f"run/{FIRST}"]
    assert only(verify(files)) == Finding(FIRST, "missing: the manifest names it")


def test_a_shard_of_another_run_with_good_records_and_the_same_size():
    finding = only(verify(make_run() | {f"run/{FIRST}": bytes(frame([b"x" * 50, b"y"]))}))
    assert "crc32c" in finding.what


def test_an_empty_file_in_place_of_a_shard():
    findings = verify(make_run() | {f"run/{FIRST}": b""}).findings
    assert "0 bytes long" in findings[0].what


@pytest.mark.parametrize("stranger", ["train/part-00002-of-00003.tfrecord", "train/notes.txt", "x.tfrecord"])
def test_a_file_that_the_manifest_does_not_name_is_a_warning(stranger):
    report = verify(make_run() | {f"run/{stranger}": b""})
    assert report.ok
    assert [(f.file, f.warning) for f in report.findings] == [(stranger, True)]


def test_no_manifest_no_run():
    files = make_run()
    del files["run/manifest.json"]
    assert "not a committed run" in only(verify(files)).what


def test_a_damaged_manifest_is_a_finding():
    files = make_run()
    finding = only(verify(files | {"run/manifest.json": files["run/manifest.json"][:-9]}))
    assert finding.file == "manifest.json"
    assert "not valid JSON" in finding.what


def test_records_can_be_judged_and_messages_stay_few():
    def check(payloads):
        return Checked(len(payloads), tuple((i, "is bad") for i, p in enumerate(payloads) if p == b"bad"))

    report = verify(make_run({FIRST: [b"bad"] * 30, SECOND: [b"good"]}), check_records=check)
    assert [f.offset for f in report.findings] == [19 * i for i in range(10)] + [None]
    assert report.findings[-1].what == "20 more bad records"
    assert report.shards == 1
