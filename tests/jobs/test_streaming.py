"""The streaming graph on a test clock: windows, lateness, panes, shards, dead letters; nothing is lost or doubled."""

from __future__ import annotations

from apache_beam.testing.test_stream import TestStream
from fakes.streams import Play, Published, message


def test_rows_go_to_the_window_of_their_time(tmp_path):
    play = Play(tmp_path)
    play.run(
        TestStream()
        .advance_watermark_to(0)
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
