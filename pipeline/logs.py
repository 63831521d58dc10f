"""Log lines on stderr: short text for people, Cloud Logging's JSON structure for machines."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timezone


class JsonFormatter(logging.Formatter):
    """One JSON object a line with ``severity``, ``time`` (RFC 3339), ``message`` and ``logger``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; control characters are escaped by JSON itself."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        return json.dumps(
            {
                "severity": record.levelname,
                "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
                "logger": record.name,
                "message": message,
            }
        )


def configure_logging(log_format: str | None) -> None:
    """Set up the root logger on stderr: our own lines from INFO, libraries' from WARNING.

    ``log_format`` None means text on a terminal and JSON elsewhere. HEADRACE_LOG_LEVEL overrides our level.
    """
    chosen = log_format or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if chosen == "json" else logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("pipeline", "dlq_replay"):
        logging.getLogger(name).setLevel(os.environ.get("HEADRACE_LOG_LEVEL", "INFO").upper())
    quiet_libraries()


def quiet_libraries() -> None:
    """Keep TensorFlow's and absl's start-up chatter off stderr; must run before they are imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for name in ("absl", "tensorflow", "apache_beam"):
        logging.getLogger(name).setLevel(logging.ERROR)
