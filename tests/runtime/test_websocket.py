"""The WebSocket shell: whole messages, bounds, pings and closes."""

from __future__ import annotations

import asyncio
import os
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import picows
import pytest

from millrace.runtime import websocket
from waiting import until

HANDSHAKE = (
    b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Recorder(websocket.Session):
    """Keeps what arrives and lets a test wait for it."""

    max_message_size = 1000

    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.ended = asyncio.Event()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.messages.put_nowait((kind, data))

    def on_close(self) -> None:
        self.ended.set()


@asynccontextmanager
async def serving(
    factory: Callable[[websocket.Request], websocket.Session], **options: Any
) -> AsyncIterator[websocket.WsServer]:
    server = await websocket.serve(factory, "127.0.0.1", 0, max_message_size=1000, **options)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of bare sockets, for frames no library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader, writer
    finally:
        writer.close()


def masked(first_byte: int, payload: bytes) -> bytes:
    size = bytes((0x80 | len(payload),)) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
    return bytes((first_byte,)) + size + b"\0\0\0\0" + payload


async def close_code_of(reader: asyncio.StreamReader) -> int:
    """Read frames until the close frame and return its code."""
    while True:
        first, size = await asyncio.wait_for(reader.readexactly(2), 5)
        body = await reader.readexactly(size & 0x7F)
        if first & 0xF == websocket.CLOSE:
            return int.from_bytes(body[:2], "big")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frame_lengths(size: int) -> None:
    """A frame's header uses the shortest of the three length forms and ends where the payload begins."""
    built = websocket.text_frame(b"x" * size)
    header = 2 if size < 126 else 4 if size < 65536 else 10
    assert len(built) == header + size
    assert built[0] == 0x81


async def test_messages_travel_both_ways() -> None:
    """Text and binary messages of any size arrive whole at the other side, in order."""
    sessions: list[Recorder] = []

    def factory(request: websocket.Request) -> Recorder:
        assert (request.path, request.query) == ("/ws", "a=1")
        sessions.append(Recorder())
        return sessions[-1]

    async with serving(factory) as server:
        client = Recorder()
        await websocket.connect(f"ws://127.0.0.1:{server.port}/ws?a=1", client)
        payload = os.urandom(1000)
        client.send_binary(payload)
        client.send_text(b"hello")
        assert await sessions[0].messages.get() == ("binary", payload)
        assert await sessions[0].messages.get() == ("text", b"hello")
        sessions[0].send_frames(websocket.text_frame(b"one") + websocket.binary_frame(b"two"))
        assert await client.messages.get() == ("text", b"one")
        assert await client.messages.get() == ("binary", b"two")
        client.close()
        await asyncio.wait_for(sessions[0].ended.wait(), 5)
        assert sessions[0].close_code == 1000
        assert not server.sessions


async def test_continuation_frames_are_joined() -> None:
    """The fragments of one message arrive as one message, with a ping between them answered."""
    session = Recorder()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, writer):
        writer.write(masked(0x01, b"he") + masked(0x89, b"?") + masked(0x00, b"l") + masked(0x80, b"lo"))
        assert await asyncio.wait_for(session.messages.get(), 5) == ("text", b"hello")
        assert await asyncio.wait_for(reader.readexactly(3), 5) == b"\x8a\x01?"


@pytest.mark.parametrize(
    "frames",
    [
        [masked(0x81, b"x" * 1001)],
        [masked(0x01, b"x" * 600), masked(0x80, b"x" * 600)],
        [masked(0x01, b"")] + [masked(0x00, b"")] * 1001,
    ],
    ids=["one frame", "the sum of two", "endless empty fragments"],
)
async def test_too_large_closes_with_1009(frames: list[bytes]) -> None:
    """A message above the limit, however it is cut, closes its own connection with 1009."""
    other = Recorder()
    sessions = iter([Recorder(), other])
    async with serving(lambda _: next(sessions)) as server, raw_client(server.port) as (reader, writer):
        async with raw_client(server.port) as (_, second):
            writer.write(b"".join(frames))
            assert await close_code_of(reader) == 1009
            second.write(masked(0x81, b"still here"))
            assert await asyncio.wait_for(other.messages.get(), 5) == ("text", b"still here")


@pytest.mark.parametrize(
    "frames",
    [masked(0x80, b"x"), masked(0x01, b"a") + masked(0x81, b"b"), masked(0x83, b"x"), b"\x81\x01x"],
    ids=["continuation first", "message inside a message", "unknown opcode", "unmasked"],
)
async def test_protocol_errors_close_with_1002(frames: bytes) -> None:
    """Frames in an impossible order or form close the connection with 1002."""
    session = Recorder()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, writer):
        writer.write(frames)
        assert await close_code_of(reader) == 1002
        await asyncio.wait_for(session.ended.wait(), 5)


async def test_row_26_a_message_that_never_ends_is_closed_with_1008(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fragments must make a message in time, whatever pongs come between; who sends whole messages stays."""
    monkeypatch.setattr(Recorder, "message_timeout", 0.2)
    slow, steady = Recorder(), Recorder()
    sessions = iter([slow, steady])
    async with serving(lambda _: next(sessions), ping_interval=0.1) as server:
        async with raw_client(server.port) as (reader, writer), raw_client(server.port) as (_, other):
            writer.write(masked(0x01, b"be") + masked(0x00, b"gin"))
            for number in range(20):
                other.write(masked(0x01, b"a") + masked(0x80, b"b"))
                assert await asyncio.wait_for(steady.messages.get(), 5) == ("text", b"ab"), number
                other.write(masked(0x8A, b""))
            assert await close_code_of(reader) == 1008
            assert not steady.closed


async def test_row_32_silent_peer_is_closed_with_4012() -> None:
    """A peer that answers no ping within the deadline is closed with 4012; one that answers stays."""
    silent, alive = Recorder(), Recorder()
    sessions = iter([silent, alive])
    async with serving(lambda _: next(sessions), ping_interval=0.1, pong_timeout=0.1) as server:
        async with raw_client(server.port) as (reader, _):
            client = Recorder()
            await websocket.connect(f"ws://127.0.0.1:{server.port}/", client)
            assert await close_code_of(reader) == 4012
            assert not alive.closed
            client.close()


async def pings(reader: asyncio.StreamReader, count: int) -> None:
    """Read so many pings, and nothing else."""
    assert await asyncio.wait_for(reader.readexactly(2 * count), 5) == b"\x89\0" * count


async def test_row_32_a_peer_is_asked_again_and_again() -> None:
    """Whoever answered is asked again; only a pong is an answer, however much else is sent."""
    session = Recorder()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, writer):
        now = asyncio.get_running_loop().time()
        for cycle in range(3):
            server._ping_once(now + cycle * 31 + 31)
            await pings(reader, 1)
            writer.write(masked(0x8A, b"") + masked(0x81, b"pong"))
            await asyncio.wait_for(session.messages.get(), 5)
            server._ping_once(now + cycle * 31 + 52)
            assert not session.closed
        server._ping_once(now + 4 * 31)
        writer.write(masked(0x81, b"no pong"))
        await asyncio.wait_for(session.messages.get(), 5)
        server._ping_once(now + 4 * 31 + 21)
        await pings(reader, 1)
        assert await close_code_of(reader) == 4012


async def test_row_32_further_pings_do_not_put_off_the_end() -> None:
    """Pinged more often than it may take to answer, a silent peer is closed when its first answer is due."""
    session = Recorder()
    async with (
        serving(lambda _: session, ping_interval=5.0, pong_timeout=20.0) as server,
        raw_client(server.port) as (reader, _),
    ):
        now = asyncio.get_running_loop().time()
        for after in (6, 12, 18, 24):
            server._ping_once(now + after)
            await pings(reader, 1)
        server._ping_once(now + 27)
        assert session.close_code == 4012


async def test_slow_reader_is_closed_with_4008() -> None:
    """A peer that does not read is cut once its send buffer passes the bound, and memory stays bounded."""
    session = Recorder()
    session.max_buffered = 100_000
    async with serving(lambda _: session) as server, raw_client(server.port):
        block = websocket.binary_frame(b"x" * 50_000)
        for _ in range(1000):
            session.send_frames(block)
        assert session.close_code == 4008
        assert session.buffered < 300_000
        await asyncio.wait_for(session.ended.wait(), 5)


async def test_a_flood_of_pings_is_closed_with_1008() -> None:
    """Pings are answered one by one up to 64 in five seconds; more close the connection and leave nothing waiting."""
    session = Recorder()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, writer):
        writer.write(masked(0x89, b"!") * 64)
        assert await asyncio.wait_for(reader.readexactly(3 * 64), 5) == b"\x8a\x01!" * 64
        writer.write(masked(0x89, b"!") * 100_000)
        assert await close_code_of(reader) == 1008
        assert session.buffered < 10_000


@pytest.mark.parametrize("opcode", [0x89, 0x8A])
async def test_frames_that_say_nothing_cost_nothing_once_there_are_too_many(opcode: int) -> None:
    """Pings and unasked pongs close with 1008 beyond 64 in five seconds; of what came with them none is taken."""

    class Piecewise(Recorder):
        in_pieces = True
        taken = 0

        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            self.taken += 1
            super().on_ws_frame(transport, frame)

    session = Piecewise()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, writer):
        writer.write(masked(opcode, b"") * 100_000)
        assert await close_code_of(reader) == 1008
        await asyncio.wait_for(session.ended.wait(), 5)
    assert session.taken == 65 and session.close_code == 1008


async def test_short_fragments_of_what_nobody_wants() -> None:
    """A message that is thrown away may have many long fragments; short ones are frames that say nothing."""

    class Deaf(Recorder):
        max_message_size = 10**6
        in_pieces = True

        def on_part(self, size: int) -> bool:
            return False

    sessions = [Deaf(), Deaf()]
    waiting = iter(sessions)
    server = await websocket.serve(lambda _: next(waiting), "127.0.0.1", 0, max_message_size=10**6)
    async with raw_client(server.port) as (_, patient), raw_client(server.port) as (reader, writer):
        patient.write(masked(0x01, b"") + masked(0x00, b"x" * 1024) * 200 + masked(0x80, b"") + masked(0x81, b"after"))
        assert await asyncio.wait_for(sessions[0].messages.get(), 5) == ("text", b"after")
        writer.write(masked(0x01, b"") + masked(0x00, b"") * 1000)
        assert await close_code_of(reader) == 1008
    await server.close()


async def test_writable_again() -> None:
    """After the send buffer passed its high mark and drained, the session is told."""
    told = asyncio.Event()

    class Watcher(Recorder):
        def on_open(self) -> None:
            self.limit_send_buffer(1000)

        def on_writable(self) -> None:
            told.set()

    session = Watcher()
    async with serving(lambda _: session) as server, raw_client(server.port) as (reader, _):
        while not session.buffered:
            session.send_frames(websocket.binary_frame(b"x" * 60_000))
        reading = asyncio.ensure_future(reader.read(-1))
        await asyncio.wait_for(told.wait(), 5)
        reading.cancel()


async def test_refusals() -> None:
    """An upgrade that the factory refuses gets the HTTP status and a JSON error; so does one too many."""

    def factory(request: websocket.Request) -> Recorder:
        if request.path != "/ws":
            raise websocket.Refuse(404, "unknown path")
        return Recorder()

    async with serving(factory, max_sessions=1) as server, aiohttp.ClientSession() as http:
        base = f"http://127.0.0.1:{server.port}"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(base + "/nowhere")
        assert refused.value.status == 404
        async with http.get(base + "/ws") as plain:
            assert (plain.status, await plain.json()) == (426, {"error": "this is a WebSocket endpoint"})
        async with http.ws_connect(base + "/ws"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(base + "/ws")
            assert refused.value.status == 503
        assert server.refused == 3


async def test_a_peer_that_dies_in_the_handshake_is_an_error() -> None:
    """A server that accepts and resets at once makes `connect` raise one of its documented errors."""

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    listener = await asyncio.start_server(drop, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(websocket.CONNECT_ERRORS):
        await websocket.connect(f"ws://127.0.0.1:{port}/", Recorder())
    listener.close()
    await listener.wait_closed()


async def test_a_session_serves_one_connection() -> None:
    """A session that was connected before is refused, however that connection ended."""
    async with serving(lambda request: Recorder()) as server:
        peer = Recorder()
        url = f"ws://127.0.0.1:{server.port}/"
        await websocket.connect(url, peer)
        with pytest.raises(ValueError, match="serves one connection"):
            await websocket.connect(url, peer)
        peer.close()
        await asyncio.wait_for(peer.ended.wait(), 5)
        with pytest.raises(ValueError, match="serves one connection"):
            await websocket.connect(url, peer)


async def test_a_cancelled_follower_ends_and_leaves_no_connection() -> None:
    """Whenever the task is cancelled, before, in and after the handshake, it ends, and so does its connection."""

    async def follow(url: str) -> None:
        while True:
            session = Recorder()
            await websocket.connect(url, session)
            await session.wait_closed()

    async with serving(lambda _: Recorder()) as server:
        for turns in range(60):  # of the loop; the connection stands after about ten
            follower = asyncio.create_task(follow(f"ws://127.0.0.1:{server.port}/"))
            for _ in range(turns):
                await asyncio.sleep(0)
            follower.cancel()
            async with asyncio.timeout(5):
                await asyncio.wait([follower])
            assert follower.cancelled()
        async with asyncio.timeout(5):
            while server.sessions:
                await asyncio.sleep(0)


async def test_closing_the_server_says_so() -> None:
    """When the server closes, every client gets 1001 and every session ends."""
    session = Recorder()
    async with serving(lambda _: session) as server:
        client = Recorder()
        await websocket.connect(f"ws://127.0.0.1:{server.port}/", client)
        await server.close()
        await asyncio.wait_for(client.ended.wait(), 5)
        assert client.close_code == 1001
        assert session.ended.is_set()


async def test_who_is_at_the_handshake_when_the_server_closes_is_refused() -> None:
    """A connection that was let in before, and asks for the upgrade only after, gets 503 and no session."""
    async with serving(lambda _: Recorder()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with raw_client(server.port):  # who came later has been answered: the first one is in, too
            pass
        await server.close()
        writer.write(HANDSHAKE)
        async with asyncio.timeout(5):
            assert (await reader.readline()).split()[1] == b"503"
        assert not server.sessions
        writer.close()


async def test_a_failing_session_hurts_nobody_else() -> None:
    """An exception in one session's callback closes that connection and leaves the others alone."""

    class Broken(Recorder):
        def on_message(self, kind: websocket.Kind, data: bytes) -> None:
            raise RuntimeError("a defect")

    broken, fine = Broken(), Recorder()
    sessions = iter([broken, fine])
    async with serving(lambda _: next(sessions)) as server:
        first, second = Recorder(), Recorder()
        await websocket.connect(f"ws://127.0.0.1:{server.port}/", first)
        await websocket.connect(f"ws://127.0.0.1:{server.port}/", second)
        first.send_text(b"boom")
        await asyncio.wait_for(broken.ended.wait(), 5)
        second.send_text(b"fine")
        assert await asyncio.wait_for(fine.messages.get(), 5) == ("text", b"fine")


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_who_has_left_is_forgotten(monkeypatch: pytest.MonkeyPatch, in_pieces: bool) -> None:
    """Nothing holds a session that is gone, whatever was due of it, and a crowd's memory goes back to the system."""
    given_back = asyncio.Event()
    monkeypatch.setattr(websocket.server, "_CROWD", 4)
    monkeypatch.setattr(Recorder, "in_pieces", in_pieces)
    monkeypatch.setattr(websocket.server, "return_free_memory", given_back.set)
    sessions: weakref.WeakSet[websocket.Session] = weakref.WeakSet()

    def make(_: websocket.Request) -> websocket.Session:
        session = Recorder()
        sessions.add(session)
        return session

    async with serving(make, ping_interval=0.2, pong_timeout=60) as server, AsyncExitStack() as clients:
        for _ in range(4):
            reader, writer = await clients.enter_async_context(raw_client(server.port))
            writer.write(masked(0x01, b"half"))  # a message is due, too
            assert await asyncio.wait_for(reader.readexactly(2), 5) == b"\x89\x00"  # and a pong
        assert len(sessions) == 4 and not given_back.is_set()
        await clients.aclose()
        await asyncio.wait_for(given_back.wait(), 5)
        await until(lambda: not sessions)


@pytest.mark.parametrize("version", ["8", "7", "12", "", "13, 8", None])
async def test_another_version_of_the_handshake_is_refused(version: str | None) -> None:
    """Whoever speaks another version hears 426 and which one is spoken here; nothing is opened."""
    async with serving(lambda _: Recorder()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        line = f"Sec-WebSocket-Version: {version}\r\n" if version is not None else ""
        writer.write(
            b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + line.encode() + b"\r\n"
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        writer.close()
        assert head.startswith("http/1.1 426") and "sec-websocket-version: 13\r\n" in head
        assert not server.sessions


@pytest.mark.parametrize("bit", [0x40, 0x20, 0x10])
@pytest.mark.parametrize("opcode", [0x1, 0x2, 0x9, 0xA])
@pytest.mark.parametrize("size", [5, 70_000])
async def test_reserved_bits_are_refused(bit: int, opcode: int, size: int) -> None:
    """A frame with a bit that was not agreed on closes with 1002, also one that is cut on its way."""
    if opcode >= 8 and size > 125:
        return

    class Cut(Recorder):
        in_pieces = True
        max_message_size = 100_000

    async with AsyncExitStack() as stack:
        server = await websocket.serve(lambda _: Cut(), "127.0.0.1", 0, max_message_size=100_000)
        stack.push_async_callback(server.close)
        reader, writer = await stack.enter_async_context(raw_client(server.port))
        head = bytes((0x80 | bit | opcode, 0x80 | size)) if size < 126 else (
            bytes((0x80 | bit | opcode, 0xFF)) + size.to_bytes(8, "big")
        )  # fmt: skip
        writer.write(head + bytes(4) + b"x" * size)
        assert await close_code_of(reader) == 1002


class Rester(Recorder):
    """Rests after each message that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = 100
        self.postponed_sizes: list[int] = []

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        super().on_message(kind, data)
        if data == b"rest":
            self.rest(3600.0)

    def on_postponed(self, size: int) -> bool:
        self.postponed_sizes.append(size)
        return self.postponed <= self.bound


def frames_of(*payloads: bytes) -> bytes:
    return b"".join(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload for payload in payloads)


async def test_a_rest() -> None:
    """Nothing is read; what was on its way is handed on in its order when the rest is over, up to the next one."""
    async with serving(lambda _: Rester()) as server, raw_client(server.port) as (_, writer):
        writer.write(frames_of(b"a", b"rest", b"b", b"rest", b"c"))
        async with asyncio.timeout(5):
            while not server.sessions or (session := next(iter(server.sessions))).postponed < 3:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        assert isinstance(session, Rester) and session.messages.qsize() == 2
        session._read_on()
        assert session.messages.qsize() == 4 and session.postponed == 1
        session._read_on()
        writer.write(frames_of(b"d"))
        got = [(await session.messages.get())[1] for _ in range(6)]
        assert got == [b"a", b"rest", b"b", b"rest", b"c", b"d"]


async def test_what_comes_during_a_rest_is_bounded() -> None:
    """Beyond the bound of its owner the connection is closed with 1008."""
    async with serving(lambda _: Rester()) as server, raw_client(server.port) as (reader, writer):
        writer.write(frames_of(b"rest", *[b"x"] * 101))
        assert await close_code_of(reader) == 1008


async def test_a_pong_may_be_late_by_a_rest() -> None:
    """Who is not read cannot be heard to answer a ping: its pong has another deadline, and then it counts."""
    async with (
        serving(lambda _: Rester(), ping_interval=0.2, pong_timeout=0.2) as server,
        raw_client(server.port) as (reader, writer),
    ):
        writer.write(frames_of(b"rest"))
        async with asyncio.timeout(5):
            while not server.sessions or not next(iter(server.sessions)).rested:
                await asyncio.sleep(0)
            (session,) = server.sessions
            while session.rested:
                await asyncio.sleep(0.01)
            assert session.standing, "its first deadline passed while nothing was read"
        assert await close_code_of(reader) == 4012


async def test_who_is_not_read_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pong that nobody reads is not missed, however long that lasts, nor asked for again; then it has its time."""
    async with (
        serving(lambda _: Recorder(), ping_interval=1000, pong_timeout=100) as server,
        raw_client(server.port) as (reader, _),
    ):
        while not server.sessions:
            await asyncio.sleep(0)
        (session,) = server.sessions
        pings: list[bytes] = []
        send = session.send_frames

        def note(frames: bytes) -> None:
            pings.append(frames)
            send(frames)

        monkeypatch.setattr(session, "send_frames", note)
        began = asyncio.get_running_loop().time()
        server._ping_once(began + 1001)
        session.pause(True)
        for seconds in (1102, 1203, 2304, 3405):
            server._ping_once(began + seconds)
        assert len(pings) == 1, "more of its answers would wait there"
        session.pause(False)
        server._ping_once(began + 3506)
        assert session.standing
        server._ping_once(began + 3607)
        assert await close_code_of(reader) == 4012


async def test_a_defect_in_what_was_postponed_closes_its_connection() -> None:
    """An exception is logged and closes with 1011, as it does in a message that came straight."""

    class Broken(Rester):
        def on_message(self, kind: websocket.Kind, data: bytes) -> None:
            super().on_message(kind, data)
            if data == b"defect":
                raise RuntimeError("a defect")

    async with serving(lambda _: Broken()) as server, raw_client(server.port) as (reader, writer):
        writer.write(frames_of(b"rest", b"defect"))
        async with asyncio.timeout(5):
            while not server.sessions or not next(iter(server.sessions)).postponed:
                await asyncio.sleep(0)
        next(iter(server.sessions))._read_on()
        assert await close_code_of(reader) == 1011


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "upgrade,close"])
async def test_a_handshake_may_list_other_options_of_its_connection(connection: str) -> None:
    """`Connection` is a list of which `Upgrade` has to be one: some browsers say more."""
    async with serving(lambda _: Recorder()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: " + connection.encode() + b"\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.close()
