"""Passes requests on to the services: HTTP as it comes, WebSockets message by message, streams over WebSockets.

Browsers open six connections to a host over HTTP/1.1, and each event stream holds one: with six tabs the seventh would
hang. So the page asks for a stream with an upgrade; it then comes over a WebSocket, of which there may be hundreds:
first a text message with the answer's status and headers, then its body in binary messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from aiohttp import WSMsgType, web
from yarl import URL

from millrace.console.gate import PROTOCOL, Gate, Refused, upgrades
from millrace.console.metrics import Counts
from millrace.console.routes import Route, Routes
from millrace.console.settings import ConsoleSettings
from millrace.runtime.http import error_response, forwarded_for, read_body
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

_ASKED = ("Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "Last-Event-ID", "traceparent", "tracestate")
_ANSWERED = (
    "Allow", "Cache-Control", "Content-Encoding", "Content-Security-Policy", "Content-Type", "ETag", "Retry-After",
    "WWW-Authenticate", "traceparent",
)  # fmt: skip
_WHOLE = 256 * 1024
"""Bytes of an answer that is read and sent in one piece."""
_PART = 64 * 1024
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_UNPASSABLE = (1004, 1005, 1006, 1015)
"""Close codes that tell of a connection's end and are never sent (RFC 6455, 7.4.1)."""
_RETRY = {"Retry-After": "1"}


class Proxy:
    """The way to the services. Use it as an async context manager."""

    def __init__(self, settings: ConsoleSettings, gate: Gate, counts: Counts) -> None:
        self._settings = settings
        self._gate = gate
        self._counts = counts
        self.routes = Routes(settings)
        self.requests = 0
        """Under way at present."""
        self._sockets: set[asyncio.Task[object] | None] = set()
        self._away: set[str] = set()

    async def __aenter__(self) -> Proxy:
        settings = self._settings
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0),  # requests are bounded here
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.connect_seconds, sock_read=settings.answer_seconds
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """The service's answer. Raises `Refused` for what is not passed on."""
        upgraded = upgrades(request)
        path = request.raw_path.partition("?")[0].removeprefix("/")
        route = self.routes.find(request.method, path, upgrades=upgraded)
        if route is None:
            raise Refused(404, "path", "not found")
        headers = self._headers(request, route)
        try:
            if upgraded:
                with self._counted(route):
                    return await self._socket(request, route, headers)
            return await self._request(request, route, headers)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._counts.failures[route.service] += 1
            if route.service not in self._away:  # once, however many pages ask
                self._away.add(route.service)
                log.warning("a service does not answer", extra={"service_name": route.service, "error": str(error)})
            return error_response(f"service unavailable: no answer from {route.service}", 503, _RETRY)

    def _headers(self, request: web.Request, route: Route) -> dict[str, str]:
        headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
        authorization = request.headers.get("Authorization")
        if route.whom == "operators":
            authorization = self._gate.check_operator(request)
        if authorization:
            headers["Authorization"] = authorization
        hops = [hop for hop in (forwarded_for(request), request.remote or "") if hop]
        return headers | {"X-Forwarded-For": ", ".join(hops)}

    async def _request(self, request: web.Request, route: Route, headers: Mapping[str, str]) -> web.StreamResponse:
        if route.kind == "stream":
            with self._counted(route):
                return await self._answer(request, route, headers)
        if self.requests >= self._settings.max_requests:
            raise Refused(503, "requests", "service unavailable: too many requests at once")
        self.requests += 1
        try:
            return await self._answer(request, route, headers)
        finally:
            self.requests -= 1

    async def _answer(self, request: web.Request, route: Route, headers: Mapping[str, str]) -> web.StreamResponse:
        body = await read_body(request) if request.can_read_body else None
        async with self._asked(request, route, headers, body) as answer:
            passed = _harmless(_passed(answer), route)
            length = answer.content_length
            if length is not None and length <= _WHOLE:
                return web.Response(body=await answer.read(), status=answer.status, headers=passed)
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            try:
                async for part in answer.content.iter_any():
                    async with asyncio.timeout(self._settings.answer_seconds):
                        await response.write(part)
            except (ConnectionError, aiohttp.ClientError, TimeoutError):
                # The head is sent: only the end of the connection tells that this was not all. Or the browser has left.
                response.force_close()
                if request.transport is not None:
                    self._counts.failures[route.service] += 1
                    request.transport.abort()
            return response

    @asynccontextmanager
    async def _asked(
        self, request: web.Request, route: Route, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        since = time.perf_counter()
        query = request.raw_path.partition("?")[2]
        url = f"{route.url}/{route.path}" + (f"?{query}" if query else "")
        async with self._http.request(
            request.method,
            URL(url, encoded=True),
            headers=headers,
            data=body,
            allow_redirects=False,
        ) as answer:
            self._counts.seconds.observe(time.perf_counter() - since)
            self._answers(route, f"{answer.status // 100}xx")
            yield answer

    def _answers(self, route: Route, status: str) -> None:
        self._counts.requests[route.service, status] += 1
        if route.service in self._away:
            self._away.discard(route.service)
            log.info("a service answers again", extra={"service_name": route.service})

    # ---- WebSockets

    @contextlib.contextmanager
    def _counted(self, route: Route) -> Iterator[None]:
        if len(self._sockets) >= self._settings.max_sockets:
            raise Refused(503, "sockets", "service unavailable: too many streams at once")
        task = asyncio.current_task()
        self._sockets.add(task)
        self._counts.sockets[route.service] += 1
        try:
            yield
        finally:
            self._sockets.discard(task)
            self._counts.sockets[route.service] -= 1

    async def _socket(self, request: web.Request, route: Route, headers: Mapping[str, str]) -> web.StreamResponse:
        """Both ways until either side ends; a slow reader of the one slows the writer of the other."""
        if route.kind == "stream":
            return await self._streamed(request, route, headers)
        settings = self._settings
        wanted = {name: value for name, value in headers.items() if name in ("Authorization", "X-Forwarded-For")}
        async with self._http.ws_connect(
            f"{route.url}/{route.path}",
            headers=wanted,
            max_msg_size=settings.max_message_bytes,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
        ) as service:
            self._answers(route, "1xx")
            page = await self._accepted(request)
            await _both(_pump(page, service), _pump(service, page))
        return page

    async def _streamed(self, request: web.Request, route: Route, headers: Mapping[str, str]) -> web.StreamResponse:
        """The answer to a GET over a WebSocket: its head as a text message, then its body."""
        async with self._asked(request, route, headers) as answer:
            page = await self._accepted(request)
            head = {"status": answer.status, "headers": _passed(answer)}
            await page.send_str(msgspec.json.encode(head).decode())
            await _both(_until_closed(page), _send_body(answer, page))
        return page

    async def _accepted(self, request: web.Request) -> web.WebSocketResponse:
        page = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            heartbeat=_HEARTBEAT_SECONDS,
            timeout=_CLOSE_SECONDS,
            max_msg_size=self._settings.max_body_bytes,
            compress=False,
        )
        await page.prepare(request)
        return page

    async def close_sockets(self) -> None:
        """End every WebSocket: their pages connect again."""
        await end_tasks([task for task in self._sockets if task is not None])


_Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _pump(source: _Socket, drain: _Socket) -> None:
    """Messages one way, and the end of them."""
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await drain.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await drain.send_bytes(message.data)
    code = source.close_code or 1011
    await drain.close(code=1011 if code in _UNPASSABLE else code)


async def _send_body(answer: aiohttp.ClientResponse, page: web.WebSocketResponse) -> None:
    code = 1000
    try:
        async for part in answer.content.iter_chunked(_PART):
            await page.send_bytes(part)
    except (aiohttp.ClientError, TimeoutError):
        code = 1011
    await page.close(code=code)


async def _until_closed(page: web.WebSocketResponse) -> None:
    async for _ in page:
        pass  # a page has nothing to say to a stream


async def _both(*ways: Coroutine[None, None, None]) -> None:
    """Until either ends; a connection that breaks is an end like another."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                task.result()
    finally:
        await end_tasks(tasks)


def _passed(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}


def _harmless(headers: dict[str, str], route: Route) -> dict[str, str]:
    """Headers by which nothing in an answer runs, should it be opened as a document: it would run as this page.

    But for the aggregator's Swagger UI, which has scripts and a policy of its own.
    """
    if route.service == "aggregator" and route.path.partition("/")[0] == "docs":
        return headers
    own = headers.get("Content-Security-Policy", "default-src 'none'")
    return headers | {"Content-Security-Policy": f"{own}, sandbox"}  # two policies, and both hold
