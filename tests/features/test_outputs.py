"""What is said of a spec's outputs before an analysis is what the traced graph gives."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from features.helpers import make_schema

from pipeline.features.outputs import features_of_spec
from pipeline.features.preprocessing import preprocessing_fn_of
from pipeline.features.spec import parse_features
from pipeline.transforms.analysis import AnalysisSettings, Analyze

EVERY_OP = """
i: [{cast: {to: float}}, {scale_to_z_score: {}}]
i_id: {from: i, ops: [{vocabulary: {top_k: 5}}, one_hot]}
i_text: {from: i, ops: {cast: {to: string}}}
f: pass_through
f_bucket: {from: f, ops: {bucketize: {buckets: 3}}}
f_range: {from: f, ops: {apply_buckets: {boundaries: [1, 2]}}}
f_log: {from: f, ops: [log1p, {scale_by_min_max: {output_min: -1}}]}
s: {hash_strings: {hash_buckets: 10}}
s_raw: {from: s, ops: pass_through}
oi: pass_through
oi_mean: {from: oi, ops: [{fill_missing: {with: mean, missing_indicator: true}}, scale_to_0_1]}
of: {fill_missing: {value: 0}}
os: [{fill_missing: {value: none, missing_indicator: true}}, {vocabulary: {num_oov_buckets: 2}}]
fl: {scale_to_z_score: {elementwise: true}}
fl_hot: {from: fl, ops: [{bucketize: {buckets: 4}}, one_hot]}
ofl: pass_through
ofl_full: {from: ofl, ops: {fill_missing: {value: 1}}}
rs: {vocabulary: {top_k: 3}}
ri: pass_through
t: {time_parts: {parts: [hour, day_of_week]}}
y: label
"""


def traced(spec: Any, schema: Any, folder: str) -> dict[str, Any]:
    """The outputs as TFT finds them when the graph is built; nothing is run."""
    found: list[Any] = []
    settings = AnalysisSettings.of(preprocessing_fn_of(spec, schema), schema, folder=folder)
    batches = beam.Pipeline(runner="FnApiRunner") | "Batches" >> beam.Create([])
    batches | "Analyze" >> Analyze(settings, schema, temp_dir=folder, check=found.append)
    return dict(found[0])


def test_every_op(tmp_path):
    schema = make_schema()
    spec = parse_features(EVERY_OP, schema)
    static = features_of_spec(spec, schema)
    assert static == traced(spec, schema, str(tmp_path))
    assert list(static) == sorted(static)
    assert {name for name, described in static.items() if described["shape"] is None} == {"oi", "ofl", "rs", "ri"}
