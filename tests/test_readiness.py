"""Preflight with a Pub/Sub that answers: the emulator, and the very gcloud commands that findings show."""

from __future__ import annotations

import os
import subprocess
from argparse import Namespace

import pytest
from fakes.cli import need_gcloud
from fakes.pubsub_port import FakePubSub
from google.api_core import exceptions

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.findings import Level, problems
from pipeline.core.pubsub_checks import findings_of
from pipeline.core.pubsub_creation import CreateSubscription, CreateTopic
from pipeline.core.pubsub_facts import Absent, SubscriptionFacts, TopicFacts, Unseen, Wanted
from pipeline.readiness import pubsub as real
from pipeline.readiness import stream
from pipeline.readiness.port import create_missing, gather


def wanted_in(pubsub, **more: str) -> Wanted:
    names = {name: pubsub._fresh(name.replace("_", "-")) for name in ("input_topic", "dead_letter_topic")}
    given = {name: f"projects/{pubsub.project}/topics/{fresh}" for name, fresh in names.items()} | more
    subscription = f"projects/{pubsub.project}/subscriptions/{pubsub._fresh('sub')}"
    return stream.wanted_of(Namespace(input_subscription=subscription, **given), local=True)


def test_what_is_missing_is_told_made_and_then_well(pubsub):
    wanted = wanted_in(pubsub)
    assert [one.about for one in problems(stream.check(wanted))] == ["subscription", "dead-letter topic"]
    with pytest.raises(UsageError, match="Pub/Sub is not ready for this job:\nproblem"):
        stream.require_ready(wanted)
    made = stream.create(wanted)
    assert [type(step) for step in made] == [CreateTopic, CreateTopic, CreateSubscription, CreateSubscription]
    found = stream.check(wanted, made=made)
    assert {one.level for one in found} == {Level.OK, Level.UNKNOWN}
    assert stream.require_ready(wanted) == found
    assert stream.create(wanted) == []
    kept = pubsub.subscriber.get_subscription(request={"subscription": wanted.subscription}, timeout=10)
    assert kept.message_retention_duration.days == 7
    assert "expiration_policy" in kept
    assert "ttl" not in kept.expiration_policy
    assert kept.dead_letter_policy.dead_letter_topic == wanted.dead_letter_topic


def test_facts_are_what_the_service_has(pubsub):
    topic, net = pubsub.topic(), pubsub.topic()
    path = pubsub.subscription(
        topic,
        ack_deadline_seconds=11,
        enable_message_ordering=True,
        enable_exactly_once_delivery=True,
        filter='attributes.a = "b"',
        expiration_policy={"ttl": {"seconds": 86_400}},
        message_retention_duration={"seconds": 3600},
        dead_letter_policy={"dead_letter_topic": net, "max_delivery_attempts": 7},
    )
    expected = SubscriptionFacts(
        path, topic, 11, 3600, 86_400, True, True, 'attributes.a = "b"', "pull", False, 0, net, 7
    )
    pushed = pubsub.subscription(topic, push_config={"push_endpoint": "http://127.0.0.1:1/"})
    with real.PubSubClient() as client:
        assert client.subscription(path) == expected
        assert client.subscription(pushed).delivery == "push"
        seen = client.topic(topic)
        assert {one.path for one in seen.subscriptions} == {path, pushed}
        assert (seen.has_schema, seen.transforms) == (False, 0)
        assert client.topic(f"{topic}-no") == Absent(f"{topic}-no")
        assert client.subscription(f"{path}-no") == Absent(f"{path}-no")
        assert client.held(topic, "pubsub.topics.publish").held is None, "the emulator knows no permissions"
        pubsub.publisher.delete_topic(request={"topic": topic}, timeout=10)
        assert client.subscription(path).topic_deleted


def test_the_name_of_another_topics_subscription_is_not_taken_over(pubsub):
    wanted = wanted_in(pubsub)
    stream.create(wanted)
    other = pubsub.topic()
    with real.PubSubClient() as client, pytest.raises(UsageError, match=r"is a subscription of .* already"):
        client.create(CreateSubscription(wanted.subscription, other))
    with real.PubSubClient() as client:
        assert not client.create(CreateTopic(other)), "another was faster"
        with pytest.raises(UsageError, match="refuses to make subscription"):
            client.create(CreateSubscription(f"{wanted.subscription}-2", f"{other}-no"))


def test_a_service_that_does_not_answer_is_one_problem(monkeypatch):
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    monkeypatch.setattr(real, "_RETRY", None)
    wanted = Wanted("projects/test-proj/subscriptions/sub", "projects/test-proj/topics/dead")
    [finding] = stream.check(wanted)
    assert (finding.level, "does not answer" in finding.what) == (Level.PROBLEM, True)
    with pytest.raises(HeadraceError, match="does not answer"):
        stream.create(Wanted(wanted.subscription, None, "projects/test-proj/topics/in"))


def test_no_credentials_is_said_in_words(monkeypatch, tmp_path):
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    [finding] = stream.check(Wanted("projects/test-proj/subscriptions/sub"))
    assert finding.level is Level.PROBLEM
    assert "gcloud auth application-default login" in finding.what


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (exceptions.PermissionDenied("User not authorized"), "permission is denied (User not authorized)"),
        (exceptions.InvalidArgument("bad name"), "does not take the name"),
        (exceptions.Unauthenticated("no token"), "credentials do not work (no token)"),
        (exceptions.ServiceUnavailable("Getting metadata from plugin failed with error: x"), "credentials do not work"),
        (exceptions.RetryError("timeout", exceptions.ServiceUnavailable("down")), "does not answer (down)"),
        (exceptions.DeadlineExceeded("late"), "does not answer (late)"),
        (exceptions.TooManyRequests("slow down"), "does not answer (slow down)"),
    ],
)
def test_faults_are_values_with_words(error, seen):
    def look():
        raise error

    found = real._seen("projects/p/topics/t", look)
    assert isinstance(found, Unseen)
    assert seen in found.why
    assert found.fatal is not isinstance(error, (exceptions.PermissionDenied, exceptions.InvalidArgument))


def test_warnings_do_not_stop_a_launch_but_are_logged(caplog):
    path, topic = "projects/test-proj/subscriptions/sub", "projects/test-proj/topics/in"
    fake = FakePubSub({topic: TopicFacts(topic)}, {path: SubscriptionFacts(path, topic, ack_deadline_s=10)})
    stream.require_ready(Wanted(path), fake)
    assert "delivered again" in caplog.text
    assert "--ack-deadline=60" in caplog.text


def test_names_are_checked_before_anything_is_looked_at():
    given = {"input_subscription": "projects/test-proj/subscriptions/sub", "dead_letter_topic": "dead"}
    with pytest.raises(UsageError, match="--dead_letter_topic 'dead' is not the whole name of a topic"):
        stream.wanted_of(Namespace(**given), local=True)


@pytest.mark.slow
def test_the_commands_that_are_shown_work_as_they_are(pubsub, tmp_path):
    """Runs what each finding says with the real gcloud against the emulator, until nothing is left to say."""
    need_gcloud()
    wanted = wanted_in(pubsub)
    with real.PubSubClient() as client:
        shown = [one.todo.split("   (or:")[0] for one in problems(findings_of(gather(client, wanted), wanted))]
        assert len(shown) == 2
        for command in shown:
            gcloud(command, pubsub, tmp_path)
        [left] = [one for one in findings_of(gather(client, wanted), wanted) if one.level is Level.WARNING]
        assert left.about == "second net"
        gcloud(left.todo, pubsub, tmp_path)
        left = findings_of(gather(client, wanted), wanted)
        assert {one.level for one in left} == {Level.OK, Level.UNKNOWN}
        assert create_missing(client, wanted) == []


def gcloud(command: str, pubsub, folder) -> None:
    environment = {
        **os.environ,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"http://{pubsub.host}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": pubsub.project,
        "CLOUDSDK_CONFIG": str(folder),
    }
    done = subprocess.run(
        ["bash", "-ec", command], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
