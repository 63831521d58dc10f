"""Statistics as the proto of TFDV (``statistics_pb2``), so that TFDV and Facets can show and compare them.

NaN is left out of mean, deviation and range and counted in ``num_nan``; infinities likewise, in
``num_undefined``. Lengths of strings are in bytes. Values that are not UTF-8 are all called
``__BYTES_VALUE__``, as TFDV does.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.core.schema import Kind
from pipeline.core.sketches import SAMPLE_SIZE
from pipeline.core.statistics import BatchStatistics, FeatureStatistics, Numbers

TOP_VALUES = 20
RANKED_VALUES = 1000
BUCKETS = 10
NOT_UTF8 = "__BYTES_VALUE__"
_TYPES = {
    Kind.INT: statistics_pb2.FeatureNameStatistics.INT,
    Kind.FLOAT: statistics_pb2.FeatureNameStatistics.FLOAT,
    Kind.BYTES: statistics_pb2.FeatureNameStatistics.STRING,
}


def proto_of(
    statistics: BatchStatistics, dataset_name: str, *, redact: Container[str] = ()
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """``statistics`` as one data set of that name, features in the order of the batches.

    Of the features in ``redact`` only counts are told: extremes, quantiles and frequent values are values.
    """
    result = statistics_pb2.DatasetFeatureStatisticsList()
    dataset = result.datasets.add(name=dataset_name, num_examples=statistics.num_examples)
    for feature in statistics.features:
        _fill(dataset.features.add(), feature, redacted=feature.name in redact)
    return result


def top_values(feature: FeatureStatistics, limit: int) -> list[tuple[bytes, int]]:
    """The most frequent values of a BYTES feature with their counts, most frequent first.

    Exact while all distinct values are counted; after that estimated from the uniform sample.
    """
    if feature.distinct is None:
        return []
    if feature.distinct.complete:
        return feature.distinct.most_common(limit)
    counts: dict[bytes, int] = {}
    for value in feature.sample.values.tolist():
        counts[value] = counts.get(value, 0) + 1
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
    scale = feature.values / len(feature.sample.values)
    return [(value, round(count * scale)) for value, count in ranked]


def _fill(out: Any, feature: FeatureStatistics, *, redacted: bool) -> None:
    out.path.step.append(feature.name)
    out.type = _TYPES[feature.kind]
    if feature.numbers is not None:
        if not redacted:
            _fill_numbers(out.num_stats, feature, feature.numbers)
        common = out.num_stats.common_stats
    else:
        if not redacted:
            _fill_strings(out.string_stats, feature)
        common = out.string_stats.common_stats
    common.num_non_missing = feature.present
    common.num_missing = feature.missing
    common.tot_num_values = feature.values
    if feature.present:
        common.min_num_values = feature.fewest
        common.max_num_values = feature.most
        common.avg_num_values = feature.values / feature.present


def _fill_numbers(out: Any, feature: FeatureStatistics, numbers: Numbers) -> None:
    out.mean, out.std_dev, out.num_zeros = numbers.mean, numbers.std_dev, numbers.zeros
    if numbers.low is None or numbers.high is None:
        return
    values = np.sort(feature.sample.values)
    out.min, out.max = numbers.low, numbers.high
    out.median = _median(values)
    width = np.linspace(numbers.low, numbers.high, BUCKETS + 1)
    counts = np.histogram(values, width)[0] if numbers.low < numbers.high else np.array([len(values)])
    edges = width if numbers.low < numbers.high else np.array([numbers.low, numbers.high])
    scale = numbers.count / len(values)
    _fill_histogram(out.histograms.add(), numbers, edges, counts * scale)
    ranks = [-(-len(values) * step // BUCKETS) - 1 for step in range(1, BUCKETS)]
    quantiles = np.array([numbers.low, *values[ranks], numbers.high])
    by_rank = out.histograms.add(type=statistics_pb2.Histogram.QUANTILES)
    _fill_histogram(by_rank, numbers, quantiles, np.full(BUCKETS, numbers.count / BUCKETS))


def _median(values: npt.NDArray[np.float64]) -> float:
    """The median of sorted values, exact up to ``SAMPLE_SIZE`` of them."""
    if len(values) == SAMPLE_SIZE:
        return float(values[SAMPLE_SIZE // 2])
    return float(np.median(values))


def _fill_histogram(out: Any, numbers: Numbers, edges: npt.NDArray[np.float64], counts: npt.NDArray[Any]) -> None:
    out.num_nan, out.num_undefined = numbers.nans, numbers.infinities
    for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
        out.buckets.add(low_value=low, high_value=high, sample_count=count)


def _fill_strings(out: Any, feature: FeatureStatistics) -> None:
    if feature.distinct is None or not feature.values:
        return
    out.unique = feature.distinct.number
    out.avg_length = feature.total_bytes / feature.values
    ranked = top_values(feature, RANKED_VALUES)
    for value, count in ranked[:TOP_VALUES]:
        out.top_values.add(value=_text(value), frequency=count)
    for rank, (value, count) in enumerate(ranked):
        out.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=_text(value), sample_count=count)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
