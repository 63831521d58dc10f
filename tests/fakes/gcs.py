"""A Cloud Storage emulator with credentials that cost no waiting: gs:// end to end, without a network."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest import mock

BUCKET = "headrace-test"


@contextlib.contextmanager
def storage_emulator(folder: Path) -> Iterator[str]:
    """Serve ``gs://headrace-test`` from memory while the body runs; yields that URI.

    ``folder`` takes the credentials. Raises ImportError where gcp-storage-emulator is not installed.
    """
    from gcp_storage_emulator.server import create_server

    with _token_server() as token_uri:
        key = folder / "service-account.json"
        key.write_text(json.dumps(_service_account(token_uri)))
        port = _free_port()
        server = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
        environment = {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}",
            "GOOGLE_APPLICATION_CREDENTIALS": str(key),
            "GOOGLE_CLOUD_PROJECT": "test-proj",
        }
        server.start()
        try:
            with mock.patch.dict(os.environ, environment):
                yield f"gs://{BUCKET}"
        finally:
            server.stop()


class _Tokens(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = b'{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}'
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _token_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="tokens")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _service_account(token_uri: str) -> dict[str, str]:
    """Credentials of nobody, whose tokens come from ``token_uri``."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "test-proj",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "nobody@test-proj.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
