"""The ledger: one claim at a time, what is done stays done, whoever comes, crashes or comes back."""

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.keys import LANES, Key, KeySet, lane_of
from dlq_replay.ledger import Clock, Entry, Row
from dlq_replay.store import BucketStore, FolderStore, open_store
from pipeline.core.errors import HeadraceError, UsageError
from tests.dlq_replay.helpers import letter
from tests.dlq_replay.ledgers import MemoryStore, Ticking, lane

A, B, C = (Key(name * 64, 0) for name in "abc")


def test_what_is_done_is_not_claimed_again_by_anyone():
    store = MemoryStore()
    first = lane(store, "one")
    assert first.claim([A, B, A]) == [A, B]
    first.finish([Row(A, "replayed"), Row(B, "parked")])
    assert first.claim([A, B]) == []
    second = lane(store, "two")
    assert A in second
    assert second.claim([A, C]) == [C]
    assert Key(A.dlq_id, 1) not in second  # its second failure is another letter


def test_entries_are_readable_lines():
    store = MemoryStore()
    worker = lane(store, "w", replay="r")
    worker.claim([A])
    worker.finish([Row(A, "replayed")])
    assert sorted(store.files) == ["lane-03/00000000.jsonl", "lane-03/00000001.jsonl"]
    assert store.files["lane-03/00000001.jsonl"].decode() == (
        '{"entry": "done", "replay": "r", "worker": "w", "at": "2024-05-01T12:00:00+00:00", "lease_seconds": 100.0, '
        '"claim": 0}\n'
        f'{{"dlq_id": "{"a" * 64}", "attempt": 0, "fate": "replayed"}}\n'
    )


def test_a_claim_of_another_is_waited_for_and_its_letters_then_are_done():
    store = MemoryStore()
    other = lane(store, "other")
    assert other.claim([A]) == [A]
    ticking = Ticking(on_sleep=lambda: other.finish([Row(A, "replayed")]) if A not in other else None)
    assert lane(store, "me", clock=ticking.clock).claim([A, B]) == [B]
    assert 0 < ticking.slept <= 2


def test_a_claim_of_one_that_died_is_taken_over_when_its_lease_is_over():
    store = MemoryStore()
    lane(store, "dead").claim([A])
    ticking = Ticking()
    assert lane(store, "me", clock=ticking.clock).claim([A]) == [A]
    assert 100 <= ticking.slept < 103


@pytest.mark.parametrize("ahead", [-3600, -300, 300, 599])
def test_a_claim_is_waited_for_by_ones_own_clock_though_the_others_goes_wrong(ahead):
    store, ticking = MemoryStore(), Ticking()
    lane(store, "other").claim([A])
    ticking.time += timedelta(seconds=ahead)
    assert lane(store, "me", clock=ticking.clock).claim([A]) == [A]
    assert 100 <= ticking.slept < 103  # a lease: no less, or letters go twice; no more, or it never ends


def test_a_claim_of_one_that_died_long_ago_is_not_waited_for():
    store, ticking = MemoryStore(), Ticking()
    lane(store, "dead").claim([A])
    ticking.time += timedelta(seconds=701)
    assert lane(store, "me", clock=ticking.clock).claim([A]) == [A]
    assert ticking.slept == 0


def test_the_same_replay_takes_its_own_claim_over_at_once_unless_workers_share_lanes():
    store = MemoryStore()
    lane(store, "dead", replay="r").claim([A])
    ticking = Ticking()
    assert lane(store, "again", replay="r", clock=ticking.clock).claim([A]) == [A]
    assert ticking.slept == 0
    assert lane(store, "third", replay="r", shared=True, clock=ticking.clock).claim([A]) == [A]
    assert ticking.slept >= 100


def test_one_that_was_taken_for_dead_can_still_say_what_it_did():
    store = MemoryStore()
    slow = lane(store, "slow")
    slow.claim([A])
    late = Ticking()
    late.sleep(701)
    eager = lane(store, "eager", clock=late.clock)
    assert eager.claim([A, B]) == [A, B]
    slow.finish([Row(A, "replayed")])
    assert slow.claim([A]) == []
    eager.finish([Row(A, "replayed"), Row(B, "replayed")])
    assert lane(store, "new").claim([A, B, C]) == [C]


def test_force_forgets_what_was_done_but_not_who_is_at_work():
    store = MemoryStore()
    first = lane(store, "one")
    first.claim([A])
    first.finish([Row(A, "replayed")])
    forced = lane(store, "two", force=True)
    assert forced.was_forced(A)
    assert forced.claim([A]) == [A]
    forced.finish([Row(A, "replayed")])
    assert forced.claim([A]) == []  # once for this replay too
    first.claim([B])
    ticking = Ticking()
    assert lane(store, "three", force=True, clock=ticking.clock).claim([B]) == [B]
    assert ticking.slept >= 100


NO_LEASE = b'{"entry":"claim","replay":"r","worker":"w","at":"2024-05-01","lease_seconds":NaN}'


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"[]\n", b'{"entry":"done"}\n', b"\xff", b'{"entry":"claim","at":1}', NO_LEASE]
)
def test_a_damaged_entry_is_refused_rather_than_taken_for_nothing(damage):
    store = MemoryStore({"lane-03/00000000.jsonl": damage})
    with pytest.raises(HeadraceError, match="no entry of a replay ledger"):
        lane(store, "me")


def test_a_missing_entry_is_refused():
    store = MemoryStore()
    worker = lane(store, "w")
    worker.claim([A])
    worker.finish([Row(A, "replayed")])
    del store.files["lane-03/00000000.jsonl"]
    with pytest.raises(HeadraceError, match="lacks lane-03/00000000"):
        lane(store, "me")


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.text(max_size=5), max_size=5),
    fate=st.sampled_from(["", "replayed", "parked"]),
    kind=st.sampled_from(["claim", "done"]),
    number=st.none() | st.integers(0, 10**8),
    at=st.datetimes(timezones=st.just(timezone.utc)),
)
def test_entries_read_back_as_they_were_written(ids, fate, kind, number, at):
    rows = tuple(Row(Key(name, i), fate) for i, name in enumerate(ids))
    entry = Entry(kind, "r\n", "w", at, 1.5, rows, number)
    assert Entry.from_bytes(entry.to_bytes(), "x") == entry


@settings(max_examples=40, deadline=None)
@given(names=st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), max_size=40))
def test_a_key_set_is_a_set(names):
    mine, known = KeySet(), set()
    for name, attempt in names:
        key = Key(name, attempt)
        assert mine.add(key) is (key not in known)
        known.add(key)
        assert key in mine
        assert len(mine) == len(known)
    assert Key("absent!", 0) not in mine


def test_lanes_go_by_ordering_key_or_id_and_are_the_same_for_ever():
    letters = [letter(i) for i in range(300)]
    assert {lane_of(one) for one in letters} == set(range(LANES))
    assert [lane_of(one) for one in letters[:8]] == [1, 2, 5, 7, 6, 3, 3, 6]
    from dataclasses import replace

    assert len({lane_of(replace(one, ordering_key="k")) for one in letters}) == 1


def hammer(store_of, workers=4, keys=60):
    """Threads that all want all keys, in small claims: what each was granted."""
    granted = [[] for _ in range(workers)]

    def work(number):
        mine = lane(
            store_of(), f"w{number}", clock=Clock(lambda: datetime.now(timezone.utc), lambda _: time.sleep(0.001))
        )
        wanted = [Key(f"{i:064x}", 0) for i in range(keys)]
        for start in range(0, keys, 5):
            got = mine.claim(wanted[start : start + 5])
            granted[number] += got
            if got:
                mine.finish([Row(key, "replayed") for key in got])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [key for got in granted for key in got]


def test_workers_at_once_get_each_letter_once_on_local_disk(tmp_path):
    got = hammer(lambda: FolderStore(str(tmp_path)))
    assert len(got) == len(set(got)) == 60
    assert all(path.suffix == ".jsonl" for path in tmp_path.rglob("*") if path.is_file())


def test_a_folder_store_creates_once(tmp_path):
    store = FolderStore(str(tmp_path))
    assert store.create("a/x", b"1")
    assert not store.create("a/x", b"2")
    assert store.read("a/x") == b"1"
    assert store.read("a/y") is None
    assert store.names("a") == ["a/x"]
    assert store.names("b") == []


class FakeBucket:
    """What BucketStore needs of google-cloud-storage, with the precondition enforced."""

    def __init__(self):
        self.objects, self.lose_answer = {}, False

    def bucket(self, name):
        assert name == "b"
        return self

    def blob(self, name):
        bucket = self

        class Blob:
            def upload_from_string(self, data, content_type, *, if_generation_match, timeout):
                from google.api_core.exceptions import PreconditionFailed, ServiceUnavailable

                assert if_generation_match == 0
                if name in bucket.objects:
                    raise PreconditionFailed("there")
                bucket.objects[name] = data
                if bucket.lose_answer:
                    raise PreconditionFailed("the client's own retry met its own object")
                if name.endswith("fault"):
                    raise ServiceUnavailable("try later")

            def download_as_bytes(self, timeout):
                from google.api_core.exceptions import NotFound

                if name not in bucket.objects:
                    raise NotFound(name)
                return bucket.objects[name]

        return Blob()

    def list_blobs(self, prefix, timeout):
        class Found:
            def __init__(self, name):
                self.name = name

        return [Found(name) for name in self.objects if name.startswith(prefix)]


def test_a_bucket_store_creates_once_even_where_an_answer_was_lost():
    bucket = FakeBucket()
    store = BucketStore("gs://b/dead/_replay/ledger/", bucket)
    assert store.create("l/1", b"mine")
    assert not store.create("l/1", b"theirs")
    bucket.lose_answer = True
    assert store.create("l/2", b"mine")
    assert store.names("l") == ["l/1", "l/2"]
    assert list(bucket.objects) == ["dead/_replay/ledger/l/1", "dead/_replay/ledger/l/2"]
    assert (store.read("l/2"), store.read("l/3")) == (b"mine", None)
    bucket.lose_answer = False
    with pytest.raises(OSError, match="ServiceUnavailable"):
        store.create("l/fault", b"")


def test_workers_at_once_get_each_letter_once_in_a_bucket():
    bucket = FakeBucket()
    got = hammer(lambda: BucketStore("gs://b/x", bucket), workers=3)
    assert len(got) == len(set(got)) == 60


def test_a_ledger_lies_on_disk_or_in_a_bucket(tmp_path):
    assert isinstance(open_store(str(tmp_path)), FolderStore)
    assert isinstance(open_store("gs://b/x"), BucketStore)
    with pytest.raises(UsageError, match="only one can make"):
        open_store("hdfs://x/y")
