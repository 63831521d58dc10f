"""Calls of a graph without the Python that TensorFlow puts before and behind each: half the time of a small batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class GraphCall:
    """A concrete function called through the op that runs it. Shared by threads; raises what the graph raises.

    No gradient is recorded, and arguments are not checked: they must be those of the signature, in its order.
    """

    def __init__(self, function: Any) -> None:
        self._function = function  # owns the graph and, with it, the tables
        self._captured = list(function.captured_inputs)
        self._dtypes = [tensor.dtype for tensor in function.outputs]
        self._structure = function.structured_outputs
        places = list(range(len(self._dtypes)))
        plain = len(tf.nest.flatten(self._structure)) == len(places)
        self._places = tf.nest.pack_sequence_as(self._structure, places) if plain else None

    def __call__(self, tensors: list[Any]) -> Any:
        """The outputs, in the structure that the function gives them."""
        arguments = tf.nest.flatten(tensors, expand_composites=True) + self._captured
        outputs = tf.raw_ops.StatefulPartitionedCall(args=arguments, Tout=self._dtypes, f=self._function)
        if self._places is None:
            return tf.nest.pack_sequence_as(self._structure, outputs, expand_composites=True)
        return _filled(self._places, outputs)


def _filled(places: Any, values: list[Any]) -> Any:
    """``places``, dicts and lists of numbers, with a value for each number; ``tf.nest`` takes ten times as long."""
    if isinstance(places, int):
        return values[places]
    if isinstance(places, dict):
        return {name: _filled(place, values) for name, place in places.items()}
    return [_filled(place, values) for place in places]
