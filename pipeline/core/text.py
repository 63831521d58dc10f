"""Hostile text made safe: shown without control characters, cut without splitting a character."""

from __future__ import annotations

ELLIPSIS = "…"


def printable(data: bytes | str, limit: int) -> str:
    r"""Text that cannot harm a terminal, a log line or a reader's eyes, at most ``limit`` (>= 1) characters.

    Bytes are read as UTF-8, bad ones shown as ``\xff``. Everything that is not a visible character or a plain
    space (controls, escapes, line ends, text-direction marks, invisible characters, lone surrogates) is shown as
    ``\x1b``, ``\u202e`` or ``\U000e0001``. What is cut off is marked by a final ``…``. Backslashes stay as they
    are, so this is for people, not for parsing back; HTML writers still have to escape ``<`` and ``&``.
    Costs time for ``limit`` characters, not for the whole of ``data``.
    """
    if isinstance(data, bytes):
        whole = len(data) <= 4 * limit  # no character is longer than 4 bytes
        text = data[: 4 * limit].decode("utf-8", "backslashreplace")
    else:
        whole, text = len(data) <= limit, data[:limit]
    if whole and len(text) <= limit and text.isprintable():
        return text
    pieces = [char if char.isprintable() else _escape(char) for char in text[: limit + 1]]
    if whole and len(text) <= limit and sum(map(len, pieces)) <= limit:
        return "".join(pieces)
    return _fitting(pieces, limit - 1) + ELLIPSIS


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _fitting(pieces: list[str], limit: int) -> str:
    """As many whole pieces as fit, so that no escape is cut in two."""
    kept, length = [], 0
    for piece in pieces:
        length += len(piece)
        if length > limit:
            break
        kept.append(piece)
    return "".join(kept)


def cut_utf8(text: str, limit_bytes: int) -> str:
    r"""The longest start of ``text`` that is at most ``limit_bytes`` (>= 0) long in UTF-8.

    Lone surrogates, which UTF-8 cannot hold, are first replaced by their escape (``\ud800``).
    """
    data = text[: limit_bytes + 1].encode("utf-8", "backslashreplace")
    return data[:limit_bytes].decode("utf-8", "ignore")
