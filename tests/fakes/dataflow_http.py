"""The service of ``fakes.dataflow`` over HTTP, for our client, gcloud and Beam's runner alike; and faults by script.

A fault meets the next requests that match it, before or after the request is carried out: an answer that is lost after
the launch is what makes a second launch dangerous.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.cloud import dataflow_v1beta3 as api
from google.protobuf import json_format

from fakes.dataflow import ACTIVE, FakeDataflow, Json, Refusal

_PATH = re.compile(
    r"^/v1b3/projects/(?P<project>[^/:]+)(?:/locations/(?P<region>[^/]+))?/"
    r"(?P<what>flexTemplates:launch|jobs:aggregated|jobs/(?P<id>[^/]+)/(?P<part>messages|metrics)|jobs/(?P<job>[^/]+)"
    r"|jobs)$"
)
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_VIEWS = {0: "", 1: "JOB_VIEW_SUMMARY", 2: "JOB_VIEW_ALL", 3: "JOB_VIEW_DESCRIPTION"}


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests whose ``METHOD path`` contains ``at``.

    The first ``skip`` of them are let through, and all before a request that contains ``follows`` was seen.
    ``kind`` is an HTTP code, "reset" (the connection is closed) or "hang" (no answer comes); ``after`` lets the request
    be carried out first. ``text`` is what the service says.
    """

    kind: int | str
    at: str = ""
    times: int = 1
    after: bool = False
    skip: int = 0
    follows: str = ""
    text: str = ""


class Service:
    """A running fake: ``url``, the ``state`` behind it, the ``faults`` to come and the ``requests`` it has seen."""

    def __init__(self) -> None:
        self.state = FakeDataflow()
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, Json]] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.url = ""

    def fail(self, kind: int | str, at: str = "", **more: Any) -> None:
        """Let the next matching requests fail; see ``Fault``."""
        self.faults.append(Fault(kind, at, **more))

    def seen(self, at: str) -> list[tuple[str, str, Json]]:
        """Requests whose ``METHOD path`` contains ``at``."""
        return [request for request in self.requests if at in f"{request[0]} {request[1]}"]

    def next_fault(self, method: str, path: str) -> Fault | None:
        """The fault that meets this request."""
        found = self._first_fault(method, path)
        for fault in self.faults:
            if fault.follows and fault.follows in f"{method} {path}":
                fault.follows = ""
        return found

    def _first_fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.at in f"{method} {path}":
                if fault.follows:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> Json:
        """Carry a request out; raises Refusal."""
        found = _PATH.match(path)
        if not found:
            raise Refusal(404, "NOT_FOUND", f"there is no {path}")
        project, region, what = found["project"], found["region"] or "us-central1", found["what"]
        if what == "flexTemplates:launch" and method == "POST":
            return self.state.launch(project, region, _normal(body, api.LaunchFlexTemplateRequest))
        if what == "jobs" and method == "POST":
            return self.state.create(project, region, _normal(body, api.Job))
        if what in ("jobs", "jobs:aggregated"):
            return self._list(query, region if what == "jobs" else None)
        if found["part"]:
            return self._part(found["id"], found["part"])
        if method == "PUT":
            return self.state.change(found["job"], _normal(body, api.Job), query.get("updateMask", ""))
        return _view(self.state.look(found["job"]).body, query.get("view", ""))

    def _list(self, query: dict[str, str], region: str | None) -> Json:
        wanted = query.get("filter", "")
        jobs = [
            _view(job.body, "JOB_VIEW_SUMMARY")
            for job in reversed(self.state.jobs.values())
            if (region is None or job.body["location"] == region)
            and query.get("name", job.body["name"]) == job.body["name"]
            and (wanted not in ("3", "ACTIVE") or job.state in ACTIVE)
            and (wanted not in ("2", "TERMINATED") or job.state not in ACTIVE)
        ]
        start = int(query.get("pageToken") or 0)
        size = min(int(query.get("pageSize") or 100), 100)
        more = {"nextPageToken": str(start + size)} if start + size < len(jobs) else {}
        return {"jobs": jobs[start : start + size], **more}

    def _part(self, job_id: str, part: str) -> Json:
        job = self.state._job(job_id)
        return {"jobMessages": job.messages} if part == "messages" else {"metrics": job.metrics}


def _normal(body: Json, kind: Any) -> Json:
    """A request with enums as names, whichever way they came; raises Refusal for a field that the API does not have."""
    try:
        message = kind.pb(kind())
        json_format.ParseDict(body, message)
    except json_format.ParseError as error:
        raise Refusal(400, "INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
    return dict(json_format.MessageToDict(message))


def _view(body: Json, view: str) -> Json:
    """Without what only larger views show."""
    view = _VIEWS.get(int(view), "") if view.isdigit() else view
    hidden = () if view in ("JOB_VIEW_ALL",) else ("environment", "pipelineDescription", "steps")
    return {name: value for name, value in body.items() if name not in hidden}


def _as_integers(path: str, answer: Json) -> Json:
    """An answer with enums as integers, as the Python client asks for them."""
    kind: Any = api.Job
    if path.endswith("flexTemplates:launch"):
        kind = api.LaunchFlexTemplateResponse
    elif path.endswith(("jobs", "jobs:aggregated")) and "jobs" in answer:
        kind = api.ListJobsResponse
    elif path.endswith("/messages"):
        kind = api.ListJobMessagesResponse
    elif path.endswith("/metrics"):
        kind = api.JobMetrics
    message = kind.pb(kind())
    json_format.ParseDict(answer, message, ignore_unknown_fields=True)
    return dict(json_format.MessageToDict(message, use_integers_for_enums=True))


class _Handler(BaseHTTPRequestHandler):
    service: Service
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {name: ",".join(values) for name, values in parse_qs(url.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else {}
        with self.service.lock:
            self.service.requests.append((self.command, url.path, body))
            fault = self.service.next_fault(self.command, url.path)
            if fault is None or fault.after:
                code, answer = self._answer(url.path, query, body)
        if fault and isinstance(fault.kind, int):
            code, answer = (
                fault.kind,
                _error(fault.kind, _STATUS[fault.kind], fault.text or f"a fault of {fault.kind} by script"),
            )
        elif fault:
            if fault.kind == "hang":
                self.service.closing.wait(30)
            self.close_connection = True
            return
        self._send(code, answer)

    do_GET = do_POST = do_PUT = _serve

    def _answer(self, path: str, query: dict[str, str], body: Json) -> tuple[int, Json]:
        try:
            answer = self.service.answer(self.command, path, query, body)
        except Refusal as refusal:
            return refusal.code, _error(refusal.code, refusal.status, refusal.message)
        return 200, _as_integers(path, answer) if "enum-encoding=int" in query.get("$alt", "") else answer

    def _send(self, code: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _error(code: int, status: str, message: str) -> Json:
    return {"error": {"code": code, "status": status, "message": message}}


@contextlib.contextmanager
def dataflow_service() -> Iterator[Service]:
    """Serve a fresh fake on a free port of this machine while the body runs."""
    service = Service()
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True, name="dataflow")
    thread.start()
    try:
        yield service
    finally:
        service.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
