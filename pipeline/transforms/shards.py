"""A planned shard becomes a file of the run, out of the parts that were written aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import BinaryIO

import google_crc32c

from pipeline.core.compression import Compression, Decompressed, can_be_joined, compressor
from pipeline.core.manifest import ShardEntry
from pipeline.core.shards import Shard
from pipeline.transforms import files

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of a run: parts become the file by a rename, or by being copied one after the other.

    Safe to repeat at any point: a part that is gone was published by an earlier attempt.
    """

    run_folder: str
    compression: Compression = "none"

    def make(self, shard: Shard) -> ShardEntry:
        """Publish ``shard``; raises OSError for storage faults and for a published file of the wrong size."""
        target = files.join(self.run_folder, str(shard.name))
        entry = ShardEntry.of(shard)
        if len(shard.parts) == 1:
            self._move(shard, target)
        elif can_be_joined(self.compression):
            self._concatenate(shard, target)
        else:
            return self._compress_anew(shard, target, entry)
        return entry

    def _move(self, shard: Shard, target: str) -> None:
        try:
            files.rename(shard.parts[0].uri, target)
        except FileNotFoundError:
            if files.size_of(target) != shard.size_bytes:
                raise OSError(f"part {shard.parts[0].uri} is gone and {target} is not its shard") from None

    def _concatenate(self, shard: Shard, target: str) -> None:
        with files.create(target) as sink:
            for part in shard.parts:
                with files.open_read(part.uri) as source:
                    crc = 0
                    for piece in files.copy_stream(source, sink):
                        crc = google_crc32c.extend(crc, piece)
                if crc != part.crc32c:
                    raise OSError(f"part {part.uri} was damaged in storage: its checksum differs from what was written")

    def _compress_anew(self, shard: Shard, target: str, entry: ShardEntry) -> ShardEntry:
        size = crc = 0
        squeeze = compressor(self.compression)
        with files.create(target) as sink:
            for part in shard.parts:
                with files.open_read(part.uri) as source:
                    plain = Decompressed(source, self.compression)
                    while piece := plain.read(_PIECE_BYTES):
                        size, crc = _write_summed(sink, squeeze.compress(memoryview(piece)), size, crc)
            size, crc = _write_summed(sink, squeeze.flush(), size, crc)
        return replace(entry, size_bytes=size, crc32c=crc)


def _write_summed(sink: BinaryIO, data: bytes, size: int, crc: int) -> tuple[int, int]:
    sink.write(data)
    return size + len(data), google_crc32c.extend(crc, data)
