"""A reference trainer: a small Keras model learns the label from a run's shards, exported with the transform inside.

    .venv/bin/python scripts/train_example.py quickstart-data/out --export quickstart-data/model

It prints, for each epoch, the loss on train and eval and the share of time spent waiting for data. The exported model
takes *raw* records (serialised tf.Examples of the schema's features, the label left out): the TFT graph of the run is
inside, so serving cannot differ from training.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_transform as tft

from pipeline.commands.verify import find_run
from pipeline.core.manifest import Manifest
from pipeline.core.names import MANIFEST
from pipeline.core.schema import load_schema
from pipeline.features.artefact import Artefact, load_artefact
from pipeline.features.reader import make_dataset

CATEGORIES = 1024
"""Whole-number features (vocabulary ids, buckets, hours) are folded into as many embeddings."""


class Delay(tf.keras.Model):
    """Numbers as they are and embeddings of whole numbers, through two dense layers, to one number."""

    def __init__(self, features: dict[str, Any]) -> None:
        super().__init__()
        self.numbers = sorted(name for name, f in features.items() if f["dtype"] == "float32")
        self.codes = sorted(name for name, f in features.items() if f["dtype"] == "int64")
        self.embeddings = {name: tf.keras.layers.Embedding(CATEGORIES, 8, name=f"embed_{name}") for name in self.codes}
        self.hidden = [tf.keras.layers.Dense(64, activation="relu") for _ in range(2)]
        self.head = tf.keras.layers.Dense(1)

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Features of shape (rows, ...) to a prediction of shape (rows,)."""
        rows = tf.shape(inputs[(self.numbers + self.codes)[0]])[0]
        columns = [tf.reshape(inputs[name], [rows, -1]) for name in self.numbers]
        for name in self.codes:
            folded = tf.math.floormod(tf.reshape(inputs[name], [rows, -1]), CATEGORIES)
            columns.append(tf.reduce_sum(self.embeddings[name](folded), axis=1))
        hidden = tf.concat(columns, axis=1)
        for layer in self.hidden:
            hidden = layer(hidden)
        return tf.squeeze(self.head(hidden), axis=1)


class Serving(tf.Module):
    """The exported model: raw tf.Examples in, predictions (``serve``) or transformed features (``transform``) out."""

    def __init__(self, model: tf.keras.Model, artefact: Artefact) -> None:
        super().__init__()
        self.model = model
        self.layer = tft.TFTransformOutput(artefact.path).transform_features_layer()
        self._spec = artefact.raw_feature_spec()
        self._labels = artefact.labels

    def _features(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = self.layer(tf.io.parse_example(examples, self._spec))
        return {name: tensor for name, tensor in transformed.items() if name not in self._labels}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """The features that the model sees, by name."""
        return self._features(examples)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """The prediction for each raw record."""
        return {self._labels[0]: self.model(self._features(examples))}


def train(
    run: str, manifest: Manifest, *, epochs: int, batch_size: int, steps: int | None, seed: int = 0
) -> tuple[tf.keras.Model, list[dict[str, float]]]:
    """Train on ``train`` (at most ``steps`` batches an epoch), evaluate on ``eval``; the model and what happened."""
    tf.keras.utils.set_random_seed(seed)
    label = manifest.feature_spec["labels"][0]
    features = {n: f for n, f in manifest.feature_spec["features"].items() if n != label and f["dtype"] != "string"}
    model, optimizer = Delay(features), tf.keras.optimizers.Adam(1e-3)
    loss_of = tf.keras.losses.Huber(delta=15.0)  # a flight ten hours late is one flight, not a hundred

    @tf.function
    def step(inputs: dict[str, tf.Tensor], target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(target, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    dataset = make_dataset(run, batch_size, split="train", seed=seed, label=label)
    has_eval = any(shard.split == "eval" for shard in manifest.shards)
    history = []
    for epoch in range(epochs):
        told = _epoch(dataset.take(steps) if steps else dataset, step)
        if has_eval:
            told["eval_loss"] = _evaluate(run, model, loss_of, label=label, batch_size=batch_size)
        history.append(told)
        print(f"epoch {epoch + 1}: " + ", ".join(f"{name} {value:.4g}" for name, value in told.items()), flush=True)
    return model, history


def _epoch(dataset: tf.data.Dataset, step: Any) -> dict[str, float]:
    waited = worked = total = 0.0
    batches, count = iter(dataset), 0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        got = time.perf_counter()
        if batch is None:
            break
        total += float(step(*batch))
        if count:  # the first batch starts the readers up, the first step is traced
            waited += got - asked
            worked += time.perf_counter() - got
        count += 1
    share = waited / (waited + worked) if waited + worked else 0.0
    return {"loss": total / max(count, 1), "batches": count, "wait_share": share}


def _evaluate(run: str, model: tf.keras.Model, loss_of: Any, *, label: str, batch_size: int) -> float:
    losses = [
        float(loss_of(target, model(inputs)))
        for inputs, target in make_dataset(
            run, batch_size, split="eval", shuffle=False, label=label, drop_remainder=False
        )
    ]
    return sum(losses) / max(len(losses), 1)


def export(model: tf.keras.Model, run: str, folder: str) -> None:
    """Save the model with the run's transform inside; signatures ``serving_default`` and ``transform``."""
    schema = load_schema(Path(run, "schema.pbtxt").read_text(encoding="utf-8"))
    serving = Serving(model, load_artefact(str(Path(run, "transform_fn")), schema))
    tf.saved_model.save(serving, folder, signatures={"serving_default": serving.serve, "transform": serving.transform})


def main() -> int:
    """Train, tell, export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder, or an output folder, whose latest run is taken")
    parser.add_argument("--export", help="folder for the SavedModel")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=1024)
    parser.add_argument("--steps", type=int, help="at most so many batches an epoch")
    arguments = parser.parse_args()
    run = find_run(arguments.run)
    manifest = Manifest.from_json(Path(run, MANIFEST).read_bytes(), run)
    model, _ = train(run, manifest, epochs=arguments.epochs, batch_size=arguments.batch_size, steps=arguments.steps)
    if arguments.export:
        export(model, run, arguments.export)
        print(f"exported to {arguments.export}: raw tf.Examples in, {manifest.feature_spec['labels'][0]} out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
