"""A pipeline's graph as plain JSON: what an in-place update of a running job depends on, and nothing else.

A coder is one readable string, ``kv(bytes, FastPrimitivesCoder#5d41402a)``: its kind, its parts, and a digest of what
else it carries. Two runs of the same code give the same snapshot, byte for byte, in any process.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import hashlib
import pickletools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2 as beam_pb2
from apache_beam.version import __version__ as beam_version
from google.protobuf import text_format, wrappers_pb2
from google.protobuf.message import DecodeError

from pipeline.core.records import Json
from pipeline.ops.launch_record import GRAPH_FORMAT

_PARDO = "beam:transform:pardo:v1"
_GROUPS = (
    "beam:transform:group_by_key:v1",
    "beam:transform:combine_per_key:v1",
    "beam:transform:combine_globally:v1",
)
_SOURCES = (
    "beam:transform:impulse:v1",
    "beam:transform:read:v1",
    "beam:transform:pubsub_read:v1",
    "beam:transform:periodic_impulse:v1",
)
_BOOKKEEPING = ("FRAME", "PROTO", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT")  # of a pickle; they carry no meaning


def snapshot(pipeline_proto: Any) -> Json:
    """The steps of a ``beam_runner_api_pb2.Pipeline`` (``pipeline.to_runner_api()``), sorted by full name.

    Each step: ``name``, ``urn``, ``inputs`` and ``outputs`` (coders, by tag), ``after`` (the steps it reads from),
    ``side_inputs`` (access pattern and coder, by tag), ``windowing`` of its output, ``states`` and ``timers`` by id,
    ``stateful`` (holds data between bundles: state, timers or a grouping), ``source`` (has no input).
    """
    graph = _Graph(pipeline_proto.components)
    return {
        "format": GRAPH_FORMAT,
        "sdk": _sdk_version(pipeline_proto.components.environments.values()),
        "steps": sorted(graph.steps(), key=_by_name),
    }


def _by_name(step: Json) -> str:
    return str(step["name"])


class _Graph:
    def __init__(self, components: Any) -> None:
        self._all = components
        self._maker = {
            output: step.unique_name
            for step in components.transforms.values()
            if _is_leaf(step)
            for output in step.outputs.values()
        }

    def steps(self) -> Iterator[Json]:
        for step in self._all.transforms.values():
            if _is_leaf(step) and step.spec.urn:
                yield self._step(step)

    def _step(self, step: Any) -> Json:
        payload = beam_pb2.ParDoPayload()
        if step.spec.urn == _PARDO:
            payload.MergeFromString(step.spec.payload)
        main = {tag: name for tag, name in step.inputs.items() if tag not in payload.side_inputs}
        states = {name: self._state(spec) for name, spec in payload.state_specs.items()}
        timers = {name.removeprefix("ts-"): _domain(spec) for name, spec in payload.timer_family_specs.items()}
        return {
            "name": step.unique_name,
            "urn": step.spec.urn,
            "after": sorted({self._maker[name] for name in main.values() if name in self._maker}),
            "inputs": {tag: self._element(name) for tag, name in main.items()},
            "outputs": {tag: self._element(name) for tag, name in step.outputs.items()},
            "side_inputs": {
                tag: f"{_short(spec.access_pattern.urn)} of {self._element(step.inputs[tag])}"
                for tag, spec in payload.side_inputs.items()
            },
            "windowing": self._windowing(step),
            "states": states,
            "timers": timers,
            "stateful": bool(states or timers) or step.spec.urn in _GROUPS,
            "source": not main or step.spec.urn in _SOURCES,
        }

    def _element(self, name: str) -> str:
        return self.coder(self._all.pcollections[name].coder_id)

    def coder(self, name: str) -> str:
        """The coder called ``name`` as text."""
        coder = self._all.coders[name]
        kind, digest = _short(coder.spec.urn), ""
        if coder.spec.payload:
            kind, digest = _named_payload(kind, coder.spec.payload)
        parts = ", ".join(self.coder(part) for part in coder.component_coder_ids)
        return kind + (f"({parts})" if parts else "") + (f"#{digest}" if digest else "")

    def _state(self, spec: Any) -> str:
        kind = spec.WhichOneof("spec") or "unknown"
        inner = getattr(spec, kind, None)
        coders = [
            self.coder(getattr(inner, field))
            for field in ("key_coder_id", "element_coder_id", "value_coder_id", "accumulator_coder_id", "coder_id")
            if getattr(inner, field, "")
        ]
        return f"{kind.removesuffix('_spec')}({', '.join(coders)})"

    def _windowing(self, step: Any) -> str:
        found = {
            self._strategy(self._all.pcollections[output].windowing_strategy_id) for output in step.outputs.values()
        }
        return "; ".join(sorted(found))

    def _strategy(self, name: str) -> str:
        strategy = self._all.windowing_strategies[name]
        function = _short(strategy.window_fn.urn)
        if strategy.window_fn.payload:
            function += f"#{_digest(strategy.window_fn.payload)}"
        trigger = text_format.MessageToString(strategy.trigger, as_one_line=True)
        accumulation = beam_pb2.AccumulationMode.Enum.Name(strategy.accumulation_mode).lower()
        return f"{function}, trigger {trigger}, {accumulation}, lateness {strategy.allowed_lateness} ms"


def _is_leaf(step: Any) -> bool:
    """Whether a transform does something itself; one that hands its input on unchanged does not."""
    passes_on = step.inputs and set(step.outputs.values()) <= set(step.inputs.values())
    return not step.subtransforms and not (passes_on and step.outputs)


def _domain(spec: Any) -> str:
    return str(beam_pb2.TimeDomain.Enum.Name(spec.time_domain)).lower()


def _short(urn: str) -> str:
    """``kv`` for ``beam:coder:kv:v1``."""
    parts = urn.split(":")
    return parts[-2] if len(parts) >= 3 and parts[0] == "beam" else urn


def _named_payload(kind: str, payload: bytes) -> tuple[str, str]:
    """The name of a Python coder and a digest of its pickle; or ``kind`` and a digest of the payload."""
    try:
        name, dollar, pickled = wrappers_pb2.BytesValue.FromString(payload).value.partition(b"$")
        if dollar:
            return name.decode("ascii"), _digest_of_pickle(_decompressed(pickled))
    except (DecodeError, UnicodeDecodeError, ValueError, zlib.error, OSError):
        pass
    return kind, _digest(payload)


def _decompressed(pickled: bytes) -> bytes:
    """What Beam packed: base64 of zlib or bz2. The packed bytes differ between builds of zlib, what is in them not."""
    try:
        data = base64.b64decode(pickled, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    return bz2.decompress(data) if data[:2] == b"BZ" else zlib.decompress(data)


def _digest_of_pickle(pickled: bytes) -> str:
    """A digest of what a pickle says, which is read and never executed."""
    said = [f"{code.name} {argument!r}" for code, argument, _ in pickletools.genops(pickled)]
    return _digest("\n".join(_meaningful(said)).encode())


def _meaningful(operations: Iterable[str]) -> Iterator[str]:
    return (line for line in operations if line.split(" ", 1)[0] not in _BOOKKEEPING)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


def _sdk_version(environments: Iterable[Any]) -> str:
    """The Beam version that the environments name, e.g. ``2.77.0``; the one at work here where they name none."""
    for environment in environments:
        for capability in environment.capabilities:
            if capability.startswith("beam:version:sdk_base:"):
                return str(capability.rsplit(":", 1)[1])
    return str(beam_version)
