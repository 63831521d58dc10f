"""The text form of a schema: parsing with errors that point and suggest, and writing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from google.protobuf import descriptor_pool, text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.errors import UsageError

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (\w+)')
_TOKEN = re.compile(r"""\n|\#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|[{}<>]""", re.DOTALL)
_MAX_QUOTED_CHARS = 300


def parse_schema(text: str, *, origin: str = "schema.pbtxt") -> schema_pb2.Schema:
    """The proto written in ``text``, not yet checked for sense.

    Raises UsageError ``origin:line: what is wrong and how to fix it`` for text that is not a Schema.
    """
    try:
        text.encode()
        return text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as error:
        line = error.GetLine() or _last_line(text)
        raise UsageError(f"{origin}:{line}: {_explain(str(error))}") from None
    except RecursionError:
        raise UsageError(f"{origin}:1: blocks are nested too deeply to be a schema; flatten them") from None
    except UnicodeEncodeError as error:  # lone surrogates, which a message could not even be printed with
        line = text.count("\n", 0, error.start) + 1
        raise UsageError(f"{origin}:{line}: not UTF-8 text; save the file as UTF-8") from None


def schema_text(proto: schema_pb2.Schema, *, header: Iterable[str] = ()) -> str:
    """The text form of ``proto``, the same for equal protos, after a comment of ``header`` lines.

    ``parse_schema`` of it gives the equal proto.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for entry in header for line in _lines(entry))
    body: str = text_format.MessageToString(proto, as_utf8=True)
    return f"{comment}\n{body}" if comment else body


def feature_lines(text: str) -> list[int]:
    """The line (from 1) at which each top-level ``feature`` block of ``text`` begins, in order."""
    lines: list[int] = []
    line, depth, word, word_line = 1, 0, "", 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "{<":
            if depth == 0 and word == "feature":
                lines.append(word_line)
            depth += 1
        elif token in "}>":
            depth -= 1
        elif token[0] not in "#\"'":
            word, word_line = token, line
    return lines


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that suggests the known name most like ``name``, or lists a few when none is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"use one of {shown}" if names else "there is nothing to choose from"


def _lines(text: str) -> list[str]:
    return re.sub(r"[^\S \n]|[\x00-\x09\x0b-\x1f\x7f]", " ", text).split("\n")


def _last_line(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def _explain(error: str) -> str:
    """The parser's message without its own position, with a suggestion where one can be made."""
    pool = descriptor_pool.Default()
    if field := _UNKNOWN_FIELD.search(error):
        message = pool.FindMessageTypeByName(field[1])
        kind, names = message.name, message.fields_by_name
        where = "a schema" if kind == "Schema" else f"a {kind} block"
        return f'{where} has no field "{field[2]}"; {nearest(field[2], names)}'
    if value := _UNKNOWN_VALUE.search(error):
        enum = pool.FindEnumTypeByName(value[1])
        return f'there is no {enum.name} "{value[2]}"; {nearest(value[2], enum.values_by_name)}'
    plain = re.sub(r"^\d+:\d+ : ", "", error)
    if 'Expected "}"' in plain or 'Expected ">"' in plain:
        return 'a block is not closed: a "}" is missing here or before'
    return f"not a schema in protobuf text form: {plain[:_MAX_QUOTED_CHARS]}"
