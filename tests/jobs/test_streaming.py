"""The streaming graph on a test clock: windows, lateness, panes, shards, dead letters; nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from apache_beam.testing.test_stream import TestStream
from fakes.plays import SUBSCRIPTION, CopyProcessor, Play, Published, message, stream_settings
from fakes.runs import letters_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.windows import NEVER_CLOSED

TestStream.__test__ = False  # not a test
WINDOW_60 = "window=19700101T000100Z_19700101T000200Z"


def events() -> TestStream:
    """A stream whose watermark stands at 1970."""
    return TestStream().advance_watermark_to(0)


def test_rows_go_to_the_window_of_their_time(tmp_path):
    play = Play(tmp_path)
    play.run(
        events()
        .add_elements([message(b"a", 1), message(b"b", 59), message(b"c", 60), message(b"d", 130)])
        .advance_processing_time(10)
        .advance_watermark_to(200)
        .advance_watermark_to_infinity()
    )
    assert play.windows() == {
        "19700101T000000Z": [b"a", b"b"],
        "19700101T000100Z": [b"c"],
        "19700101T000200Z": [b"d"],
    }
    assert play.letters() == []
    assert Published.letters == []
    assert play.strangers() == set()


class StopProcessor(CopyProcessor):
    """Copies, and fails for the payload ``stop``: so a stream ends without the end of time, and without a drain."""

    def process(self, messages, *, closed_before_s):
        if any(one.payload == b"stop" for one in messages):
            raise RuntimeError("stop")
        return super().process(messages, closed_before_s=closed_before_s)


def stopped(play: Play, stream: TestStream) -> Play:
    """Play ``stream``, then stop dead."""
    stopping = replace(play, ports=replace(play.ports, processor=StopProcessor))
    with pytest.raises(RuntimeError, match="stop"):
        stopping.run(stream.add_elements([message(b"stop", 10_000)]).advance_processing_time(10))
    return play


@pytest.mark.parametrize(("watermark", "windows"), [(59, []), (61, ["19700101T000000Z"])])
def test_a_window_is_committed_when_it_ends_and_not_before(tmp_path, watermark, windows):
    stream = events().add_elements([message(b"a", 1)]).advance_processing_time(10).advance_watermark_to(watermark)
    assert list(stopped(Play(tmp_path), stream).windows()) == windows


@pytest.mark.parametrize(("seconds", "letters"), [(4, 0), (6, 1)])
def test_what_is_held_back_is_worked_on_after_the_wait(tmp_path, seconds, letters):
    stopped(Play(tmp_path), events().add_elements([message(b"bad", 1)]).advance_processing_time(seconds))
    assert len(Published.letters) == letters


def test_rows_within_the_allowed_lateness_become_further_shards_and_renew_the_manifest(tmp_path):
    play = Play(tmp_path)
    play.run(
        events()
        .add_elements([message(b"a", 1), message(b"z", 61)])
        .advance_processing_time(10)
        .advance_watermark_to(70)
        .add_elements([message(b"b", 2)])
        .advance_processing_time(10)
        .add_elements([message(b"c", 3)])
        .advance_processing_time(10)
        .advance_watermark_to_infinity()
    )
    assert play.windows() == {"19700101T000000Z": [b"a", b"b", b"c"], "19700101T000100Z": [b"z"]}
    shards = next(iter(play.manifests().values()))["shards"]
    assert sorted(shard["rows"] for shard in shards) == [1, 1, 1]
    assert play.letters() == []


def test_equal_rows_of_other_messages_are_each_written(tmp_path):
    play = Play(tmp_path)
    stream = events().advance_watermark_to(70)
    for second in (1, 2, 3):
        stream = stream.add_elements([message(b"same", second)]).advance_processing_time(10)
    play.run(stream.advance_watermark_to_infinity())
    assert play.windows() == {"19700101T000000Z": [b"same"] * 3}


class DelayedProcessor(CopyProcessor):
    """Copies rows of the first window, whenever they come."""

    def process(self, messages, *, closed_before_s):
        return super().process(
            [replace(one, event_time_us=1_000_000) for one in messages], closed_before_s=NEVER_CLOSED
        )


def test_rows_that_were_under_way_for_long_make_a_shard_a_windows_time_and_not_one_a_batch(tmp_path):
    play = Play(tmp_path, stream_settings(shards_per_window=1, max_batch_rows=1, allowed_lateness_seconds=0))
    play = replace(play, ports=replace(play.ports, processor=DelayedProcessor))
    stream, payloads = events(), [b"%d" % second for second in range(65, 240, 5)]
    for second, payload in zip(range(65, 240, 5), payloads, strict=True):
        stream = stream.advance_watermark_to(second).add_elements([message(payload, second)])
    play.run(stream.advance_watermark_to(300).advance_watermark_to_infinity())
    play.assert_once_each(payloads)
    (manifest,) = play.manifests().values()
    assert sorted(shard["rows"] for shard in manifest["shards"]) == [11, 12, 12], "of three windows' time"


def test_late_rows_by_their_own_timestamp_are_gathered_too_once_the_watermark_is_known(tmp_path):
    play = Play(tmp_path, stream_settings(shards_per_window=1, max_batch_rows=1, allowed_lateness_seconds=300))
    stream, payloads = events().add_elements([message(b"first", 1)]), [b"%d" % number for number in range(10)]
    # At 360 the key hears of the watermark: the first window ended long ago, and takes rows until then.
    stream = stream.advance_watermark_to(360).add_elements([message(b"next", 361)])
    for second, payload in enumerate(payloads):
        stream = stream.advance_watermark_to(370 + second).add_elements([message(payload, 61)])
    play.run(stream.advance_watermark_to(500).advance_watermark_to_infinity())
    play.assert_once_each([b"first", b"next", *payloads])
    assert [shard["rows"] for shard in play.manifests()[WINDOW_60]["shards"]] == [10]


def test_rows_after_the_allowed_lateness_are_dead_letters_with_their_bytes(tmp_path):
    play = Play(tmp_path)
    play.run(
        events()
        .add_elements([message(b"a", 1)])
        .advance_processing_time(10)
        .advance_watermark_to(119)  # the window ends at 60, and takes rows until 120
        .add_elements([message(b"in time", 2)])
        .advance_processing_time(10)
        .advance_watermark_to(120)
        .add_elements([message(b"too late", 3, origin="gate 7")])
        .advance_processing_time(10)
        .add_elements([message(b"now", 119)])
        .advance_watermark_to_infinity()
    )
    assert play.windows() == {"19700101T000000Z": [b"a", b"in time"], "19700101T000100Z": [b"now"]}
    (letter,) = play.letters()
    assert (letter["dlq_reason"], letter["dlq_stage"], letter["payload"]) == ("late_data", "shard", b"too late")
    assert letter["attributes"] == {"origin": "gate 7"}
    assert letter["dlq_source"] == f"{SUBSCRIPTION}#too late@3"
    assert letter["dlq_event_time"] == "1970-01-01T00:00:03Z"


def test_a_row_that_waited_here_while_its_window_closed_is_not_late(tmp_path):
    play = Play(tmp_path)
    play.run(
        events()
        .add_elements([message(b"first", 1)])
        .advance_processing_time(10)
        .advance_watermark_to(100)
        .add_elements([message(b"waiting", 2)])
        .advance_watermark_to(500)
        .advance_watermark_to_infinity()
    )
    assert play.windows() == {"19700101T000000Z": [b"first", b"waiting"]}


def test_windows_without_rows_write_nothing(tmp_path):
    play = Play(tmp_path)
    play.run(
        events()
        .add_elements([message(b"a", 1)])
        .advance_processing_time(10)
        .advance_watermark_to(3000)
        .add_elements([message(b"b", 3000), message(b"bad", 6000)])
        .advance_processing_time(10)
        .advance_watermark_to(9000)
        .advance_watermark_to_infinity()
    )
    assert list(play.windows()) == ["19700101T000000Z", "19700101T005000Z"]
    assert len(list(play.output.iterdir())) == 2
    assert [letter["payload"] for letter in play.letters()] == [b"bad"]


def test_nothing_at_all_writes_nothing_at_all(tmp_path):
    play = Play(tmp_path)
    play.run(events().advance_processing_time(10).advance_watermark_to_infinity())
    assert not play.output.exists()
    assert not play.dead.exists()


def test_a_shard_is_written_at_its_target_and_the_rest_when_the_window_ends(tmp_path):
    payloads = [b"%05d" % number for number in range(100)]  # a frame is 21 bytes, a batch of ten 210
    play = Play(tmp_path, stream_settings(max_batch_rows=10, shards_per_window=1, target_shard_bytes=600))
    stream = events()
    for at in range(0, 100, 10):
        stream = stream.add_elements([message(payload, 1) for payload in payloads[at : at + 10]])
    play.run(stream.advance_watermark_to(100).advance_watermark_to_infinity())
    shards = next(iter(play.manifests().values()))["shards"]
    assert sorted(shard["rows"] for shard in shards) == [10, 30, 30, 30]
    assert all(shard["bytes"] <= 600 + 210 for shard in shards)
    play.assert_once_each(payloads)


def test_rows_go_to_as_many_shards_as_asked_for(tmp_path):
    payloads = [b"x" * length for length in range(1, 40)]
    play = Play(tmp_path, stream_settings(shards_per_window=3))
    play.run(events().add_elements([message(payload, 5) for payload in payloads]).advance_watermark_to_infinity())
    (manifest,) = play.manifests().values()
    assert [shard["name"][:10] for shard in manifest["shards"]] == ["part-00000", "part-00001", "part-00002"]
    assert [shard["rows"] for shard in manifest["shards"]] == [13, 13, 13]
    play.assert_once_each(payloads)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_shards_are_compressed_whole(tmp_path, compression):
    import tensorflow as tf

    play = Play(tmp_path, stream_settings(shards_per_window=1, max_batch_rows=7), compression=compression)
    payloads = [b"%d" % number for number in range(50)]
    stream = events().add_elements([message(payload, 5) for payload in payloads]).advance_processing_time(10)
    play.run(stream.advance_watermark_to(100).advance_watermark_to_infinity())
    ((folder, manifest),) = play.manifests().items()
    (shard,) = manifest["shards"]
    records = tf.data.TFRecordDataset(str(play.output / folder / shard["name"]), compression.upper())
    assert sorted(records.as_numpy_iterator()) == sorted(payloads)
    assert manifest["compression"] == compression


def test_the_same_stream_gives_the_same_files(tmp_path):
    payloads = [b"%d" % number for number in range(60)]
    found = []
    for run, order in enumerate((payloads, payloads[::-1])):
        play = Play(tmp_path / str(run))
        play.run(events().add_elements([message(payload, 5) for payload in order]).advance_watermark_to_infinity())
        found.append({path.name: path.read_bytes() for path in play.output.rglob("*.tfrecord")})
    assert found[0] == found[1]


def test_letters_go_to_the_topic_and_to_the_archive(tmp_path):
    play = Play(tmp_path)
    payloads = [b"bad %d" % number for number in range(20)]
    play.run(events().add_elements([message(payload, 5) for payload in payloads]).advance_watermark_to_infinity())
    assert sorted(letter.payload for letter in Published.letters) == sorted(payloads)
    assert {letter.dlq_id for letter in Published.letters} == {letter["dlq_id"] for letter in letters_in(play.dead)}
    assert {letter.failed_at for letter in Published.letters} == {"1970-01-01T00:00:00Z"}
    assert {letter.job for letter in Published.letters} == {"test-job"}
    assert not play.output.exists()


@pytest.mark.parametrize(("topic", "archive"), [("", True), ("projects/test-proj/topics/dead", False)])
def test_a_destination_that_is_not_wanted_gets_nothing(tmp_path, topic, archive):
    play = Play(tmp_path, topic=topic, archive=archive)
    play.run(events().add_elements([message(b"bad", 5)]).advance_watermark_to_infinity())
    assert (len(Published.letters), len(letters_in(play.dead))) == (int(bool(topic)), int(archive))


@pytest.mark.parametrize(("redacted", "shown"), [(["t"], None), (["x"], "1970-01-01T00:00:05Z")])
def test_an_event_time_out_of_a_redacted_feature_is_not_told(tmp_path, redacted, shown):
    settings = stream_settings(event_time_feature="t", redact_features=frozenset(redacted))
    play = Play(tmp_path, settings=settings)
    play.run(events().add_elements([message(b"bad", 5)]).advance_watermark_to_infinity())
    assert [letter["dlq_event_time"] for letter in play.letters()] == [shown]


def test_messages_without_id_or_time_of_publishing_pass(tmp_path):
    from apache_beam.io.gcp.pubsub import PubsubMessage
    from apache_beam.transforms.window import TimestampedValue

    play = Play(tmp_path)
    bare = [PubsubMessage(b"a", None), PubsubMessage(None, {"only": "attributes"}), PubsubMessage(b"", {})]
    play.run(events().add_elements([TimestampedValue(one, 5) for one in bare]).advance_watermark_to_infinity())
    assert play.windows() == {"19700101T000000Z": [b"", b"", b"a"]}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(0, 400), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 8)),
        st.tuples(st.just("watermark"), st.integers(1, 200)),
    ),
    max_size=25,
)


EVENTS = (STEPS, st.integers(1, 5), st.integers(1, 300))
GIVEN = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@given(*EVENTS)
@settings(max_examples=5, **GIVEN)
def test_messages_in_are_rows_written_plus_dead_letters_whatever_happens_when(tmp_path_factory, steps, rows, target):
    assert_law(tmp_path_factory.mktemp("law"), steps, rows=rows, target=target)


@pytest.mark.slow
@given(*EVENTS)
@settings(max_examples=40, **GIVEN)
def test_messages_in_are_rows_written_plus_dead_letters_in_many_more_orders(tmp_path_factory, steps, rows, target):
    assert_law(tmp_path_factory.mktemp("law"), steps, rows=rows, target=target)


def assert_law(folder, steps, *, rows, target):
    """Play ``steps`` and count: each payload is once in a shard that a manifest names, or once in the archive."""
    play = Play(folder, stream_settings(max_batch_rows=rows, target_shard_bytes=target, batch_keys=2))
    stream, watermark, payloads = events(), 0, []
    for number, step in enumerate(steps):
        if step[0] == "message":
            payloads.append(b"%s%d" % (b"bad" if step[2] else b"row", number))
            stream = stream.add_elements([message(payloads[-1], step[1])])
        elif step[0] == "wait":
            stream = stream.advance_processing_time(step[1])
        else:
            watermark += step[1]
            stream = stream.advance_watermark_to(watermark)
    play.run(stream.advance_watermark_to_infinity())
    play.assert_once_each(payloads)
    assert play.strangers() == set()
    reasons = Counter(letter["dlq_reason"] for letter in play.letters())
    assert reasons["invalid_json"] == sum(payload.startswith(b"bad") for payload in payloads)
