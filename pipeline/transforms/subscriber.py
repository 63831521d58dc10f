"""A client that pulls: Google's own, without its limit of 4 MiB a response when it talks to an emulator."""

from __future__ import annotations

import os
from typing import Any


def make_subscriber() -> Any:
    """A ``google.cloud.pubsub_v1.SubscriberClient``; honours PUBSUB_EMULATOR_HOST.

    For an emulator the library makes a channel of its own, which takes no response over 4 MiB: a pull that brings a
    larger one fails, and fails again each time the messages are given out anew, so that none of them ever arrives.
    """
    from google.cloud import pubsub_v1

    emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
    if not emulator:
        return pubsub_v1.SubscriberClient()
    import grpc  # type: ignore[import-untyped]

    transport = pubsub_v1.SubscriberClient.get_transport_class("grpc")
    channel = grpc.insecure_channel(emulator, options=[("grpc.max_receive_message_length", -1)])
    return pubsub_v1.SubscriberClient(transport=transport(channel=channel))
