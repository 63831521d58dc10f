"""The port to Pub/Sub by Google's own client, which honours PUBSUB_EMULATOR_HOST. Every call ends in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type
from google.auth.exceptions import GoogleAuthError
from google.cloud import pubsub_v1

from pipeline.core.errors import HeadraceError, UsageError
from pipeline.core.pubsub_commands import ACK_DEADLINE_S, MAX_ATTEMPTS, RETENTION_DAYS
from pipeline.core.pubsub_creation import CreateTopic, Step
from pipeline.core.pubsub_facts import DAY, Absent, Held, Subscription, SubscriptionFacts, Topic, TopicFacts, Unseen

_SECONDS = 10.0  # for one attempt
_TRANSIENT = (exceptions.ServiceUnavailable, exceptions.InternalServerError, exceptions.DeadlineExceeded)
_RETRY = Retry(predicate=if_exception_type(*_TRANSIENT), initial=0.2, maximum=2.0, timeout=20.0)
_MOST_SUBSCRIPTIONS = 20  # of a topic that are looked at one by one
_EXPIRES_S = 31 * DAY  # where nothing was said when it was made
_T = TypeVar("_T")


class PubSubClient:
    """``PubSubPort`` by the service, with the caller's default credentials. Use it as a context manager."""

    def __init__(self) -> None:
        try:
            self._publisher = pubsub_v1.PublisherClient()
            self._subscriber = pubsub_v1.SubscriberClient()
        except GoogleAuthError as error:
            raise UsageError(
                f"there are no credentials for Pub/Sub ({error}); run: gcloud auth application-default login, "
                "or set GOOGLE_APPLICATION_CREDENTIALS to a key file, or PUBSUB_EMULATOR_HOST to an emulator"
            ) from error

    def __enter__(self) -> PubSubClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._subscriber.close()
        self._publisher.transport.close()

    def subscription(self, path: str) -> Subscription:
        """What is so about a subscription."""
        return _seen(path, lambda: _subscription_facts(self._get_subscription(path)))

    def topic(self, path: str, also: Sequence[str] = ()) -> Topic:
        """What is so about a topic and its subscriptions (the first 20 of them)."""
        return _seen(path, lambda: self._topic_facts(path, also))

    def held(self, resource: str, permission: str) -> Held:
        """Whether the caller holds a permission; unknown where the service does not say (as the emulator)."""
        client = self._subscriber if "/subscriptions/" in resource else self._publisher
        request = {"resource": resource, "permissions": [permission]}
        try:
            answer = client.test_iam_permissions(request=request, timeout=_SECONDS)
        except (exceptions.GoogleAPICallError, exceptions.RetryError, GoogleAuthError):
            return Held(resource, permission, None)
        return Held(resource, permission, permission in answer.permissions)

    def create(self, step: Step) -> bool:
        """Take a step; False where it is there already. Raises HeadraceError where the service refuses."""
        try:
            with _in_words(f"cannot make {step}"):
                if isinstance(step, CreateTopic):
                    self._publisher.create_topic(request={"name": step.path}, timeout=_SECONDS, retry=_RETRY)
                else:
                    request = _subscription_request(step.path, step.topic, step.net)
                    self._subscriber.create_subscription(request=request, timeout=_SECONDS, retry=_RETRY)
        except exceptions.AlreadyExists:
            return self._made_by_another(step)
        except (exceptions.PermissionDenied, exceptions.NotFound, exceptions.InvalidArgument) as error:
            raise UsageError(f"the service refuses to make {step}: {_message(error)}") from error
        return True

    def _made_by_another(self, step: Step) -> bool:
        """False if what is there under the name will do; raises UsageError for another topic's subscription."""
        if isinstance(step, CreateTopic):
            return False
        found = self.subscription(step.path)
        if isinstance(found, SubscriptionFacts) and found.topic != step.topic:
            raise UsageError(
                f"{step.path} is a subscription of {found.topic} already, not of {step.topic}; make one by another name"
            )
        return False

    def _get_subscription(self, path: str) -> Any:
        return self._subscriber.get_subscription(request={"subscription": path}, timeout=_SECONDS, retry=_RETRY)

    def _topic_facts(self, path: str, also: Sequence[str]) -> TopicFacts:
        topic = self._publisher.get_topic(request={"topic": path}, timeout=_SECONDS, retry=_RETRY)
        return TopicFacts(
            path,
            self._subscriptions_of(path, also),
            has_schema=bool(topic.schema_settings.schema),
            transforms=_active(topic),
        )

    def _subscriptions_of(self, path: str, also: Sequence[str]) -> tuple[SubscriptionFacts | Unseen, ...] | None:
        """None where the caller may not list them."""
        request = {"topic": path, "page_size": 100}
        try:
            pages = self._publisher.list_topic_subscriptions(request=request, timeout=_SECONDS, retry=_RETRY)
            listed = [name for name, _ in zip(pages, range(_MOST_SUBSCRIPTIONS), strict=False)]
        except (exceptions.GoogleAPICallError, exceptions.RetryError):
            return None
        kept: list[SubscriptionFacts | Unseen] = []
        for name in dict.fromkeys([*listed, *also]):
            found = self.subscription(name)
            if isinstance(found, Unseen) or (isinstance(found, SubscriptionFacts) and found.topic == path):
                kept.append(found)
        return tuple(kept)


def _seen(path: str, look: Callable[[], _T]) -> _T | Absent | Unseen:
    """What ``look`` sees; what keeps it from seeing, as a value."""
    try:
        with _in_words(f"cannot look at {path}"):
            return look()
    except exceptions.NotFound:
        return Absent(path)
    except exceptions.PermissionDenied as error:
        return Unseen(path, f"permission is denied ({_message(error)})")
    except exceptions.InvalidArgument as error:
        return Unseen(path, f"the service does not take the name ({_message(error)})")
    except HeadraceError as error:
        return Unseen(path, str(error), fatal=True)


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Faults that no other call would escape, as HeadraceError; answers about the thing itself pass."""
    try:
        yield
    except (exceptions.NotFound, exceptions.AlreadyExists, exceptions.PermissionDenied, exceptions.InvalidArgument):
        raise
    except (exceptions.Unauthenticated, GoogleAuthError) as error:
        raise HeadraceError(f"{what}: the credentials do not work ({_message(error)})") from error
    except (exceptions.GoogleAPICallError, exceptions.RetryError) as error:
        cause = error.cause if isinstance(error, exceptions.RetryError) and error.cause else error
        if "metadata from plugin failed" in str(cause):  # how grpc says that no token could be had
            raise HeadraceError(f"{what}: the credentials do not work ({_message(cause)})") from error
        raise HeadraceError(f"{what}: Pub/Sub does not answer ({_message(cause)})") from error


def _message(error: Any) -> str:
    return str(getattr(error, "message", "") or error or type(error).__name__)


def _subscription_facts(found: Any) -> SubscriptionFacts:
    expires: int | None = _EXPIRES_S
    if "expiration_policy" in found:
        expires = int(found.expiration_policy.ttl.total_seconds()) if "ttl" in found.expiration_policy else None
    return SubscriptionFacts(
        path=found.name,
        topic=found.topic,
        ack_deadline_s=found.ack_deadline_seconds,
        retention_s=int(found.message_retention_duration.total_seconds()),
        expires_after_s=expires,
        ordering=found.enable_message_ordering,
        exactly_once=found.enable_exactly_once_delivery,
        filter=found.filter,
        delivery=_delivery(found),
        detached=found.detached,
        transforms=_active(found),
        dead_letter_topic=found.dead_letter_policy.dead_letter_topic,
        max_delivery_attempts=found.dead_letter_policy.max_delivery_attempts,
    )


def _delivery(found: Any) -> str:
    if found.push_config.push_endpoint:
        return "push"
    exports = ("bigquery_config", "cloud_storage_config", "bigtable_config")  # the last is of later clients
    return next(
        (name.removesuffix("_config") for name in exports if name in type(found).meta.fields and name in found), "pull"
    )


def _active(found: Any) -> int:
    """How many message transforms are in force."""
    return sum(not transform.disabled for transform in getattr(found, "message_transforms", ()))


def _subscription_request(path: str, topic: str, net: str | None) -> dict[str, Any]:
    request: dict[str, Any] = {
        "name": path,
        "topic": topic,
        "ack_deadline_seconds": ACK_DEADLINE_S,
        "message_retention_duration": {"seconds": RETENTION_DAYS * DAY},
        "expiration_policy": {},  # there, and empty: never
    }
    if net:
        request["dead_letter_policy"] = {"dead_letter_topic": net, "max_delivery_attempts": MAX_ATTEMPTS}
    return request
