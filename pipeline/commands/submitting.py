"""Handing a pipeline to a remote runner: its job's id, or what went wrong in words."""

from __future__ import annotations

import logging
from typing import Any

import apache_beam as beam
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError

from pipeline.core.errors import RefusedError
from pipeline.ops.port.api import ApiError
from pipeline.ops.port.failures import in_words

_LOG = logging.getLogger(__name__)


def submit(pipeline: beam.Pipeline, *, project: str | None = None) -> str:
    """Start the job and leave it to the runner; its id, or "" where the runner gives none.

    Under the launcher of a flex template there is none: Beam writes the job to ``--template_location``, and the
    service makes it from there. Raises RefusedError where a job of the name is active, ApiError where the service says
    no or cannot be asked.
    """
    try:
        result = pipeline.run()
        return str(result.job_id()) if getattr(result, "has_job", False) else ""
    except (GoogleAPICallError, GoogleAuthError) as error:
        _LOG.debug("not submitted", exc_info=True)
        raise in_words(error, "submit the job", kind="launch", project=project or "") from error
    except Exception as error:
        if _is_clash(error):
            raise RefusedError(f"{error} Change the running job with 'headrace job update'") from error
        raise


def may_have_been_made(error: BaseException) -> bool:
    """Whether a job may have come of a submission that ended with ``error``: its answer may be all that was lost."""
    if isinstance(error, ApiError):
        return error.carried_out is not False
    return not isinstance(error, RefusedError)


def _is_clash(error: Any) -> bool:
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError

    return isinstance(error, DataflowJobAlreadyExistsError)
