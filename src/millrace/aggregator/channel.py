"""What the main process and its workers tell each other, over a pair of sockets per worker that nobody else has.

A frame is a 4-byte big-endian length and a msgpack array `[tag, field, ...]`. The end of the stream is the end of the
other process. Both ends are the same version of this package; nothing here is a public format.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TypeVar

import msgspec

from millrace.aggregator.metrics import Report

_HEADER = struct.Struct(">I")
MOST_FRAME = (1 << 32) - 1
"""Bytes: a pool document may be large, and both ends are ours."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    pass


class Begin(_Message, frozen=True, tag="begin"):
    """The first word to a worker: the settings. They travel here and not as arguments, which any user can read."""

    settings: bytes
    wanted: int
    """How many workers there are to be."""
    level: int
    """What is logged, and how (`logs.form`)."""
    form: str


class Document(_Message, frozen=True, tag="document"):
    """A market to answer from, in place of the one before. Another one follows only when it is `Taken`."""

    data: bytes
    received: float
    """When it was last seen upstream (`time.monotonic`, which all processes of a machine share)."""


class Seen(_Message, frozen=True, tag="seen"):
    """The document sent last has been seen again upstream."""

    received: float


class Serve(_Message, frozen=True, tag="serve"):
    """Let clients in."""


class State(_Message, frozen=True, tag="state"):
    """What a worker tells of the service on `/health`."""

    serving: int
    last_error: str | None


class Level(_Message, frozen=True, tag="level"):
    """What is logged from now on."""

    level: int


class Ask(_Message, frozen=True, tag="ask"):
    """Report at once."""

    number: int


class Drain(_Message, frozen=True, tag="drain"):
    """Answer what is under way, and end."""


class Taken(_Message, frozen=True, tag="taken"):
    """The document sent last is the present market now, or cannot be used, which the log tells."""

    usable: bool


class Serving(_Message, frozen=True, tag="serving"):
    """Clients are let in."""


class Counted(_Message, frozen=True, tag="counted"):
    """What has been counted: every second, and when it is asked for."""

    report: Report
    number: int = 0
    """Of the question; 0 unasked."""


ToWorker = Begin | Document | Seen | Serve | State | Level | Ask | Drain
ToMain = Taken | Serving | Counted

T = TypeVar("T")


class Channel:
    """One end. `kind` decodes what the other one sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connection: socket.socket) -> Channel:
        """The end that a connected socket is."""
        connection.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=connection))

    def send(self, message: ToWorker | ToMain) -> None:
        """Say something; to an end that is gone, nothing happens. What waits to be sent is bounded by what is sent:
        one document, and a few words a second to a process that is ended when it stands still."""
        if not self._writer.is_closing():
            body = _encoder.encode(message)
            self._writer.write(_HEADER.pack(len(body)))
            self._writer.write(body)

    async def receive(self, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """The next word of the other end; None when it has ended."""
        try:
            (length,) = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
            return decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def flush(self) -> None:
        """Wait until all is sent, or the other end gone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        """Say no more."""
        self._writer.close()


_encoder = msgspec.msgpack.Encoder()
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
TO_MAIN: msgspec.msgpack.Decoder[ToMain] = msgspec.msgpack.Decoder(ToMain)
