"""Throws hostile bytes at the JSON decoder: run in a process of its own, as the native parser may take it down.

``python -m tests.core.decoding.json_fuzz COUNT SEED PROGRESS_FILE``: input number i depends on SEED and i
only; PROGRESS_FILE holds the number of the last one begun. One input in ``COMPARED`` is also held to the
row-wise oracle.
"""

from __future__ import annotations

import io
import os
import random
import sys

from pipeline.core.decoding import json_lines
from pipeline.core.decoding.json_lines import JsonLinesDecoder
from pipeline.core.records import Split
from tests.core.decoding.json_cases import BAD_BYTES, SCHEMAS, TOKENS, check_laws, good_row, mutated, random_rows

COMPARED = 4


def fuzzed_file(rng: random.Random, name: str) -> bytes:
    """Some lines of all kinds, then changed anywhere, line ends too; now and then noise alone."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(200))
    rows = random_rows(rng, SCHEMAS[name], rng.randrange(10, 24))
    if rng.random() < 0.3:  # rows of one form, some of them changed
        row = rng.choice((good_row(rng, SCHEMAS[name]), rng.choice(rows)))
        rows = [mutated(rng, row) if rng.random() < 0.2 else row for _ in range(20)]
    for _ in range(rng.randrange(3)):
        token = rng.choice(TOKENS).encode()
        rows.insert(rng.randrange(len(rows)), token * rng.choice((1, 1, 2, 300)))
    data = rng.choice((b"\n", b"\r\n")).join(rows)
    for _ in range(rng.choice((0, 0, 1, 4))):
        data = mutated(rng, data)
    at = rng.randrange(len(data) + 1)
    return data if rng.random() < 0.9 else data[:at] + rng.choice(BAD_BYTES) * 100 + data[at:]


def run(count: int, seed: int, progress: int) -> None:
    """Decode inputs 0 to ``count`` - 1 of ``seed``, writing each number to the open file ``progress``."""
    decoders = [
        (name, JsonLinesDecoder(schema, unknown_features=unknown, block_bytes=block_bytes, max_record_bytes=2000))
        for name, schema in SCHEMAS.items()
        for unknown in ("ignore", "reject")
        for block_bytes in (1000, 1 << 20)
    ]
    for index in range(count):
        os.pwrite(progress, b"%20d" % index, 0)
        rng = random.Random(f"{seed} {index}")
        name, decoder = rng.choice(decoders)
        data = fuzzed_file(rng, name)
        json_lines._ROWS_FOR_TEMPLATES = rng.choice((0, 600))
        read = 0
        for block in decoder.blocks(Split("mem", 0, len(data), len(data)), lambda _, data=data: io.BytesIO(data)):
            decoded = decoder.decode(block) if index % COMPARED or block.oversized else check_laws(decoder, block)
            assert decoded.rows_read == decoded.batch.num_rows + len(decoded.rejections)
            read += block.bytes_read
        assert read == len(data)


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT))
