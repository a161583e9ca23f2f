"""The console process: the page and the services behind one origin."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack

from aiohttp import web
from aiohttp.typedefs import Handler

from millrace.console.gate import Gate, Refused
from millrace.console.metrics import Counts
from millrace.console.page import SECURITY, Page
from millrace.console.proxy import Proxy
from millrace.console.settings import ConsoleSettings
from millrace.runtime import http, operators
from millrace.runtime.answers import JsonResponse
from millrace.runtime.client_address import ClientAddress
from millrace.runtime.doors import Doors

log = logging.getLogger(__name__)

HEALTH = "/health"
SETTINGS = "/settings.json"


class Console:
    """A running console: what `run` starts, and what tests look into. Raises `OSError` for settings that cannot be."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.gate = Gate(settings)
        self.page = Page()
        self.doors = Doors(settings.max_connections, settings.max_connections_per_client, ClientAddress())
        self.counts = Counts(lambda: (self.doors.open, self.doors.refused))
        self.proxy = Proxy(settings, self.gate, self.counts)
        self.port = self.metrics_port = 0
        self._started = time.monotonic()

    async def start(self, stack: AsyncExitStack) -> None:
        """Listen; `stack` undoes it. Raises `OSError`."""
        settings = self.settings
        await stack.enter_async_context(self.proxy)
        app = http.make_app(max_body=settings.max_body_bytes)
        app.middlewares.insert(0, _secured)
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(_secure)
        app.router.add_get(HEALTH, self._health)
        app.router.add_get(SETTINGS, self._settings)
        app.router.add_route("*", "/{path:.*}", self._anything)
        server = http.HttpServer(app, doors=self.doors)
        stack.push_async_callback(server.stop)
        stack.push_async_callback(self.proxy.close_sockets)
        self.port = await server.start(settings.host, settings.port)
        handlers: dict[str, Handler] = {
            HEALTH: self._health, "/metrics": http.metrics_handler(self.counts.registry())
        }  # fmt: skip
        watched, self.metrics_port = await operators.serve(
            settings.metrics_host, settings.metrics_port, handlers, token=settings.operators_token
        )
        stack.push_async_callback(watched.stop)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.gate.check(request)
            return await handler(request)
        except Refused as refusal:
            self.counts.refused[refusal.reason] += 1
            headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(refusal.status)
            return http.error_response(str(refusal), refusal.status, headers)

    async def _health(self, _: web.Request) -> web.Response:
        """The process lives; what the services say is asked of themselves."""
        return http.json_response({"status": "ok", "uptimeSeconds": int(time.monotonic() - self._started)})

    async def _settings(self, _: web.Request) -> web.Response:
        """What the page has to know before it asks anything else."""
        body = {
            "services": self.proxy.routes.services,
            "operators": self.gate.operators,
            "faucet": bool(self.settings.faucet and self.settings.chain_url),
            "contract": self.settings.contract,
        }
        return http.json_response(body, headers={"Cache-Control": "no-cache"})

    async def _anything(self, request: web.Request) -> web.StreamResponse:
        if request.method in ("GET", "HEAD"):
            file = self.page.answer(request)
            if file is not None:
                return file
        return await self.proxy.pass_on(request)


@web.middleware
async def _secured(request: web.Request, handler: Handler) -> web.StreamResponse:
    """JSON answers are sent in one piece, which `_secure` never sees."""
    response = await handler(request)
    if isinstance(response, JsonResponse):
        response.add(SECURITY)
    return response


async def _secure(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY.items():
        response.headers.setdefault(name, value)


async def run(settings: ConsoleSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `OSError` with a text for the operator when it cannot start."""
    console = Console(settings)
    async with AsyncExitStack() as stack:
        await console.start(stack)
        log.info("ready", extra={"port": console.port, "metrics_port": console.metrics_port})
        await stop.wait()
