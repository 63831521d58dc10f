"""What ``--redact_features`` names is in the payloads, and in nothing that reports on them."""

from __future__ import annotations

import json

from fakes.cli import headrace
from fakes.runs import files_below
from tensorflow_metadata.proto.v0 import statistics_pb2

SCHEMA = b"""
feature { name: "id" type: INT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "name" type: BYTES value_count { min: 1 max: 1 } }
feature { name: "iban" type: INT value_count { min: 1 max: 1 } int_domain { min: 0 max: 900000 } }
"""
ROWS = [
    {"id": 1, "name": "Secretgood", "iban": 777123},
    {"id": 2, "name": "Secretgood", "iban": 777124},
    {"id": 3, "name": "fine", "iban": 77712399},
    {"id": 4, "name": ["Secretone", "Secrettwo"]},
    {"id": 5, "iban": "Secretnumber"},
]


def test_statistics_and_messages_tell_counts_and_no_values(bench):
    schema, lines = bench.write("s.pbtxt", SCHEMA), [json.dumps(row).encode() for row in ROWS]
    source = bench.write("f.jsonl", lines)
    done, run = bench.run(source, "--redact_features=name,iban", schema=schema)
    assert done.code == 0, done.err
    summary = headrace("dlq", "summary", run.dead)
    shards = set(run.shards())
    reports = [path.read_bytes() for path in files_below(run.folder) if path not in shards]
    letters = [{name: value for name, value in letter.items() if name != "payload"} for letter in run.letters()]
    for text in (done.out, done.err, summary.out, repr(letters), *map(repr, reports)):
        assert "Secret" not in text
        assert "7771" not in text
    (dataset,) = statistics_pb2.DatasetFeatureStatisticsList.FromString((run.folder / "stats.pb").read_bytes()).datasets
    id_stats, name, iban = dataset.features
    assert (id_stats.num_stats.min, id_stats.num_stats.max) == (1, 2)
    assert name.string_stats.common_stats.num_non_missing == 2
    assert not name.string_stats.top_values
    assert iban.num_stats.common_stats.num_non_missing == 2
    assert (iban.num_stats.max, len(iban.num_stats.histograms)) == (0, 0)


def test_a_misspelt_name_would_keep_nothing_back(bench):
    schema, source = bench.write("s.pbtxt", SCHEMA), bench.write("f.jsonl", [b'{"id":1}'])
    done, run = bench.run(source, "--redact_features=nam", schema=schema)
    assert done.code == 2
    assert "no feature 'nam'; did you mean 'name'?" in done.err
    assert not run.folder.exists()
