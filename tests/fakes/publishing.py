"""A Pub/Sub publisher service on loopback, real on the wire: it keeps what it takes, and fails where it is told to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from google.pubsub_v1.types import PublishRequest, PublishResponse, PubsubMessage

MAX_REQUEST_BYTES = 10_000_000


def broken_rule(message: PubsubMessage) -> str | None:
    """Which rule of the service a message breaks, or None."""
    if not message.data and not message.attributes:
        return "a message needs data or an attribute"
    if len(message.attributes) > 100:
        return "more than 100 attributes"
    for name, value in message.attributes.items():
        if not 0 < len(name.encode()) <= 256 or name.startswith("goog"):
            return f"attribute name {name[:300]!r}"
        if len(value.encode()) > 1024:
            return f"value of {name!r}"
    return "ordering key" if len(message.ordering_key.encode()) > 1024 else None


@dataclass
class Service:
    """``faults`` maps the number of a request (from 0) to the status that answers it. A status in ``lost`` is
    answered although the messages were taken. ``refuses`` says of a message what is wrong with it.
    """

    host: str = ""
    faults: dict[int, grpc.StatusCode] = field(default_factory=dict)
    lost: dict[int, grpc.StatusCode] = field(default_factory=dict)
    refuses: Callable[[PubsubMessage], str | None] = broken_rule
    taken: list[PubsubMessage] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    """Messages in each request, refused ones too."""
    topics: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, raw: bytes, context: grpc.ServicerContext) -> PublishResponse:
        """The method of the service."""
        request = PublishRequest.deserialize(raw)
        with self._lock:
            number = len(self.requests)
            self.requests.append(len(request.messages))
            if number in self.faults:
                context.abort(self.faults[number], "as told")
            wrong = self._wrong(request, len(raw))
            if wrong:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, wrong)
            if len({message.ordering_key for message in request.messages}) > 1:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "all messages must have the same ordering key")
            self.topics.add(request.topic)
            self.taken += request.messages
            if number in self.lost:
                context.abort(self.lost[number], "as told, after taking them")
            return PublishResponse(message_ids=[str(len(self.taken) + at) for at in range(len(request.messages))])

    def _wrong(self, request: PublishRequest, size_bytes: int) -> str | None:
        if not 0 < len(request.messages) <= 1000 or size_bytes > MAX_REQUEST_BYTES:
            return f"{len(request.messages)} messages in {size_bytes} bytes"
        return next((wrong for message in request.messages if (wrong := self.refuses(message))), None)

    @property
    def ids(self) -> list[str]:
        """The ``dlq_id`` of each message taken."""
        return [message.attributes["dlq_id"] for message in self.taken]


@contextlib.contextmanager
def running_service() -> Iterator[Service]:
    """The service, while the body runs."""
    service = Service()
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(
        service.publish, request_deserializer=None, response_serializer=PublishResponse.serialize
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", {"Publish": handler})]
    )
    service.host = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service
    finally:
        server.stop(None).wait()
