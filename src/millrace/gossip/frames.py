"""The framing of libp2p protocols: a length as varint, then as many bytes."""

from __future__ import annotations

from typing import Protocol

_LONGEST_PREFIX = 10


class Reader(Protocol):
    """What we read from: at most `n` bytes at a time, none at the end."""

    async def read(self, n: int | None = None) -> bytes: ...


class FrameReader:
    """Takes frames out of a stream, reading it in large pieces."""

    _PIECE = 64 * 1024

    def __init__(self, stream: Reader, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next frame, or None at a clean end. Raises ValueError when it is too long."""
        while True:
            header = self._length()
            if header is not None:
                start, length = header
                if length > self._max_bytes:
                    raise ValueError(f"a frame of {length} bytes")
                if len(self._buffer) >= start + length:
                    body = bytes(self._buffer[start : start + length])
                    del self._buffer[: start + length]
                    return body
            piece = await self._stream.read(self._PIECE)
            if not piece:
                return None
            self._buffer += piece

    def _length(self) -> tuple[int, int] | None:
        """(bytes of the prefix, value) of the varint at the front, None while it is incomplete."""
        value = 0
        for index, byte in enumerate(self._buffer[:_LONGEST_PREFIX]):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return index + 1, value
        if len(self._buffer) >= _LONGEST_PREFIX:
            raise ValueError("an endless length prefix")
        return None
