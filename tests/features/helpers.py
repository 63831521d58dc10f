"""Small schemas, batches and real analyses for the tests of features."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.schema import Schema, schema_of
from pipeline.transforms.analysis import AnalysisSettings, Analyze, Preprocessing

SCHEMA_TEXT = """
feature { name: "i" type: INT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "f" type: FLOAT value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "s" type: BYTES value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "oi" type: INT value_count { min: 1 max: 1 } }
feature { name: "of" type: FLOAT value_count { min: 1 max: 1 } }
feature { name: "os" type: BYTES value_count { min: 1 max: 1 } }
feature { name: "fl" type: FLOAT shape { dim { size: 3 } } presence { min_fraction: 1.0 } }
feature { name: "ofl" type: FLOAT shape { dim { size: 2 } } }
feature { name: "rs" type: BYTES value_count { min: 0 max: 9 } }
feature { name: "ri" type: INT }
feature { name: "t" type: BYTES value_count { min: 1 max: 1 } presence { min_fraction: 1.0 } }
feature { name: "y" type: FLOAT value_count { min: 1 max: 1 } not_in_environment: "SERVING" }
default_environment: "TRAINING"
default_environment: "SERVING"
"""


def make_schema(text: str = SCHEMA_TEXT, *, environment: str = "TRAINING") -> Schema:
    return schema_of(text_format.Parse(text, schema_pb2.Schema()), environment=environment)


def make_batch(schema: Schema, rows: list[dict[str, object]]) -> pa.RecordBatch:
    """A canonical batch; a key that a row lacks is a missing value."""
    return pa.RecordBatch.from_pylist(rows, schema=schema.arrow_schema)


def analyse(preprocessing: Preprocessing, schema: Schema, batches: list[pa.RecordBatch], folder: str, temp: str) -> str:
    """Run the analysis for real, on the in-process runner."""
    settings = AnalysisSettings.of(preprocessing, schema, folder=folder)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        data = pipeline | "Batches" >> beam.Create(batches)
        data | "Analyze" >> Analyze(settings, schema, temp_dir=temp)
    return folder
