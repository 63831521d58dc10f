"""Peer 1, what most people write: json.loads a line, checks a row, a tf.train.Example a row, WriteToTFRecord."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import tensorflow as tf

# name: (required, low, high)
INT_FEATURES = {
    "year": (True, 2000, 2100),
    "month": (True, 1, 12),
    "day": (True, 1, 31),
    "dep_time": (False, 0, 2400),
    "sched_dep_time": (True, 0, 2400),
    "dep_delay": (False, -240, 2880),
    "arr_time": (False, 0, 2400),
    "sched_arr_time": (True, 0, 2400),
    "arr_delay": (False, -240, 2880),
    "flight": (True, 1, 9999),
    "air_time": (False, 1, 1440),
    "distance": (True, 1, 12000),
    "hour": (True, 0, 23),
    "minute": (True, 0, 59),
}
# name: (required, allowed values)
STRING_FEATURES = {
    "carrier": (
        True,
        frozenset(
            ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"],
        ),
    ),
    "tailnum": (False, None),
    "origin": (True, frozenset(["EWR", "JFK", "LGA"])),
    "dest": (True, None),
    "time_hour": (True, None),
}


def check(row: Any) -> str | None:
    """What is wrong with a row, or None."""
    if not isinstance(row, dict):
        return "not an object"
    for name, (required, low, high) in INT_FEATURES.items():
        value = row.get(name)
        if value is None:
            if required:
                return f"{name} is missing"
        elif type(value) is not int:
            return f"{name} is not an integer"
        elif not low <= value <= high:
            return f"{name} is out of range"
    for name, (required, allowed) in STRING_FEATURES.items():
        value = row.get(name)
        if value is None:
            if required:
                return f"{name} is missing"
        elif type(value) is not str:
            return f"{name} is not a string"
        elif allowed is not None and value not in allowed:
            return f"{name} is not in its domain"
    return None


class ParseAndCheck(beam.DoFn):
    """A line -> its row; a bad line goes to the output ``dead_letters`` with what is wrong."""

    def process(self, line: str) -> Iterator[Any]:
        """Parse and check one line."""
        try:
            row = json.loads(line)
        except ValueError as error:
            yield beam.pvalue.TaggedOutput("dead_letters", json.dumps({"line": line, "error": str(error)}))
            return
        error = check(row)
        if error:
            yield beam.pvalue.TaggedOutput("dead_letters", json.dumps({"line": line, "error": error}))
        else:
            yield row


class ToExample(beam.DoFn):
    """A row -> a serialised tf.train.Example."""

    def process(self, row: dict[str, Any]) -> Iterator[bytes]:
        """Build one Example; a missing feature is left out."""
        feature = {}
        for name in INT_FEATURES:
            value = row.get(name)
            if value is not None:
                feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        for name in STRING_FEATURES:
            value = row.get(name)
            if value is not None:
                feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode("utf-8")]))
        yield tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def build(pipeline: beam.Pipeline, *, source: str, output: str) -> None:
    """Add the whole job to ``pipeline``: JSON lines at ``source``, TFRecord files under ``output``."""
    rows = (
        pipeline
        | "Read" >> beam.io.ReadFromText(source)
        | "ParseAndCheck" >> beam.ParDo(ParseAndCheck()).with_outputs("dead_letters", main="rows")
    )
    _ = rows.dead_letters | "WriteDeadLetters" >> beam.io.WriteToText(f"{output}/dead_letters")
    _ = (
        rows.rows
        | "ToExample" >> beam.ParDo(ToExample())
        | "Write" >> beam.io.WriteToTFRecord(f"{output}/examples", file_name_suffix=".tfrecord")
    )
