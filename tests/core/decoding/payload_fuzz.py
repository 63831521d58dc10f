"""Throws hostile payloads at the decoders of messages: run in a process of its own, as native code may take it down.

``python -m tests.core.decoding.payload_fuzz COUNT SEED PROGRESS_FILE``, as ``json_fuzz``: payloads hold line ends,
and whole documents of other messages.
"""

from __future__ import annotations

import os
import random
import sys

from pipeline.core.decoding import DecoderSettings
from pipeline.core.decoding.payloads import JsonPayloads
from pipeline.core.messages import Message
from tests.core.decoding.json_cases import BAD_BYTES, SCHEMAS, TOKENS, mutated, random_rows
from tests.core.decoding.test_payloads import pretty, verdicts

COMPARED = 4


def fuzzed_payloads(rng: random.Random, name: str) -> list[bytes]:
    """A batch of payloads of all kinds, some changed, cut, joined, or pretty printed and then changed."""
    payloads = random_rows(rng, SCHEMAS[name], rng.randrange(13, 30))
    for index, payload in enumerate(payloads):
        kind = rng.randrange(12)
        if kind < 3:
            payloads[index] = pretty(payload)
        elif kind == 3:
            payloads[index] = payload + b"\n" + rng.choice(payloads)
        elif kind == 4:
            payloads[index] = payload[: rng.randrange(len(payload) + 1)]
        elif kind == 5:
            payloads[index] = rng.choice(BAD_BYTES) + payload
        elif kind == 6:
            payloads[index] = rng.choice(TOKENS).encode("utf-8", "replace") * rng.choice((1, 2, 300))
        if payloads[index] and rng.random() < 0.3:
            payloads[index] = mutated(rng, payloads[index])
    return payloads


def run(count: int, seed: int, progress: int) -> None:
    """Decode batches 0 to ``count`` - 1 of ``seed``, writing each number to the open file ``progress``."""
    decoders = [
        (name, JsonPayloads(schema, DecoderSettings(unknown_features=unknown, max_record_bytes=2000)))
        for name, schema in SCHEMAS.items()
        for unknown in ("ignore", "reject")
    ]
    for index in range(count):
        os.pwrite(progress, b"%20d" % index, 0)
        rng = random.Random(f"{seed} {index}")
        name, decoder = rng.choice(decoders)
        messages = [Message(payload, (), "1", 0, 0) for payload in fuzzed_payloads(rng, name)]
        found = verdicts(decoder.decode(messages), len(messages))
        assert index % COMPARED or found == verdicts(decoder.decode_each(messages), len(messages))


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT))
