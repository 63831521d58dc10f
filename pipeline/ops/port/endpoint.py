"""Where the Dataflow API is and with which credentials: Google's service, or a stand-in on this machine in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from pipeline.core.errors import UsageError

OVERRIDE = "DATAFLOW_EMULATOR_HOST"
_GOOGLE = "googleapis.com"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Endpoint:
    """Scheme and host of the API; ``anonymous`` goes without credentials, which only this machine may be asked."""

    host: str = "dataflow.googleapis.com"
    scheme: str = "https"
    anonymous: bool = False


def endpoint_of(option: str | None) -> Endpoint:
    """The endpoint that ``--dataflow_endpoint`` or DATAFLOW_EMULATOR_HOST names, or Google's.

    Raises UsageError for plain HTTP to another machine, where a token would go in clear, and for hosts of others.
    """
    given = option or os.environ.get(OVERRIDE) or ""
    if not given:
        return Endpoint()
    url = urlsplit(given if "://" in given else f"//{given}")
    try:
        host, port = url.hostname or "", f":{url.port}" if url.port else ""
    except ValueError as error:
        raise UsageError(f"the Dataflow endpoint {given!r} has no such port: {error}") from error
    if not host or url.path.strip("/") or url.query or url.username or url.scheme not in ("", "http", "https"):
        raise UsageError(f"the Dataflow endpoint {given!r} is not a host; write for example 127.0.0.1:8080")
    local = host in _LOOPBACK
    scheme = url.scheme or ("http" if local else "https")
    if scheme == "http" and not local:
        raise UsageError(
            f"the Dataflow endpoint {given!r} is plain HTTP; only this machine may be spoken to without TLS"
        )
    if not local and not host.endswith(f".{_GOOGLE}"):
        raise UsageError(
            f"the Dataflow endpoint {given!r} is neither this machine nor a host of {_GOOGLE}, and would get a token"
        )
    return Endpoint(f"[{host}]{port}" if ":" in host else f"{host}{port}", scheme, anonymous=local)
