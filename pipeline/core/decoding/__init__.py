"""Decoding: the registry of input formats; one module a format, one ``Decoder`` each.

A new format is a module with a ``Decoder`` and one line in ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from pipeline.core.errors import UsageError
from pipeline.core.records import Decoder
from pipeline.core.schema import Schema

if TYPE_CHECKING:
    from pipeline.core.decoding.csv import CsvOptions

UnknownFeatures = Literal["ignore", "reject"]

DEFAULT_BLOCK_BYTES = 8 << 20
DEFAULT_MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True)
class DecoderSettings:
    """What an operator can set about decoding, for every format; a format takes what concerns it.

    ``block_bytes`` is about how much input is decoded at once; a row over ``max_record_bytes`` is
    refused unread; ``max_depth`` bounds the nesting of JSON; ``csv`` None means the CSV defaults.
    Raises UsageError for a value that no decoder can work with.
    """

    unknown_features: UnknownFeatures = "ignore"
    block_bytes: int = DEFAULT_BLOCK_BYTES
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    max_depth: int = 64
    csv: CsvOptions | None = None

    def __post_init__(self) -> None:
        if self.unknown_features not in ("ignore", "reject"):
            raise UsageError(f"unknown_features is {self.unknown_features!r}: give ignore or reject")
        for name in ("block_bytes", "max_record_bytes", "max_depth"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give a number of at least 1")
        if self.max_record_bytes > 1 << 30:
            raise UsageError(f"max_record_bytes is {self.max_record_bytes}: at most {1 << 30} (1 GiB) can be held")
        if self.max_depth > 256:
            raise UsageError(f"max_depth is {self.max_depth}: the parser's own stack allows at most 256")


@dataclass(frozen=True)
class Format:
    """An input format: its name on the command line, its file extensions, and how its decoder is made."""

    name: str
    extensions: tuple[str, ...]
    make: Callable[[Schema, DecoderSettings], Decoder]


def _make_jsonl(schema: Schema, settings: DecoderSettings) -> Decoder:
    from pipeline.core.decoding.json_lines import JsonLinesDecoder

    return JsonLinesDecoder(
        schema,
        unknown_features=settings.unknown_features,
        block_bytes=settings.block_bytes,
        max_record_bytes=settings.max_record_bytes,
        max_depth=settings.max_depth,
    )


def _make_csv(schema: Schema, settings: DecoderSettings) -> Decoder:
    from pipeline.core.decoding.csv import CsvDecoder, CsvOptions

    return CsvDecoder(
        schema,
        settings.csv or CsvOptions(),
        unknown_features=settings.unknown_features,
        block_bytes=settings.block_bytes,
        max_record_bytes=settings.max_record_bytes,
    )


def _make_tsv(schema: Schema, settings: DecoderSettings) -> Decoder:
    from pipeline.core.decoding.csv import CsvOptions

    return _make_csv(schema, replace(settings, csv=replace(settings.csv or CsvOptions(), delimiter="\t")))


FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        Format("jsonl", (".jsonl", ".ndjson", ".json"), _make_jsonl),
        Format("csv", (".csv",), _make_csv),
        Format("tsv", (".tsv",), _make_tsv),
    )
}


def make_decoder(format_name: str, schema: Schema, settings: DecoderSettings | None = None) -> Decoder:
    """The decoder of the format ``format_name`` for rows of ``schema``.

    Raises UsageError for a format that is not known, listing those that are.
    """
    if format_name not in FORMATS:
        raise UsageError(f"input format {format_name!r} is not known: give one of {', '.join(FORMATS)}")
    return FORMATS[format_name].make(schema, settings or DecoderSettings())


def format_of(uri: str) -> str:
    """The name of the format of the file ``uri``, by its extension (any case).

    Raises UsageError where the extension is not known, listing those that are.
    """
    extension = PurePosixPath(uri).suffix.lower()
    for found in FORMATS.values():
        if extension in found.extensions:
            return found.name
    known = ", ".join(f"{name} ({' '.join(found.extensions)})" for name, found in FORMATS.items())
    raise UsageError(f"the format of {uri} cannot be told from its name; known formats: {known}; or give --format")
