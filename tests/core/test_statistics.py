"""Laws of statistics: they agree with numpy, merge exactly in any order, travel as bytes and stay bounded."""

import math
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.core import sketches
from pipeline.core.schema import Kind
from pipeline.core.statistics import BatchStatistics, FeatureStatistics
from pipeline.core.statistics_proto import top_values

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | FLOATS | st.sampled_from([0.0, -0.0, math.nan, math.inf]),
        "s": st.none() | st.binary(max_size=3),
        "li": st.none() | st.lists(st.integers(-5, 5), max_size=3),
        "ls": st.none() | st.lists(st.binary(max_size=1), max_size=3),
    }
)
ROWS = st.lists(ROW, max_size=30)
TYPES = {
    "i": pa.int64(),
    "f": pa.float32(),
    "s": pa.large_binary(),
    "li": pa.large_list(pa.int64()),
    "ls": pa.large_list(pa.large_binary()),
}


def batch_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()}
    )


def flat(rows: list[dict[str, object]], name: str) -> list[object]:
    cells = [row[name] for row in rows if row[name] is not None]
    return [value for cell in cells for value in (cell if isinstance(cell, list) else [cell])]


def feature(statistics: BatchStatistics, name: str) -> FeatureStatistics:
    found = statistics.feature(name)
    assert found is not None
    return found


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_a_batch_agrees_with_plain_python(rows: list[dict[str, object]]) -> None:
    statistics = BatchStatistics.of(batch_of(rows))
    assert statistics.num_examples == len(rows)
    for name in TYPES:
        found, cells, values = feature(statistics, name), [row[name] for row in rows], flat(rows, name)
        present = [cell for cell in cells if cell is not None]
        lengths = [len(cell) if isinstance(cell, list) else 1 for cell in present]
        assert (found.present, found.missing) == (len(present), len(cells) - len(present))
        assert (found.values, found.fewest, found.most) == (
            len(values),
            min(lengths, default=None),
            max(lengths, default=None),
        )
        if found.kind is Kind.BYTES:
            assert found.distinct is not None
            counts = dict(zip(found.distinct.values, found.distinct.counts.tolist(), strict=True))
            assert counts == {value: values.count(value) for value in values}
            assert found.total_bytes == sum(map(len, values))  # type: ignore[arg-type]
        else:
            assert_numbers(found, np.array(values, np.float64))


def assert_numbers(found: FeatureStatistics, values: npt.NDArray[np.float64]) -> None:
    finite, numbers = values[np.isfinite(values)], found.numbers
    assert numbers is not None
    assert (numbers.count, numbers.nans) == (len(finite), np.isnan(values).sum())
    assert numbers.infinities == np.isinf(values).sum()
    assert numbers.zeros == (finite == 0).sum()
    assert sorted(found.sample.values) == sorted(finite)
    if len(finite):
        assert (numbers.low, numbers.high) == (finite.min(), finite.max())
        scale = float(np.abs(finite).max())
        assert numbers.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9 * scale)
        assert numbers.std_dev == pytest.approx(finite.std(), rel=1e-6, abs=1e-6 * scale)


@given(ROWS, st.data())
@settings(max_examples=60, deadline=None)
def test_merging_is_exact_in_any_order_and_shape(rows: list[dict[str, object]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    parts = [BatchStatistics.of(batch_of(rows[a:b])) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    shuffled = data.draw(st.permutations(parts))
    at = data.draw(st.integers(0, len(parts)))
    nested = BatchStatistics.merge_all(shuffled[:at]).merge(BatchStatistics.merge_all(shuffled[at:]))
    merged = BatchStatistics.merge_all(parts)
    assert nested.to_bytes() == merged.to_bytes()
    whole = BatchStatistics.of(batch_of(rows))
    for name in TYPES:
        one, many = feature(whole, name), feature(merged, name)
        assert (one.present, one.missing, one.values, one.fewest, one.most) == (
            many.present,
            many.missing,
            many.values,
            many.fewest,
            many.most,
        )
        assert sorted(one.sample.values) == sorted(many.sample.values)


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_bytes_round_trip(rows: list[dict[str, object]]) -> None:
    statistics = BatchStatistics.of(batch_of(rows))
    read = BatchStatistics.from_bytes(statistics.to_bytes())
    assert read.to_bytes() == statistics.to_bytes()
    assert read.to_proto("x") == statistics.to_proto("x")
    assert read.merge(statistics).to_bytes() == statistics.merge(read).to_bytes()


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_foreign_bytes_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="statistics"):
        BatchStatistics.from_bytes(data)


def test_cut_bytes_are_a_value_error() -> None:
    data = BatchStatistics.of(numbers_batch(np.arange(100))).to_bytes()
    for length in range(0, len(data) - 8, 97):
        with pytest.raises(ValueError, match="statistics"):
            BatchStatistics.from_bytes(data[:length])


def numbers_batch(values: npt.ArrayLike) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": pa.array(np.asarray(values), pa.int64())})


def text_batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"s": pa.array(values, pa.large_binary())})


def test_a_large_mean_does_not_cancel_the_deviation() -> None:
    values = 1_700_000_000_000 + np.arange(10_000)
    parts = [BatchStatistics.of(numbers_batch(part)) for part in np.split(values, 10)]
    numbers = feature(BatchStatistics.merge_all(parts), "x").numbers
    assert numbers is not None
    assert numbers.std_dev == pytest.approx(np.std(np.arange(10_000)), rel=1e-12)


def test_samples_are_bounded_and_their_ranks_close() -> None:
    values = np.arange(200_000)
    parts = [BatchStatistics.of(numbers_batch(part)) for part in np.array_split(values, 7)]
    found = feature(BatchStatistics.merge_all(parts), "x")
    assert len(found.sample.values) == sketches.SAMPLE_SIZE
    assert len(set(found.sample.values)) == sketches.SAMPLE_SIZE
    for rank in (0.01, 0.1, 0.5, 0.9, 0.99):
        deviation = 5 * math.sqrt(rank * (1 - rank) / sketches.SAMPLE_SIZE)
        assert np.mean(found.sample.values < rank * len(values)) == pytest.approx(rank, abs=deviation)


def test_equal_batches_do_not_break_the_order() -> None:
    one = BatchStatistics.of(numbers_batch([3, 1, 2] * 2000))
    other = BatchStatistics.of(numbers_batch([2, 1, 3] * 2000))  # the same sums, so the same seed
    assert one.merge(other).to_bytes() == other.merge(one).to_bytes()
    assert one.merge(one).merge(other).to_bytes() == other.merge(one.merge(one)).to_bytes()


def test_many_distinct_values_are_bounded_and_estimated() -> None:
    number = 60_000
    values = [b"user-%d" % index for index in range(number)] + [b"common"] * 20_000
    parts = [BatchStatistics.of(text_batch(values[start::4])) for start in range(4)]
    merged = BatchStatistics.merge_all(parts)
    assert merged.to_bytes() == BatchStatistics.merge_all(parts[::-1]).to_bytes()
    found = feature(merged, "s")
    assert found.distinct is not None
    assert len(found.distinct.values) == sketches.MAX_DISTINCT
    assert found.distinct.number == pytest.approx(number, rel=0.05)
    kept = dict(zip(found.distinct.values, found.distinct.counts.tolist(), strict=True))
    assert all(kept[value] == 1 for value in kept if value != b"common")
    ((value, count),) = top_values(found, 1)
    assert value == b"common"
    assert count == pytest.approx(20_000, rel=0.15)


def test_evicted_values_keep_exact_counts_across_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "MAX_DISTINCT", 50)
    values = [b"%d" % (index * index % 397) for index in range(3000)]
    parts = [BatchStatistics.of(text_batch(values[start : start + 250])) for start in range(0, 3000, 250)]
    found = feature(BatchStatistics.merge_all(parts), "s").distinct
    assert found is not None
    assert not found.complete
    assert {value: values.count(value) for value in found.values} == dict(
        zip(found.values, found.counts.tolist(), strict=True)
    )


def test_long_values_are_kept_as_stand_ins() -> None:
    values = ["é".encode() * 300, "é".encode() * 301, b"\xff" * 5000]
    statistics = BatchStatistics.of(text_batch(values))
    found = feature(statistics, "s")
    assert found.distinct is not None
    assert found.distinct.number == 3
    assert max(map(len, found.distinct.values)) <= sketches.MAX_TOKEN_BYTES
    assert found.total_bytes == sum(map(len, values))
    assert len(statistics.to_bytes()) < 10_000


def test_other_features_do_not_merge() -> None:
    with pytest.raises(ValueError, match="do not merge"):
        BatchStatistics.of(numbers_batch([1])).merge(BatchStatistics.of(text_batch([b"x"])))


def test_the_state_is_the_same_in_every_process() -> None:
    code = (
        "import hashlib, numpy as np, pyarrow as pa\n"
        "from pipeline.core.statistics import BatchStatistics as B\n"
        "x = pa.array(np.arange(20000) % 7919)\n"
        "b = pa.RecordBatch.from_pydict({'x': x, 's': x.cast(pa.string()).cast(pa.large_binary())})\n"
        "print(hashlib.sha256(B.of(b).to_bytes()).hexdigest())"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1


def dataset(batch: pa.RecordBatch) -> statistics_pb2.DatasetFeatureStatistics:
    (found,) = BatchStatistics.of(batch).to_proto("train").datasets
    return found


def test_the_proto_says_what_tfdv_says() -> None:
    rows = [{"i": n, "f": n / 2, "s": b"ab" if n % 4 else b"c", "li": [n, 0], "ls": None} for n in range(1, 101)]
    found = dataset(batch_of(rows))
    assert (found.name, found.num_examples) == ("train", 100)
    by_name = {f.path.step[0]: f for f in found.features}
    assert list(by_name) == list(TYPES)
    i = by_name["i"].num_stats
    assert (i.mean, i.min, i.max, i.median, i.num_zeros) == (50.5, 1, 100, 50.5, 0)
    assert i.std_dev == pytest.approx(np.std(np.arange(1, 101)))
    standard, quantiles = i.histograms
    assert [b.sample_count for b in standard.buckets] == [10] * 10
    assert [b.high_value for b in quantiles.buckets] == [10 * k for k in range(1, 11)]
    text = by_name["s"].string_stats
    assert [(v.value, v.frequency) for v in text.top_values] == [("ab", 75), ("c", 25)]
    assert (text.unique, text.avg_length) == (2, 1.75)
    lists = by_name["li"].num_stats.common_stats
    assert (lists.min_num_values, lists.max_num_values, lists.tot_num_values) == (2, 2, 200)
    nothing = by_name["ls"].string_stats.common_stats
    assert (nothing.num_non_missing, nothing.num_missing) == (0, 100)


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_histograms_hold_every_finite_value(rows: list[dict[str, object]]) -> None:
    for found in dataset(batch_of(rows)).features:
        for histogram in found.num_stats.histograms:
            finite = found.num_stats.common_stats.tot_num_values - histogram.num_nan - histogram.num_undefined
            assert sum(b.sample_count for b in histogram.buckets) == pytest.approx(finite)
            assert all(b.low_value <= b.high_value for b in histogram.buckets)
        text_histogram = found.string_stats.rank_histogram
        assert sum(b.sample_count for b in text_histogram.buckets) == found.string_stats.common_stats.tot_num_values


def test_values_that_are_not_utf8_have_one_name() -> None:
    (found,) = dataset(text_batch([b"\xff", b"\xff"])).features
    assert found.string_stats.top_values[0].value == "__BYTES_VALUE__"
