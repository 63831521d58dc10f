"""The port on google-cloud-dataflow-client: plain calls with a time limit, repeated where that cannot do harm."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import dataflow_v1beta3 as api
from google.cloud.dataflow_v1beta3.services.flex_templates_service.transports import FlexTemplatesServiceRestTransport
from google.cloud.dataflow_v1beta3.services.jobs_v1_beta3.transports import JobsV1Beta3RestTransport
from google.cloud.dataflow_v1beta3.services.messages_v1_beta3.transports import MessagesV1Beta3RestTransport
from google.cloud.dataflow_v1beta3.services.metrics_v1_beta3.transports import MetricsV1Beta3RestTransport

from pipeline.core.records import Json
from pipeline.ops.port.api import Job, Message
from pipeline.ops.port.endpoint import Endpoint
from pipeline.ops.port.failures import in_words

_LOG = logging.getLogger(__name__)
_FIRST_DELAY, _ATTEMPTS = 1.0, 5  # 1 + 2 + 4 + 8 seconds
_PAGE = 100
_IMPORTANCE = ("debug", "detailed", "basic", "warning", "error")
_Answer = TypeVar("_Answer")


class DataflowClient:
    """The API of one project and region; see ``port.api.Dataflow`` for what its methods do.

    ``timeout`` is for one attempt, in seconds. Reading and changes that may be made twice are tried five times with
    growing delays; a launch is tried again only where it was certainly not carried out.
    """

    def __init__(
        self,
        project: str,
        region: str,
        *,
        endpoint: Endpoint,
        timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.project, self.region = project, region
        self._endpoint, self._timeout, self._sleep = endpoint, timeout, sleep
        self._clients: dict[str, Any] = {}

    def launch(self, request: Json) -> Job:
        """Launch once; an ApiError whose ``carried_out`` is None may have launched all the same."""
        answer = self._call("launch the job", self._flex, "launch_flex_template", _launch_request(self, request))
        return _job_of(answer.job)

    def validate(self, request: Json) -> None:
        """Let the service check a launch."""
        asked = _launch_request(self, request)
        asked.validate_only = True
        self._call("validate the launch", self._flex, "launch_flex_template", asked, repeat=True, kind="launch")

    def job(self, job_id: str, *, details: bool = False) -> Job:
        """The job as it is now."""
        view = api.JobView.JOB_VIEW_ALL if details else api.JobView.JOB_VIEW_SUMMARY
        request = api.GetJobRequest(project_id=self.project, location=self.region, job_id=job_id, view=view)
        return _job_of(self._read(f"read job {job_id}", self._jobs, "get_job", request))

    def jobs(self, *, name: str = "", active: bool = False, everywhere: bool = False) -> Sequence[Job]:
        """Jobs, newest first."""
        wanted = api.ListJobsRequest.Filter.ACTIVE if active else api.ListJobsRequest.Filter.ALL
        request = api.ListJobsRequest(project_id=self.project, filter=wanted, name=name, page_size=_PAGE)
        if not everywhere:
            request.location = self.region
        method = "aggregated_list_jobs" if everywhere else "list_jobs"
        found = self._read("list jobs", _all_of(self._jobs, method, "jobs"), "", request)
        return sorted((_job_of(job) for job in found if not name or job.name == name), key=_creation, reverse=True)

    def request_state(self, job_id: str, state: str) -> Job:
        """Ask a job to become DRAINED or CANCELLED."""
        job = api.Job(requested_state=api.JobState[f"JOB_STATE_{state}"])
        request = api.UpdateJobRequest(project_id=self.project, location=self.region, job_id=job_id, job=job)
        what = "drain" if state == "DRAINED" else "cancel"
        return _job_of(
            self._call(f"{what} job {job_id}", self._jobs, "update_job", request, repeat=True, kind="change")
        )

    def change_options(self, job_id: str, options: Mapping[str, float | int]) -> Job:
        """Change options of a running job."""
        request = api.UpdateJobRequest(
            project_id=self.project,
            location=self.region,
            job_id=job_id,
            job=api.Job(runtime_updatable_params=api.RuntimeUpdatableParams(**options)),
            update_mask={"paths": [f"runtime_updatable_params.{name}" for name in sorted(options)]},
        )
        what = f"change options of job {job_id}"
        return _job_of(self._call(what, self._jobs, "update_job", request, repeat=True, kind="change"))

    def messages(self, job_id: str, *, minimum: str = "warning") -> Sequence[Message]:
        """Messages of at least that importance, oldest first."""
        asked = api.JobMessageImportance[f"JOB_MESSAGE_{minimum.upper()}"]
        request = api.ListJobMessagesRequest(
            project_id=self.project,
            location=self.region,
            job_id=job_id,
            minimum_importance=asked,
            page_size=_PAGE,
        )
        pages = _all_of(self._messages, "list_job_messages", "job_messages")
        found = [_message_of(one) for one in self._read(f"read the messages of {job_id}", pages, "", request)]
        enough = _IMPORTANCE[_IMPORTANCE.index(minimum) :]
        return sorted((one for one in found if one.importance in enough), key=_time)

    def metrics(self, job_id: str) -> Mapping[str, float]:
        """Counters that are numbers, by name; tentative values left out."""
        request = api.GetJobMetricsRequest(project_id=self.project, location=self.region, job_id=job_id)
        answer = self._read(f"read the metrics of {job_id}", self._metrics, "get_job_metrics", request)
        return {
            update.name.name: float(update.scalar)
            for update in answer.metrics
            if "tentative" not in update.name.context and isinstance(update.scalar, int | float)
        }

    def _read(self, what: str, client: Callable[[], Any], method: str, request: Any) -> Any:
        return self._call(what, client, method, request, repeat=True, kind="read")

    def _call(
        self,
        what: str,
        client: Callable[[], Any],
        method: str,
        request: Any,
        *,
        repeat: bool = False,
        kind: str = "launch",
    ) -> Any:
        """Call, and again where that is safe: always with ``repeat``, else only where nothing can have happened."""
        delay = _FIRST_DELAY
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                call = getattr(client(), method) if method else client()
                return call(request=request, retry=None, timeout=self._timeout)
            except (GoogleAPICallError, GoogleAuthError, requests.exceptions.RequestException) as error:
                failure = in_words(error, what, kind=kind, project=self.project)
                safe = repeat or failure.carried_out is False
                if not safe or not failure.is_passing or attempt == _ATTEMPTS:
                    raise failure from error
                _LOG.info("%s; trying again in %g s", failure, delay)
                self._sleep(delay)
                delay *= 2
        raise AssertionError("unreachable")

    def _jobs(self) -> Any:
        return self._client("jobs", api.JobsV1Beta3Client, JobsV1Beta3RestTransport)

    def _flex(self) -> Any:
        return self._client("flex", api.FlexTemplatesServiceClient, FlexTemplatesServiceRestTransport)

    def _messages(self) -> Any:
        return self._client("messages", api.MessagesV1Beta3Client, MessagesV1Beta3RestTransport)

    def _metrics(self) -> Any:
        return self._client("metrics", api.MetricsV1Beta3Client, MetricsV1Beta3RestTransport)

    def _client(self, name: str, client: Any, transport: Any) -> Any:
        """Made when first needed: credentials are looked up here, and may be missing."""
        if name not in self._clients:
            where = {"host": self._endpoint.host, "url_scheme": self._endpoint.scheme}
            credentials = AnonymousCredentials() if self._endpoint.anonymous else None
            self._clients[name] = client(transport=transport(**where, credentials=credentials))
        return self._clients[name]


def _all_of(client: Callable[[], Any], method: str, items: str) -> Callable[[], Callable[..., list[Any]]]:
    """A call that reads all pages, whose requests fail and are tried again as one."""

    def made() -> Callable[..., list[Any]]:
        def call(*, request: Any, retry: None, timeout: float) -> list[Any]:
            pager = getattr(client(), method)(request=request, retry=retry, timeout=timeout)
            return [item for page in pager.pages for item in getattr(page, items)]

        return call

    return made


def _launch_request(client: DataflowClient, request: Json) -> Any:
    asked = api.LaunchFlexTemplateRequest.from_json(json.dumps(request))
    asked.project_id, asked.location = client.project, client.region
    return asked


def _job_of(job: Any) -> Job:
    pools = job.environment.worker_pools
    return Job(
        id=job.id,
        name=job.name,
        project=job.project_id,
        region=job.location,
        state=_short(api.JobState(job.current_state).name, "JOB_STATE_").upper(),
        kind=_short(job.type_.name, "JOB_TYPE_"),
        created=_utc(job.create_time),
        labels=dict(job.labels),
        replaces=job.replace_job_id,
        replaced_by=job.replaced_by_job_id,
        sdk=job.job_metadata.sdk_version.version,
        machine_type=pools[0].machine_type if pools else "",
        experiments=tuple(job.environment.experiments),
        staging_location=_staging_of(job.environment.sdk_pipeline_options),
        in_flight=_in_flight_of(job.runtime_updatable_params),
    )


def _in_flight_of(params: Any) -> dict[str, float]:
    names = ("min_num_workers", "max_num_workers", "worker_utilization_hint")
    return {name: getattr(params, name) for name in names if name in params}


def _staging_of(options: Any) -> str:
    """Where the SDK's runner staged the job's files, as its pipeline options say."""
    given = options.get("options") if options else None
    return str(given.get("staging_location") or "") if given else ""


def _message_of(message: Any) -> Message:
    importance = _short(message.message_importance.name, "JOB_MESSAGE_")
    return Message(message.id, _utc(message.time), importance, message.message_text)


def _short(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def _utc(moment: Any) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() if moment else 0, timezone.utc)


def _creation(job: Job) -> tuple[datetime, str]:
    return job.created, job.id


def _time(message: Message) -> tuple[datetime, str]:
    return message.time, message.id
