"""A console in this process, in front of a service that says what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from millrace.console.app import Console
from millrace.console.settings import ConsoleSettings


class Behind:
    """A service of any kind."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.closed = asyncio.Event()
        """A WebSocket or a stream has ended."""
        self.hold = asyncio.Event()
        """What `/v1/held` waits for."""
        self.url = ""

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/api/v1/quote/stream", self._stream)
        app.router.add_get("/v1/held", self._held)
        app.router.add_get("/v1/large", self._large)
        app.router.add_get("/v1/cut", self._cut)
        app.router.add_get("/ws", self._socket)
        app.router.add_get("/hub/ws", self._socket)
        app.router.add_route("*", "/{path:.*}", self._echo)
        return app

    async def _echo(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        body = {
            "method": request.method,
            "path": request.raw_path,
            "headers": dict(request.headers),
            "body": (await request.read()).decode(),
        }
        status = int(request.query.get("status", "200"))
        headers = {"Retry-After": "7", "X-Inner": "secret"}
        if policy := request.query.get("policy"):
            headers["Content-Security-Policy"] = policy
        return web.json_response(body, status=status, headers=headers)

    async def _held(self, _: web.Request) -> web.Response:
        await self.hold.wait()
        return web.json_response({})

    async def _large(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * 3_000_000)

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000000"})
        await response.prepare(request)
        await response.write(b"a part")
        assert request.transport is not None
        request.transport.close()
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if "from" not in request.query:
            return web.json_response({"error": "unknown token_in"}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number in range(10**6):
                await response.write(f"event: quote\ndata: {number}\n\n".encode())
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass
        finally:
            self.closed.set()
        return response

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        self.asked.append(request)
        socket = web.WebSocketResponse(max_msg_size=2**26)
        await socket.prepare(request)
        try:
            async for message in socket:
                if message.data == "close":
                    await socket.close(code=4008, message=b"slow")
                elif message.type is aiohttp.WSMsgType.TEXT:
                    await socket.send_str(message.data)
                else:
                    await socket.send_bytes(message.data)
        finally:
            self.closed.set()
        return socket


@pytest.fixture
async def behind() -> AsyncIterator[Behind]:
    """The service, listening."""
    service = Behind()
    runner = web.AppRunner(service.application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield service
    finally:
        await runner.cleanup()


Started = Callable[..., Awaitable[tuple[str, Console]]]


@asynccontextmanager
async def _consoles(url: str) -> AsyncIterator[Started]:
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> tuple[str, Console]:
            names = ("aggregator_url", "relayer_url", "aggregator_operators_url", "relayer_operators_url",
                     "notifier_operators_url", "chain_url")  # fmt: skip
            places: dict[str, Any] = dict.fromkeys(names, url)
            places |= dict.fromkeys(("relayer_ws_url", "hub_url"), url.replace("http", "ws", 1))
            console = Console(ConsoleSettings(**{**places, "port": 0, "metrics_port": 0, **settings}))
            await console.start(stack)
            return f"http://127.0.0.1:{console.port}", console

        yield start


@pytest.fixture
async def started(behind: Behind) -> AsyncIterator[Started]:
    """Starts a console with these settings in front of `behind`: its address and itself."""
    async with _consoles(behind.url) as start:
        yield start


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that keeps no cookies and follows nothing."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session
