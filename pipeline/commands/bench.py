"""``headrace bench``: how fast a trainer can read a run, what an accelerator would wait, and what to do about it."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Sequence

from pipeline.core.advice import Reading, Shape, advise
from pipeline.core.errors import UsageError
from pipeline.core.reading import Source
from pipeline.core.records import Json
from pipeline.features.bench import Limits, measure, measure_waits, naive_dataset
from pipeline.features.parsing import Parser, make_parser
from pipeline.features.reader import make_dataset
from pipeline.features.sources import open_source


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Measure both readers and print rates and advice. Raises UsageError for a run or split that is not there."""
    source = open_source(arguments.run_dir)
    parser = make_parser(source.feature_spec, where=source.where)
    result = measure_all(arguments, source, parser)
    if arguments.json:
        print(json.dumps(result))
    else:
        _print(result)
    return 0


def measure_all(arguments: Namespace, source: Source, parser: Parser) -> Json:
    """Both readings, the wait share where a step is given, the ratio and the advice."""
    shards = [shard for shard in source.shards if shard.split == arguments.split]
    if not shards:
        splits = sorted({shard.split for shard in source.shards})
        raise UsageError(f"{source.where} has no split {arguments.split!r}; it has {', '.join(splits) or 'no shards'}")
    size, rows = sum(shard.size_bytes for shard in shards), sum(shard.rows for shard in shards)
    limits = Limits(seconds=arguments.seconds, batch_size=arguments.batch_size)
    ours = make_dataset(arguments.run_dir, arguments.batch_size, split=arguments.split, drop_remainder=False)
    naive = naive_dataset(
        [shard.uri for shard in shards], parser, batch_size=arguments.batch_size, compression=source.compression
    )
    readings = {
        "headrace": measure(ours, limits, bytes_per_row=size / rows),
        "naive": measure(naive, limits, bytes_per_row=size / rows),
    }
    step = arguments.step_ms / 1000 if arguments.step_ms else None
    shares = {
        "headrace": measure_waits(ours.repeat(), limits, step_seconds=step) if step else None,
        "naive": measure_waits(naive.repeat(), limits, step_seconds=step) if step else None,
    }
    shape = Shape(
        layout=str(source.feature_spec["layout"]["name"]),
        compression=source.compression,
        shards=len(shards),
        shard_bytes=size,
        cores=os.cpu_count() or 1,
        packable=all(described["shape"] is not None for described in source.feature_spec["features"].values()),
    )
    return _result(arguments, shape, readings, shares) | {"run": source.where, "rows": rows}


def _result(arguments: Namespace, shape: Shape, readings: dict[str, Reading], shares: dict[str, float | None]) -> Json:
    ours, naive = readings["headrace"].rows_per_second, readings["naive"].rows_per_second
    return {
        "layout": shape.layout,
        "compression": shape.compression,
        "shards": shape.shards,
        "shard_bytes": shape.shard_bytes,
        "batch_size": arguments.batch_size,
        "step_ms": arguments.step_ms,
        "readers": {
            name: reading.as_json() | ({} if shares[name] is None else {"wait_share": round(shares[name] or 0.0, 4)})
            for name, reading in readings.items()
        },
        "ratio": round(ours / naive, 2) if naive else None,
        "advice": advise(shape, share=shares["headrace"]),
    }


def _print(result: Json) -> None:
    print(f"{result['run']}: {result['rows']:,} rows, layout {result['layout']}, compression {result['compression']}")
    head = f"{'reader':<10}{'rows/s':>12}{'batches/s':>12}{'MB/s':>10}{'first batch':>14}"
    print(head + ("  waits" if result["step_ms"] else ""))
    for name, told in result["readers"].items():
        line = f"{name:<10}{told['rows_per_second']:>12,}{told['batches_per_second']:>12,}"
        line += f"{told['megabytes_per_second']:>10,}{told['first_batch_seconds']:>12.2f} s"
        print(line + (f"{told['wait_share']:>7.1%}" if "wait_share" in told else ""))
    if result["ratio"]:
        print(f"ratio     {result['ratio']:>11}x  (naive: parse_single_example for each record, then batch)")
    for advice in result["advice"]:
        print(f"advice: {advice}")
