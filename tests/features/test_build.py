"""Building without Beam: every row of a task is encoded or refused with its bytes, whatever order and chunk size."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.progress import Progress
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault, InputFile, Split, Task
from pipeline.core.settings import BuildSettings, InputSettings
from pipeline.features import build as building
from pipeline.features.build import (
    Encoder,
    TransformedChunk,
    decode_task,
    estimate_output_ratio,
    key_hashes,
    regroup,
    rows_within,
    split_indices,
)
from pipeline.features.layouts import RowsLayout, estimate_row_bytes
from pipeline.features.rows import is_infrastructure_fault
from pipeline.features.transformer import IdentityTransformer

PROTO = text_format.Parse(
    """
    feature { name: "n" type: INT presence { min_fraction: 1 } value_count { min: 1 max: 1 } }
    feature { name: "k" type: BYTES value_count { min: 1 max: 1 } }
    feature { name: "x" type: FLOAT value_count { min: 1 max: 1 } }
    """,
    schema_pb2.Schema(),
)
INPUT = InputSettings("jsonl", PROTO.SerializeToString(deterministic=True))
SCHEMA = INPUT.load_schema()
SETTINGS = BuildSettings(INPUT, "staging", batch_rows=7)


def decoded_of(*texts: bytes, splits_each: int = 1, progress: Progress | None = None):
    """A decoded task over files 0, 1, ... that hold the texts."""
    files = {str(n): text for n, text in enumerate(texts)}
    splits = []
    for uri, text in files.items():
        cuts = [n * len(text) // splits_each for n in range(splits_each + 1)]
        splits += [Split(uri, a, b, len(text)) for a, b in pairwise(cuts)]
    decoder = INPUT.make_decoder(SCHEMA)
    return decode_task(
        Task(0, tuple(splits), 1),
        decoder,
        SCHEMA.arrow_schema,
        open_file=lambda uri: io.BytesIO(files[uri]),
        progress=progress,
    )


def text_of(count: int, start: int = 0) -> bytes:
    rows = ({"n": n, "k": f"key {n % 5}", "x": n / 4} for n in range(start, start + count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Failing(IdentityTransformer):
    """Raises ``error`` for batches that hold one of the numbers in ``bad``; ``checked`` ones are faults beforehand."""

    def __init__(self, bad=(), *, checked=(), error=None):
        super().__init__(SCHEMA)
        self.bad, self.checked, self.error = set(bad), set(checked), error or ValueError("cannot")

    def faults(self, batch):
        numbers = batch.column("n").to_pylist()
        return {i: Fault(Reason.TRANSFORM_ERROR, "checked", "n") for i, n in enumerate(numbers) if n in self.checked}

    def transform(self, batch):
        if self.bad & set(batch.column("n").to_pylist()):
            raise self.error
        return super().transform(batch)


def encode(decoded, transformer=None, **changes):
    """(split, n) of every encoded row in order."""
    encoder = Encoder(replace(SETTINGS, **changes), transformer=transformer or Failing(), layout=RowsLayout())
    found = []
    for chunk in encoder.encode(decoded, seed=3):
        assert chunk.rows == len(chunk.records)
        for record in chunk.records.to_pylist():
            found.append((chunk.split, tf.train.Example.FromString(record).features.feature["n"].int64_list.value[0]))
    return found


@given(counts=st.lists(st.integers(1, 20), min_size=1, max_size=3), splits=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_decoding_accounts_for_every_byte_and_row(counts, splits):
    texts = [text_of(count, 100 * n) + b"\nbad\n" for n, count in enumerate(counts)]
    progress = Progress()
    decoded = decoded_of(*texts, splits_each=splits, progress=progress)
    assert decoded.bytes_read == sum(map(len, texts))
    assert decoded.rows_read == sum(counts) + len(counts)
    assert decoded.rows_blank == len(counts)
    assert [rejection.payload for rejection in decoded.rejections] == [b"bad"] * len(counts)
    assert decoded.batch.num_rows == sum(counts)
    now = progress.snapshot()
    assert (now.bytes_done, now.rows_read, now.rows_rejected) == (
        decoded.bytes_read,
        decoded.rows_read,
        len(decoded.rejections),
    )


def test_rows_that_go_through_the_graph_at_once_are_bounded_in_bytes():
    batch = pa.RecordBatch.from_pydict({"n": np.arange(1000)})
    assert rows_within(batch, 80) == 10
    assert rows_within(batch, 1) == 1
    assert rows_within(batch.slice(0, 0), 80) == 1


def test_what_is_transformed_or_encoded_at_once_does_not_show(monkeypatch):
    wanted = encode(decoded_of(text_of(50)))
    monkeypatch.setattr(building, "ENCODED_RECORDS", 3)
    assert encode(decoded_of(text_of(50)), batch_rows=20) == wanted
    monkeypatch.setattr(building, "_BATCH_BYTES", 100)
    assert encode(decoded_of(text_of(50)), batch_rows=1 << 17) == wanted


def test_a_row_can_be_refused_after_all_with_its_bytes():
    decoded = decoded_of(text_of(3), text_of(3, 10))
    decoded.reject(4, Fault(Reason.TRANSFORM_ERROR, "no"))
    (rejection,) = decoded.rejections
    assert rejection.uri == "1"
    assert rejection.payload == text_of(3, 10).splitlines()[1]
    assert text_of(3, 10)[rejection.offset :].startswith(rejection.payload)
    assert rejection.stage.value == "transform"


def test_row_hashes_are_those_of_the_original_bytes():
    decoded = decoded_of(b"bad\n" + text_of(3), text_of(2))
    expected = [google_crc32c.value(line) for text in (text_of(3), text_of(2)) for line in text.splitlines()]
    assert decoded.row_hashes().tolist() == expected


@pytest.mark.parametrize("shuffle", ["blocks", "none"])
def test_all_rows_are_encoded_once(shuffle):
    found = encode(decoded_of(text_of(50)), shuffle=shuffle)
    assert sorted(n for _, n in found) == list(range(50))
    assert (found == sorted(found)) == (shuffle == "none")


@given(bad=st.sets(st.integers(0, 49), max_size=9), checked=st.sets(st.integers(0, 49), max_size=9))
@settings(max_examples=20, deadline=None)
def test_rows_that_fail_are_refused_and_all_others_encoded(bad, checked):
    decoded = decoded_of(text_of(50))
    found = encode(decoded, Failing(bad, checked=checked))
    assert sorted(n for _, n in found) == [n for n in range(50) if n not in bad | checked]
    lines = text_of(50).splitlines()
    assert sorted(rejection.payload for rejection in decoded.rejections) == sorted(lines[n] for n in bad | checked)
    for rejection in decoded.rejections:
        n = json.loads(rejection.payload)["n"]
        expected = "checked" if n in checked else "the transform step failed on this row: ValueError: cannot"
        assert rejection.faults[0].message == expected


def test_redaction_leaves_only_the_type_of_an_error():
    decoded = decoded_of(text_of(2))
    encode(decoded, Failing({1}), redact_features=frozenset({"k"}))
    assert decoded.rejections[0].faults[0].message.endswith("this row: ValueError")


@pytest.mark.parametrize(
    "error",
    [OSError("disk"), MemoryError(), tf.errors.ResourceExhaustedError(None, None, "memory"), PermissionError("no")],
)
def test_infrastructure_faults_are_raised(error):
    assert is_infrastructure_fault(error)
    with pytest.raises(type(error)):
        encode(decoded_of(text_of(9)), Failing({5}, error=error))


@pytest.mark.parametrize(
    "error", [ValueError(), tf.errors.InvalidArgumentError(None, None, "x"), KeyError(), pa.ArrowInvalid()]
)
def test_errors_about_data_are_no_infrastructure_faults(error):
    assert not is_infrastructure_fault(error)


def test_splits_by_key_keep_equal_keys_together():
    splits = (("train", 0.5), ("eval", 0.5))
    decoded = decoded_of(text_of(200))
    by_key = split_indices(replace(SETTINGS, splits=splits, split_key="k"), decoded)
    for key in range(5):
        assert len(set(by_key[key::5])) == 1
    by_row = split_indices(replace(SETTINGS, splits=splits), decoded)
    assert 60 < by_row.sum() < 140


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.large_binary(): st.binary(max_size=6),
}


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_equal_keys_hash_alike_wherever_they_are(kind):
    @given(values=st.lists(st.none() | VALUES[kind], max_size=12), other=st.lists(VALUES[kind], max_size=3))
    @settings(max_examples=40, deadline=None)
    def check(values, other):
        column = pa.array([*other, *values], kind)
        hashes = key_hashes(column)
        assert hashes.shape == (len(column),)
        assert key_hashes(column.slice(len(other))).tolist() == hashes[len(other) :].tolist()
        alone = [int(key_hashes(pa.array([value], kind))[0]) for value in column.to_pylist()]
        assert hashes.tolist() == alone

    check()


def test_distinct_keys_hash_apart():
    for column in (pa.array(range(5000), pa.int64()), pa.array(np.arange(5000), pa.float32())):
        assert len(set(key_hashes(column).tolist())) == 5000


@given(sizes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=9), size=st.integers(1, 4))
def test_regrouping_keeps_rows_and_order_and_makes_whole_records(sizes, size):
    at, chunks = 0, []
    for split, rows in sorted(sizes):
        numbers = np.arange(at, at + rows)
        chunks.append(TransformedChunk(split, numbers, pa.RecordBatch.from_pydict({"n": numbers})))
        at += rows
    regrouped = list(regroup(chunks, size))
    assert [n for chunk in regrouped for n in chunk.rows] == list(range(at))
    for place, chunk in enumerate(regrouped):
        assert chunk.batch.column(0).to_pylist() == list(chunk.rows)
        last = place + 1 == len(regrouped) or regrouped[place + 1].split != chunk.split
        assert last or len(chunk.rows) % size == 0


def test_output_ratio_is_about_right():
    text = text_of(2000)
    decoder = INPUT.make_decoder(SCHEMA)
    ratio = estimate_output_ratio(
        [InputFile("0", len(text)), InputFile("1", 5)],
        decoder,
        row_bytes=estimate_row_bytes("rows", features=IdentityTransformer(SCHEMA).features),
        open_file=lambda uri: io.BytesIO({"0": text}[uri]),
        sample_bytes=4096,
    )
    records = Encoder(SETTINGS, transformer=Failing(), layout=RowsLayout()).encode(decoded_of(text), seed=0)
    real = sum(len(record) + 16 for chunk in records for record in chunk.records.to_pylist()) / len(text)
    assert real / 2 < ratio < real * 2
