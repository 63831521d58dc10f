"""Worker processes of a local run: forked from this one when it has loaded everything and begun nothing.

Threads share one interpreter lock. Decoding is a thousand short array operations a block, each of which gives
the lock up and wants it back, so that two threads that decode are hardly faster than one. Processes have a
lock each, and forked ones need not import TensorFlow again: that takes longer than to read a million rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from pipeline.core.errors import HeadraceError
from pipeline.core.progress import SharedProgress, forget, share

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_NATIVE_THREADS = Path("/proc/self/task")
_BEGUN = 2  # calls for each process that are begun and not taken: what they bring is held in memory

Item = TypeVar("Item")
Result = TypeVar("Result")


def _native_threads() -> int:
    """Threads of this process, those of libraries included; 0 where the system does not tell."""
    return len(list(_NATIVE_THREADS.iterdir())) if _NATIVE_THREADS.is_dir() else 0


_AFTER_IMPORTS = _native_threads()  # OpenBLAS's and jemalloc's, which both know how to fork


def can_fork() -> bool:
    """Whether this process can be forked without harm: its copies have no thread but one, and locks stay as they are.

    On Linux only (system libraries elsewhere do not bear it), from the main thread, while nothing else runs.
    """
    return (
        sys.platform == "linux"
        and threading.current_thread() is threading.main_thread()
        and threading.active_count() == 1
        and 0 < _native_threads() <= _AFTER_IMPORTS
        and not getattr(tf_context.context_safe(), "_initialized", False)
    )


@dataclass(frozen=True)
class _Workers:
    pool: ProcessPoolExecutor
    count: int


_workers: list[_Workers] = []  # at most one


@contextlib.contextmanager
def worker_processes(count: int, *, progress_key: str, begin: Callable[[], None] | None = None) -> Iterator[bool]:
    """So many processes for ``Calls`` while the body runs; none for fewer than two, or where forking is not safe.

    Says whether there are any. Progress that they add under ``progress_key`` is seen here. Each calls ``begin``
    first. They end with this process, however it ends.
    """
    if count < 2 or _workers or not can_fork():
        yield False
        return
    progress = share(progress_key, processes=count)
    pool = _forked(count, progress, begin)
    try:
        if pool is not None:
            _workers.append(_Workers(pool, count))
        yield pool is not None
    finally:
        _workers.clear()
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        forget(progress_key)


def _forked(count: int, progress: SharedProgress, begin: Callable[[], None] | None) -> ProcessPoolExecutor | None:
    """A pool whose processes are all there, before this process has threads; None if the system refuses so many."""
    forking = multiprocessing.get_context("fork")
    places = forking.SimpleQueue()
    for place in range(1, count + 1):
        places.put(place)
    pool = ProcessPoolExecutor(count, forking, initializer=_begin, initargs=(os.getpid(), progress, places, begin))
    others = multiprocessing.active_children()
    try:
        with _killed_in_words():
            pool.submit(os.getpid).result()
    except BaseException as error:
        for child in multiprocessing.active_children():
            if child not in others:
                child.kill()  # it would wait for work for ever, and leaving this process would wait for it
        if isinstance(error, OSError):
            return None
        raise
    return pool


class Parcel(Generic[Item]):
    """A list on its way from worker to worker: bytes wherever it is not opened, so that nobody between unpacks it."""

    def __init__(self, items: list[Item]) -> None:
        self._items: list[Item] | None = items
        self._packed: bytes | None = None
        self._count = len(items)

    def __len__(self) -> int:
        return self._count

    def open(self) -> list[Item]:
        """The list."""
        if self._items is None:
            assert self._packed is not None
            self._items = pickle.loads(self._packed)  # noqa: S301 - our own, of a moment ago
        return self._items

    def __getstate__(self) -> tuple[int, bytes]:
        return self._count, self._packed or pickle.dumps(self._items, pickle.HIGHEST_PROTOCOL)

    def __setstate__(self, state: tuple[int, bytes]) -> None:
        self._items, (self._count, self._packed) = None, state


class Calls(Generic[Result]):
    """Calls of functions in worker processes, if there are any; their results in the order of the calls.

    Functions, arguments and results can be pickled. What a call raises is raised where its result is due; if
    a process is killed meanwhile, that is HeadraceError.
    """

    def __init__(self) -> None:
        self._waiting: deque[Future[Result]] = deque()

    def add(self, work: Callable[..., Result], *arguments: Any) -> Iterator[Result]:
        """Begin ``work(*arguments)``; results that have become due. Without processes, it is done here and is due."""
        if not _workers:
            yield work(*arguments)
            return
        with _killed_in_words():
            self._waiting.append(_workers[0].pool.submit(work, *arguments))
        while len(self._waiting) > _BEGUN * _workers[0].count:
            yield self._next()

    def rest(self) -> Iterator[Result]:
        """The results of all calls that were begun and not due before."""
        while self._waiting:
            yield self._next()

    def _next(self) -> Result:
        with _killed_in_words():
            return self._waiting.popleft().result()


@contextlib.contextmanager
def _killed_in_words() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise HeadraceError(
            "a worker process was killed before its task was done, most often for want of memory; give fewer --threads"
        ) from error


def _begin(parent: int, progress: SharedProgress, places: Any, begin: Callable[[], None] | None) -> None:
    """First thing in a worker process. Ctrl-C is for the parent, which ends its workers; its death ends them too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be asked for
        os._exit(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the other cores have processes of their own
    tf.config.threading.set_inter_op_parallelism_threads(1)
    pa.set_cpu_count(1)
    gc.freeze()  # memory stays shared as long as nobody writes to it, as the collector does
    progress.take_place(places.get())
    if begin is not None:
        begin()
