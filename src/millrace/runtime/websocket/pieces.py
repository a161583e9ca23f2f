"""Long WebSocket frames cut into fragments on their way to picows, so that nobody's memory is held by half a frame.

picows hands over whole frames, and the buffer it grows for a long one stays as large for the life of its connection.
Between the socket and picows each long data frame becomes a sequence of frames that mean the same (RFC 6455, 5.4): the
first with its opcode, continuations after it, the last with its FIN bit. They have the frame's masking key, for which
all but the last must be of a multiple of four bytes. So the receiver sees a message grow, can bound it, can let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

PIECE = 64 * 1024
"""Payload bytes of a fragment; longer frames are cut."""
_LONGEST_HEADER = 14
_FIRST_BUFFER = 2048 - 256  # bytes that picows first reads into
_READ = bytearray(256 * 1024)  # what is read is handed on before anything else is read, so one buffer serves all
_READ_VIEW = memoryview(_READ)


class _Inner(Protocol):
    """The protocol behind: what asyncio calls on a `BufferedProtocol`."""

    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Pieces(asyncio.BufferedProtocol):
    """Takes the place of `inner` behind the handshake; frames over `longest` are left whole.

    `inner` refuses those by their header, as it refuses whatever is no frame: bytes are only ever passed on or cut.

    A client that does not wait for the answer to its handshake may have sent `early` bytes behind it, which `inner`
    has. Where their last frame ends is known when all of it has been `taken`: until then nothing is cut, and more than
    two pieces of such a frame call `refuse`.
    """

    def __init__(self, inner: object, longest: int, early: int = 0, refuse: Callable[[], None] = lambda: None) -> None:
        self._inner = cast(_Inner, inner)
        self._longest = longest
        self.early = early
        """Bytes that were passed on before anything was cut, less those of the frames taken."""
        self._refuse = refuse
        self.deaf = False
        """Whether what comes is thrown away: nobody is there to hear it."""
        self._head = bytearray()
        """Of a header that has not wholly come."""
        self._left = 0
        """Payload bytes still to come of the frame, or fragment, that is passed on."""
        self._rest = 0
        """Payload bytes behind those, for fragments to come."""
        self._fin = 0
        self._key = b""

    @classmethod
    def put_before(cls, transport: asyncio.Transport, longest: int, refuse: Callable[[], None]) -> Pieces:
        """Read from now on for picows, which has read up to the end of the handshake, and maybe what came with it."""
        inner = cast(_Inner, transport.get_protocol())
        # What is left of picows' buffer tells what is in it: behind a handshake less than half of the size it has.
        free, size = len(inner.get_buffer(-1)), _FIRST_BUFFER
        while size < free:
            size *= 2
        pieces = cls(inner, longest, size - free, refuse)
        transport.set_protocol(pieces)
        return pieces

    def taken(self, length: int) -> None:
        """`inner` has taken a frame with so many bytes of payload, masked and in its shortest form."""
        self.early -= len(_header(0, length, b"mask")) + length

    # ---- what asyncio calls

    def get_buffer(self, sizehint: int) -> bytearray:
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        if self.early:
            self.early += nbytes
            self._pass(_READ_VIEW[:nbytes])
            if self.early > 2 * PIECE:
                self._refuse()
            return
        at = 0
        while at < nbytes and not self.deaf:
            if self._left:
                size = min(self._left, nbytes - at)
                self._pass(_READ_VIEW[at : at + size])
                self._left -= size
                at += size
                if not self._left and self._rest:
                    self._continue()
            else:
                at = self._read_header(at, nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # ---- insides

    def _read_header(self, at: int, end: int) -> int:
        """Take the header that begins at `at`, or as much as has come of it. Where to go on."""
        if not self._head and end - at >= _LONGEST_HEADER:  # nearly always
            size = _header_size(_READ[at + 1])
            length = self._begin(bytes(_READ_VIEW[at : at + size]))
            if length is None:
                return at + size
            self._left = size + length  # the header goes with its payload
            return at
        while at < end:
            self._head.append(_READ[at])
            at += 1
            if len(self._head) >= 2 and len(self._head) == _header_size(self._head[1]):
                head = bytes(self._head)
                self._head.clear()
                length = self._begin(head)
                if length is not None:
                    self._pass(head)
                    self._left = length
                break
        return at

    def _begin(self, head: bytes) -> int | None:
        """Begin a frame: the length of one that is passed on as it is, or `None` when its first fragment has begun."""
        first, second = head[0], head[1]
        length = second & 0x7F
        if length == 126:
            return int.from_bytes(head[2:4], "big")
        if length < 126:
            return length
        length = int.from_bytes(head[2:10], "big")
        if not second & 0x80 or first & 0x08 or not PIECE < length <= self._longest:
            return length
        self._key, self._fin = head[10:], first & 0x80
        self._left, self._rest = PIECE, length - PIECE
        self._pass(_header(first & 0x7F, PIECE, self._key))
        return None

    def _continue(self) -> None:
        self._left = min(PIECE, self._rest)
        self._rest -= self._left
        self._pass(_header(0 if self._rest else self._fin, self._left, self._key))

    def _pass(self, data: bytes | memoryview) -> None:
        """Hand bytes on, as many at a time as there is room for."""
        at, end = 0, len(data)
        while at < end and not self.deaf:
            room = self._inner.get_buffer(-1)
            size = min(len(room), end - at)
            room[:size] = data[at : at + size]
            self._inner.buffer_updated(size)
            at += size


def _header_size(second: int) -> int:
    return 2 + {126: 2, 127: 8}.get(second & 0x7F, 0) + (4 if second & 0x80 else 0)


def _header(first: int, length: int, key: bytes) -> bytes:
    """The header of a masked frame in its shortest form."""
    if length < 126:
        return bytes((first, 0x80 | length)) + key
    if length < 65536:
        return bytes((first, 0x80 | 126)) + length.to_bytes(2, "big") + key
    return bytes((first, 0x80 | 127)) + length.to_bytes(8, "big") + key
