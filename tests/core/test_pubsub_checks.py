"""What preflight says about topics and subscriptions: pure judgement of facts, and what it would create."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.pubsub_port import FakePubSub
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.core.findings import Finding, Level, problem, problems
from pipeline.core.pubsub_checks import findings_of
from pipeline.core.pubsub_creation import CreateSubscription, CreateTopic
from pipeline.core.pubsub_facts import DAY, StreamFacts, SubscriptionFacts, TopicFacts, Unseen, Wanted, check_path
from pipeline.readiness.port import create_missing, gather

IN, SUB = "projects/test-proj/topics/in", "projects/test-proj/subscriptions/sub"
DEAD, KEEP = "projects/test-proj/topics/dead", "projects/test-proj/subscriptions/dead-sub"
WANTED = Wanted(SUB, DEAD)
GOOD = SubscriptionFacts(SUB, IN, dead_letter_topic=DEAD, max_delivery_attempts=100)


def a_service(subscription: SubscriptionFacts | None = GOOD, **kept: object) -> FakePubSub:
    fake = FakePubSub({IN: TopicFacts(IN), DEAD: TopicFacts(DEAD)}, {KEEP: SubscriptionFacts(KEEP, DEAD, **kept)})
    if subscription:
        fake.subscriptions[SUB] = subscription
    return fake


def judged(fake: FakePubSub, wanted: Wanted = WANTED) -> list[Finding]:
    return findings_of(gather(fake, wanted), wanted)


def bad(found: list[Finding]) -> list[tuple[Level, str]]:
    return [(one.level, one.what) for one in found if one.level in (Level.WARNING, Level.PROBLEM)]


def only(found: list[Finding], level: Level) -> Finding:
    [one] = [one for one in found if one.level in (Level.WARNING, Level.PROBLEM)]
    assert one.level is level
    assert one.todo, "a person must be told what to do"
    return one


def test_when_all_is_well_nothing_has_to_be_done():
    found = judged(a_service())
    assert bad(found) == []
    assert [one.about for one in found if one.level is Level.OK] == [
        *("subscription", "dead-letter topic", "second net", "permissions", "permissions"),
    ]


@pytest.mark.parametrize(
    ("change", "level", "says", "todo"),
    [
        ({"topic": "_deleted-topic_"}, Level.PROBLEM, "was deleted", "subscriptions delete"),
        ({"detached": True}, Level.PROBLEM, "detached", "subscriptions delete"),
        ({"delivery": "push"}, Level.PROBLEM, "sends its messages away (push)", f"create {SUB}-headrace --topic={IN}"),
        ({"delivery": "bigquery"}, Level.PROBLEM, "bigquery", "subscriptions create"),
        ({"ack_deadline_s": 10}, Level.WARNING, "within 10 s", "--ack-deadline=60"),
        ({"ordering": True}, Level.WARNING, "ordering is on", f"create {SUB}-headrace"),
        ({"exactly_once": True}, Level.WARNING, "exactly-once", "--no-enable-exactly-once-delivery"),
        ({"filter": 'attributes:x="\x1b"'}, Level.WARNING, "filter", "only a new subscription"),
        ({"transforms": 1}, Level.WARNING, "transforms", "--clear-message-transforms"),
        ({"expires_after_s": 31 * DAY}, Level.WARNING, "after 31 days without", "--expiration-period=never"),
        ({"retention_s": DAY}, Level.WARNING, "for 1 day,", "--message-retention-duration=7d"),
        ({"retention_s": 600}, Level.WARNING, "0.167 hours", "--message-retention-duration=7d"),
        ({"dead_letter_topic": ""}, Level.WARNING, "no native dead-letter policy", f"--dead-letter-topic={DEAD}"),
        ({"max_delivery_attempts": 5}, Level.WARNING, "after 5 deliveries", "--max-delivery-attempts=100"),
        ({"dead_letter_topic": IN}, Level.PROBLEM, "back into the job", f"--dead-letter-topic={DEAD}"),
        ({"dead_letter_topic": "_deleted-topic_"}, Level.PROBLEM, "or nowhere", f"--dead-letter-topic={DEAD}"),
        ({"dead_letter_topic": f"{DEAD}-2"}, Level.WARNING, "which is not there", f"topics create {DEAD}-2"),
    ],
)
def test_each_setting_of_the_subscription_that_hurts_is_one_finding(change, level, says, todo):
    finding = only(judged(a_service(replace(GOOD, **change))), level)
    assert says in finding.what
    assert todo in finding.todo


def test_a_second_net_that_nobody_subscribes_to_is_told():
    fake = a_service(replace(GOOD, dead_letter_topic=f"{DEAD}-2"))
    fake.topics[f"{DEAD}-2"] = TopicFacts(f"{DEAD}-2")
    assert "nobody subscribes" in only(judged(fake), Level.WARNING).what


def test_a_missing_subscription_is_a_problem_that_says_how_to_make_it():
    finding = only(judged(a_service(None)), Level.PROBLEM)
    assert f"subscriptions create {SUB}" in finding.todo
    assert "--input_topic" in finding.todo
    finding = only(judged(a_service(None), replace(WANTED, input_topic=IN)), Level.PROBLEM)
    assert f"--topic={IN} --expiration-period=never" in finding.todo
    finding = only(judged(a_service(None), replace(WANTED, input_topic=f"{IN}-2")), Level.PROBLEM)
    assert f"topics create {IN}-2 && " in finding.todo


def test_a_dead_letter_topic_without_a_subscription_is_refused_and_says_how_to_create_one():
    fake = a_service()
    del fake.subscriptions[KEEP]
    finding = only(judged(fake), Level.PROBLEM)
    assert "has no subscription: what is published there is lost" in finding.what
    assert f"gcloud pubsub subscriptions create {KEEP} --topic={DEAD} --expiration-period=never" in finding.todo
    fake.subscriptions[KEEP] = SubscriptionFacts(KEEP, DEAD, detached=True)
    assert "no subscription" in only(judged(fake), Level.PROBLEM).what


def test_a_missing_dead_letter_topic_is_a_problem():
    fake = a_service()
    del fake.topics[DEAD]
    assert f"topics create {DEAD} && " in only(judged(fake), Level.PROBLEM).todo


def test_dead_letters_must_not_come_back_as_input():
    fake = a_service(replace(GOOD, dead_letter_topic=DEAD))
    loop = Wanted(SUB, IN)
    assert "would come back, for ever" in only(judged(fake, loop), Level.PROBLEM).what
    fake = a_service(None)
    assert "would come back" in bad(judged(fake, replace(loop, input_topic=IN)))[1][1]
    with pytest.raises(UsageError, match="cannot be both"):
        create_missing(fake, replace(loop, input_topic=IN))


def test_a_dead_letter_topic_with_a_schema_would_refuse_what_is_malformed():
    fake = a_service()
    fake.topics[DEAD] = TopicFacts(DEAD, has_schema=True)
    assert "would try for ever" in only(judged(fake), Level.PROBLEM).what
    fake.topics[DEAD] = TopicFacts(DEAD, transforms=1)
    assert "byte for byte" in only(judged(fake), Level.WARNING).what


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ({"filter": "x"}, "has a filter"),
        ({"expires_after_s": 31 * DAY}, "is deleted"),
        ({"retention_s": DAY}, "keeps dead letters for 1 day"),
    ],
)
def test_those_who_keep_dead_letters_must_really_keep_them(kept, says):
    assert says in only(judged(a_service(**kept)), Level.WARNING).what


def test_one_subscription_without_a_filter_is_enough():
    fake = a_service(filter="x")
    fake.subscriptions[f"{KEEP}-2"] = SubscriptionFacts(f"{KEEP}-2", DEAD, delivery="push", retention_s=60)
    assert bad(judged(fake)) == []


def test_what_may_not_be_seen_is_unknown_and_no_refusal():
    fake = a_service()
    fake.unseen = {SUB: Unseen(SUB, "permission is denied"), DEAD: Unseen(DEAD, "permission is denied")}
    found = judged(fake)
    assert bad(found) == []
    assert [one.about for one in found if one.level is Level.UNKNOWN] == ["subscription", "dead-letter topic"]
    facts = StreamFacts(GOOD, TopicFacts(DEAD, None))
    assert "cannot be seen" in next(one.what for one in findings_of(facts, WANTED) if one.about == "dead-letter topic")


def test_without_credentials_or_service_there_is_one_problem():
    fake = a_service()
    fake.unseen = {SUB: Unseen(SUB, "the credentials do not work (expired)", fatal=True)}
    finding = only(judged(fake), Level.PROBLEM)
    assert "gcloud auth application-default login" in finding.todo
    fake.unseen = {SUB: Unseen(SUB, "Pub/Sub does not answer", fatal=True)}
    assert [one.level for one in judged(fake)] == [Level.PROBLEM]


def test_permissions_decide_where_the_caller_does_the_work():
    fake = a_service()
    fake.permissions = False
    local = judged(fake)
    assert [one.what.split(" on ")[0] for one in problems(local)] == [
        "you do not hold pubsub.subscriptions.consume",
        "you do not hold pubsub.topics.publish",
    ]
    assert "--role=roles/pubsub.subscriber" in problems(local)[0].todo
    remote = judged(fake, replace(WANTED, local=False, account="w@p.iam.gserviceaccount.com"))
    assert problems(remote) == []
    assert "serviceAccount:w@p.iam.gserviceaccount.com" in remote[-1].todo
    fake.permissions = None
    assert [one.level for one in judged(fake)[-2:]] == [Level.UNKNOWN, Level.UNKNOWN]


def test_a_job_without_a_dead_letter_topic_is_not_asked_about_one():
    found = judged(a_service(), Wanted(SUB))
    assert bad(found) == []
    assert "dead-letter topic" not in [one.about for one in found]


MISSING = st.sets(st.sampled_from(["in", "sub", "dead", "keep"]))


@given(MISSING, st.booleans())
def test_what_is_missing_is_made_once_and_then_all_is_well(missing, lag):
    fake = a_service()
    for key, name in (("in", IN), ("dead", DEAD)):
        if key in missing:
            del fake.topics[name]
    for key, name, topic in (("sub", SUB, "in"), ("keep", KEEP, "dead")):
        if key in missing or topic in missing:
            del fake.subscriptions[name]
    if lag:
        fake.lag = {KEEP, SUB}
        if KEEP in fake.subscriptions:
            return  # the service lists what is old
    there = {**fake.topics, **fake.subscriptions}
    wanted = replace(WANTED, input_topic=IN)
    made = create_missing(fake, wanted)
    also = [step.path for step in made if isinstance(step, CreateSubscription)]
    assert {step.path for step in made}.isdisjoint(there)
    assert bad(findings_of(gather(fake, wanted, also=also), wanted)) == []
    for name, before in there.items():
        assert (fake.topics.get(name) or fake.subscriptions.get(name)) == before, "what is there is not changed"
    fake.lag = set()
    assert create_missing(fake, wanted) == []


def test_what_it_makes_is_said():
    fake = FakePubSub()
    made = create_missing(fake, replace(WANTED, input_topic=IN))
    assert [type(step) for step in made] == [CreateTopic, CreateTopic, CreateSubscription, CreateSubscription]
    assert str(made[-1]) == (
        f"subscription {SUB} to {IN} (never expires, keeps messages 7 days, acknowledgement within 60 s, "
        f"after 100 deliveries to {DEAD})"
    )


def test_a_subscription_of_no_topic_cannot_be_made():
    with pytest.raises(UsageError, match="--input_topic"):
        create_missing(a_service(None), WANTED)


@pytest.mark.parametrize(
    "path",
    [
        *("", "s", "projects/p/topics/x", "projects/test-proj/topics/x", "projects/test-proj/subscriptions/"),
        *("projects/test-proj/subscriptions/googs", "projects/test-proj/subscriptions/1bc", f"{SUB}/x", f"{SUB}\n"),
        *(f"projects/test-proj/subscriptions/a{'b' * 255}", "projects/Test-proj/subscriptions/sub"),
    ],
)
def test_names_that_the_service_would_not_take_are_refused_in_words(path):
    with pytest.raises(UsageError, match="is not the whole name of a subscription"):
        check_path("input_subscription", path, "subscriptions")


@pytest.mark.parametrize("path", [SUB, "projects/example.com:my-proj/subscriptions/A.b~c%20+d_e"])
def test_good_names_pass(path):
    assert check_path("input_subscription", path, "subscriptions") == path


def test_a_finding_cannot_harm_a_terminal():
    assert problem("a", "b\x1b[2J", "c\nd").lines() == ["problem  a: b\\x1b[2J", "         -> c\\x0ad"]
