"""A place to launch jobs from: a bucket with a template and a schema, a Dataflow service in memory, a launch spec."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.cli import Done, headrace
from fakes.dataflow import PROJECT, REGION
from fakes.dataflow_http import Service

IMAGE = "europe-docker.pkg.dev/test-proj/headrace/headrace-streaming@sha256:" + "ab" * 32
NAME = "flights"


@dataclass
class JobsBench:
    """Runs ``headrace job …`` against a fake service and a bucket; specs are files in ``folder``."""

    folder: Path
    bucket: str
    service: Service
    schema: Path
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write_template()
        self.put("schema.pbtxt", self.schema.read_bytes())
        self.parameters = {
            "input_subscription": "projects/test-proj/subscriptions/flights",
            "schema": f"{self.bucket}/schema.pbtxt",
            "output": f"{self.bucket}/out",
            "dead_letters": f"{self.bucket}/dead",
        }

    def write_template(self, image: str = IMAGE) -> None:
        """The template's specification, as its build would write it."""
        metadata = {"name": "Headrace", "streaming": True, "parameters": []}
        spec = {"image": image, "sdkInfo": {"language": "PYTHON"}, "metadata": metadata}
        self.put("templates/streaming.json", json.dumps(spec).encode())

    def put(self, name: str, data: bytes) -> None:
        """Write an object into the bucket."""
        from pipeline.transforms import files

        files.write_bytes(f"{self.bucket}/{name}", data)

    def spec(self, *, name: str = NAME, parameters: dict[str, Any] | None = None, **more: Any) -> Path:
        """Write a launch spec; ``environment`` is merged into the usual one, other keys are taken as they are."""
        environment = {
            "staging_location": f"{self.bucket}/staging",
            "machine_type": "n2-standard-4",
            **more.pop("environment", {}),
        }
        value = {
            "template": f"{self.bucket}/templates/streaming.json",
            "project": PROJECT,
            "region": REGION,
            "job_name": name,
            "parameters": {**self.parameters, **(parameters or {})},
            "environment": environment,
            **more,
        }
        path = self.folder / "launch.yaml"
        path.write_text(json.dumps(value))  # JSON is YAML
        return path

    def job(self, command: str, *words: object) -> Done:
        """``headrace job COMMAND WORDS`` against the fake, without waiting between looks."""
        flags = ["--dataflow_endpoint", self.service.url, "--log_format=text"]
        if command not in ("status", "list"):
            flags.append("--poll_seconds=0.001")
        return headrace("job", command, *words, *flags)

    def launched(self, **spec: Any) -> str:
        """Launch a job that must come to run; its id."""
        done = self.job("launch", self.spec(**spec), "--json")
        assert done.code == 0, done.err
        return str(done.json["job"]["id"])
