"""Worker processes of a local run: forked from this one when it has loaded everything and begun nothing.

Threads share one interpreter lock. Decoding is a thousand short array operations a block, each of which gives
the lock up and wants it back, so that two threads that decode are hardly faster than one. Processes have a
lock each, and forked ones need not import TensorFlow again: that takes longer than to read a million rows.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from pipeline.core.errors import HeadraceError
from pipeline.core.progress import SharedProgress, forget, share

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_STOPPING = (signal.SIGINT, signal.SIGTERM)
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
    processes: Sequence[BaseProcess]

    def end(self) -> None:
        """End them, who have nothing to do."""
        with _signals_held():
            self.pool.shutdown()

    def kill(self) -> None:
        """End them at once, whatever they do, and whatever signals come meanwhile."""
        with _signals_held():
            for process in self.processes:
                process.kill()
            self.pool.shutdown(cancel_futures=True)
            for process in self.processes:  # a pool that has not begun does not know of them
                process.join()


_workers: list[_Workers] = []  # at most one


@contextlib.contextmanager
def worker_processes(count: int, *, progress_key: str, begin: Callable[[], None] | None = None) -> Iterator[bool]:
    """So many processes for ``Calls`` while the body runs; none for fewer than two, or where forking is not safe.

    Says whether there are any. Progress that they add under ``progress_key`` is seen here. Each calls ``begin``
    first. They end with this process, however it ends, and at once where the body raises.
    """
    if count < 2 or _workers or not can_fork():
        yield False
        return
    workers: _Workers | None = None
    try:
        with _signals_held():  # Python loses an exception that is raised while it forks
            workers = _forked(count, share(progress_key, processes=count), begin)
            _workers.extend([workers] if workers else [])
        yield workers is not None
    except BaseException:
        if workers:
            workers.kill()
        raise
    else:
        if workers:
            workers.end()
    finally:
        _workers.clear()
        forget(progress_key)


def _forked(count: int, progress: SharedProgress, begin: Callable[[], None] | None) -> _Workers | None:
    """So many processes, all there before this one has threads; None if the system refuses them."""
    forking, others = multiprocessing.get_context("fork"), multiprocessing.active_children()
    with contextlib.ExitStack() as undo:
        undo.callback(_kill_all_but, others)
        try:
            places = forking.SimpleQueue()
            for place in range(1, count + 1):
                places.put(place)
            given = (os.getpid(), progress, places, begin)
            pool = ProcessPoolExecutor(count, forking, initializer=_begin, initargs=given)
            with _killed_in_words():
                pool.submit(os.getpid).result()
        except OSError:  # no more processes, or no more files
            return None
        undo.pop_all()
    return _Workers(pool, [child for child in multiprocessing.active_children() if child not in others])


def _kill_all_but(others: Sequence[BaseProcess]) -> None:
    """They would wait for work for ever, and leaving this process would wait for them."""
    for child in multiprocessing.active_children():
        if child not in others:
            child.kill()
            child.join()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM are taken when the body is done, in the processes that it forks too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
            self._items = pickle.loads(self._packed)  # noqa: S301 - of a process of this run, through its own pipe
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
            self._waiting.append(_workers[0].pool.submit(_carried_out, work, arguments))
        while len(self._waiting) > _BEGUN * len(_workers[0].processes):
            yield self._next()

    def rest(self) -> Iterator[Result]:
        """The results of all calls that were begun and not due before."""
        while self._waiting:
            yield self._next()

    def _next(self) -> Result:
        with _killed_in_words():
            return self._waiting.popleft().result()


def _carried_out(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """In a worker process: the result; an exception that would not arrive whole is raised in words."""
    try:
        return work(*arguments)
    except Exception as error:
        try:
            copy.copy(error)  # made anew from its arguments, as at the other end
        except Exception:
            raise HeadraceError(f"{type(error).__name__}: {error}") from None
        raise


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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
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
