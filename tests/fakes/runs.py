"""Runs read back without the code that wrote them: shards by hand, dead letters by fastavro."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import google_crc32c

Row = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Run:
    """One run on local disk: ``OUTPUT/run=<id>`` and ``DEAD_LETTERS/run=<id>``."""

    output: Path
    dead: Path
    run_id: str

    @property
    def folder(self) -> Path:
        """Where the shards are."""
        return self.output / f"run={self.run_id}"

    @property
    def committed(self) -> bool:
        """Whether there is a manifest: no manifest, no run."""
        return (self.folder / "manifest.json").exists()

    @property
    def latest(self) -> str:
        """The run that LATEST names."""
        return (self.output / "LATEST").read_text().strip()

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as JSON."""
        return dict(json.loads((self.folder / "manifest.json").read_bytes()))

    def shards(self, split: str | None = None) -> list[Path]:
        """The shards that the manifest names, in its order."""
        named = self.manifest["shards"]
        return [self.folder / shard["name"] for shard in named if split in (None, shard["split"])]

    def rows(self, split: str | None = None) -> list[Row]:
        """All rows of all shards (of ``split``), in order."""
        return [row_of(record) for path in self.shards(split) for record in records_of(path)]

    def column(self, name: str, split: str | None = None) -> list[Any]:
        """The value of a scalar feature in every row; None where a row lacks it."""
        return [row[name][0] if name in row else None for row in self.rows(split)]

    def letters(self) -> list[dict[str, Any]]:
        """All dead letters, in the order of their source position."""
        return sorted(letters_in(self.dead / f"run={self.run_id}"), key=_place)

    def contents(self) -> dict[str, bytes]:
        """Every file of the run by its relative name, the manifest without its times and options."""
        found = {str(path.relative_to(self.folder)): path.read_bytes() for path in files_below(self.folder)}
        if "manifest.json" in found:
            kept = json.loads(found["manifest.json"])
            for name in ("started", "finished", "options", "job", "inputs", "code", "dead_letters"):
                del kept[name]
            found["manifest.json"] = json.dumps(kept, sort_keys=True).encode()
        return found

    def shard_bytes(self) -> dict[str, bytes]:
        """The bytes of every shard by its name."""
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in self.shards()}


def files_below(folder: Path) -> list[Path]:
    """Every file below ``folder``, hidden or not."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def records_of(path: Path) -> list[bytes]:
    """The records of a TFRecord file, read by hand, every checksum checked."""
    data, records, at = path.read_bytes(), [], 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        record = data[at + 12 : at + 12 + length]
        (record_crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert _masked_crc(data[at : at + 8]) == length_crc
        assert _masked_crc(record) == record_crc
        records.append(record)
        at += 16 + length
    return records


def _masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def row_of(record: bytes) -> Row:
    """A tf.train.Example as plain values."""
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    return {name: tuple(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()}


def letters_in(folder: Path) -> list[dict[str, Any]]:
    """The dead letters in all archives below ``folder``."""
    found = []
    for path in sorted(folder.rglob("*.avro")):
        with path.open("rb") as stream:
            found += [dict(letter) for letter in fastavro.reader(stream)]
    return found


def _place(letter: dict[str, Any]) -> tuple[str, int]:
    uri, _, offset = letter["dlq_source"].rpartition("#offset=")
    return uri, int(offset)


def assert_whole(run: Run) -> None:
    """The promise: what was read is written or dead-lettered, the manifest says so, and payloads are the input's.

    Everything is recounted from the files themselves.
    """
    manifest, letters = run.manifest, run.letters()
    counts = manifest["counts"]
    rows = {
        split["name"]: sum(len(records_of(path)) for path in run.shards(split["name"])) for split in manifest["splits"]
    }
    assert counts["read"] == counts["written"] + counts["dead_lettered"]
    assert counts["written"] == sum(rows.values())
    assert counts["written_by_split"] == {name: count for name, count in rows.items() if count}
    assert counts["dead_lettered"] == len(letters)
    assert counts["dead_lettered_by_reason"] == dict(Counter(letter["dlq_reason"] for letter in letters))
    for shard in manifest["shards"]:
        assert shard["rows"] > 0
        assert (run.folder / shard["name"]).stat().st_size == shard["bytes"]
    beside = {"manifest.json", "schema.pbtxt", "stats.pb"}
    on_disk = {str(path.relative_to(run.folder)) for path in files_below(run.folder)}
    shards = {shard["name"] for shard in manifest["shards"]}
    assert {name for name in on_disk if not name.startswith("transform_fn/")} == shards | beside
    assert_payloads_exact(letters)


def assert_payloads_exact(letters: list[dict[str, Any]]) -> None:
    """Each payload is, byte for byte, what lies at its place in the input."""
    assert len({letter["dlq_id"] for letter in letters}) == len(letters)
    for letter in letters:
        uri, offset = _place(letter)
        with open(uri, "rb") as source:
            source.seek(offset)
            original = source.read(letter["payload_length"])
            following = source.read(2)
        assert following[:1] in (b"", b"\n") or following == b"\r\n", "the payload ends where the row ends"
        assert hashlib.sha256(original).hexdigest() == letter["dlq_payload_sha256"]
        if letter["payload"] is None:
            assert Path(letter["dlq_payload_uri"]).read_bytes() == original
        else:
            assert letter["payload"] == original
