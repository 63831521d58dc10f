"""The transform of a run in a worker: loaded once a process, ahead of its use, and the layout for what it gives."""

from __future__ import annotations

import contextlib
import threading

from pipeline.core.settings import BuildSettings
from pipeline.features.layouts import Layout, make_layout
from pipeline.features.transformer import RowTransformer, load_transformer
from pipeline.transforms import files

_SHARED: dict[tuple[BuildSettings, str | None], RowTransformer] = {}
_SHARED_LOCK, _LOADING = threading.Lock(), threading.Lock()


def shared_transformer(settings: BuildSettings, artefact: str | None) -> RowTransformer:
    """The transform of a run, loaded once a process: a graph costs a second and its memory, and threads share it."""
    with _SHARED_LOCK:
        key = (settings, artefact)
        if key not in _SHARED:
            _SHARED.clear()  # a process works for one run at a time; an old graph is only memory
            _SHARED[key] = load_transformer(
                artefact, settings.input.load_schema(), list_folder=files.list_folder, open_file=files.open_read
            )
        return _SHARED[key]


def load_ahead(settings: BuildSettings, artefact: str | None) -> None:
    """Begin to load the transform in a thread of its own, to be there when the first task is read and decoded.

    An error is left to ``shared_transformer``, which tries again for the one who needs the transform.
    """
    if artefact is not None and (settings, artefact) not in _SHARED and _LOADING.acquire(blocking=False):
        # No daemon: an interpreter that ends waits for it, rather than tearing TensorFlow down at work.
        threading.Thread(target=_load_quietly, args=(settings, artefact), name="load the transform").start()


def _load_quietly(settings: BuildSettings, artefact: str) -> None:
    try:
        with contextlib.suppress(Exception):
            shared_transformer(settings, artefact)
    finally:
        _LOADING.release()


def layout_of(settings: BuildSettings, transformer: RowTransformer) -> Layout:
    """The layout of a run's records. Raises UsageError where it cannot hold what the transform gives."""
    return make_layout(settings.layout, features=transformer.features, rows_per_record=settings.rows_per_record)
