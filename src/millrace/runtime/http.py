"""HTTP shell on aiohttp: JSON in and out, metrics, and errors that never show a stack trace."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import prometheus_client
from aiohttp import EMPTY_PAYLOAD, HttpVersion11, http_exceptions, web
from aiohttp.http import RawRequestMessage
from aiohttp.typedefs import Handler

from millrace.runtime import tracing
from millrace.runtime.answers import Json as Json  # callers know these from here
from millrace.runtime.answers import JsonResponse, error_json
from millrace.runtime.answers import error_response as error_response
from millrace.runtime.answers import json_body as json_body
from millrace.runtime.answers import json_response as json_response
from millrace.runtime.doors import Doors
from millrace.runtime.origins import Origins, preflight_headers

log = logging.getLogger(__name__)

_MAX_BODY = 4 * 1024 * 1024
HEAD_SECONDS = 10.0
"""Time for the head of a connection's first request."""
LINGER_SECONDS = 0.5
"""How long a server that ends waits for the next request of idle connections, to close them with its answer: whoever
asks without a pause loses nothing."""
BODY_SECONDS = 30.0
"""Time for a request's body."""
KEEP_ALIVE_SECONDS = 75.0
"""Time between a connection's requests."""
LOOK_SECONDS = 0.02  # between two looks whether connections are left
BACKLOG = 1024  # connections that wait until they are let in
MAX_LINE = 16 * 1024  # bytes of a request line or of one header
_NOBODY = Origins()
_NOTHING = nullcontext()
_END = b"\r\n\r\n"  # of a request without a body
_MOST_KNOWN = 4 * 1024  # bytes of a request that a connection remembers
_QUERY = re.compile(rb"[\w.~*=&,+%-]*")  # nothing that ends it, and nothing that a parser would refuse


class Ask(NamedTuple):
    """What of a GET request an `AtOnce` handler sees."""

    query: str
    """The query string as it came."""
    peer: str
    """The address that the connection comes from; empty if it is not known."""
    forwarded: str
    """Every hop that `X-Forwarded-For` names."""
    traceparents: Sequence[str] = ()
    """The lines of its `traceparent`."""


Later = Callable[[], Awaitable[Json]]
AtOnce = Callable[[Ask], Json | Later]
"""A handler that mostly need not wait; if it must, it returns what to wait for. It raises for defects only."""


def in_turn(handler: AtOnce) -> Handler:
    """The handler that aiohttp's router calls for requests that are not answered at once."""

    async def handle(request: web.Request) -> web.Response:
        protocol = request.protocol
        later = protocol.take_later(request._message) if isinstance(protocol, _Protocol) else None
        answer: Json | Later = later or handler(
            Ask(
                request.rel_url.raw_query_string,
                request.remote or "",
                forwarded_for(request),
                tracing.headers_of(request.headers),
            )
        )
        return json_body(*(answer if isinstance(answer, Json) else await answer()))

    return handle


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn aiohttp's own refusals and our defects into the documented error body; tell browsers who may read it."""
    if isinstance(request.protocol, _Protocol):
        request.protocol.request_arrived()
    response = await _answered(request, handler)
    if isinstance(request.protocol, _Protocol) and request.protocol.ending and not response.prepared:
        response.force_close()
    if isinstance(response, JsonResponse):
        response.add(origin_headers(request))
    elif not response.prepared:
        response.headers.update(origin_headers(request))
    return response


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (ConnectionError, web.RequestPayloadError):  # the client broke off, or sent what is no body
        return error_response("bad request", 400)
    except web.HTTPException as refusal:
        if refusal.status < 400:
            raise
        allow = refusal.headers.get("Allow")
        if allow is not None and _is_preflight(request):
            return web.Response(status=204, headers=preflight_headers(allow))
        return _refused(refusal, {"Allow": allow} if allow is not None else {})
    except Exception:
        log.exception("request failed", extra={"method": request.method, "route": route_of(request)})
        return error_response("internal error", 500)


def _refused(refusal: web.HTTPException, headers: Mapping[str, str]) -> web.Response:
    """A refusal of aiohttp's as the documented error body."""
    return error_response(refusal.reason.lower(), refusal.status, headers)


def _is_preflight(request: web.Request) -> bool:
    """Whether a browser asks what a page may send, and the page may."""
    headers = request.headers
    return (
        request.method == "OPTIONS"
        and "Access-Control-Request-Method" in headers
        and _origins(request).allow(headers.get("Origin"))
    )


def _origins(request: web.Request) -> Origins:
    return request.protocol.origins if isinstance(request.protocol, _Protocol) else _NOBODY


def origin_headers(request: web.Request) -> Mapping[str, str]:
    """Which page may read the answer: for answers that are sent before their handler has ended."""
    return _origins(request).headers(request.headers.get("Origin"))


async def read_body(request: web.Request, on_part: Callable[[int], None] | None = None) -> bytes:
    """The request's body. Raises 408 when it is not there within `BODY_SECONDS`, 413 when it is too large, 415 when it
    is compressed: a thousand times as much could be in it.

    `on_part` hears of so many bytes when they have come, and may raise to have no more of them.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise web.HTTPUnsupportedMediaType(reason="send the body uncompressed")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read() if on_part is None else await _read_parts(request, on_part)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


async def _read_parts(request: web.Request, on_part: Callable[[int], None]) -> bytes:
    body = bytearray()
    async for part in request.content.iter_any():
        if len(body) + len(part) > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(body) + len(part))
        on_part(len(part))
        body += part
    return bytes(body)


def forwarded_for(request: web.Request) -> str:
    """Every hop that `X-Forwarded-For` names: a proxy may add a line of its own below one that the client made up."""
    return ",".join(request.headers.getall("X-Forwarded-For", ()))


def route_of(request: web.Request) -> str:
    """The route's template: a bounded label for metrics and logs, unlike the raw path."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


def make_app(*, max_body: int = _MAX_BODY) -> web.Application:
    """An application which refuses bodies over `max_body` bytes and answers every error as JSON."""
    return web.Application(middlewares=[_plain_errors], client_max_size=max_body)


def metrics_handler(
    registry: prometheus_client.CollectorRegistry,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler which serves `registry` in the Prometheus text format."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=prometheus_client.generate_latest(registry),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )

    return metrics


class _Plain(NamedTuple):
    """A request that was answered at once. Most of a connection's requests differ from it in their query alone."""

    path: str
    handler: AtOnce
    start: bytes
    """All before the query."""
    rest: bytes
    """All behind it."""
    forwarded: str
    traceparents: Sequence[str]
    origin: str | None

    def query_of(self, data: bytes) -> str | None:
        """The query of a request that is the same but for it; None for others, which have to be parsed."""
        if len(data) > MAX_LINE or not (data.startswith(self.start) and data.endswith(self.rest)):
            return None
        query = data[len(self.start) : len(data) - len(self.rest)]
        return query.decode() if _QUERY.fullmatch(query) else None


class _Protocol(web.RequestHandler):
    """aiohttp's connection, which must bring its first request soon.

    What is no HTTP request is answered like every other error, and leaves no traceback. Where there is an `AtOnce`
    handler, plain requests are answered as soon as they are read, without aiohttp's task for each of them; those that
    differ from the one before in their query alone are not even parsed.
    """

    at_once: Mapping[str, AtOnce] = {}
    """By path."""
    doors: Doors | None = None
    origins: Origins = _NOBODY
    undisturbed: AbstractContextManager[None] = _NOTHING
    """Entered while requests are answered at once."""
    ending = False
    """Whether each further answer is the connection's last."""
    connections: set[_Protocol] | None = None
    """All that are open."""
    _later: tuple[object, Later] | None = None
    _deadline: asyncio.TimerHandle | None = None
    _peer = ""
    _plain: _Plain | None = None
    _whole = True
    """Whether the connection's requests have come one by one, each in one piece: another one then begins anew."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        abort = cast(asyncio.Transport, transport).abort  # uvloop's transports have it, but are no asyncio.Transport
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, abort)
        if self.connections is not None:
            self.connections.add(self)
        if self.doors is not None:
            self._peer = str((transport.get_extra_info("peername") or [""])[0])
            if not self.doors.enter(self._peer):
                abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_arrived()
        if self.connections is not None:
            self.connections.discard(self)
        if self.doors is not None:
            self.doors.leave(self._peer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        idle = self._waiter  # aiohttp's task, which sleeps on as long as nothing is left for it
        if not self.at_once or idle is None or idle.done():
            self._parse(data)
            return
        with self.undisturbed:
            self._received_idle(data, idle)

    def _received_idle(self, data: bytes, idle: asyncio.Future[None]) -> None:
        """Take what has come while aiohttp's task sleeps: answer it at once, or wake the task."""
        later = None
        query = None if self._plain is None or self.writing_paused else self._plain.query_of(data)
        if self._plain is not None and query is not None:
            later = self._answer(self._plain, query)
            if later is None:
                return
        self._waiter = None
        try:
            self._parse(data)
        finally:
            self._waiter = idle
        if later is None and len(self._messages) == 1:
            later = self._answer_at_once(data)
        if self._messages and not idle.done():
            self._later = None if later is None else (self._messages[0][0], later)
            idle.set_result(None)

    def _parse(self, data: bytes) -> None:
        before = len(self._messages)
        super().data_received(data)
        alone = len(self._messages) == before + 1 and self._messages[-1][1] is EMPTY_PAYLOAD
        self._whole = self._whole and alone and data.find(_END) == len(data) - len(_END)
        if not self._whole:
            self._plain = None

    def _answer_at_once(self, data: bytes) -> Later | None:
        """Answer the one request there is, if a handler can and nothing about the request is out of the ordinary.

        The request then is gone, unless its handler returned what to wait for.
        """
        message, payload = self._messages[0]
        if payload is not EMPTY_PAYLOAD or not isinstance(message, RawRequestMessage):
            return None
        path, _, query = message.path.partition("?")
        handler = self.at_once.get(path)
        if (
            handler is None
            or message.method != "GET"
            or message.version != HttpVersion11
            or message.should_close
            or message.upgrade
            or "Expect" in message.headers
            or "#" in query
            or self.writing_paused
        ):
            return None
        self.request_arrived()
        headers = message.headers
        forwarded = ",".join(headers.getall("X-Forwarded-For", ()))
        start, _, rest = data.partition(b"?")
        traceparents = tracing.headers_of(headers)
        end = rest[rest.find(b" ") :]
        plain = _Plain(path, handler, start + b"?", end, forwarded, traceparents, headers.get("Origin"))
        known = self._whole and len(data) <= _MOST_KNOWN and start == b"GET " + path.encode()
        self._plain = plain if known else None
        later = self._answer(plain, query)
        if later is None:
            assert self._parser is not None
            self._messages.popleft()
            self._parser.message_consumed()
        return later

    def _answer(self, request: _Plain, query: str) -> Later | None:
        """Answer a request, unless its handler returns what to wait for."""
        peer = self.peername
        try:
            answer = request.handler(Ask(query, str(peer[0]) if peer else "", request.forwarded, request.traceparents))
        except Exception:
            log.exception("request failed", extra={"method": "GET", "route": request.path})
            answer = error_json("internal error", 500)
        if not isinstance(answer, Json):
            return answer
        assert self.transport is not None  # the connection is open
        self._next_keepalive_close_time = self._loop.time() + KEEP_ALIVE_SECONDS
        headers = self.origins.headers(request.origin)
        if self.ending:
            self.transport.write(answer.sent({**headers, "Connection": "close"}))
            self.transport.close()
            return None
        self.transport.write(answer.sent(headers))
        return None

    def take_later(self, message: RawRequestMessage) -> Later | None:
        """What this request waits for, if its handler has been asked already."""
        later, self._later = self._later, None
        return later[1] if later is not None and later[0] is message else None

    def request_arrived(self) -> None:
        """A whole request head is there; between later requests aiohttp's own timeout rules."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # of `Expect`, which aiohttp looks at before any middleware
            resp = _refused(resp, self.origins.headers(request.headers.get("Origin")))
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("request failed", exc_info=exc, extra={"status": status})
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way and cannot be replaced")
        text = "internal error" if status >= 500 else "bad request"
        if isinstance(exc, http_exceptions.LineTooLong):
            text = f"bad request: the request line or a header is longer than {MAX_LINE} bytes"
        elif isinstance(exc, http_exceptions.InvalidURLError):
            text = "bad request: the address is not a valid URL; write other characters than ASCII as %XX"
        response = error_response(text, status)
        response.force_close()
        return response


class HttpServer:
    """A listening aiohttp application.

    `at_once` are handlers by path for plain GET requests, which then are answered as soon as they are read. The
    application needs these routes, too (`in_turn`): what is out of the ordinary goes there. With `doors`, a connection
    that may not enter is reset. `origins` are the pages that may read the answers in a browser. `undisturbed` is
    entered for the moment in which requests are answered at once.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        at_once: Mapping[str, AtOnce] | None = None,
        doors: Doors | None = None,
        origins: Origins = _NOBODY,
        undisturbed: AbstractContextManager[None] = _NOTHING,
    ) -> None:
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=5.0)
        self._at_once = at_once or {}
        self._doors = doors
        self._origins = origins
        self._undisturbed = undisturbed
        self._listeners: list[asyncio.Server] = []
        self._connections: set[_Protocol] = set()
        self._ending = False
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port` (0: any free port) and return the port. Raises `OSError` when it is taken."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listeners = [
            await loop.create_server(lambda: self._connection(loop), host, port, backlog=BACKLOG, reuse_address=True)
        ]
        self.port = int(self._listeners[0].sockets[0].getsockname()[1])
        return self.port

    async def start_on(self, sockets: Sequence[socket.socket]) -> None:
        """Answer what comes to sockets that listen already; they are closed with the server."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        for each in sockets:
            self._listeners.append(await loop.create_server(lambda: self._connection(loop), sock=each, backlog=BACKLOG))

    def _connection(self, loop: asyncio.AbstractEventLoop) -> _Protocol:
        manager = self._runner.server
        assert manager is not None  # it is set up, or there would be no listener
        no_log: Any = None  # as aiohttp's own runner says "no access log", against its own types
        protocol = _Protocol(
            manager,
            loop=loop,
            access_log=no_log,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            auto_decompress=False,  # it would unpack in the event loop, also what nobody has asked for
        )
        protocol.at_once = self._at_once
        protocol.doors = self._doors
        protocol.origins = self._origins
        protocol.undisturbed = self._undisturbed
        protocol.connections = self._connections
        protocol.ending = self._ending
        return protocol

    async def stop(self, linger: float = 0.0) -> None:
        """Answer what is in flight for up to 5 s, then close every connection.

        For `linger` seconds before, connections stay open whose next request may be on its way: its answer is their
        last one.
        """
        self._ending = True
        for connection in self._connections:
            connection.ending = True
        if linger:
            await asyncio.sleep(0)  # who has connected already is let in
        for listener in self._listeners:
            listener.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + linger
        while self._connections and loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
        await self._runner.cleanup()
