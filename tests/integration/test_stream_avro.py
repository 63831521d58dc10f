"""Avro payloads, good and mutated, through the emulator into the real ``headrace stream``."""

from __future__ import annotations

import io
import json
import random
from collections import Counter

import fastavro
import pytest
from fakes.cli import headrace
from fakes.streams import running_stream

pytestmark = pytest.mark.slow

AVRO = {
    "type": "record",
    "name": "Case",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "x", "type": ["null", "float"], "default": None},
        {"name": "s", "type": ["null", "string"], "default": None},
        {"name": "l", "type": ["null", {"type": "array", "items": "float"}], "default": None},
        {"name": "d", "type": ["null", "string"], "default": None},
    ],
}
GOOD, MUTATED = 500, 2000


def datum(row: dict[str, object]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), row)
    return stream.getvalue()


def row(rng: random.Random, number: int) -> dict[str, object]:
    return {
        "a": number,
        "x": rng.choice([None, 0.5, -3.0]),
        "s": rng.choice([None, "", "café"]),
        "l": rng.choice([None, [1.0, 2.0, 3.0]]),
        "d": rng.choice([None, "red", "green"]),
    }


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Bytes flipped, put in or cut off; lengths of 2**60 among them."""
    at, kind = rng.randrange(len(data) + 1), rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.randbytes(rng.choice((1, 5))) + data[at:]
    if kind == 2:
        return data[:at] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x1f" + data[at:]
    if kind == 3:
        return rng.randbytes(rng.randrange(1, 60))
    at = min(at, len(data) - 1)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def test_each_datum_is_written_as_it_was_or_kept_as_a_dead_letter(pubsub_emulator, tmp_path, case_schema):
    rng = random.Random(7)
    good = [row(rng, number) for number in range(GOOD)]
    bad = [mutated(rng, datum(row(rng, 10_000 + number))) or b"\x00" for number in range(MUTATED)]
    (tmp_path / "case.avsc").write_text(json.dumps(AVRO))
    flags = ("--schema", case_schema, "--payload_format=avro", "--avro_schema", tmp_path / "case.avsc", "--window=5s")
    with running_stream(pubsub_emulator, tmp_path / "job", *flags, "--max_archive_wait=1s") as stream:
        ids = pubsub_emulator.publish(stream.topic, *map(datum, good), *bad)
        sent = dict(zip(ids, [*map(datum, good), *bad], strict=True))
        stream.wait_for(lambda: stream.settled() >= len(sent), "end of the messages", every=1.0)
        done = stream.stop()
        assert done.code == 0, done.err[-3000:]
        assert "Traceback" not in done.err
        said = done.json
        assert said["messages"] == said["rows_written"] + said["dead_letters"] == len(sent)
        dead = {letter["dlq_source"].rsplit("#", 1)[1]: letter for letter in stream.archived()}
        assert all(letter["payload"] == sent[message_id] for message_id, letter in dead.items())
        assert not set(ids[:GOOD]) & set(dead)
        written = Counter(found["a"][0] for found in stream.rows())
        assert sum(written.values()) + len(dead) == len(sent)
        assert all(written[number] for number in range(GOOD))
        assert len(dead) > MUTATED / 4
        assert headrace("verify", stream.output).code == 0
