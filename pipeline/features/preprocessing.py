"""From a feature spec (or a file of the user's) to the preprocessing_fn that TensorFlow Transform traces."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.abc import SourceLoader
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from pipeline.core.errors import UsageError
from pipeline.core.schema import Kind, Schema
from pipeline.features import ops, times
from pipeline.features.op import Op, Value
from pipeline.features.spec import FeatureSpec, Output, value_of

Tensors = dict[str, Any]
"""Names to Tensor, SparseTensor or RaggedTensor; the first dimension is rows."""

_TF_TYPES = {"int": tf.int64, "float": tf.float32, "string": tf.string}


@dataclass(frozen=True)
class SpecPreprocessing:
    """The preprocessing_fn of a spec. Pickles as plain values; ``shapes`` and ``kinds`` are of the source features."""

    spec: FeatureSpec
    shapes: tuple[tuple[str, tuple[int, ...] | None], ...]
    kinds: tuple[tuple[str, Kind], ...]

    @property
    def fingerprint(self) -> str:
        """Identity of the transform: the spec's fingerprint."""
        return self.spec.fingerprint

    def __call__(self, inputs: Tensors) -> Tensors:
        """The outputs of all chains. Dense of known shape, but for lists of varying length and unfilled gaps."""
        result: Tensors = {}
        shapes, kinds = dict(self.shapes), dict(self.kinds)
        for output in self.spec.outputs:
            tensor = inputs[output.source]
            if output.indicator:
                result[output.indicator] = _indicator(tensor)
            result.update(_chain(output, tensor, shapes[output.source], kinds[output.source]))
        return result


@dataclass(frozen=True)
class ModulePreprocessing:
    """A user's preprocessing_fn. Carries the source text, so that workers need not have the file."""

    path: str
    source: str

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the source text."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    def __call__(self, inputs: Tensors) -> Tensors:
        """What the user's function makes of ``inputs``. Raises UsageError where it fails while it is traced."""
        function = self.function()
        try:
            outputs = function(inputs)
        except (Exception, SystemExit) as error:  # as below: the user's code may raise anything, and even leave
            kinds = ", ".join(f"{name}: {type(value).__name__}" for name, value in sorted(inputs.items()))
            raise UsageError(
                f"preprocessing_fn of {self.path} fails on the inputs of this schema ({kinds}): {error!r}. As in TFX, "
                "a feature is a dense Tensor only where the schema gives it a shape"
            ) from error
        _check_outputs(outputs, self.path)
        return dict(outputs)

    def function(self) -> Callable[[Tensors], Tensors]:
        """Execute the module and find its function. Raises UsageError where there is none."""
        loader = _TextLoader(self.path, self.source)
        module_spec = importlib.util.spec_from_loader("headrace_preprocessing_module", loader, origin=self.path)
        assert module_spec is not None  # it is None only for a loader without exec_module
        module = importlib.util.module_from_spec(module_spec)
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:  # the user's code may raise anything; it is theirs to fix
            raise UsageError(f"the preprocessing module {self.path} fails on import: {error!r}") from error
        function = getattr(module, "preprocessing_fn", None)
        if not callable(function):
            raise UsageError(
                f"{self.path} has no function preprocessing_fn(inputs); --preprocessing_module needs one, "
                "taking and returning a dict of tensors, as in TFX"
            )
        return function  # type: ignore[no-any-return]


class _TextLoader(SourceLoader):
    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        if path != self._path:
            raise OSError(path)  # no cached byte code
        return self._source.encode()


def preprocessing_fn_of(spec: FeatureSpec, schema: Schema) -> SpecPreprocessing:
    """The preprocessing_fn of ``spec``, for batches read by its effective schema."""
    used = [feature for feature in schema.features if feature.name in spec.sources]
    return SpecPreprocessing(
        spec,
        shapes=tuple((feature.name, value_of(feature).shape) for feature in used),
        kinds=tuple((feature.name, feature.kind) for feature in used),
    )


def load_preprocessing_module(path: str, code: str) -> ModulePreprocessing:
    """The preprocessing_fn in ``code``, the text of the Python file ``path``. Raises UsageError if there is none."""
    module = ModulePreprocessing(path, code)
    module.function()
    return module


def _check_outputs(outputs: Any, path: str) -> None:
    """Raise UsageError for what a module may not give: TFT and tf.Example would refuse it late, or in no words."""
    if not isinstance(outputs, Mapping) or not outputs:
        found = "an empty dict" if isinstance(outputs, Mapping) else type(outputs).__name__
        raise UsageError(f"preprocessing_fn of {path} returns {found}; it must return a dict of named tensors")
    for name, tensor in outputs.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UsageError(
                f"preprocessing_fn of {path} names an output {name!r}; a name is a string of visible characters"
            )
        if (wrong := _wrong_with(tensor)) is not None:
            raise UsageError(f"preprocessing_fn of {path} gives {name!r} as {wrong}")


def _wrong_with(tensor: Any) -> str | None:
    if not isinstance(tensor, tf.Tensor | tf.SparseTensor | tf.RaggedTensor):
        return f"{type(tensor).__name__}; make it a tensor"
    if tensor.dtype not in _TF_TYPES.values():
        return f"{tensor.dtype.name}, which a tf.Example cannot hold; cast it to float32, int64 or string"
    if isinstance(tensor, tf.Tensor) and not tensor.shape.rank:  # 0, or not known
        return f"a tensor of shape {tensor.shape}; its first dimension must be the rows (tf.ensure_shape tells it)"
    if isinstance(tensor, tf.RaggedTensor) and tensor.ragged_rank > 1:
        return "lists of lists; make it dense (RaggedTensor.to_tensor) or one list a row"
    return None


def _indicator(tensor: Any) -> tf.Tensor:
    """1 where the row is missing, else 0: int64, shape [rows]."""
    if not isinstance(tensor, tf.SparseTensor):  # a required feature
        return tf.zeros(tf.shape(tensor)[:1], tf.int64)
    ones = tf.ones_like(tensor.values, tf.int64)
    present = tf.math.unsorted_segment_max(ones, tensor.indices[:, 0], tensor.dense_shape[0])
    return tf.where(present > 0, tf.zeros_like(present), tf.ones_like(present))


def _chain(output: Output, tensor: Any, shape: tuple[int, ...] | None, kind: Kind) -> Tensors:
    named = {output.name: tensor}
    for step, op in enumerate(output.ops):
        if isinstance(op, ops.FillMissing):
            assert shape is not None  # checked with the spec
            named = {name: _fill(value, op, shape, kind) for name, value in named.items()}
        elif isinstance(op, ops.TimeParts):
            parts = times.time_parts(tensor, parts=op.parts, utc=op.utc)
            named = {f"{output.name}_{part}": value for part, value in parts.items()}
        else:
            depth = _classes_before(output.ops[:step])
            named = {name: _apply(op, value, name=name, depth=depth) for name, value in named.items()}
        tensor = named.get(output.name)
    return {name: tf.identity(value) if isinstance(value, tf.Tensor) else value for name, value in named.items()}


def _classes_before(before: tuple[Op, ...]) -> int | None:
    """How many ids the op before gives, where that is known before the analysis."""
    any_kind = Value(Kind.INT, ())
    match before[-1] if before else None:
        case ops.Vocabulary() | ops.Bucketize() | ops.ApplyBuckets() as op:
            return op.result(any_kind).classes
        case ops.HashStrings() as op:
            return op.hash_buckets
    return None


def _fill(tensor: Any, op: ops.FillMissing, shape: tuple[int, ...], kind: Kind) -> tf.Tensor:
    """Dense values [rows, *shape]; a tensor that is dense already has been filled on the way in."""
    if op.statistic:
        if not isinstance(tensor, tf.SparseTensor):
            return tf.cast(tensor, tf.float32)
        tensor = tf.SparseTensor(tensor.indices, tf.cast(tensor.values, tf.float32), tensor.dense_shape)
        mean = tft.mean(tensor.values)
        default = tf.where(tf.math.is_finite(mean), mean, tf.zeros_like(mean))  # nothing present: 0
    elif not isinstance(tensor, tf.SparseTensor):
        return tensor
    else:
        default = tf.constant(op.constant(kind), tensor.dtype)
    rows = tensor.dense_shape[0]
    width = 1
    for size in shape:
        width *= size
    # Only whole rows are missing, so a row holds no value or exactly `width` of them.
    flat = tf.sparse.to_dense(tf.SparseTensor(tensor.indices, tensor.values, [rows, width]), default)
    return tf.reshape(flat, [rows, *shape])


def _apply(op: Op, x: Any, *, name: str, depth: int | None) -> Any:
    match op:
        case ops.Cast():
            return _cast(x, op.to)
        case ops.Log1p():
            return tf.math.log1p(tf.cast(x, tf.float32))
        case ops.ScaleToZScore():
            return tft.scale_to_z_score(tf.cast(x, tf.float32), elementwise=op.elementwise)
        case ops.ScaleTo01():
            return _scale(x, 0.0, 1.0, elementwise=op.elementwise)
        case ops.ScaleByMinMax():
            return _scale(x, op.output_min, op.output_max, elementwise=op.elementwise)
        case ops.Vocabulary():
            return _vocabulary(x, op, name)
        case ops.HashStrings():
            return tft.hash_strings(x, op.hash_buckets, key=list(op.key) if op.key else None)
        case ops.Bucketize():
            return tft.bucketize(x, op.buckets, epsilon=op.epsilon)
        case ops.ApplyBuckets():
            return tft.apply_buckets(tf.cast(x, tf.float32), [list(op.boundaries)])
        case ops.OneHot():
            return tf.one_hot(x, op.depth or depth, dtype=tf.float32)
    return x  # pass_through and label


def _cast(x: tf.Tensor, to: str) -> tf.Tensor:
    if to == "string":
        return x if x.dtype == tf.string else tf.strings.as_string(x)
    if x.dtype == tf.string:
        return tf.strings.to_number(x, _TF_TYPES[to])
    if to == "int" and x.dtype.is_floating:
        # Outside int64 (and for NaN) the machine would give an arbitrary number in silence.
        inside = tf.reduce_all(tf.abs(x) < 2.0**63)
        with tf.control_dependencies([tf.debugging.Assert(inside, ["cast: a float does not fit int64"])]):
            x = tf.identity(x)
    return tf.cast(x, _TF_TYPES[to])


def _scale(x: tf.Tensor, low: float, high: float, *, elementwise: bool) -> tf.Tensor:
    """As tft.scale_by_min_max, but a value that is not finite (log1p of -1) does not spoil minimum and maximum."""
    x = tf.cast(x, tf.float32)
    finite = tf.math.is_finite(x)
    least = tf.fill(tf.shape(x), tf.float32.min)
    # One analyzer for both: the minimum of x is minus the maximum of -x.
    both = tf.stack([tf.where(finite, -x, least), tf.where(finite, x, least)], axis=-1)
    extremes = tft.max(both if elementwise else tf.reshape(both, [-1, 2]), reduce_instance_dims=False)
    smallest, largest = -extremes[..., 0], extremes[..., 1]
    spread = largest - smallest
    # A feature that never varies has no scale: TFT's answer is a sigmoid, and so is ours.
    scaled = tf.where(spread > 0, (x - smallest) / spread, tf.math.sigmoid(x))
    return scaled * (high - low) + low


def _vocabulary(x: Any, op: ops.Vocabulary, name: str) -> Any:
    return tft.compute_and_apply_vocabulary(
        x,
        default_value=op.default_value,
        top_k=op.top_k,
        frequency_threshold=op.frequency_threshold,
        num_oov_buckets=op.num_oov_buckets,
        vocab_filename=f"vocabulary_{name}",
    )
