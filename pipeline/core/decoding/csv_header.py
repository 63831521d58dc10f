"""The header of a CSV file: read, named after in errors, and held against the schema before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from pipeline.core.decoding.csv_options import CsvOptions, check_names
from pipeline.core.decoding.csv_rows import QuoteError, split_cells
from pipeline.core.decoding.lines import BOM
from pipeline.core.errors import UsageError
from pipeline.core.records import Opener
from pipeline.core.schema import Schema
from pipeline.core.validation import show

MAX_HEADER_BYTES = 1 << 20
_SHOWN_NAMES = 8


@dataclass(frozen=True)
class Header:
    """The columns of a file in its order, each name once, and the file offset at which its rows begin."""

    names: tuple[str, ...]
    end: int


def read_header(uri: str, open_file: Opener, *, options: CsvOptions) -> Header:
    """The header of the file ``uri``: its first line, or ``options.header`` (then rows begin at 0).

    A file that is empty, or holds a BOM only, has no columns and no rows. Raises UsageError where
    the first line cannot be a header: not UTF-8, quotes not balanced, a name twice, over 1 MiB.
    """
    if options.header is not None:
        return Header(options.header, 0)
    with open_file(uri) as file:
        line = _first_row(file, options, uri)
    content = line.removeprefix(BOM)
    content = content.removesuffix(b"\n").removesuffix(b"\r") if content.endswith(b"\n") else content
    if not line.removeprefix(BOM):
        return Header((), len(line))
    return Header(_names(content, options, uri), len(line))


def check_header(header: Header, uri: str, *, schema: Schema, options: CsvOptions, unknown_features: str) -> None:
    """Hold ``header`` against the schema.

    Raises UsageError for a required feature that has no column, and, where ``unknown_features`` is
    ``reject``, for a column that is no feature.
    """
    if not header.names:
        return
    features = {feature.name for feature in schema.features}
    missing = [feature.name for feature in schema.features if feature.required and feature.name not in header.names]
    if missing:
        raise UsageError(
            f"the header of {uri} has no column for the required {_listed(missing, 'feature')}; its columns are "
            f"{_shown(header.names)}. Check the first line, the delimiter ({options.delimiter!r}) and the schema"
        )
    unknown = [name for name in header.names if name not in features]
    if unknown and unknown_features == "reject":
        raise UsageError(
            f"the header of {uri} has the {_listed(unknown, 'column')} that the schema does not know; "
            "add to the schema, or use --unknown_features=ignore"
        )


def _first_row(file: BinaryIO, options: CsvOptions, uri: str) -> bytes:
    row = b""
    while True:
        line = file.readline(MAX_HEADER_BYTES + 1 - len(row))
        row += line
        if len(row) > MAX_HEADER_BYTES:
            raise UsageError(f"the header of {uri} is over {MAX_HEADER_BYTES} bytes: is it a CSV file with line ends?")
        if not (line and options.multiline and row.count(options.quote_byte) % 2):
            return row


def _names(content: bytes, options: CsvOptions, uri: str) -> tuple[str, ...]:
    where = f"the header of {uri}"
    try:
        content.decode()
        cells = split_cells(content, options)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 ({error.reason} at byte {error.start}): convert it to UTF-8") from None
    except QuoteError as error:
        raise UsageError(f"{where} is no CSV: {error}. Check the first line and the quote character") from None
    if b"\0" in content:
        raise UsageError(f"{where} holds zero bytes: is it UTF-16, or no text at all? Convert it to UTF-8")
    names = tuple(text.decode() for text, _ in cells)
    check_names(names, where)
    return names


def _listed(names: list[str], noun: str) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {_shown(tuple(names))}"


def _shown(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(show(name) for name in names[:_SHOWN_NAMES]) + more
