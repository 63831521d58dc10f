"""The README's evening with the dead-letter topic, command by command, on a topic with some hundred dead letters."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fakes.cli import Done, headrace

from pipeline.core.dead_letter import to_attributes
from pipeline.core.messages import RefusedMessage, letter_of, make_message
from pipeline.core.reasons import Reason
from pipeline.core.records import Fault

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("\n## An evening with the dead-letter topic\n")[2].partition("\n## ")[0]
PROJECT = "projects/my-project"
LETTERS, BROKEN = 300, 2
FLIGHT = {
    **{"year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830},
    **{"sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR"},
    **{"dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z"},
}


def flight(number: int, **changed: Any) -> bytes:
    row = {**FLIGHT, "flight": number, "air_time": 100 + number, "dep_delay": number % 90, "arr_delay": number % 80}
    return json.dumps({**row, **changed}, separators=(",", ":")).encode()


def dead_letter(number: int, payload: bytes, reason: Reason, message: str, feature: str | None) -> tuple[bytes, Any]:
    sent = make_message(
        payload, {"producer": "gate-7"}, message_id=str(number), publish_time_us=0, event_time_us=1_714_564_800_000_000
    )
    letter = letter_of(
        RefusedMessage(sent, (Fault(reason, message, feature),), sent.event_time_us),
        subscription=f"{PROJECT}/subscriptions/flights",
        job="flights",
        schema_fingerprint="f" * 64,
        failed_at="2999-12-31T12:00:00Z",  # since noon, whenever this runs
    )
    return letter.payload or b"", to_attributes(letter).attributes


@pytest.fixture
def place(pubsub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the quickstart leaves (a schema, a transform, dead letters), the topics, and the letters in theirs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    data = tmp_path / "quickstart-data"
    data.mkdir()
    wrong = [flight(number, air_time=f"{100 + number} min") for number in range(LETTERS)]
    (data / "good.jsonl").write_bytes(b"\n".join(map(flight, range(400))))
    (data / "flights.jsonl").write_bytes(b"\n".join([*map(flight, range(400)), *wrong[:20]]))
    schema, features = data / "schema.pbtxt", ROOT / "scripts" / "flights_features.yaml"
    good(headrace("schema", "infer", data / "good.jsonl", "--output", schema))
    where = ("--schema", schema, "--features", features)
    good(headrace("analyze", "--input", data / "good.jsonl", *where, "--output", data / "transform", "--threads", 1))
    out = ("--output", data / "out", "--dead_letters", data / "dead", "--threads", 1)
    good(headrace("run", "--input", data / "flights.jsonl", *where, *out))
    for name in ("flights", "flights-dead"):
        pubsub.publisher.create_topic(request={"name": f"{PROJECT}/topics/{name}"}, timeout=30)
        request = {"name": f"{PROJECT}/subscriptions/{name}", "topic": f"{PROJECT}/topics/{name}"}
        pubsub.subscriber.create_subscription(request=request, timeout=30)
    said = "feature 'air_time': expected an integer, found the string \"{} min\""
    letters = [dead_letter(n, row, Reason.WRONG_TYPE, said.format(100 + n), "air_time") for n, row in enumerate(wrong)]
    letters += [
        dead_letter(10**6 + n, b'{"year":2013,"mon', Reason.INVALID_JSON, "the row is not JSON at character 12", None)
        for n in range(BROKEN)
    ]
    pubsub.publish(f"{PROJECT}/topics/flights-dead", *letters)
    (tmp_path / "fixes.yaml").write_text(re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)[0])
    return pubsub


def good(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


@pytest.mark.slow
def test_every_command_of_the_evening_works(place: Any) -> None:
    said = []
    for command in re.findall(r"^\$ (.+)$", SECTION, flags=re.MULTILINE):
        program, *words = shlex.split(command)
        assert program == "headrace"
        waits = ("--idle_seconds", 2) if "flights-dead" in command else ()
        said.append(good(headrace(*words, *waits)).out)
        print(f"$ {command}\n{said[-1]}")
    summary, shown, exported, proof, replayed, kept, shards = said
    assert f"{LETTERS + BROKEN} dead letters" in summary
    assert f"{LETTERS}  wrong_type" in summary
    assert "min" in shown
    assert f"{LETTERS + BROKEN} dead letters written" in exported
    assert re.search(rf"would pass +{LETTERS}\n", proof)
    assert re.search(rf"would fail +{BROKEN}\n", proof)
    assert re.search(rf"replayed +{LETTERS} ", replayed)
    assert f"{LETTERS} dead letters" in kept
    assert re.search(r"replayed +20 ", shards)
    back = place.pull_all(f"{PROJECT}/subscriptions/flights", LETTERS)
    assert sorted(json.loads(one.data)["air_time"] for one in back) == [100 + n for n in range(LETTERS)]
    left = place.pull_all(f"{PROJECT}/subscriptions/flights-dead", BROKEN)
    assert [one.attributes["dlq_reason"] for one in left] == ["invalid_json"] * BROKEN
