"""Links that are bad rather than broken: half-open sockets and a consumer that reads a kilobyte a second."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.runtime import websocket
from waiting import until

from .helpers import event, notifier, peers, save_block


@asynccontextmanager
async def raw(port: int, path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket client of bare sockets with a small receive buffer, that reads what the test reads and no more."""
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bare.setblocking(False)
    await asyncio.get_running_loop().sock_connect(bare, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=bare, limit=1024)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".encode()
        + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    try:
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def masked(payload: bytes) -> bytes:
    """A short binary message of a client."""
    assert len(payload) < 126
    return bytes((0x82, 0x80 | len(payload))) + bytes(4) + payload


async def test_a_consumer_of_a_kilobyte_a_second(tmp_path: Path) -> None:
    """It is cut off with nothing held for it but its window; node and other consumers are served all the while."""
    wish = hub_pb2.SubscribeEvent(event_type="All").SerializeToString()
    subscribe = pb.WsMessage(type=outport.PAYLOAD, topic="subscribe", payload=wish).SerializeToString()
    async with notifier(tmp_path, consumer_timeout=1.0, window_bytes=300_000) as running, peers(running) as connect:
        async with raw(running.port, "/hub/ws") as (reader, writer):
            writer.write(masked(subscribe))
            good, node = await connect.consumer(), await connect.node()
            await good.subscribe()
            trickle = asyncio.create_task(read_slowly(reader))
            for nonce in range(200):
                await node.save(save_block(0, nonce, events=[event(b"\1" * 32, "e", data=b"x" * 50_000)]))
                assert (await good.event()).counter == running.journal.head
                assert max(session.buffered for session in running.hub.sessions) < 1_000_000
            await until(lambda: len(running.hub.sessions) <= 1)
            assert running.metrics.consumers_cut._value.get() == 1
            trickle.cancel()
            assert not good.ended.is_set()


async def read_slowly(reader: asyncio.StreamReader) -> None:
    """A kilobyte a second."""
    while await reader.read(1024):
        await asyncio.sleep(1.0)


async def test_half_open_sockets(tmp_path: Path) -> None:
    """A node and a consumer that are gone without a word are closed when they answer no ping; others are served on."""
    async with notifier(tmp_path, ping_interval=0.2, pong_timeout=0.2) as running, peers(running) as connect:
        async with raw(running.port, "/save"), raw(running.port, "/hub/ws"):
            await until(lambda: len(running.ingest.nodes) + len(running.hub.sessions) >= 2)
            silent = [*running.ingest.nodes, *running.hub.sessions]
            consumer, node = await connect.consumer(), await connect.node()
            await consumer.subscribe()
            await until(lambda: all(session.closed for session in silent))
            assert {session.close_code for session in silent} == {websocket.NO_PONG}
            await node.save(save_block(0, 1))
            assert (await consumer.event()).counter == running.journal.head
