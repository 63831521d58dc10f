"""What went wrong with a call, in words: which permission, which quota, and whether it may have been carried out."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from pipeline.core.text import printable
from pipeline.ops.port.api import ApiError

_TEXT = 1000
_REFUSED = range(400, 500)

_NEEDS = {
    "launch": "dataflow.jobs.create (roles/dataflow.developer) and iam.serviceAccounts.actAs on the worker service "
    "account (roles/iam.serviceAccountUser)",
    "change": "dataflow.jobs.updateContents or dataflow.jobs.cancel (roles/dataflow.developer)",
    "read": "dataflow.jobs.get and dataflow.jobs.list (roles/dataflow.viewer)",
}


def in_words(error: Exception, what: str, *, kind: str, project: str) -> ApiError:
    """The ApiError of a failed call; ``what`` is what was wanted, ``kind`` is launch, change or read."""
    if isinstance(error, GoogleAPICallError):
        return _answered(error, what, kind=kind, project=project)
    if isinstance(error, DefaultCredentialsError):
        advice = "there are no Google credentials here; run: gcloud auth application-default login"
        return ApiError(f"cannot {what}: {advice}", code=401, carried_out=False)
    if isinstance(error, GoogleAuthError):
        return ApiError(f"cannot {what}: {_LOGIN} ({_text(error)})", code=401, carried_out=False)
    never_sent = isinstance(error, requests.exceptions.ConnectTimeout) or any(map(_is_refusal, _chain(error)))
    if isinstance(error, requests.exceptions.Timeout):
        return ApiError(f"cannot {what}: no answer in time", carried_out=False if never_sent else None)
    return ApiError(f"cannot {what}: no connection ({_text(error)})", carried_out=False if never_sent else None)


_LOGIN = "the credentials are not accepted (expired or revoked?); run: gcloud auth application-default login"


def _answered(error: GoogleAPICallError, what: str, *, kind: str, project: str) -> ApiError:
    code = int(error.code or 0)
    said = _text(error)
    if code == 401:
        said = f"{_LOGIN} ({said})"
    elif code == 403:
        said = f"permission denied in project {project}; it takes {_NEEDS[kind]}. The service says: {said}"
    elif code == 429:
        said = f"too many requests or a quota is used up; try again later. The service says: {said}"
    elif code >= 500:
        said = f"the service failed ({code}): {said}"
    return ApiError(
        f"cannot {what}: {said}", code=code, carried_out=False if code in _REFUSED and code != 408 else None
    )


def _text(error: Exception) -> str:
    return printable(str(getattr(error, "message", "") or error) or type(error).__name__, _TEXT)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it carries: requests wraps urllib3, which wraps the socket's."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        inner = getattr(error, "reason", None) or next((one for one in error.args if isinstance(one, Exception)), None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _is_refusal(error: BaseException) -> bool:
    """Whether nobody listened: then nothing was sent."""
    return isinstance(error, OSError) and error.errno in (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH)
