"""Who looks at a large archive sees how far it is: the bytes read, out of all."""

from __future__ import annotations

import contextlib

import pytest
from fakes.cli import headrace

from pipeline.commands import dlq_letters
from tests.dlq_replay.helpers import archive_of, letter


@pytest.mark.parametrize("words", [("summary",), ("show", "--limit=1000"), ("export",)], ids=lambda words: words[0])
def test_every_byte_of_the_archives_counts_as_progress(words, tmp_path, monkeypatch):
    sizes = []
    for number in range(3):
        data = archive_of([letter(100 * number + i, payload=b"x" * 500) for i in range(50)])
        (tmp_path / f"task-0000{number}.avro").write_bytes(data)
        sizes.append(len(data))
    seen = []

    @contextlib.contextmanager
    def watching(progress, *, title, total_bytes):
        seen.append((total_bytes, progress))
        yield

    monkeypatch.setattr(dlq_letters, "watching", watching)
    done = headrace("dlq", *words[:1], tmp_path, *words[1:])
    assert done.code == 0, done.err
    ((total, progress),) = seen
    assert total == sum(sizes)
    assert progress.snapshot().bytes_done >= total
