"""Connections are counted from accept to close, and a process without files left goes on serving."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from millrace.runtime import listener, websocket
from millrace.runtime.client_address import ClientAddress
from millrace.runtime.doors import Doors
from waiting import until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[None]], None]]:
    """Runs a coroutine in each kind of event loop that services use."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run  # type: ignore[misc]


class _Guests(Doors):
    """Doors to which this machine is a client like any other."""

    def __init__(self, most: int) -> None:
        super().__init__(most, most, ClientAddress())
        self.inside: list[str] = []

    def enter(self, peer: str) -> bool:
        self.inside.append(peer)
        return super().enter(peer)

    def leave(self, peer: str) -> None:
        self.inside.remove(peer)
        super().leave(peer)


async def serving(**options: Any) -> websocket.WsServer:
    return await websocket.serve(lambda _: websocket.Session(), "127.0.0.1", 0, **options)


async def is_reset(port: int) -> bool:
    """Whether a new connection ends before anything is sent."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return True
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


def test_row_26_connections_without_handshake_are_counted(run: Callable[[Awaitable[None]], None]) -> None:
    """Who never begins a handshake takes a place like everybody else, and gives it back at its end."""

    async def check() -> None:
        doors = _Guests(2)
        server = await serving(doors=doors)
        try:
            idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
            await until(lambda: doors.open == 2)
            assert await is_reset(server.port) and doors.refused == 1
            for _, writer in idle:
                writer.close()
            await until(lambda: doors.open == 0)
            url = f"http://127.0.0.1:{server.port}/"
            async with aiohttp.ClientSession() as http:
                async with http.ws_connect(url) as first, http.ws_connect(url) as second:
                    assert doors.inside == ["127.0.0.1"] * 2 and not first.closed and not second.closed
                    assert await is_reset(server.port)
                await until(lambda: doors.open == 0)
        finally:
            await server.close(grace=0.1)
        assert doors.inside == []

    run(check())


async def test_row_26_a_handshake_must_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins a handshake and does not end it in its time is closed, and takes no place any more."""
    assert websocket.server.HANDSHAKE_SECONDS == 5.0
    monkeypatch.setattr(websocket.server, "HANDSHAKE_SECONDS", 0.05)
    doors = _Guests(1)
    server = await serving(doors=doors)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /ws HTTP/1.1\r\nHost: a\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        await until(lambda: doors.open == 0)
        writer.close()
    finally:
        await server.close(grace=0.1)


def test_row_26_a_server_without_files_left(run: Callable[[Awaitable[None]], None]) -> None:
    """While no file is left new connections are reset, those that stand go on, and afterwards new ones come in."""

    async def check() -> None:
        troubles: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        server = await serving()
        url = f"http://127.0.0.1:{server.port}/"
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        clients = [socket.socket() for _ in range(20)]
        async with aiohttp.ClientSession() as http, http.ws_connect(url) as standing:
            try:
                used = max(client.fileno() for client in clients)
                resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, before[1]))
                for client in clients:
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", server.port))
                await until(lambda: server.turned_away >= 10)
                await asyncio.wait_for(standing.ping(), 10)
                assert not standing.closed and troubles == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
                for client in clients:
                    client.close()
            async with http.ws_connect(url) as another:
                assert not another.closed
        await server.close(grace=0.1)

    run(check())


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_leave_no_file_behind() -> None:
    """After a connection has come and gone the process has as many files open as before the first one."""
    (listening,) = listener.listen("127.0.0.1", 0, 1)
    with listening:
        before = open_files()
        with socket.create_connection(listening.getsockname()), listening.accept()[0]:
            assert open_files() == before + 2
        assert open_files() == before


def test_listening_on_all_interfaces() -> None:
    """Without a host there is a socket for each kind of address, all closed again."""
    found = listener.listen("", 0, 16)
    assert socket.AF_INET in {one.family for one in found}
    for one in found:
        one.close()
        assert one.fileno() == -1


def test_a_port_that_is_taken() -> None:
    """A taken port is an `OSError`, and nothing is left open."""
    (first,) = listener.listen("127.0.0.1", 0, 16)
    with first, pytest.raises(OSError, match="in use"):
        listener.listen("127.0.0.1", first.getsockname()[1], 16)
