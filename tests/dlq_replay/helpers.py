"""Dead letters and archives in memory."""

import io

from pipeline.core.archive import write_archive
from pipeline.core.dead_letter import from_rejection
from pipeline.core.reasons import Reason, Stage
from pipeline.core.records import Fault, Rejection


def letter(offset, *, uri="f.jsonl", payload=b"{}", faults=((Reason.WRONG_TYPE, "a"),), message="bad", **options):
    length = len(payload) if payload is not None else 300
    made = tuple(Fault(reason, message, feature) for reason, feature in faults)
    row = Rejection(uri, offset, length, payload, Stage.VALIDATE, made)
    return from_rejection(
        row, **({"job": "j", "schema_fingerprint": "s", "failed_at": "2024-05-01T12:00:00Z"} | options)
    )


def archive_of(letters):
    stream = io.BytesIO()
    write_archive(stream, letters)
    return stream.getvalue()


def opener(files):
    def open_file(uri):
        if uri not in files:
            raise FileNotFoundError(uri)
        return io.BytesIO(files[uri])

    return open_file
