"""``headrace schema infer``: a first schema from data, for a person to correct."""

from __future__ import annotations

import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from pipeline.core.errors import UsageError
from pipeline.core.inference import DEFAULT_MAX_ROWS, infer_from_files
from pipeline.preflight import decoder_settings, input_format, resolve_inputs
from pipeline.transforms import files

_LOG = logging.getLogger(__name__)


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Infer and write the schema. Raises UsageError for input that cannot be read."""
    found = resolve_inputs(arguments.input)
    if arguments.output and any(_same_file(arguments.output, file.uri) for file in found):
        raise UsageError(f"--output {arguments.output} is read as input, and would be replaced; name another file")
    format_name = input_format(found, arguments.format)
    result = infer_from_files(
        found,
        format_name,
        files.open_read,
        settings=decoder_settings(arguments, format_name),
        max_rows=arguments.max_rows or DEFAULT_MAX_ROWS,
    )
    for warning in result.warnings:
        _LOG.warning("%s", warning)
    if arguments.output:
        files.write_bytes(arguments.output, result.text.encode())
    elif not arguments.json:
        sys.stdout.write(result.text)
    if arguments.json:
        written = arguments.output or result.text
        print(json.dumps({"schema": written, "rows": result.rows, "warnings": list(result.warnings)}))
    elif arguments.output:
        count = len(result.schema.feature)
        print(f"{arguments.output}: {count} features from {result.rows:,} rows; read it before use")
    return 0


def _same_file(one: str, other: str) -> bool:
    if files.is_remote(one) or files.is_remote(other):
        return one == other
    return os.path.realpath(one) == os.path.realpath(other)
