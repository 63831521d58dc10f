"""The snapshot of a graph: every fact that an update depends on, the same in every process."""

from __future__ import annotations

import base64
import json
import os
import pickle
import pickletools
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, StrUtf8Coder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, TimerSpec, on_timer
from fakes.cli import ROOT
from google.protobuf.wrappers_pb2 import BytesValue

from pipeline.ops.graph import _named_payload, snapshot


class Buffer(beam.DoFn):
    """A stateful step."""

    BAG = BagStateSpec("bag", BytesCoder())
    COUNT = CombiningValueStateSpec("count", sum)
    CLOSE = TimerSpec("close", TimeDomain.WATERMARK)
    WAIT = TimerSpec("wait", TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[str, int],
        bag=beam.DoFn.StateParam(BAG),
        count=beam.DoFn.StateParam(COUNT),
        close=beam.DoFn.TimerParam(CLOSE),
        wait=beam.DoFn.TimerParam(WAIT),
    ) -> Iterator[tuple[str, int]]:
        yield element

    @on_timer(CLOSE)
    def close(self) -> Iterator[tuple[str, int]]:
        yield "", 0

    @on_timer(WAIT)
    def wait(self) -> Iterator[tuple[str, int]]:
        yield "", 0


class Name(beam.DoFn):
    """A step with a side input."""

    def process(self, element: int, side: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield str(element), element


def build(*, window_seconds: int = 10, middle: str = "Buffer") -> beam.Pipeline:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    side = pipeline | "Side" >> beam.Create([1])
    (
        pipeline
        | "Read" >> beam.Impulse()
        | "Parse" >> beam.Map(len)
        | "Name" >> beam.ParDo(Name(), beam.pvalue.AsList(side)).with_output_types(tuple[str, int])
        | middle >> beam.ParDo(Buffer()).with_output_types(tuple[str, int])
        | "Window" >> beam.WindowInto(beam.window.FixedWindows(window_seconds))
        | "Group" >> beam.GroupByKey()
    )
    return pipeline


def taken(**changes) -> dict:
    return snapshot(build(**changes).to_runner_api())


@pytest.fixture(scope="module")
def steps():
    return {step["name"]: step for step in taken()["steps"]}


def test_steps_are_sorted_leaves_with_their_kind_and_order(steps):
    assert list(steps) == sorted(steps)
    assert {"Read", "Parse", "Name", "Buffer", "Window", "Group"} <= set(steps)
    assert "Side" not in steps
    assert "Side/Impulse" in steps
    assert steps["Group"]["urn"] == "beam:transform:group_by_key:v1"
    assert steps["Group"]["after"] == ["Window"]
    assert steps["Buffer"]["after"] == ["Name"]


def test_coders_are_readable(steps):
    assert steps["Buffer"]["inputs"] == {"None": "kv(string_utf8, varint)"}
    assert steps["Group"]["outputs"] == {"None": "kv(string_utf8, iterable(varint))"}
    assert steps["Name"]["inputs"] == {"None": "varint"}
    assert steps["Read"]["outputs"] == {"None": "bytes"}
    assert steps["Name"]["side_inputs"]["python_side_input0"].startswith("iterable of ")


def test_state_timers_and_what_holds_data_between_bundles(steps):
    assert steps["Buffer"]["states"]["bag"] == "bag(bytes)"
    assert steps["Buffer"]["states"]["count"].startswith("combining(FastPrimitivesCoder#")
    assert steps["Buffer"]["timers"] == {"close": "event_time", "wait": "processing_time"}
    assert {name for name, step in steps.items() if step["stateful"]} == {"Buffer", "Group"}
    assert {name for name, step in steps.items() if step["source"]} == {"Read", "Side/Impulse"}


def test_windowing_shows_in_the_steps_behind_it(steps):
    assert steps["Buffer"]["windowing"].startswith("global_windows, trigger default")
    assert steps["Group"]["windowing"].startswith("fixed_windows#")
    other = {step["name"]: step["windowing"] for step in taken(window_seconds=60)["steps"]}
    assert other["Group"] != steps["Group"]["windowing"]
    assert other["Buffer"] == steps["Buffer"]["windowing"]


def test_a_rename_changes_the_name_and_what_follows_only(steps):
    other = {step["name"]: step for step in taken(middle="Store")["steps"]}
    assert set(other) - set(steps) == {"Store"}
    assert {**other["Store"], "name": "Buffer"} == steps["Buffer"]


def test_the_sdk_is_named():
    assert taken()["sdk"] == beam.__version__


def test_a_state_coder_shows():
    class Other(Buffer):
        BAG = BagStateSpec("bag", StrUtf8Coder())

        def process(self, element: int, bag=beam.DoFn.StateParam(BAG)) -> Iterator[int]:
            yield element

        close = wait = None

    pipeline = beam.Pipeline(runner="FnApiRunner")
    made = pipeline | "C" >> beam.Create([("a", 1)])
    made | "Other" >> beam.ParDo(Other())
    found = {step["name"]: step for step in snapshot(pipeline.to_runner_api())["steps"]}
    assert found["Other"]["states"] == {"bag": "bag(string_utf8)"}


def test_it_is_the_same_in_every_process():
    code = f"""
import json, sys
sys.path.insert(0, {str(ROOT / "tests" / "ops")!r}); sys.path.insert(0, {str(ROOT / "tests")!r})
import test_graph
print(json.dumps(test_graph.taken(), sort_keys=True))
"""
    said = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        said.append(json.loads(done.stdout))
    assert said[0] == said[1]


def packed(pickled: bytes, level: int) -> bytes:
    """A Python coder's payload, as Beam packs it."""
    return BytesValue(value=b"MyCoder$" + base64.b64encode(zlib.compress(pickled, level))).SerializeToString()


def test_a_python_coder_is_known_by_what_its_pickle_says_not_by_how_it_is_packed():
    one = pickle.dumps({"a": (1, 2), "b": [3]})
    names = {
        _named_payload("x", packed(pickled, level))
        for pickled in (one, pickletools.optimize(one), pickle.dumps({"a": (1, 2), "b": [3]}, protocol=4))
        for level in (1, 9)
    }
    assert len(names) == 1
    assert names != {_named_payload("x", packed(pickle.dumps({"a": (1, 3), "b": [3]}), 1))}
    assert names.pop()[0] == "MyCoder"


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\n\x05A$zzz", b"\n\x02A$", b"\n\x06A$eA=="])
def test_a_payload_that_is_no_pickle_is_known_by_its_bytes(payload):
    kind, digest = _named_payload("row", payload)
    assert len(digest) == 8
    assert kind == "row"
