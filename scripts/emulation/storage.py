"""The Cloud Storage emulator as a process: buckets in memory, and credentials of nobody that cost no waiting.

Without default credentials every client looks for a metadata server first, which takes 20 seconds. So a key is
written whose tokens come from a tiny server here. Run: ``storage.py PORT BUCKET KEY_FILE``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

_PROJECT = "test-proj"


class _Tokens(BaseHTTPRequestHandler):
    """Gives everybody a token that says nothing."""

    def do_POST(self) -> None:
        """Answer a request for a token."""
        body = b'{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}'
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> int:
    """Serve until SIGTERM."""
    from gcp_storage_emulator.server import create_server

    port, bucket, key = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    threading.excepthook = lambda failed: (sys.__excepthook__(*failed[:3]), os._exit(1))  # its port may be taken
    tokens = HTTPServer(("127.0.0.1", 0), _Tokens)
    threading.Thread(target=tokens.serve_forever, daemon=True).start()
    write_key(key, f"http://127.0.0.1:{tokens.server_port}/token")
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket=bucket)
    server.start()
    print(f"listening on {port}", flush=True)
    stopped.wait()
    server.stop()
    return 0


def write_key(path: Path, token_uri: str) -> None:
    """Write a service account's key file, for nobody's account, readable by its owner only."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = {
        "type": "service_account",
        "project_id": _PROJECT,
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": f"nobody@{_PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(key, file)


if __name__ == "__main__":
    sys.exit(main())
