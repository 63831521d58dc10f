"""Runs written by hand, without the pipeline: a batch as shards of any layout, and the manifest that names them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from pipeline.core.compression import Compression, compressor
from pipeline.core.framing import frame
from pipeline.core.manifest import Code, Counts, Manifest, ShardEntry
from pipeline.core.names import ShardName
from pipeline.core.records import Json
from pipeline.features.layouts import make_layout

ARROW = {"float32": pa.float32(), "int64": pa.int64(), "string": pa.large_binary()}


def lists(dtype: str, rows: list[Any]) -> pa.Array:
    """A large_list column; None is a feature that the row does not have."""
    return pa.array(rows, pa.large_list(ARROW[dtype]))


def flights(rows: int) -> tuple[pa.RecordBatch, Json]:
    """Rows that differ, and their features: a scalar of each kind and a vector."""
    features = {
        "carrier": {"dtype": "string", "shape": []},
        "day": {"dtype": "int64", "shape": []},
        "delay": {"dtype": "float32", "shape": []},
        "id": {"dtype": "int64", "shape": []},
        "place": {"dtype": "float32", "shape": [2]},
    }
    columns = {
        "carrier": [[b"%c" % (65 + row % 7)] for row in range(rows)],
        "day": [[row * 37 % 365] for row in range(rows)],
        "delay": [[row / 4] for row in range(rows)],
        "id": [[row] for row in range(rows)],
        "place": [[row, -row] for row in range(rows)],
    }
    arrays = [lists(features[name]["dtype"], values) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(columns)), features


def with_optional(batch: pa.RecordBatch, features: Json) -> tuple[pa.RecordBatch, Json]:
    """The same with a feature that every third row lacks, and one of any length."""
    rows = batch.num_rows
    maybe = lists("float32", [[row / 2] if row % 3 else None for row in range(rows)])
    words = lists("string", [[b"w%d" % row] * (row % 3) or None for row in range(rows)])
    columns = [*batch.columns, maybe, words]
    described = {"maybe": {"dtype": "float32", "shape": None}, "words": {"dtype": "string", "shape": None}}
    return pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *described]), features | described


def write_shard(path: Path, records: pa.LargeBinaryArray, compression: Compression = "none") -> bytes:
    """A TFRecord file, and its bytes."""
    squeeze = compressor(compression)
    data = bytes(squeeze.compress(frame(records))) + squeeze.flush()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


def write_run(
    output: Path,
    batch: pa.RecordBatch,
    features: Json,
    *,
    layout: str = "rows",
    shards: int = 3,
    rows_per_record: int = 8,
    compression: Compression = "none",
    labels: tuple[str, ...] = ("delay",),
    split: str = "train",
) -> Path:
    """Write ``batch``, in order, as a committed run of ``output``; returns its folder."""
    how = make_layout(layout, features=features, rows_per_record=rows_per_record)
    folder = output / "run=r"
    bounds = np.linspace(0, batch.num_rows, shards + 1).astype(int)
    entries = []
    for index in range(shards):
        part = batch.slice(bounds[index], bounds[index + 1] - bounds[index])
        name = ShardName(split, index, shards)
        records = how.encode_array(part)
        data = write_shard(folder / str(name), records, compression)
        crc = google_crc32c.value(data)
        entries.append(ShardEntry(str(name), split, part.num_rows, len(records), len(data), crc))
    written = Counter({split: batch.num_rows})
    manifest = Manifest(
        run_id="r",
        job_name="by-hand",
        job_id="",
        started="2024-05-01T00:00:00+00:00",
        finished="2024-05-01T00:01:00+00:00",
        code=Code("0"),
        inputs=(),
        schema_fingerprint="",
        transform_fingerprint=None,
        layout=layout,
        feature_spec={"features": features, "labels": list(labels), "layout": how.describe()},
        compression=compression,
        splits=((split, 1.0),),
        shards=tuple(entries),
        counts=Counts(batch.num_rows, batch.num_rows, tuple(sorted(written.items())), (), 0),
        quality={},
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    (output / "LATEST").write_text("r\n")
    return folder
