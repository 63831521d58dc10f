"""From arguments to a job that can run: everything that can be refused is refused here, before any work."""

from __future__ import annotations

import os
import subprocess
from argparse import Namespace
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pipeline import __version__
from pipeline.apart import check_named
from pipeline.core.decoding import DecoderSettings, format_of
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.errors import UsageError
from pipeline.core.manifest import Code
from pipeline.core.names import check_run_id
from pipeline.core.records import Decoder, InputFile, Split
from pipeline.core.schema import Schema, load_schema
from pipeline.core.settings import InputSettings
from pipeline.core.shards import parse_splits
from pipeline.transforms import files

_GZIP_MAGIC = b"\x1f\x8b"
_LISTING_THREADS = 16


@dataclass(frozen=True)
class Sources:
    """The input of a job: its files, how they are read and judged, and the schema."""

    files: tuple[InputFile, ...]
    settings: InputSettings
    schema: Schema

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def requiring(self, names: Iterable[str]) -> Sources:
        """The same input, with rows that lack one of ``names`` refused."""
        settings = replace(self.settings, required=tuple(sorted(names)))
        return replace(self, settings=settings, schema=settings.load_schema())

    def split(self, split_bytes: int) -> list[Split]:
        """All files cut into splits, in the order of the files. Raises UsageError for a file that cannot be read."""
        decoder: Decoder = self.settings.make_decoder(self.schema)

        def cut(file: InputFile) -> list[Split]:
            return decoder.splits(file, split_bytes, files.open_read)

        with ThreadPoolExecutor(_LISTING_THREADS) as pool:  # a CSV header is a round trip a file on object storage
            return [split for splits in pool.map(cut, self.files) for split in splits]


def open_sources(arguments: Namespace) -> Sources:
    """The input that the arguments name. Raises UsageError for what is missing, mixed or malformed."""
    found = resolve_inputs(arguments.input)
    format_name = input_format(found, arguments.format)
    schema = load_schema(
        read_text(arguments.schema, "schema"), environment=arguments.environment, origin=arguments.schema
    )
    settings = InputSettings(
        format=format_name,
        schema=schema.proto.SerializeToString(deterministic=True),
        environment=arguments.environment,
        decoding=decoder_settings(arguments, format_name),
    )
    return Sources(tuple(found), settings, schema)


def decoder_settings(arguments: Namespace, format_name: str) -> DecoderSettings:
    """The decoding options among the arguments. Raises UsageError for values no decoder can work with."""
    return DecoderSettings(
        unknown_features=getattr(arguments, "unknown_features", "ignore"),
        max_record_bytes=arguments.max_record_bytes,
        csv=csv_options(arguments, format_name),
    )


def csv_options(arguments: Namespace, format_name: str) -> CsvOptions:
    """The CSV dialect that the arguments name."""
    return CsvOptions(
        delimiter=arguments.csv_delimiter or ("\t" if format_name == "tsv" else ","),
        quote=arguments.csv_quote,
        header=arguments.csv_header,
        null_tokens=arguments.csv_null_tokens,
        multiline=arguments.csv_multiline,
    )


def resolve_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """The files that the patterns name, each once, sorted. Raises UsageError naming a pattern that matches nothing."""
    found: dict[str, InputFile] = {}  # by where it is: other spellings of a name, and links, are the same file
    for pattern in patterns:
        matched = files.list_files(pattern)
        if not matched:
            raise UsageError(
                f"--input {pattern!r} matches no file; check the path, and quote globs so that the shell leaves them"
            )
        for file in matched:
            found.setdefault(file.uri if files.is_remote(file.uri) else os.path.realpath(file.uri), file)
    if not any(file.size_bytes for file in found.values()):
        return sorted(found.values())
    _refuse_compressed(sorted(found.values()))
    return sorted(found.values())


def _refuse_compressed(found: Sequence[InputFile]) -> None:
    suspects = [file for file in found if file.uri.lower().endswith((".gz", ".gzip", ".bz2", ".zst"))] or found[:1]
    for file in suspects[:1]:
        with files.open_read(file.uri) as stream:
            if stream.read(2) == _GZIP_MAGIC or file is not found[0]:
                raise UsageError(f"{file.uri} is compressed, which cannot be split or read yet; decompress it first")


def input_format(found: Sequence[InputFile], given: str) -> str:
    """The one format of all files: as given, or by their names. Raises UsageError for a mixture."""
    if given != "auto":
        return given
    formats = {format_of(file.uri): file.uri for file in reversed(found)}
    if len(formats) > 1:
        named = "; ".join(f"{name}: {uri}" for name, uri in sorted(formats.items()))
        raise UsageError(f"the input mixes formats ({named}); run them apart, or say which with --format")
    return next(iter(formats))


def read_text(uri: str, what: str) -> str:
    """The text of a small file. Raises UsageError that says what it is for where it cannot be read."""
    try:
        return files.read_bytes(uri).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no {what} file {uri}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the {what} file {uri} cannot be read: {error}") from error


def check_folder(flag: str, folder: str) -> None:
    """Raise UsageError unless ``folder`` can be written to."""
    check_named(flag, folder)
    writable = files.check_writable(folder)
    if not writable.ok:
        raise UsageError(f"--{flag} {folder} cannot be written to: {writable.why}")


def data_splits(text: str, split_key: str | None, schema: Schema) -> tuple[tuple[str, float], ...]:
    """The data splits, and a check of the key. Raises UsageError for a key that is no single value of a row."""
    fractions = parse_splits(text)
    if split_key is not None:
        feature = next((f for f in schema.features if f.name == split_key), None)
        if feature is None or not feature.scalar:
            why = "is not in the schema" if feature is None else "holds lists; a key is one value a row"
            raise UsageError(f"--split_key {split_key!r} {why}")
    return fractions


def run_id_of(given: str | None, now: datetime) -> str:
    """The run id: as given (checked), or the UTC time to the microsecond, so that two runs never share it."""
    return now.strftime("%Y%m%dT%H%M%S-%f") if given is None else check_run_id(given)


def utc_now() -> datetime:
    """The time at which a command starts; everything in a run that needs a time uses this one."""
    return datetime.now(timezone.utc)


def code_version() -> Code:
    """What code this is: version, and commit and image digest as the image's build stated them, or from git."""
    commit = os.environ.get("HEADRACE_GIT_COMMIT") or _git_commit()
    return Code(__version__, commit, os.environ.get("HEADRACE_IMAGE_DIGEST"))


def _git_commit() -> str | None:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
