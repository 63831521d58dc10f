"""Replays: every letter once, whoever runs what how often, and wherever the process dies; accounts that balance."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.archives import Damage
from dlq_replay.fix_file import parse_fixes
from dlq_replay.fix_module import FixModule
from dlq_replay.keys import lane_of
from dlq_replay.policy import Policy
from dlq_replay.selection import Filters
from pipeline.core.dead_letter import dead_letter_id
from pipeline.core.errors import UsageError
from tests.dlq_replay.helpers import archive_of, letter
from tests.dlq_replay.ledgers import Deaths, Killed, Ticking
from tests.dlq_replay.replays import Sent, letters_of, replay, settings_of

LETTERS = [letter(i, payload=b'{"a":"%d"}' % i, attempt=i % 3) for i in range(40)]
OLD = [letter(100 + i, attempt=3) for i in range(5)]


def test_each_letter_is_sent_or_parked_once_and_a_second_replay_finds_nothing_to_do():
    sent, files = Sent(), {}
    tally = replay(LETTERS + OLD, sent, files)
    assert (tally.selected, tally.replayed, tally.parked, tally.already) == (45, 40, 5, 0)
    assert Counter(sent.ids) == Counter(one.dlq_id for one in LETTERS)
    assert sorted(one.dlq_id for one in sent.parked) == sorted(tally.parked_ids) == sorted(one.dlq_id for one in OLD)
    assert {(one.dlq_id, one.attempt) for one in sent.outgoing} == {(one.dlq_id, one.attempt + 1) for one in LETTERS}
    again = replay(LETTERS + OLD, sent, files, replay_id="second")
    assert (again.selected, again.already, again.replayed, again.parked) == (45, 45, 0, 0)
    assert len(sent.outgoing) == 40


def test_a_letter_that_lies_in_two_archives_is_sent_once():
    sent = Sent()
    assert replay(LETTERS[:3] + LETTERS[:3], sent, {}).already == 3
    assert len(sent.ids) == 3


def test_its_next_failure_is_another_letter():
    sent, files = Sent(), {}
    replay(LETTERS[:1], sent, files)
    tally = replay([replace(LETTERS[0], attempt=1)], sent, files, replay_id="second")
    assert tally.replayed == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_forged_letter_does_not_stand_for_the_genuine_one(together):
    """Who may publish can forge an id; the genuine letter must still be sent."""
    genuine, sent, files = LETTERS[0], Sent(), {}
    forged = replace(
        letter(0, payload=b"forged", attempt=genuine.attempt), dlq_id=genuine.dlq_id, source=genuine.source
    )
    for number, letters in enumerate([[forged, genuine]] if together else [[forged], [genuine]]):
        replay(letters, sent, files, replay_id=str(number))
    assert [one.payload for one in sent.outgoing] == [b"forged", genuine.payload]


@pytest.mark.parametrize("senders", [1, 2, 3, 8])
def test_senders_divide_the_letters(senders):
    sent = Sent()
    tally = replay(LETTERS, sent, {}, senders=senders)
    assert (tally.read, tally.replayed) == (40, 40)
    assert Counter(sent.ids) == Counter(one.dlq_id for one in LETTERS)


def deaths_of(run):
    """Dies at each point in turn, until a run comes to its end."""
    at = 1
    while True:
        deaths = Deaths(at)
        try:
            run(deaths)
        except Killed:
            yield deaths
            at += 1
        else:
            assert at > 5
            return


@pytest.mark.parametrize("same_id", [False, True])
def test_wherever_a_replay_dies_nothing_is_lost_and_only_the_open_batch_can_be_sent_twice(same_id):
    letters = LETTERS[:12] + OLD[:2]
    names = Counter()

    def check(deaths_at):
        sent, files, clock = Sent(), {}, Ticking()
        try:
            replay(letters, sent, files, deaths=deaths_at, clock=clock, keep_letters=True)
        except Killed:
            open_batch = sent.batches[-1][1] if sent.batches else 0
            died_after_send = deaths_at.fired.startswith("after send") or "lane" in deaths_at.fired
            before = Counter(sent.ids)
            tally = replay(letters, sent, files, replay_id="r" if same_id else "second", clock=clock, keep_letters=True)
            assert tally.balances
            twice = sum((Counter(sent.ids) - Counter(set(sent.ids))).values())
            assert set(sent.ids) == {one.dlq_id for one in letters[:12]}
            assert {one.dlq_id for one in sent.parked} == {one.dlq_id for one in OLD[:2]}
            assert twice <= open_batch
            assert twice == 0 or died_after_send, deaths_at.fired
            assert set(before) <= set(sent.ids)
            assert same_id is False or clock.slept == 0
            third = replay(letters, sent, files, replay_id="third", clock=clock)
            assert third.already == 14
            names[deaths_at.fired.split()[0] + " " + deaths_at.fired.split()[1]] += 1
            raise

    died = list(deaths_of(check))
    assert len(died) > 40
    assert set(names) == {
        f"{when} {what}" for when in ("before", "after") for what in ("create", "send", "park", "keep", "acknowledge")
    }


@settings(max_examples=40, deadline=None)
@given(
    deaths=st.lists(st.integers(1, 40), max_size=4),
    limit=st.integers(1, 3),
    data=st.data(),
)
def test_however_often_it_dies_all_is_done_in_the_end(deaths, limit, data):
    letters = data.draw(st.lists(st.sampled_from(LETTERS[:10] + OLD), max_size=20))
    sent, files, clock = Sent(), {}, Ticking()
    for number, at in enumerate(deaths):
        try:
            replay(letters, sent, files, replay_id=f"r{number}", deaths=Deaths(at), clock=clock, policy=Policy(limit))
        except Killed:
            continue
    replay(letters, sent, files, replay_id="last", clock=clock, policy=Policy(limit))
    due = {(one.dlq_id, one.attempt + 1) for one in letters if one.attempt < limit}
    assert {(one.dlq_id, one.attempt) for one in sent.outgoing} == due
    assert {one.dlq_id for one in sent.parked} == {one.dlq_id for one in letters if one.attempt >= limit}
    assert len(sent.outgoing) <= len(due) + 10 * len(deaths)


def test_messages_are_acknowledged_once_they_are_sent_parked_or_known_to_be_done():
    sent, files = Sent(), {}
    replay(LETTERS[:3] + OLD[:1], sent, files)
    assert sorted(sent.acked) == ["ack-0", "ack-1", "ack-2", "ack-3"]
    sent.acked.clear()
    replay(LETTERS[:2], sent, files, replay_id="second")
    assert sorted(sent.acked) == ["ack-0", "ack-1"]
    sent.acked.clear()
    replay(LETTERS[:2], sent, {}, filters=Filters(reasons=("late_data",)))
    assert sent.acked == []


def test_what_is_left_stays_for_a_better_repair():
    sent, files = Sent(), {}
    long = letter(7, payload=b"x" * 2000)
    bad = FixModule("f.py", "f", "def f(payload, attributes):\n    raise ValueError('no')\n")
    tally = replay([long], sent, files)
    assert (tally.left, tally.selected, sent.acked) == (Counter({"too long for this topic": 1}), 1, [])
    tally = replay(LETTERS[:2], sent, files, fix_module=bad)
    assert tally.left == Counter({"the fix module failed: ValueError: no": 2})
    assert files == {}
    assert replay(LETTERS[:2], sent, files).replayed == 2


def test_what_the_other_side_finds_invalid_is_left_and_not_acknowledged():
    class Picky(Sent):
        def send(self, name, batch):
            super().send(name, [one for one in batch if one.dlq_id != LETTERS[1].dlq_id])
            return {one.dlq_id: "it has a schema" for one in batch if one.dlq_id == LETTERS[1].dlq_id}

    sent, files = Picky(), {}
    tally = replay(LETTERS[:4], sent, files)
    assert (tally.replayed, tally.left, tally.balances) == (3, Counter({"it has a schema": 1}), True)
    assert sorted(sent.acked) == ["ack-0", "ack-2", "ack-3"]
    assert replay(LETTERS[:4], Sent(), files, replay_id="second").replayed == 1


def test_where_the_source_does_not_keep_them_letters_that_cannot_be_sent_are_parked():
    class Picky(Sent):
        def send(self, name, batch):
            super().send(name, [one for one in batch if one.dlq_id != LETTERS[1].dlq_id])
            return {one.dlq_id: "it has a schema" for one in batch if one.dlq_id == LETTERS[1].dlq_id}

    sent, files = Picky(), {}
    tally = replay([*LETTERS[:3], letter(7, payload=b"x" * 2000)], sent, files, park_left=True)
    assert (tally.replayed, tally.parked, tally.left, tally.balances) == (2, 2, Counter(), True)
    assert len(sent.parked) == 2
    assert len(sent.acked) == 4
    assert replay(LETTERS[:3], Sent(), files, replay_id="second").already == 3


def test_repairs_are_sent_and_what_they_could_not_do_is_counted():
    sent = Sent()
    fixes = parse_fixes("fixes: [{cast: {a: int}}]", "f")
    tally = replay([*LETTERS[:3], letter(9, payload=b"[]")], sent, {}, fixes=fixes)
    assert {one.payload for one in sent.outgoing} == {b'{"a":0}', b'{"a":1}', b'{"a":2}', b"[]"}
    assert tally.changed == 3
    assert tally.unapplied == Counter({"cast a: the payload cannot be repaired by key: it is no JSON object": 1})


def test_a_fix_module_can_park():
    sent = Sent()
    tally = replay(LETTERS[:2], sent, {}, fix_module=FixModule("f.py", "f", "def f(p, a):\n    return None\n"))
    assert (tally.parked, sent.outgoing) == (2, [])


def test_force_sends_again_and_says_how_many():
    sent, files = Sent(), {}
    replay(LETTERS[:4], sent, files)
    tally = replay(LETTERS[:5], sent, files, replay_id="second", force=True)
    assert (tally.replayed, tally.forced, tally.already) == (5, 4, 0)


def test_a_limit_counts_what_is_sent_and_goes_on_where_it_stopped():
    sent, files = Sent(), {}
    assert replay(LETTERS, sent, files, limit=15).replayed == 15
    assert replay(LETTERS, sent, files, limit=15, replay_id="second").replayed == 15
    assert replay(LETTERS, sent, files, limit=15, replay_id="third").replayed == 10
    assert len(set(sent.ids)) == len(sent.ids) == 40
    with pytest.raises(UsageError, match="--senders 1"):
        settings_of(limit=1, senders=2)


@pytest.mark.parametrize("rate", [0.5, 3.0, 20.0])
def test_the_rate_holds_over_the_whole_replay(rate):
    sent, clock = Sent(), Ticking()
    replay(LETTERS, sent, {}, rate=rate, clock=clock)
    assert max(count for _, count in sent.batches) <= max(1, rate)
    last = sent.batches[-1][1]
    assert clock.slept == pytest.approx((40 - last) / rate, rel=0.01)


def test_a_rate_does_not_make_anyone_wait_for_what_another_replay_has_sent():
    sent, files, first, second = Sent(), {}, Ticking(), Ticking()

    class Interrupted(Sent):
        def send(self, name, batch):
            if not sent.outgoing:  # while this one is at its first batch, another does all the others
                first_lane = int(name[5:7])
                others = [one for one in LETTERS if lane_of(one) != first_lane]
                replay(others, sent, files, replay_id="other", clock=first)
            return super().send(name, batch)

    slow = Interrupted()
    tally = replay(LETTERS, slow, files, rate=1000.0, clock=second)
    assert tally.replayed + tally.already == 40
    assert second.slept == 0


def test_the_rate_is_shared_by_the_senders():
    assert settings_of(rate=8.0, senders=4).sender_rate == 2.0
    assert settings_of(rate=8.0, senders=4).batch_rows == 2


def test_letters_of_an_ordering_key_are_sent_in_their_order():
    sent = Sent()
    keyed = [replace(one, ordering_key=f"k{i % 3}") for i, one in enumerate(LETTERS)]
    replay(keyed, sent, {})
    for key in ("k0", "k1", "k2"):
        assert [o.dlq_id for o in sent.outgoing if o.ordering_key == key] == [
            one.dlq_id for one in keyed if one.ordering_key == key
        ]


def test_spilled_payloads_are_read_back_and_checked():
    sent = Sent()
    whole = letter(0, payload=b"z" * 900)
    spilled = replace(whole, payload=None, payload_uri="dead/run=1/spill")
    assert replay([spilled], sent, {}, archives={"dead/run=1/spill": b"z" * 900}).replayed == 1
    assert sent.outgoing[0].payload == b"z" * 900
    for archives, uri, why in (
        ({}, "dead/run=1/spill", "is gone"),
        ({"dead/run=1/spill": b"y" * 900}, "dead/run=1/spill", "sha256"),
        ({"dead/run=1/spill": b"z" * 1001}, "dead/run=1/spill", "longer than the 1,000 bytes"),
        ({}, None, "nobody has told"),
    ):
        tally = replay([replace(spilled, payload_uri=uri, payload_length=900)], Sent(), {}, archives=archives)
        assert why in next(iter(tally.left)), why


@pytest.mark.parametrize(
    "uri",
    [
        "/etc/passwd",
        "etc",
        "dead/../secret",
        "deadly/spill",
        "dead/link/secret",
        "gs://other/secret",
        "file:///etc/passwd",
        "gs://mine/dead/../secret",
        "dead",
        "",
    ],
)
def test_a_letter_cannot_have_files_read_that_are_no_dead_letters(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "link").symlink_to("/etc")
    secret = letter(0, payload=b"secret")
    hostile = replace(secret, payload=None, payload_uri=uri, payload_length=0)
    sent, folders = Sent(), ("gs://mine/dead", "")
    tally = replay([hostile], sent, {}, archives={uri: b"secret"}, payload_folders=folders)
    assert sent.outgoing == []
    assert sum(tally.left.values()) == 1


def test_a_payload_in_a_file_needs_its_sha256_and_may_lie_in_a_folder_that_was_named():
    spilled = replace(letter(0, payload=b"z"), payload=None, payload_uri="gs://out/oversized/z")
    archives, named = {"gs://out/oversized/z": b"z"}, ("gs://out/oversized/",)
    assert replay([spilled], Sent(), {}, archives=archives, payload_folders=named).replayed == 1
    unsigned = replace(spilled, payload_sha256="")
    assert "not the sha256" in next(iter(replay([unsigned], Sent(), {}, archives=archives, payload_folders=named).left))


def test_the_good_part_of_a_damaged_archive_is_replayed_and_the_damage_told():
    sent = Sent()
    one, two = archive_of(LETTERS[:20]), archive_of(LETTERS[20:])
    tally = replay(letters_of({"one": one, "two": two[:-20]}), sent, {})
    assert tally.damaged == 1
    assert isinstance(tally.damage[0], Damage)
    assert set(sent.ids) == {letter.dlq_id for letter in LETTERS[:20]}


def test_a_slow_replay_that_was_taken_over_ends_without_harm():
    files, sent = {}, Sent()
    clock = Ticking()
    seen = []

    class Slow(Sent):
        def send(self, name, batch):
            refused = super().send(name, batch)
            if not seen:
                seen.append(name)
                late = Ticking()
                late.time = clock.time + timedelta(seconds=500)
                replay(LETTERS[:4], sent, files, replay_id="eager", clock=late)
            return refused

    slow = Slow()
    tally = replay(LETTERS[:4], slow, files, clock=clock)
    assert tally.balances
    total = Counter(slow.ids + sent.ids)
    assert set(total) == {one.dlq_id for one in LETTERS[:4]}
    first_lane = sum(lane_of(one) == int(seen[0][5:7]) for one in LETTERS[:4])
    assert sum(total.values()) == 4 + first_lane  # the batch that both held, as documented
    assert replay(LETTERS[:4], Sent(), files, replay_id="third").already == 4


def test_ids_are_those_of_the_project():
    assert LETTERS[0].dlq_id == dead_letter_id("f.jsonl#offset=0", LETTERS[0].payload_sha256)
