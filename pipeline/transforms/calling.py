"""The DoFn whose work is done in worker processes, where a run has some: what it gives may come an element later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from pipeline.transforms.processes import Calls


class CallingDoFn(beam.DoFn):  # type: ignore[misc]
    """Begins a call for each element, and gives out what calls bring in the order of the elements, by bundle's end."""

    def start_bundle(self) -> None:
        """Forget the calls of a bundle that failed: its elements come again."""
        self._calls: Calls[Any] = Calls()

    def call(self, work: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Begin ``work(*arguments)`` (see ``Calls``); the outputs of calls whose results are due."""
        for result in self._calls.add(work, *arguments):
            yield from self.outputs(result)

    def finish_bundle(self) -> Iterator[Any]:
        """The outputs of all calls that are left."""
        for result in self._calls.rest():
            for output in self.outputs(result):
                yield _windowed(output)

    def outputs(self, result: Any) -> Iterator[Any]:
        """The outputs for the result of one call."""
        yield result


def _windowed(output: Any) -> Any:
    """As the end of a bundle wants it: batch elements lie in the global window."""
    if isinstance(output, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
    return GlobalWindows.windowed_value(output)
