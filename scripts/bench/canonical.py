"""Peer 2, the documented tensorflow-transform way: CSV through TFXIO, TransformDataset, RecordBatchToExamplesEncoder.

As in TFT's census example (github.com/tensorflow/transform, examples/census_example_v2.py); it does not validate.
"""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public import tfxio

from bench.preprocessing import preprocessing_fn


def csv_tfxio(schema_path: str, columns: list[str]) -> tfxio.BeamRecordCsvTFXIO:
    """How the CSV lines become record batches."""
    schema = text_format.Parse(Path(schema_path).read_text(encoding="utf-8"), schema_pb2.Schema())
    return tfxio.BeamRecordCsvTFXIO(
        physical_format="text", column_names=columns, schema=schema, telemetry_descriptors=["benchmark"]
    )


def _read(pipeline: beam.Pipeline, source: str, io: tfxio.BeamRecordCsvTFXIO) -> beam.PCollection:
    lines = pipeline | "Read" >> beam.io.ReadFromText(source, coder=beam.coders.BytesCoder())
    return lines | "Decode" >> io.BeamSource()


def build_analysis(
    pipeline: beam.Pipeline, *, source: str, schema: str, columns: list[str], output: str, temp: str
) -> None:
    """Add the analysis to ``pipeline``; it leaves a transform_fn in ``output``."""
    io = csv_tfxio(schema, columns)
    with tft_beam.Context(temp_dir=temp):
        raw = (_read(pipeline, source, io), io.TensorAdapterConfig())
        transform_fn = raw | "Analyze" >> tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = transform_fn | "WriteTransformFn" >> tft_beam.WriteTransformFn(output)


def build(
    pipeline: beam.Pipeline, *, source: str, schema: str, columns: list[str], transform: str, output: str, temp: str
) -> None:
    """Add the job to ``pipeline``: CSV at ``source`` through the saved ``transform``, TFRecord under ``output``."""
    io = csv_tfxio(schema, columns)
    encoder = tfxio.RecordBatchToExamplesEncoder(tft.TFTransformOutput(transform).transformed_metadata.schema)
    with tft_beam.Context(temp_dir=temp):
        transform_fn = pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(transform)
        raw = (_read(pipeline, source, io), io.TensorAdapterConfig())
        transformed, _ = (raw, transform_fn) | "Transform" >> tft_beam.TransformDataset(output_record_batches=True)
        _ = (
            transformed
            | "Encode" >> beam.FlatMapTuple(lambda batch, _: encoder.encode(batch))
            | "Write" >> beam.io.WriteToTFRecord(f"{output}/examples", file_name_suffix=".tfrecord")
        )
