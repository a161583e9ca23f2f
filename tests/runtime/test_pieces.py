"""Long frames in pieces: the same messages as without, and memory for none that is not whole."""

from __future__ import annotations

import asyncio
import os
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.runtime import websocket
from millrace.runtime.websocket.pieces import PIECE, Pieces

LONGEST = 5 * PIECE


class Reader:
    """An `inner` that parses frames by the letter of RFC 6455, into a small buffer which it offers in part."""

    def __init__(self, room: int) -> None:
        self.data = bytearray()
        self._buffer = bytearray(room)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]

    def frames(self) -> list[tuple[int, bytes]]:
        found, data = [], bytes(self.data)
        while data:
            short = data[1] & 0x7F
            size = {126: 2, 127: 8}.get(short, 0)
            length = int.from_bytes(data[2 : 2 + size], "big") if size else short
            at = 2 + size
            key, at = (data[at : at + 4], at + 4) if data[1] & 0x80 else (b"\0" * 4, at)
            payload = bytes(byte ^ key[index % 4] for index, byte in enumerate(data[at : at + length]))
            assert len(payload) == length
            found.append((data[0], payload))
            data = data[at + length :]
        return found


def frame(first: int, payload: bytes, key: bytes = b"\x01\x02\x03\xff") -> bytes:
    size = len(payload)
    head = bytes((first, 0x80 | (size if size < 126 else 126 if size < 65536 else 127)))
    head += b"" if size < 126 else struct.pack("!H" if size < 65536 else "!Q", size)
    return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


def feed(pieces: Pieces, data: bytes, cuts: list[int]) -> None:
    """Give the bytes in reads of these sizes, over and over."""
    at = number = 0
    while at < len(data):
        room = memoryview(pieces.get_buffer(-1))
        part = data[at : at + min(cuts[number % len(cuts)], len(room))]
        room[: len(part)] = part
        pieces.buffer_updated(len(part))
        at += len(part)
        number += 1


SIZES = st.one_of(st.integers(0, 300), st.sampled_from([125, 126, 65535, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 7]))
FRAMES = st.lists(st.tuples(st.sampled_from([0x81, 0x82, 0x01, 0x80, 0x00]), SIZES), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(FRAMES, st.lists(st.sampled_from([1, 3, 6, 7, 100, 5000, 70_000, 262_144]), min_size=1, max_size=4))
def test_the_same_messages(frames: list[tuple[int, int]], cuts: list[int]) -> None:
    """However the bytes come, the fragments join to the frames that were sent, and none is longer than a piece."""
    payloads = [os.urandom(size) for _, size in frames]
    sent = b"".join(frame(first, payload) for (first, _), payload in zip(frames, payloads, strict=True))
    reader = Reader(50_000)
    feed(Pieces(reader, LONGEST), sent, [max(cut, len(sent) // 2000 + 1) for cut in cuts])
    got = iter(reader.frames())
    for (first, _), payload in zip(frames, payloads, strict=True):
        opcode, part = next(got)
        assert opcode & 0x0F == first & 0x0F
        while len(part) < len(payload):
            assert not opcode & 0x80
            opcode, more = next(got)
            assert opcode & 0x0F == 0 and len(more) <= PIECE
            part += more
        assert part == payload and opcode & 0x80 == first & 0x80
    assert next(got, None) is None


@pytest.mark.parametrize(
    "data",
    [
        frame(0x89, b"ping"),
        b"\x81\x05hello",  # unmasked
        b"\x81\xff" + struct.pack("!Q", LONGEST + 1) + b"\0\0\0\0" + b"x" * 100,
        b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0",
        b"\x81\xff" + struct.pack("!Q", 5) + b"\0\0\0\0hello",  # not in its shortest form
        b"\xf1\x80\0\0\0\0",
    ],
    ids=["control", "unmasked", "too long", "impossible length", "long form", "reserved bits"],
)
def test_all_else_is_passed_on_as_it_came(data: bytes) -> None:
    """What is not to be cut reaches the protocol behind byte by byte, which judges it."""
    reader = Reader(17)
    feed(Pieces(reader, LONGEST), data, [1, 4])
    assert bytes(reader.data) == data


class Growing(websocket.Session):
    """A session that reads in pieces and takes so many bytes of an unfinished message."""

    max_message_size = 4 * 1024 * 1024
    in_pieces = True

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.parts: list[int] = []
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()

    def on_part(self, size: int) -> bool:
        self.parts.append(size)
        return sum(self.parts) <= self.room

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.messages.put_nowait(data)

    def on_thrown_away(self) -> None:
        self.messages.put_nowait(None)


async def serving(session: websocket.Session) -> tuple[websocket.WsServer, websocket.Session]:
    server = await websocket.serve(lambda _: session, "127.0.0.1", 0)
    client = websocket.Session()
    await websocket.connect(f"ws://127.0.0.1:{server.port}/", client)
    return server, client


async def test_row_26_a_long_frame_is_seen_while_it_grows() -> None:
    """A message of the longest there may be arrives whole, and its receiver heard of each piece before."""
    session = Growing(10**9)
    server, client = await serving(session)
    try:
        whole = os.urandom(session.max_message_size)
        client.send_binary(whole)
        assert await asyncio.wait_for(session.messages.get(), 20) == whole
        assert session.parts == [PIECE] * 63
        client.send_binary(b"short")
        assert await asyncio.wait_for(session.messages.get(), 5) == b"short"
    finally:
        await server.close()


async def test_row_26_what_is_too_much_is_thrown_away() -> None:
    """Of a message its receiver has no room for nothing is kept, its end is told, and the next one is read."""
    session = Growing(3 * PIECE)
    server, client = await serving(session)
    try:
        client.send_binary(b"x" * (2 * 1024 * 1024))
        client.send_binary(b"next")
        assert await asyncio.wait_for(session.messages.get(), 20) is None
        assert session.parts == [PIECE] * 4
        assert await asyncio.wait_for(session.messages.get(), 5) == b"next"
        client.send_binary(b"x" * (session.max_message_size + 1))
        await asyncio.wait_for(client.wait_closed(), 10)
        assert client.close_code == websocket.MESSAGE_TOO_BIG
    finally:
        await server.close()


async def test_row_26_half_a_long_frame_is_closed_with_1008(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long frame must come to its end in time, as fragments must."""
    monkeypatch.setattr(Growing, "message_timeout", 0.2)
    session = Growing(10**9)
    server = await websocket.serve(lambda _: session, "127.0.0.1", 0, ping_interval=0.1)
    try:
        reader, writer = await handshake(server.port)
        writer.write(b"\x82\xff" + struct.pack("!Q", 1_000_000) + b"\0\0\0\0" + b"x" * 100_000)
        assert await close_code(reader) == 1008
        writer.close()
    finally:
        await server.close()


@pytest.mark.parametrize("header", [0, 1700, 3000, 6000])
@pytest.mark.parametrize("early", [[], [50], [1784], [300, 300], [3000], [60_000]])
async def test_frames_with_the_handshake(header: int, early: list[int]) -> None:
    """Whole frames that come before the answer to the handshake are taken, and long ones behind them in pieces."""
    session = Growing(10**9)
    server = await websocket.serve(lambda _: session, "127.0.0.1", 0)
    try:
        frames = [frame(0x81, b"y" * size) for size in early]
        _, writer = await handshake(
            server.port, b"X-A: " + b"a" * header + b"\r\n" if header else b"", b"".join(frames)
        )
        writer.write(frame(0x81, b"x" * 100_000))
        for size in early:
            assert await asyncio.wait_for(session.messages.get(), 5) == b"y" * size
        assert await asyncio.wait_for(session.messages.get(), 5) == b"x" * 100_000
        assert session.parts == [PIECE]
        writer.close()
    finally:
        await server.close()


async def test_row_26_half_a_long_frame_with_the_handshake() -> None:
    """A frame whose header came before the answer to the handshake cannot be cut: a long one closes with 1008."""
    server = await websocket.serve(lambda _: Growing(10**9), "127.0.0.1", 0)
    try:
        long = frame(0x81, b"x" * 1_000_000)
        reader, writer = await handshake(server.port, b"", long[:7])
        writer.write(long[7:])
        assert await close_code(reader) == 1008
        writer.close()
    finally:
        await server.close()


async def handshake(port: int, more: bytes = b"", early: bytes = b"") -> tuple[asyncio.StreamReader, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + more
        + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n" + early
    )  # fmt: skip
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def close_code(reader: asyncio.StreamReader) -> int:
    while True:
        first, size = await asyncio.wait_for(reader.readexactly(2), 5)
        body = await reader.readexactly(size & 0x7F)
        if first & 0xF == websocket.CLOSE:
            return int.from_bytes(body[:2], "big")
