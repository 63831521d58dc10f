"""Run as a process: hostile bytes for the native code behind dead-letter archives (fastavro) and verify (TensorFlow).

    python -m tests.core.native_fuzz archive|records COUNT SEED PROGRESS_FILE

A crash kills this process only; the progress file then names the input at which it happened.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa

from pipeline.core.archive import SCHEMA, write_archive
from pipeline.core.archive_reader import read_archive
from pipeline.core.dead_letter import DeadLetter, from_rejection
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault, Rejection


def letters() -> list[DeadLetter]:
    """Three dead letters."""
    rejections = [
        Rejection("f.jsonl", 9 * n, 8, b'{"a":"%d"}' % n, Stage.VALIDATE, (Fault(Reason.WRONG_TYPE, "bad", "a"),))
        for n in range(3)
    ]
    return [
        from_rejection(r, job="j", schema_fingerprint="s", failed_at="2024-05-01T00:00:00Z", attributes={"k": "v"})
        for r in rejections
    ]


def plain_archive() -> bytes:
    """The same archive without compression, so that what is changed in it reaches the Avro decoder."""
    packed, plain = io.BytesIO(), io.BytesIO()
    write_archive(packed, letters())
    packed.seek(0)
    fastavro.writer(plain, SCHEMA, list(fastavro.reader(packed)), codec="null", sync_marker=b"0123456789abcdef")
    return plain.getvalue()


def mutated(data: bytes, draw: random.Random, *, since: int, in_place: bool) -> bytes:
    """``data`` with one to six bytes changed, from byte ``since`` on; or also cut out, repeated and put in.

    In place, the frame around a block of an archive stays whole, so that the block reaches the Avro decoder.
    """
    changed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(since, max(len(changed), since + 1))
        kind = 0 if in_place else draw.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])])
        elif kind == 1:
            del changed[at : at + draw.randint(1, 8)]
        elif kind == 2:
            changed[at:at] = changed[at : at + draw.randint(1, 16)]
        else:
            changed[at:at] = b"\xff" * draw.randint(1, 10)
    return bytes(changed)


def archive_target() -> tuple[bytes, int, Callable[[bytes], None]]:
    """An archive, where its first block begins, and reading it to the end."""
    data = plain_archive()

    def read(hostile: bytes) -> None:
        for _ in read_archive(io.BytesIO(hostile)):
            pass

    return data, data.index(b"0123456789abcdef") + 16, read


def records_target() -> tuple[bytes, int, Callable[[bytes], None]]:
    """A record of each kind of feature, and parsing it as verify does."""
    from pipeline.features.layouts import make_layout
    from pipeline.features.parsing import make_parser
    from pipeline.features.record_check import RecordCheck

    features = {
        "a": {"dtype": "int64", "shape": []},
        "s": {"dtype": "string", "shape": None},
        "x": {"dtype": "float32", "shape": [3]},
    }
    layout = make_layout("rows", features=features)
    check = RecordCheck(make_parser({"features": features, "layout": layout.describe()}, where="fuzz"))
    columns = [
        pa.array([7], pa.int64()),
        pa.array([b"red", b"green"], pa.large_binary()),
        pa.array([1, 2, 3], pa.float32()),
    ]
    lists = [pa.LargeListArray.from_arrays(np.array([0, len(column)]), column) for column in columns]
    (record,) = layout.encode(pa.RecordBatch.from_arrays(lists, ["a", "s", "x"]))

    def parse(hostile: bytes) -> None:
        checked = check([hostile])
        assert checked.rows + len(checked.bad) == 1

    return record, 0, parse


def main(target: str, count: int, seed: int, progress: Path) -> None:
    """Feed ``count`` inputs; raises whatever is not an answer."""
    data, since, feed = {"archive": archive_target, "records": records_target}[target]()
    feed(data)
    draw = random.Random(seed)
    with progress.open("w") as stream:
        for number in range(count):
            stream.seek(0)
            stream.write(f"{number:10d}")
            stream.flush()
            in_place = target == "archive" and draw.random() < 0.8
            feed(mutated(data, draw, since=since + 4 * in_place, in_place=in_place))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
