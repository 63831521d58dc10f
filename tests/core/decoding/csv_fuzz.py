"""Throws hostile bytes at the CSV decoder: run in a process of its own, as a native parser may take it down.

``python -m tests.core.decoding.csv_fuzz COUNT SEED PROGRESS_FILE``: input number i depends on SEED and i
only; PROGRESS_FILE holds the number of the last one begun. Every input is also decoded by rows, and
the two results are compared.
"""

from __future__ import annotations

import os
import random
import sys

from pipeline.core.decoding.csv import CsvDecoder, CsvOptions
from tests.core.decoding.csv_cases import HEADER, SCHEMA, assert_same, read

CELLS = [b"1", b"-2", b"+3", b"1.0", b"2.5", b"1e300", b"nan", b"NA", b"", b"red", b"true", b"0x1", b" 4", b"\xc3\xa9"]
NASTY = [
    *[bytes([byte]) for byte in b"\0\t\n\r \"',;\\#|\x1a\x7f\x80\xc0\xff"],
    *[b'""', b'"\n"', b"\r\n", b"\n\r", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"," * 300],
    *[b"9" * 400, b"0." + b"0" * 400 + b"1", b"1e999999999", b"-" * 50, b'"' * 99, b'"' * 100, b"\n" * 70, b"x" * 5000],
]
OPTIONS = [
    CsvOptions(),
    CsvOptions(header=HEADER),
    CsvOptions(header=HEADER, multiline=True),
    CsvOptions(header=HEADER, delimiter="\t", null_tokens=()),
    CsvOptions(header=HEADER, delimiter=";", quote="'"),
    CsvOptions(header=HEADER, quote=""),
    CsvOptions(header=("a",)),
]


def fuzzed_input(rng: random.Random, options: CsvOptions) -> bytes:
    """A file: rows that are nearly right, with nasty bytes put in, or noise alone."""
    delimiter = options.delimiter.encode()
    kind = rng.random()
    if kind < 0.1:
        body = rng.randbytes(rng.randrange(60))
    elif kind < 0.3:
        body = b"".join(rng.choices(NASTY, k=rng.randrange(12)))
    else:
        width = len(options.header or HEADER)
        rows = [delimiter.join(rng.choices(CELLS, k=width)) for _ in range(rng.randrange(1, 6))]
        body = b"\n".join([b"1" + row[row.find(delimiter) :] if delimiter in row else row for row in rows])
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.choice(NASTY + CELLS) + body[at + rng.randrange(3) :]
    return (b"" if options.header else delimiter.join(name.encode() for name in HEADER) + b"\n") + body


def run(count: int, seed: int, progress: int) -> None:
    """Decode inputs 0 to ``count`` - 1 of ``seed``, writing each number to the open file ``progress``."""
    decoders = [CsvDecoder(SCHEMA, options, max_record_bytes=4096) for options in OPTIONS]
    for index in range(count):
        os.pwrite(progress, b"%20d" % index, 0)
        rng = random.Random(f"{seed} {index}")
        decoder = rng.choice(decoders)
        data = fuzzed_input(rng, decoder.options)
        fast, slow = read(data, decoder), read(data, decoder, slow=True)
        for left, right in zip(fast.blocks, slow.blocks, strict=True):
            assert_same(left, right)


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT))
