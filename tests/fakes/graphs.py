"""Graphs as plain values, for tests of what is said about them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def step(name: str, *, kind: str = "pardo", **facts: Any) -> Json:
    """A step that does nothing special."""
    made: Json = {
        "name": name,
        "urn": f"beam:transform:{kind}:v1",
        "after": [],
        "inputs": {"None": "bytes"},
        "outputs": {"None": "bytes"},
        "side_inputs": {},
        "windowing": "global_windows, trigger default { }, discarding, lateness 0 ms",
        "states": {},
        "timers": {},
        "stateful": False,
        "source": False,
    }
    return {**made, **facts}


def stateful(name: str, **facts: Any) -> Json:
    """A step with a bag and a timer."""
    return step(name, **{"states": {"bag": "bag(bytes)"}, "timers": {"close": "event_time"}, "stateful": True, **facts})


def source(name: str) -> Json:
    """A step without an input."""
    return step(name, kind="pubsub_read", inputs={}, source=True)


def graph(*steps: Json, sdk: str = "2.77.0") -> Json:
    """A snapshot."""
    return {"format": 1, "sdk": sdk, "steps": sorted(steps, key=lambda one: str(one["name"]))}


def streaming() -> list[Json]:
    """A small streaming graph."""
    return [
        source("ReadMessages/Read"),
        step("ReadMessages/Decode"),
        step("KeyMessages"),
        stateful("ProcessMessages"),
        stateful("WriteShards/Store", states={"chunks": "bag(bytes)"}),
        step("WriteShards/Name"),
        step("Report"),
    ]
