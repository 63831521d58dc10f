"""Log lines on stderr: short text for people, Cloud Logging's JSON structure for machines."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone

from pipeline.core.errors import UsageError

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_CHATTY = ("absl", "tensorflow", "apache_beam", "tensorflow_transform", "root")
# They log the trace of every exception that ends a local run, which the command then tells in words.
_RUNNERS = "apache_beam.runners."


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
    handler.addFilter(_is_worth_showing)
    handler.setFormatter(JsonFormatter() if chosen == "json" else logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("pipeline", "dlq_replay"):
        logging.getLogger(name).setLevel(_level())
    quiet_libraries()


def _level() -> str:
    level = os.environ.get("HEADRACE_LOG_LEVEL") or "INFO"
    if level.upper() not in _LEVELS:
        raise UsageError(f"HEADRACE_LOG_LEVEL is {level!r}; use one of {', '.join(_LEVELS)}")
    return level.upper()


def _is_worth_showing(record: logging.LogRecord) -> bool:
    """Libraries that set their own levels while they load (absl, TFT) are heard from ERROR on; traces on request."""
    ours = record.name.split(".")[0] in ("pipeline", "dlq_replay")
    if record.name.startswith(_RUNNERS) and record.levelno < logging.CRITICAL:
        return logging.getLogger("pipeline").isEnabledFor(logging.DEBUG)
    return ours or record.levelno >= logging.ERROR or record.name.split(".")[0] not in _CHATTY


def quiet_libraries() -> None:
    """Keep libraries' start-up chatter off stderr, and their arithmetic the same everywhere; before any import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN rounds differently from machine to machine
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)


@contextlib.contextmanager
def silent_imports() -> Iterator[None]:
    """Hold back what native libraries print to stderr while they load (absl, before its settings are read).

    What they said is shown after all if the import fails.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def traces_held_back() -> Iterator[None]:
    """Keep Beam's local worker from printing the trace of what ends a run; the command says it in words.

    It prints past logging. At HEADRACE_LOG_LEVEL=DEBUG the traces are shown.
    """
    from apache_beam.runners.worker import sdk_worker

    if logging.getLogger("pipeline").isEnabledFor(logging.DEBUG):
        yield
        return
    names = vars(sdk_worker)
    names["print"] = _say_nothing  # in front of the builtin, for that module
    try:
        yield
    finally:
        names.pop("print", None)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def words_of(error: Exception) -> str:
    """What ended a Beam run, without the traces that its message is made of: type, message and step."""
    lines = str(error).strip().splitlines()
    if "Traceback (most recent call last):" not in lines:
        return str(error)
    last_frame = max((at for at, line in enumerate(lines) if line.startswith("  ")), default=-1)
    return "\n".join(lines[last_frame + 1 :]).removeprefix("RuntimeError: ") or str(error)


def was_interrupted(error: Exception) -> bool:
    """Whether a Beam run was ended by an interruption that a worker met while it worked (runners hand on its text)."""
    return words_of(error).startswith("KeyboardInterrupt")
