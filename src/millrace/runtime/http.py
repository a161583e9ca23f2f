"""HTTP shell on aiohttp: JSON in and out, metrics, and errors that never show a stack trace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Any, cast

import msgspec
import prometheus_client
from aiohttp import HttpVersion11, http_exceptions, web
from aiohttp.typedefs import Handler

from millrace.runtime.doors import Doors
from millrace.runtime.origins import Origins, preflight_headers

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_CONNECTION = {True: "Connection: keep-alive\r\n", False: "Connection: close\r\n"}
_MAX_BODY = 4 * 1024 * 1024
HEAD_SECONDS = 10.0
"""Time for the head of a connection's first request."""
BODY_SECONDS = 30.0
"""Time for a request's body."""
KEEP_ALIVE_SECONDS = 75.0
"""Time between a connection's requests."""
MAX_LINE = 16 * 1024  # bytes of a request line or of one header
_NOBODY = Origins()


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with `body` (msgspec structs included) as JSON."""
    return json_body(_encoder.encode(body), status, headers)


def json_body(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with what is JSON already."""
    return _JsonResponse(body, status, headers or {})


class _JsonResponse(web.Response):
    """A response that is sent in one piece, its head written out at once.

    aiohttp's own way, a dictionary of headers that is completed and serialized in several coroutines, takes as long as
    all else it does for a request. `headers` are names and values of one line.
    """

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(body=body, status=status)
        self._lines = _lines(headers)
        self._stays = True

    def add(self, headers: Mapping[str, str]) -> None:
        """Say this too."""
        self._lines += _lines(headers)

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._stays

    def force_close(self) -> None:
        """Close the connection after this answer."""
        self._stays = False

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send it all."""
        body = self.body
        assert isinstance(body, bytes)
        self._stays = self._stays and request.keep_alive
        connection = "" if request.version == HttpVersion11 and self._stays else _CONNECTION[self._stays]
        head = (
            f"HTTP/{request.version.major}.{request.version.minor} {self.status} {self.reason}\r\n{self._lines}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{connection}"
            f"Date: {_date(int(time.time()))}\r\n\r\n"
        )
        await request.writer.write_eof(head.encode() + (body if request.method != "HEAD" else b""))

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""


def _lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """A moment (s since 1970) in the form of HTTP."""
    return formatdate(second, usegmt=True)


def error_response(text: str, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with the error body of every millrace service: `{"error": text}`."""
    return json_response({"error": text}, status, headers)


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn aiohttp's own refusals and our defects into the documented error body; tell browsers who may read it."""
    if isinstance(request.protocol, _Protocol):
        request.protocol.request_arrived()
    response = await _answered(request, handler)
    if isinstance(response, _JsonResponse):
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
        return error_response(refusal.reason.lower(), refusal.status, {"Allow": allow} if allow is not None else None)
    except Exception:
        log.exception("request failed", extra={"method": request.method, "route": _known(request)})
        return error_response("internal error", 500)


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


def _known(request: web.Request) -> str:
    """The route of a request that may have been dispatched without the router."""
    try:
        return route_of(request)
    except AssertionError:  # it was found by its very path
        return request.path


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


class _Protocol(web.RequestHandler):
    """aiohttp's connection, which must bring its first request soon.

    What is no HTTP request is answered like every other error, and leaves no traceback.
    """

    doors: Doors | None = None
    origins: Origins = _NOBODY
    _deadline: asyncio.TimerHandle | None = None
    _peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        abort = cast(asyncio.Transport, transport).abort  # uvloop's transports have it, but are no asyncio.Transport
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, abort)
        if self.doors is not None:
            self._peer = str((transport.get_extra_info("peername") or [""])[0])
            if not self.doors.enter(self._peer):
                abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_arrived()
        if self.doors is not None:
            self.doors.leave(self._peer)
        super().connection_lost(exc)

    def request_arrived(self) -> None:
        """A whole request head is there; between later requests aiohttp's own timeout rules."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

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


def _plain_routes(app: web.Application) -> dict[tuple[str, str], Handler]:
    """The handlers of the routes without variables, by method and path."""
    return {
        (route.method, route.resource.canonical): route.handler
        for route in app.router.routes()
        if isinstance(route.resource, web.PlainResource)
    }


class HttpServer:
    """A listening aiohttp application.

    With `direct`, routes without variables are looked up in a dictionary instead of aiohttp's router, which costs a
    service of many small answers a noticeable part of its time. Their requests have no `match_info`. With `doors`, a
    connection that may not enter is reset. `origins` are the pages that may read the answers in a browser.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        direct: bool = False,
        doors: Doors | None = None,
        origins: Origins = _NOBODY,
    ) -> None:
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=5.0)
        self._direct = _plain_routes(app) if direct else {}
        self._doors = doors
        self._origins = origins
        self._listener: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port` (0: any free port) and return the port. Raises `OSError` when it is taken."""
        await self._runner.setup()
        if self._direct:
            self._shorten()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: self._connection(loop), host, port, backlog=1024, reuse_address=True
        )
        self.port = int(self._listener.sockets[0].getsockname()[1])
        return self.port

    def _shorten(self) -> None:
        """Put the dictionary in front of aiohttp's router."""
        manager = self._runner.server
        assert manager is not None  # it is set up
        routed, direct = manager.request_handler, self._direct

        async def dispatch(request: web.Request) -> web.StreamResponse:
            handler = direct.get((request.method, request.path))
            if handler is None or "Expect" in request.headers:
                return await routed(request)
            return await _plain_errors(request, handler)

        manager.request_handler = cast(Any, dispatch)

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
        protocol.doors = self._doors
        protocol.origins = self._origins
        return protocol

    async def stop(self) -> None:
        """Answer what is in flight for up to 5 s, then close every connection."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
