"""The analysis pass: batches in the layout of tfx_bsl -> a complete artefact in a folder, and that folder's path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import tensorflow_transform.beam as tft_beam
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from pipeline.core.records import Json
from pipeline.core.schema import Schema
from pipeline.features.artefact import HEADER, Artefact, content_fingerprint, features_of
from pipeline.features.preprocessing import ModulePreprocessing, SpecPreprocessing
from pipeline.features.representation import adapter_config, effective_schema, to_tfxio
from pipeline.features.spec import FeatureSpec
from pipeline.transforms import files

# Labels and tags are the job's public API.
ANALYZE_DATASET = "AnalyzeDataset"
TO_TFXIO = "ToTfxio"
PUBLISH = "PublishTransform"

_FOLDERS = ("transform_fn", "transformed_metadata", "metadata")

Preprocessing = SpecPreprocessing | ModulePreprocessing


@dataclass(frozen=True)
class AnalysisSettings:
    """What the analysis is of, as plain values that pickle: ``schema`` and ``effective`` are serialised protos."""

    preprocessing: Preprocessing
    schema_fingerprint: str
    effective: bytes
    folder: str
    """Where the artefact goes; what lies there from an earlier analysis is replaced."""

    @classmethod
    def of(cls, preprocessing: Preprocessing, schema: Schema, *, folder: str) -> AnalysisSettings:
        """The settings for analysing batches of ``schema``."""
        effective = effective_schema(schema, spec_of(preprocessing))
        serialised = effective.SerializeToString(deterministic=True)
        return cls(preprocessing, schema.fingerprint, serialised, folder)

    def effective_schema(self) -> schema_pb2.Schema:
        """The schema with the tensors that enter the graph."""
        return schema_pb2.Schema.FromString(self.effective)


def spec_of(preprocessing: Preprocessing) -> FeatureSpec | None:
    """The spec behind ``preprocessing``; None for a module."""
    return preprocessing.spec if isinstance(preprocessing, SpecPreprocessing) else None


class ToTfxio(beam.DoFn):  # type: ignore[misc]
    """Canonical batches -> batches in the layout of tfx_bsl, only the columns that the graph reads. Empty ones go."""

    def __init__(self, config: TensorAdapterConfig) -> None:
        self._arrow = config.arrow_schema

    def process(self, batch: Any) -> Iterator[Any]:
        """One batch to one batch."""
        if batch.num_rows:
            yield to_tfxio(batch, self._arrow)


class Analyze(beam.PTransform):  # type: ignore[misc]
    """PCollection of canonical RecordBatches -> PCollection with one element, the artefact's folder, once it is whole.

    ``temp_dir`` is scratch space that all workers reach (TFT keeps vocabularies and graphs there).
    A retry copies the same bytes again; the header is written last, so a folder with a header is complete.
    ``check`` is called with the outputs (as ``features_of`` describes them) while the graph is built, to
    refuse them before any work.
    """

    def __init__(
        self,
        settings: AnalysisSettings,
        schema: Schema,
        *,
        temp_dir: str,
        check: Callable[[Json], object] | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._config = adapter_config(schema, settings.effective_schema())
        self._temp_dir = temp_dir
        self._check = check

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Analyse, then publish."""
        lists = batches | TO_TFXIO >> beam.ParDo(ToTfxio(self._config))
        with tft_beam.Context(temp_dir=self._temp_dir):
            model, metadata = (lists, self._config) | ANALYZE_DATASET >> tft_beam.AnalyzeDataset(
                self._settings.preprocessing
            )
        if self._check:
            self._check(features_of(metadata.schema))
        publish = _Publish(self._settings, dict(metadata.asset_map))
        return model | PUBLISH >> beam.ParDo(publish, beam.pvalue.AsSingleton(metadata.deferred_metadata))


class _Publish(beam.DoFn):  # type: ignore[misc]
    """Copies the TFT output to its folder and writes the header last.

    TFT's own WriteTransformFn renames, which fails for ever if the worker dies between the rename and
    the end of the bundle, and it cannot write where TensorFlow has no file system; so this copies.
    """

    def __init__(self, settings: AnalysisSettings, asset_map: dict[str, str]) -> None:
        self._settings = settings
        self._asset_map = asset_map

    def process(self, model: str, metadata: DatasetMetadata) -> Iterator[str]:
        """Write the artefact, unless it lies there whole already, and return its folder."""
        folder = self._settings.folder
        fingerprint = content_fingerprint(self._parts(model, metadata))
        header = self._artefact(metadata, fingerprint).to_json().encode()
        if not self._is_complete(header):
            self._write(model, metadata, header)
        yield folder

    def _is_complete(self, header: bytes) -> bool:
        try:
            return files.read_bytes(files.join(self._settings.folder, HEADER)) == header
        except FileNotFoundError:
            return False

    def _write(self, model: str, metadata: DatasetMetadata, header: bytes) -> None:
        folder = self._settings.folder
        stale = {uri for part in _FOLDERS for uri in files.list_folder(files.join(folder, part))}
        files.delete([files.join(folder, HEADER)])
        for name, data in self._parts(model, metadata):
            target = files.join(folder, name)
            files.write_bytes(target, data)
            stale.discard(target)
        files.delete(sorted(stale))
        files.write_bytes(files.join(folder, HEADER), header)

    def _parts(self, model: str, metadata: DatasetMetadata) -> Iterator[tuple[str, bytes]]:
        """Path below the folder and content of every file, as tft.TFTransformOutput expects them."""
        root = model.rstrip("/") + "/"
        for source in files.list_folder(model):
            name = source.removeprefix(root)
            if not name.startswith("."):  # TFT leaves a copy of the metadata in a hidden folder
                yield f"transform_fn/{name}", files.read_bytes(source)
        yield "transformed_metadata/schema.pbtxt", text_format.MessageToString(metadata.schema).encode()
        if self._asset_map:
            yield "transformed_metadata/asset_map", json.dumps(self._asset_map, sort_keys=True).encode()
        # The raw schema, where tft.TFTransformOutput.raw_feature_spec() looks for it.
        yield "metadata/schema.pbtxt", text_format.MessageToString(self._settings.effective_schema()).encode()

    def _artefact(self, metadata: DatasetMetadata, content_fingerprint: str) -> Artefact:
        spec = spec_of(self._settings.preprocessing)
        return Artefact(
            path=self._settings.folder,
            effective=self._settings.effective_schema(),
            spec=spec,
            schema_fingerprint=self._settings.schema_fingerprint,
            spec_fingerprint=self._settings.preprocessing.fingerprint,
            content_fingerprint=content_fingerprint,
            labels=spec.labels if spec else (),
            features=features_of(metadata.schema),
        )
