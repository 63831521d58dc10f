"""Worker processes of a local run: forked from this one when it has loaded everything and begun nothing.

Threads share one interpreter lock. Decoding is a thousand short array operations a block, each of which gives
the lock up and wants it back, so that two threads that decode are hardly faster than one. Processes have a
lock each, and forked ones need not import TensorFlow again: that takes longer than to read a million rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from tensorflow.python.eager import context as tf_context

from pipeline.core.errors import HeadraceError
from pipeline.core.progress import SharedProgress, forget, share

_LOG = logging.getLogger(__name__)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_NATIVE_THREADS = Path("/proc/self/task")

Result = TypeVar("Result")


def _native_threads() -> int:
    """Threads of this process, those of libraries included; 0 where the system does not tell."""
    return len(list(_NATIVE_THREADS.iterdir())) if _NATIVE_THREADS.is_dir() else 0


_AFTER_IMPORTS = _native_threads()  # OpenBLAS's and jemalloc's, which both know how to fork
_pools: list[ProcessPoolExecutor] = []  # at most one


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


@contextlib.contextmanager
def worker_processes(count: int, *, progress_key: str) -> Iterator[None]:
    """So many processes for ``call`` while the body runs; none for fewer than two, or where forking is not safe.

    Progress that they add under ``progress_key`` is seen here. They end with this process, however it ends.
    """
    if count < 2 or _pools or not can_fork():
        _LOG.debug("work is done in threads of this process")
        yield
        return
    forking = multiprocessing.get_context("fork")
    progress, places = share(progress_key, processes=count), forking.SimpleQueue()
    for place in range(1, count + 1):
        places.put(place)
    pool = ProcessPoolExecutor(count, forking, initializer=_begin, initargs=(os.getpid(), progress, places))
    try:
        pool.submit(os.getpid).result()  # all of them are forked here, before there are threads
        _pools.append(pool)
        yield
    finally:
        _pools.clear()
        pool.shutdown(cancel_futures=True)
        forget(progress_key)


def call(work: Callable[..., Result], *arguments: Any) -> Result:
    """``work(*arguments)``: in a worker process, if there are any, or here. Raises what it raises.

    ``work`` is a function of a module; it, its arguments and its result can be pickled. Raises HeadraceError
    if the process is killed meanwhile.
    """
    if not _pools:
        return work(*arguments)
    try:
        return _pools[0].submit(work, *arguments).result()
    except BrokenProcessPool as error:
        raise HeadraceError(
            "a worker process was killed before its task was done, most often for want of memory; give fewer --threads"
        ) from error


def _begin(parent: int, progress: SharedProgress, places: Any) -> None:
    """First thing in a worker process. Ctrl-C is for the parent, which ends its workers; its death ends them too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be asked for
        os._exit(1)
    gc.freeze()  # memory stays shared as long as nobody writes to it, as the collector does
    progress.take_place(places.get())
