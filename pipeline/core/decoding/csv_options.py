"""How a CSV input is written: delimiter, quoting, header, null tokens; checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import UsageError

_MAX_NULL_TOKENS = 64
_MAX_NULL_TOKEN_BYTES = 64  # pyarrow keeps the tokens in a small trie


@dataclass(frozen=True)
class CsvOptions:
    """The dialect of a CSV input.

    ``delimiter`` is one ASCII character; ``quote`` one too, or "" where nothing is quoted. ``header``
    names the columns of files that have no header line; None: the first line of each file is its
    header. A cell that is one of ``null_tokens``, unquoted, is a missing value. With ``multiline`` a
    quoted cell may hold newlines, and a file is read as one split.

    Raises UsageError for a dialect that cannot be read without doubt.
    """

    delimiter: str = ","
    quote: str = '"'
    header: tuple[str, ...] | None = None
    null_tokens: tuple[str, ...] = ("", "NA")
    multiline: bool = False

    def __post_init__(self) -> None:
        _check_mark("CSV delimiter", self.delimiter)
        if self.quote:
            _check_mark("CSV quote", self.quote)
        if self.quote == self.delimiter:
            raise UsageError(f"CSV delimiter and quote are both {self.quote!r}: give two different characters")
        if self.multiline and not self.quote:
            raise UsageError("CSV multiline needs a quote character: without one no cell can hold a newline")
        if self.header is not None:
            check_names(self.header, "the CSV header given")
        _check_null_tokens(self)

    @property
    def delimiter_byte(self) -> bytes:
        """The delimiter as one byte."""
        return self.delimiter.encode("ascii")

    @property
    def quote_byte(self) -> bytes:
        """The quote as one byte, or none where nothing is quoted."""
        return self.quote.encode("ascii")

    @property
    def null_cells(self) -> frozenset[bytes]:
        """The unquoted cells that stand for a missing value."""
        return frozenset(token.encode() for token in self.null_tokens)


def check_names(names: tuple[str, ...], where: str) -> None:
    """Refuse a header that does not name its columns: raises UsageError with ``where`` and the names at fault."""
    if not any(names):
        raise UsageError(f"{where} names no column: the first line must hold the column names, or give a header")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        shown = ", ".join(repr(name[:64]) for name in repeated[:8])
        raise UsageError(f"{where} names a column more than once: {shown}; rename or remove the repeated columns")


def _check_mark(what: str, mark: str) -> None:
    # Letters, digits, sign and point are excluded because they occur in numbers and null tokens.
    if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in "+-.\r\n\0":
        raise UsageError(
            f"{what} is {mark!r}: give one ASCII character that is no letter, digit, sign, point or line end"
        )


def _check_null_tokens(options: CsvOptions) -> None:
    if len(options.null_tokens) > _MAX_NULL_TOKENS:
        raise UsageError(f"{len(options.null_tokens)} CSV null tokens given: at most {_MAX_NULL_TOKENS} are possible")
    marks = {options.delimiter, "\r", "\n", "\0"} | ({options.quote} if options.quote else set())
    for token in options.null_tokens:
        if marks & set(token) or len(token.encode()) > _MAX_NULL_TOKEN_BYTES:
            raise UsageError(
                f"CSV null token {token[:64]!r} can never be an unquoted cell: it holds a delimiter, "
                f"a quote or a line end, or is over {_MAX_NULL_TOKEN_BYTES} bytes"
            )
