"""The Pub/Sub emulator as the tests use it, and how it is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from emulation import sdk
from fakes import pubsub as fake

COLLIDING = {"topic": "a", "data": "b", "retry": "c", "timeout": "d", "ordering_key": "e", "googx": "f"}


def test_what_is_published_comes_out_unchanged(pubsub):
    topic = pubsub.topic()
    subscription = pubsub.subscription(topic)
    sent = [
        (b"\xff\xfe", {}),
        (b"", {"only": "attributes"}),
        (b"x", COLLIDING),
        (b"y", {str(n): "z" for n in range(100)}),
    ]
    pubsub.publish(topic, *sent, b"plain")
    found = pubsub.pull_all(subscription, count=5)
    assert [(one.data, one.attributes) for one in found] == [*sent, (b"plain", {})]
    assert len({one.message_id for one in found}) == 5
    assert pubsub.pull_all(subscription) == []
    assert os.environ["PUBSUB_EMULATOR_HOST"] == pubsub.host


def test_many_messages_and_large_ones(pubsub_emulator):
    topic = pubsub_emulator.topic()
    subscription = pubsub_emulator.subscription(topic)
    sent = [b"%d" % n for n in range(2500)] + [b"x" * 7_500_000] * 2
    pubsub_emulator.publish(topic, *sent)
    assert sorted(one.data for one in pubsub_emulator.pull_all(subscription, count=2502)) == sorted(sent)


def test_names_are_fresh_and_the_environment_is_untouched(pubsub_emulator):
    assert pubsub_emulator.topic() != pubsub_emulator.topic()
    assert os.environ.get("PUBSUB_EMULATOR_HOST") != pubsub_emulator.host


def test_a_missing_message_is_an_assertion(pubsub_emulator):
    subscription = pubsub_emulator.subscription(pubsub_emulator.topic())
    with pytest.raises(AssertionError, match="0 of 1 messages"):
        pubsub_emulator.pull_all(subscription, count=1, seconds=0)


def test_it_starts_though_the_first_port_is_taken_meanwhile(pubsub_emulator, monkeypatch):
    taken = int(pubsub_emulator.host.rsplit(":", 1)[1])
    free = fake._free_port
    ports = iter([taken, free()])
    monkeypatch.setattr(fake, "_free_port", lambda: next(ports))
    with fake.running_emulator() as other:
        assert other.host != pubsub_emulator.host
        other.topic("same-name")
    pubsub_emulator.topic("same-name")


def an_sdk(folder: Path, *, emulator: bool = True) -> Path:
    launcher = folder / sdk.LAUNCHER
    launcher.parent.mkdir(parents=True)
    if emulator:
        launcher.write_text("#!/bin/sh\n")
        launcher.chmod(0o755)
    return folder


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.setattr(sdk, "USUAL_PLACES", ("~/google-cloud-sdk",))


def test_the_sdk_is_where_it_is_said_to_be_or_where_gcloud_leads_or_at_home(nowhere, tmp_path):
    named, led, home = (an_sdk(tmp_path / name) for name in ("named", "led", "home/google-cloud-sdk"))
    program(led / "bin" / "gcloud")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "gcloud").symlink_to(led / "bin" / "gcloud")
    everything = {"CLOUDSDK_ROOT_DIR": str(named), "PATH": str(tmp_path / "path"), "HOME": str(tmp_path / "home")}
    assert sdk.find_sdk(everything) == named
    del everything["CLOUDSDK_ROOT_DIR"]
    assert sdk.find_sdk(everything) == led
    assert sdk.find_sdk({**everything, "PATH": "/nowhere"}) == home


def test_an_sdk_without_the_emulator_gives_way_to_one_that_has_it(nowhere, tmp_path):
    bare, home = an_sdk(tmp_path / "bare", emulator=False), an_sdk(tmp_path / "home/google-cloud-sdk")
    found = {"CLOUDSDK_ROOT_DIR": str(bare), "PATH": "/nowhere", "HOME": str(tmp_path / "home")}
    assert sdk.find_sdk(found) == home


def test_what_is_missing_is_said_with_what_to_do(nowhere, tmp_path):
    with pytest.raises(sdk.Missing, match=r"no Google Cloud SDK here.*CLOUDSDK_ROOT_DIR"):
        sdk.find_sdk({"PATH": "/nowhere", "HOME": str(tmp_path)})
    bare = an_sdk(tmp_path / "bare", emulator=False)
    with pytest.raises(sdk.Missing, match="components install pubsub-emulator"):
        sdk.find_sdk({"CLOUDSDK_ROOT_DIR": str(bare), "PATH": "/nowhere", "HOME": str(tmp_path)})
    with pytest.raises(sdk.Missing, match="no java on the PATH"):
        sdk.check_java({"PATH": "/nowhere"})
    with pytest.raises(sdk.Missing, match="JAVA_HOME is /nowhere"):
        sdk.check_java({"PATH": os.environ["PATH"], "JAVA_HOME": "/nowhere"})
    sdk.check_java({"PATH": "/nowhere", "JAVA_HOME": str(program(tmp_path / "jre" / "bin" / "java").parents[1])})
