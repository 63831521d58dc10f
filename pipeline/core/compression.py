"""Compression of whole shards: TFRecord's own GZIP and ZLIB, as ``tf.data.TFRecordDataset`` reads them."""

from __future__ import annotations

import zlib
from typing import BinaryIO, Literal, Protocol, cast

Compression = Literal["none", "gzip", "zlib"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "zlib")

# Window bits of zlib: 15 is a zlib stream, 16 more a gzip member (zlib manual, inflateInit2).
_WINDOW_BITS = {"gzip": 31, "zlib": 15}
_LEVEL = 2  # flights in the rows layout: 280 MB/s to 11% of the size; level 6: 63 MB/s to 8%
_PIECE_BYTES = 1 << 20


class Compressor(Protocol):
    """Takes bytes, gives compressed bytes; ``flush`` gives the rest and ends the stream."""

    def compress(self, data: memoryview, /) -> bytes:
        """What is ready after ``data``."""
        ...

    def flush(self) -> bytes:
        """The rest."""
        ...


class _Plain:
    def compress(self, data: memoryview, /) -> bytes:
        return cast(bytes, data)  # handed on as it is, not copied

    def flush(self) -> bytes:
        return b""


def compressor(compression: Compression) -> Compressor:
    """A fresh compressor. The same bytes give the same bytes with one build of zlib (gzip headers carry no time)."""
    if compression == "none":
        return _Plain()
    return cast(Compressor, zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS[compression]))


def can_be_joined(compression: Compression) -> bool:
    """Whether files of this kind may be put one behind the other.

    gzip members may; of joined zlib streams TensorFlow reads the first and says nothing.
    """
    return compression != "zlib"


class CompressedDataError(Exception):
    """A compressed stream is damaged or cut, at about byte ``offset`` of the file."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"at byte {offset}: {what}")
        self.offset = offset
        self.what = what


class Decompressed:
    """The decompressed bytes of ``source``, in bounded memory; for ``none`` the bytes themselves."""

    def __init__(self, source: BinaryIO, compression: Compression) -> None:
        self._source = source
        self._bits = _WINDOW_BITS.get(compression)
        self._inflate = zlib.decompressobj(self._bits) if self._bits else None
        self._packed = b""
        self._consumed = 0

    def read(self, size: int) -> bytes:
        """Up to ``size`` (1 or more) bytes, fewer only at the end. Raises CompressedDataError for damage."""
        if self._bits is None:
            return self._source.read(size)
        pieces, left = [], size
        while left and (piece := self._some(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _some(self, most: int) -> bytes:
        while True:
            if not self._packed:
                self._packed = self._source.read(_PIECE_BYTES)
                self._consumed += len(self._packed)
            if not self._packed:
                return self._end()
            if self._inflate is None:  # the member before has ended and another begins
                self._inflate = zlib.decompressobj(cast(int, self._bits))
            try:
                piece = self._inflate.decompress(self._packed, most)
            except zlib.error as error:
                raise CompressedDataError(
                    self._consumed - len(self._packed), f"cannot be decompressed: {error}"
                ) from None
            self._packed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._inflate = None
            if piece:
                return piece

    def _end(self) -> bytes:
        if self._inflate is not None and (rest := self._inflate.flush()):
            return rest
        if self._inflate is not None and not self._inflate.eof and self._consumed:
            raise CompressedDataError(self._consumed, "the compressed stream is cut short")
        return b""
