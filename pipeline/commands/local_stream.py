"""A stream on this machine: Beam's local streaming runner, with a source that can be told to end.

Beam's own source never ends, so that stopping the runner drops every window that is open; it takes ten messages at a
time, and its watermark stands still while no message comes. Ours differs in those three. It still acknowledges
messages before they are worked on, so that a crash (not a stop) loses what was held: this runner is for trying things.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from functools import partial
from typing import Any

from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner, _DirectReadFromPubSub
from apache_beam.runners.direct.transform_evaluator import (
    TransformEvaluatorRegistry,
    _PubSubReadEvaluator,
    _PubSubSubscriberClient,
)
from apache_beam.runners.direct.util import TransformResult
from apache_beam.utils.timestamp import Timestamp
from google.api_core.exceptions import DeadlineExceeded

from pipeline.core.windows import END_EVENT_US, FIRST_EVENT_US
from pipeline.transforms.subscriber import make_subscriber

NAME = "BundleBasedDirectRunner"
_MOST_MESSAGES = 1000
_PULL_SECONDS = 2.0
_LAG_SECONDS = 2.0  # messages published in the last moments may not have been given out yet


class LocalStreamRunner(BundleBasedDirectRunner):  # type: ignore[misc]
    """Runs until ``stop`` is set, then works on what it has, lets time run out, and is done."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def run_pipeline(self, pipeline: Any, options: Any) -> Any:
        """Start the pipeline in threads of its own."""
        evaluators = TransformEvaluatorRegistry._test_evaluators_overrides  # read when a run starts
        evaluators[_DirectReadFromPubSub] = partial(_StoppableRead, stop=self._stop)
        try:
            return super().run_pipeline(pipeline, options)
        finally:
            del evaluators[_DirectReadFromPubSub]


class _StoppableRead(_PubSubReadEvaluator):  # type: ignore[misc]
    """Pulls until it is told to stop; then the source is at its end, and the watermark at the end of time."""

    def __init__(self, *arguments: Any, stop: threading.Event) -> None:
        super().__init__(*arguments)
        self._stop = stop

    @classmethod
    def _get_subscriber_client_state_unlocked(cls, transform: Any) -> Any:
        """As Beam's, with a client that takes large responses."""
        state = cls._subscriber_client_cache.get(transform)
        if state is None:
            state = cls._subscriber_client_cache[transform] = _PubSubSubscriberClient(make_subscriber())
            weakref.finalize(transform, state.close)
        return state

    def finish_bundle(self) -> TransformResult:
        """One pull."""
        if self._stop.is_set():
            return TransformResult(self, [], [], None, {None: None})
        found = self._read_from_pubsub(self.source.timestamp_attribute)
        output = self._evaluation_context.create_bundle(next(iter(self._outputs)))
        for timestamp, message in found:
            output.output(_in_global_window(message, timestamp))
        again = self._evaluation_context.create_bundle(_input_of(self._applied_ptransform))
        return TransformResult(self, [output] if found else [], [again], None, {None: _watermark(found)})

    def _read_from_pubsub(self, timestamp_attribute: str | None) -> list[tuple[Timestamp, PubsubMessage]]:
        client = self._get_subscriber_client(self._applied_ptransform)
        received: Any = ()
        with contextlib.suppress(DeadlineExceeded):  # nothing there
            pulled = client.pull(subscription=self._sub_name, max_messages=_MOST_MESSAGES, timeout=_PULL_SECONDS)
            received = pulled.received_messages
        found = [_element(one.message, timestamp_attribute) for one in received]
        if received:
            client.acknowledge(subscription=self._sub_name, ack_ids=[one.ack_id for one in received])
        return found


def _element(message: Any, timestamp_attribute: str | None) -> tuple[Timestamp, PubsubMessage]:
    """A message and its time: what the attribute says, or its publishing where that is missing or is no time."""
    element = PubsubMessage._from_message(message)
    text = element.attributes.get(timestamp_attribute, "") if timestamp_attribute else ""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        number = text.isascii() and text.isdigit()
        timestamp = Timestamp(micros=int(text[:20]) * 1000) if number else Timestamp.from_rfc3339(text)
        if FIRST_EVENT_US <= timestamp.micros < END_EVENT_US:
            return timestamp, element
    return Timestamp.from_utc_datetime(message.publish_time), element


def _watermark(found: list[tuple[Timestamp, PubsubMessage]]) -> Timestamp:
    """The time of the oldest message of a pull, since a backlog comes about in order; a little ago where it is "
    "empty."""
    lately = Timestamp.of(time.time() - _LAG_SECONDS)
    return min([lately, *(timestamp for timestamp, _ in found)])


def _in_global_window(message: PubsubMessage, timestamp: Timestamp) -> Any:
    from apache_beam.transforms.window import GlobalWindows

    return GlobalWindows.windowed_value(message, timestamp=timestamp)


def _input_of(applied: Any) -> Any:
    from apache_beam.pvalue import PBegin

    return applied.inputs[0] if applied.inputs else PBegin(applied.transform.pipeline)
