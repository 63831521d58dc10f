"""Worker processes: forked only where that is safe, results in order, ended with the process that they serve."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys

import pytest
from fakes.cli import ROOT, python

from pipeline.core.progress import Snapshot, forget, progress_of, share
from pipeline.transforms.processes import Calls, Parcel, worker_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

BEGIN = """
import json, multiprocessing, os, signal, sys, threading
from pipeline.core.errors import HeadraceError
from pipeline.core.progress import progress_of
from pipeline.transforms.processes import Calls, can_fork, worker_processes

def work(number):
    progress_of("run").add(bytes_done=number, rows_read=1)
    if number == 1301:
        return os.environ.get("BEGUN"), 0
    if number == 1300:
        raise ValueError("thirteen")
    if number == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number, os.getpid()

def results(calls, numbers):
    found = [result for number in numbers for result in calls.add(work, number)]
    return found + list(calls.rest())
"""


def test_results_come_in_the_order_of_the_calls_and_errors_where_they_are_due():
    code = """
with worker_processes(3, progress_key="run", begin=lambda: os.environ.update(BEGUN="1")) as there_are:
    with worker_processes(2, progress_key="other") as more:
        pass
    calls = Calls()
    first = [len(list(calls.add(work, number))) for number in range(40)]
    rest = [square for square, _ in calls.rest()]
    again = results(Calls(), range(13))
    seen = progress_of("run").snapshot()
    try:
        results(Calls(), [5, 1300, 6])
    except ValueError as error:
        raised = str(error)
    after = results(Calls(), [7])
    begun = results(Calls(), [1301])[0][0]
here = os.getpid() in [pid for _, pid in again]
print(json.dumps([there_are, more, sum(first), rest, [square for square, _ in again], here, len({p for _, p in again}),
    [seen.bytes_done, seen.rows_read], raised, after[0][0], len(multiprocessing.active_children()),
    progress_of("run").snapshot().rows_read, results(Calls(), [3])[0][1] == os.getpid(), begun]))
"""
    done = python("-c", BEGIN + code)
    there_are, more, first, rest, again, here, pids, seen, raised, after, left, forgotten, back, begun = done.json
    assert (there_are, more, here, left, back, begun) == (True, False, False, 0, True, "1")
    assert first == 40 - 2 * 3
    assert rest == [n * n for n in range(first, 40)]
    assert again == [n * n for n in range(13)]
    assert 1 <= pids <= 3
    assert seen == [sum(range(40)) + sum(range(13)), 53]
    assert (raised, after, forgotten) == ("thirteen", 49, 0)


def test_a_process_that_is_killed_is_an_error_in_words_for_every_call_after_it():
    code = """
said = []
with worker_processes(2, progress_key="run"):
    for numbers in ([1, 99, 2], [3]):
        try:
            results(Calls(), numbers)
        except HeadraceError as error:
            said.append(str(error))
print(json.dumps([said, len(multiprocessing.active_children())]))
"""
    said, left = python("-c", BEGIN + code).json
    assert len(said) == 2
    assert all("was killed" in words and "--threads" in words for words in said)
    assert left == 0


def test_nothing_is_forked_where_a_copy_would_lack_threads_or_locks():
    code = """
found = [can_fork()]
held = threading.Event()
thread = threading.Thread(target=held.wait)
thread.start()
found.append(can_fork())
held.set()
thread.join()
import tensorflow as tf
tf.constant([1]) + 1
found.append(can_fork())
with worker_processes(2, progress_key="run") as there_are:
    found += [there_are, results(Calls(), [3])[0][1] == os.getpid()]
print(json.dumps(found))
"""
    assert python("-c", BEGIN + code).json == [True, False, False, False, True]


def test_threads_do_the_work_where_the_system_refuses_processes():
    code = """
fork, forked = os.fork, []
def refuse_the_third():
    if len(forked) == 2:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    forked.append(fork())
    return forked[-1]
os.fork = refuse_the_third
with worker_processes(3, progress_key="run") as there_are:
    there = results(Calls(), [3])[0][1] == os.getpid()
print(json.dumps([len(forked), there_are, there, progress_of("run").snapshot().rows_read]))
"""
    assert python("-c", BEGIN + code, timeout=60).json == [2, False, True, 0]


def test_a_signal_while_processes_are_made_is_taken_once_they_are_there_and_ends_them():
    code = """
fork, forked = os.fork, []
def interrupted():
    forked.append(fork())
    if forked[-1]:
        os.kill(os.getpid(), signal.SIGINT)
    return forked[-1]
os.fork = interrupted
try:
    with worker_processes(3, progress_key="run"):
        found = ["there are"]
except KeyboardInterrupt:
    found = ["interrupted"]
print(json.dumps([*found, len(forked), len(multiprocessing.active_children())]))
"""
    assert python("-c", BEGIN + code, timeout=60).json == ["interrupted", 3, 0]


def test_one_that_hangs_is_killed_where_the_run_is_interrupted():
    code = """
def hang(number):
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()

found = []
try:
    with worker_processes(2, progress_key="run"):
        calls = Calls()
        list(calls.add(hang, 1))
        list(calls.rest())
except KeyboardInterrupt:
    found.append("interrupted")
found.append(len(multiprocessing.active_children()))
print(json.dumps(found), flush=True)
os._exit(0)
"""
    assert python("-c", BEGIN + code, timeout=60).json == ["interrupted", 0]


def test_an_error_that_would_not_arrive_whole_arrives_in_words():
    code = """
class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first + second)

def odd():
    raise Odd("a", "b")

said = []
with worker_processes(2, progress_key="run"):
    try:
        calls = Calls()
        list(calls.add(odd))
        list(calls.rest())
    except HeadraceError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    assert python("-c", BEGIN + code).json == ["Odd: ab"]


def test_they_end_with_a_process_that_is_killed():
    """All of them hold the pipe's other end: it is closed when the last one is gone."""
    code = """
with worker_processes(3, progress_key="run"):
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + code], stdout=subprocess.PIPE, cwd=ROOT, env=dict(os.environ)
    ) as process:
        said, _ = process.communicate(timeout=60)
    assert said == b"ready\n"
    assert process.returncode == -signal.SIGKILL


def test_without_processes_a_call_is_done_here_and_is_due_at_once():
    with worker_processes(1, progress_key="run") as there_are:
        calls: Calls[int] = Calls()
        assert (there_are, list(calls.add(max, 3, 5)), list(calls.rest())) == (False, [5], [])
    with pytest.raises(ZeroDivisionError):
        list(calls.add(divmod, 1, 0))


class _Counted:
    """Counts how often it is made from bytes."""

    unpacked = 0

    def __setstate__(self, state: object) -> None:
        _Counted.unpacked += 1

    def __getstate__(self) -> object:
        return 1


def test_a_parcel_is_unpacked_by_the_one_who_opens_it_alone():
    parcel = Parcel([_Counted(), _Counted()])
    assert (len(parcel), bool(Parcel([]))) == (2, False)
    for _ in range(3):
        parcel = pickle.loads(pickle.dumps(parcel))
    assert (len(parcel), _Counted.unpacked) == (2, 0)
    assert len(parcel.open()) == len(parcel.open()) == 2
    assert _Counted.unpacked == 2


def test_shared_counters_add_up_whichever_place_they_are_raised_in():
    shared = share("shared", processes=2)
    try:
        for place in (1, 2, 0, 2):
            shared.take_place(place)
            progress_of("shared").add(bytes_done=10, rows_read=2, rows_rejected=1)
        shared.bytes_only().add(bytes_done=5, rows_read=7)
        assert progress_of("shared").snapshot() == Snapshot(45, 8, 4)
    finally:
        forget("shared")
    assert progress_of("shared").snapshot() == Snapshot()
