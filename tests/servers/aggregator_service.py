"""A running aggregator with a stand-in upstream whose next answer the test chooses."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from millrace.aggregator.app import run
from millrace.aggregator.settings import AggregatorSettings
from millrace.dex.document import encode
from millrace.runtime.http import HttpServer
from millrace.system.ports import free_ports
from synthetic import make_market

MARKET = make_market(60, seed=11)


class Upstream:
    """A pool data API whose next answer the test chooses."""

    def __init__(self, body: bytes = b"") -> None:
        self.body = body or encode(MARKET)
        self.status = 200
        self.served = 0
        self.delay = 0.0
        self.tag = ""
        """Entity tag of the document; who sends it gets 304."""
        self.unchanged = 0
        self.headers: dict[str, str] = {}
        """Further headers, of all answers."""

    async def pools(self, request: web.Request) -> web.Response:
        self.served += 1
        await asyncio.sleep(self.delay)
        if self.tag and request.headers.get("If-None-Match") == self.tag:
            self.unchanged += 1
            return web.Response(status=304, headers=self.headers)
        tag = {"ETag": self.tag} if self.tag else {}
        return web.Response(body=self.body, status=self.status, headers=tag | self.headers)


class Service:
    """A running aggregator and its upstream."""

    def __init__(self, base: str, upstream: Upstream, operators: str = "") -> None:
        self.base = base
        self.operators = operators
        self.upstream = upstream
        self.session = aiohttp.ClientSession()

    async def get(self, path: str, **query: str) -> tuple[int, Any]:
        async with self.session.get(self.base + path, params=query) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    async def until(self, path: str, status: int) -> Any:
        """Ask until the answer has this status (at most 20 s)."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            got, body = await self.get(path)
            if got == status:
                return body
            await asyncio.sleep(0.02)
        raise AssertionError(f"{path} did not answer {status}")


async def start(document: bytes = b"", **changes: Any) -> tuple[Service, asyncio.Event, asyncio.Task[None], HttpServer]:
    """An aggregator with these settings, and an upstream that has this document, or that of `MARKET`."""
    upstream = Upstream(document)
    app = web.Application()
    app.router.add_get("/pools", upstream.pools)
    server = HttpServer(app)
    pools_port = await server.start("127.0.0.1", 0)
    port, metrics_port = free_ports(2)
    place = {"port": port, "metrics_port": metrics_port, "pools_url": f"http://127.0.0.1:{pools_port}/pools"}
    settings = AggregatorSettings(**{**place, "poll_seconds": 0.05, **changes})
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, stop))
    service = Service(f"http://127.0.0.1:{port}", upstream, f"http://127.0.0.1:{metrics_port}")
    while True:
        try:
            await service.get("/health")
            return service, stop, task, server
        except aiohttp.ClientError:
            await asyncio.sleep(0.02)


async def end(service: Service, stop: asyncio.Event, task: asyncio.Task[None], server: HttpServer) -> None:
    """Stop what `start` has started."""
    stop.set()
    await task
    await service.session.close()
    await server.stop()
