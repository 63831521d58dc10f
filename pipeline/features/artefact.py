"""The artefact of an analysis on disk: the TFT output and headrace.json, which is written last and says what it is."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils

from pipeline.core.errors import UsageError
from pipeline.core.records import Json, Opener
from pipeline.core.schema import Schema
from pipeline.features.spec import FeatureSpec

HEADER = "headrace.json"
FORMAT = 1


@dataclass(frozen=True)
class Artefact:
    """What headrace.json holds, and the local folder it lies in. ``spec`` is None for a preprocessing module.

    ``features`` describes the outputs: ``{name: {"dtype": "float32", "shape": [] or null}}``, where
    a null shape is a list of any length, absent where empty. Fingerprints are sha256 in hex;
    ``content_fingerprint`` covers the bytes of the TFT output.
    """

    path: str
    effective: schema_pb2.Schema
    spec: FeatureSpec | None
    schema_fingerprint: str
    spec_fingerprint: str
    content_fingerprint: str
    labels: tuple[str, ...]
    features: Json

    def raw_feature_spec(self) -> dict[str, Any]:
        """The parsing spec of raw tf.Examples for serving, without the features that only labels use."""
        spec: dict[str, Any] = schema_utils.schema_as_feature_spec(self.effective).feature_spec
        labels = self.spec.label_sources if self.spec else frozenset()
        return {name: feature for name, feature in spec.items() if name not in labels}

    def to_json(self) -> str:
        """The text of headrace.json: the same artefact, the same text."""
        document = {
            "format": FORMAT,
            "schema_fingerprint": self.schema_fingerprint,
            "spec_fingerprint": self.spec_fingerprint,
            "content_fingerprint": self.content_fingerprint,
            "spec": self.spec.to_json() if self.spec else None,
            "labels": list(self.labels),
            "features": self.features,
            "effective_schema": text_format.MessageToString(self.effective),
        }
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def features_of(transformed: schema_pb2.Schema) -> Json:
    """The ``features`` of an artefact, from the schema that TFT writes of its outputs.

    Raises UsageError for outputs that a tf.Example cannot hold as one plain feature.
    """
    spec = schema_utils.schema_as_feature_spec(transformed).feature_spec
    return {name: _describe(name, feature) for name, feature in sorted(spec.items())}


def _describe(name: str, feature: Any) -> Json:
    if isinstance(feature, tf.io.FixedLenFeature):
        return {"dtype": feature.dtype.name, "shape": list(feature.shape)}
    if isinstance(feature, tf.io.VarLenFeature) or (
        isinstance(feature, tf.io.RaggedFeature) and not feature.partitions
    ):
        return {"dtype": feature.dtype.name, "shape": None}
    raise UsageError(
        f"the preprocessing function gives '{name}' as {type(feature).__name__}, which is more than one list a row; "
        "make it dense (tf.sparse.to_dense, RaggedTensor.to_tensor) or two-dimensional"
    )


def load_artefact(path: str, schema: Schema) -> Artefact:
    """Read headrace.json in the local folder ``path`` and check that it was made for ``schema``.

    Raises UsageError if there is none, if it is damaged or of a later format, or if the schema differs.
    """
    try:
        document = json.loads(Path(path, HEADER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path} holds no {HEADER}: no transform was completed there; give a folder that `headrace analyze` "
            "or `headrace run` wrote"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{os.path.join(path, HEADER)} is damaged ({error}); analyse again") from error
    artefact = _read(path, document)
    if artefact.schema_fingerprint != schema.fingerprint:
        raise UsageError(
            f"the transform in {path} was made for another schema (fingerprint {artefact.schema_fingerprint[:12]}, "
            f"this one is {schema.fingerprint[:12]}); use the schema it was made with, or analyse again"
        )
    if artefact.content_fingerprint != content_fingerprint(_parts(path)):
        raise UsageError(
            f"the transform in {path} is damaged: its files are not those that {HEADER} was written for; copy the "
            "whole folder again, or analyse again"
        )
    return artefact


def content_fingerprint(parts: Iterable[tuple[str, bytes]]) -> str:
    """sha256 (hex) of (path below the folder, content) of all files but the header, in the order of ``_parts``."""
    digest = hashlib.sha256()
    for name, data in parts:
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _parts(path: str) -> Iterator[tuple[str, bytes]]:
    """The graph's files by name, then those that describe it; what else lies in the folder is not part of it."""
    graph = sorted(
        file.relative_to(path).as_posix() for file in Path(path, "transform_fn").rglob("*") if file.is_file()
    )
    for name in (
        *graph,
        "transformed_metadata/schema.pbtxt",
        "transformed_metadata/asset_map",
        "metadata/schema.pbtxt",
    ):
        if Path(path, name).is_file():
            yield name, Path(path, name).read_bytes()


def _read(path: str, document: Any) -> Artefact:
    try:
        if document["format"] != FORMAT:
            raise UsageError(f"the transform in {path} has format {document['format']}; this Headrace reads {FORMAT}")
        return Artefact(
            path=path,
            effective=text_format.Parse(document["effective_schema"], schema_pb2.Schema()),
            spec=None if document["spec"] is None else FeatureSpec.from_json(document["spec"]),
            schema_fingerprint=document["schema_fingerprint"],
            spec_fingerprint=document["spec_fingerprint"],
            content_fingerprint=document["content_fingerprint"],
            labels=tuple(document["labels"]),
            features=document["features"],
        )
    except (KeyError, TypeError, ValueError, text_format.ParseError) as error:
        raise UsageError(f"{os.path.join(path, HEADER)} is damaged ({error!r}); analyse again") from error


def fetch_artefact(uri: str, *, list_folder: Callable[[str], list[str]], open_file: Opener, local_dir: str) -> str:
    """Copy all files below ``uri`` into ``local_dir`` and return it. Storage faults are raised as they come."""
    root = uri.rstrip("/") + "/"
    for source in list_folder(uri):
        relative = posixpath.normpath(source.removeprefix(root))
        if relative.startswith(("..", "/")) or not source.startswith(root):
            raise UsageError(f"{source} does not lie below {uri}")
        target = os.path.join(local_dir, relative)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open_file(source) as reader, open(target, "wb") as writer:
            shutil.copyfileobj(reader, writer)
    return local_dir
