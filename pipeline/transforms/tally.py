"""Counters of a streaming job: Beam's metrics, and beside them totals of this process for a local run.

Beam's local streaming runner keeps the numbers of a step's first bundle only (apache-beam 2.77.0: its state sampler
hands out the metrics container of the first call again), so that a local run cannot be told by metrics.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from apache_beam.metrics import Metrics

from pipeline.transforms import names

_TOTALS: Counter[str] = Counter()
_LOCK = threading.Lock()


class Tally:
    """Counts of one DoFn instance. Those of a bundle reach the totals once the bundle is done: retries count once."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metrics.DelegatingCounter] = {}
        self._bundle: Counter[str] = Counter()

    def begin(self) -> None:
        """A bundle begins: forget what one that failed had counted."""
        self._bundle.clear()

    def add(self, name: str, count: int = 1) -> None:
        """Count ``count`` more of ``name``."""
        if name not in self._metrics:
            self._metrics[name] = Metrics.counter(names.NAMESPACE, name)
        self._metrics[name].inc(count)
        self._bundle[name] += count

    def done(self) -> None:
        """The bundle is done."""
        with _LOCK:
            _TOTALS.update(self._bundle)
        self._bundle.clear()


def totals() -> Mapping[str, int]:
    """All counts of this process since ``forget_totals``."""
    with _LOCK:
        return dict(_TOTALS)


def forget_totals() -> None:
    """Begin at nothing."""
    with _LOCK:
        _TOTALS.clear()
