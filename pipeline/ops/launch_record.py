"""The launch record: what was launched, by whom, from which code; written beside the staged files, read by updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from pipeline.core.errors import UsageError
from pipeline.core.json_fields import Fields, dump_json, load_json
from pipeline.core.records import Json
from pipeline.core.text import printable
from pipeline.ops.launch_spec import LaunchSpec, spec_of_json

FORMAT = 1
GRAPH_FORMAT = 1
"""Of ``graph.snapshot``, whose module loads Beam."""
_FOLDER = "headrace-launches"


@dataclass(frozen=True)
class Provenance:
    """Where a launch comes from: code, image, graph, and the fingerprints of what it works by."""

    version: str
    commit: str | None
    image: str
    image_digest: str | None
    graph: Json | None = None
    schema_fingerprint: str | None = None
    transform_fingerprint: str | None = None


@dataclass(frozen=True)
class LaunchRecord:
    """One launch. ``job_id`` is None before the launch is answered; ``action`` is launch, update or resize."""

    launch_id: str
    action: str
    spec: LaunchSpec
    request: Json
    provenance: Provenance
    launched_by: str
    launched_at: str
    job_id: str | None = None
    replaces: str | None = None

    @property
    def uri(self) -> str:
        """Where it is kept."""
        return record_uri(self.spec.staging_location, self.spec.job_name, self.launch_id)

    def with_job(self, job_id: str) -> LaunchRecord:
        """The record of the launched job."""
        return replace(self, job_id=job_id)

    def to_json(self) -> bytes:
        """The file's content."""
        return dump_json(
            {
                "format": FORMAT,
                "launch_id": self.launch_id,
                "action": self.action,
                "job_id": self.job_id,
                "replaces": self.replaces,
                "spec": self.spec.as_json(),
                "request": self.request,
                "code": {
                    "version": self.provenance.version,
                    "commit": self.provenance.commit,
                    "image": self.provenance.image,
                    "image_digest": self.provenance.image_digest,
                },
                "graph": self.provenance.graph,
                "schema_fingerprint": self.provenance.schema_fingerprint,
                "transform_fingerprint": self.provenance.transform_fingerprint,
                "launched_by": self.launched_by,
                "launched_at": self.launched_at,
            }
        )


def from_json(data: bytes, where: str) -> LaunchRecord:
    """Read a record. Raises UsageError for a damaged one, or one of a later format."""
    fields = Fields(load_json(data, where), where)
    if fields.count("format") != FORMAT:
        raise UsageError(f"{where}: format {fields.count('format')}; this program reads {FORMAT}. Update the program")
    code, spec = fields.object("code"), fields.object("spec")
    provenance = Provenance(
        version=code.text("version"),
        commit=code.optional_text("commit"),
        image=code.text("image"),
        image_digest=code.optional_text("image_digest"),
        graph=_graph(fields, where),
        schema_fingerprint=fields.optional_text("schema_fingerprint"),
        transform_fingerprint=fields.optional_text("transform_fingerprint"),
    )
    return LaunchRecord(
        launch_id=fields.text("launch_id"),
        action=fields.text("action"),
        spec=spec_of_json(spec.value, f"{where}: spec"),
        request=fields.json("request"),
        provenance=provenance,
        launched_by=fields.text("launched_by"),
        launched_at=fields.text("launched_at"),
        job_id=fields.optional_text("job_id"),
        replaces=fields.optional_text("replaces"),
    )


def _graph(fields: Fields, where: str) -> Json | None:
    if fields.value.get("graph") is None:
        return None
    graph = fields.object("graph")
    if graph.count("format") != GRAPH_FORMAT:
        raise UsageError(f"{where}: its graph has format {graph.count('format')}; this program reads {GRAPH_FORMAT}")
    graph.text("sdk")
    for step in graph.objects("steps"):
        for name in ("name", "urn", "windowing"):
            step.text(name)
        for name in ("stateful", "source"):
            step.switch(name)
        for name in ("inputs", "outputs", "side_inputs", "states", "timers"):
            for key in step.object(name).value:
                step.object(name).text(key)
    return graph.value


def record_uri(staging_location: str, job_name: str, launch_id: str) -> str:
    """Where the record of a launch is kept."""
    return f"{staging_location.rstrip('/')}/{_FOLDER}/{job_name}/{launch_id}.json"


def new_launch_id(now: datetime, random_hex: str) -> str:
    """A label value that no other launch has, and that sorts by time: ``20261130t221500-1f2e3d4c``."""
    return f"{now:%Y%m%dt%H%M%S}-{random_hex[:8]}"


def find_record(
    read: Callable[[str], bytes], folders: list[str], *, job_name: str, launch_id: str
) -> LaunchRecord | None:
    """The record of a launch in the first of ``folders`` (staging locations) that has it; None where none has.

    Raises UsageError for a damaged record, and for one that is another launch's.
    """
    for folder in folders:
        uri = record_uri(folder, job_name, launch_id)
        try:
            data = read(uri)
        except FileNotFoundError:
            continue
        record = from_json(data, uri)
        if (record.launch_id, record.spec.job_name) != (launch_id, job_name):
            raise UsageError(
                f"{uri} is the record of launch {printable(record.launch_id, 80)} of job {record.spec.job_name}, "
                f"not of {job_name}: it was copied or changed"
            )
        return record
    return None
