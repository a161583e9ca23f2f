"""HTTP shell on aiohttp: JSON in and out, metrics, and errors that never show a stack trace."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Handler

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_MAX_BODY = 4 * 1024 * 1024


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with `body` (msgspec structs included) as JSON."""
    return web.Response(body=_encoder.encode(body), status=status, headers=headers, content_type="application/json")


def error_response(text: str, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with the error body of every millrace service: `{"error": text}`."""
    return json_response({"error": text}, status, headers)


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn aiohttp's own refusals and our defects into the documented error body."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        if refusal.status < 400:
            raise
        headers = {"Allow": refusal.headers["Allow"]} if "Allow" in refusal.headers else None
        return error_response(refusal.reason.lower(), refusal.status, headers)
    except Exception:
        log.exception("request failed", extra={"method": request.method, "route": route_of(request)})
        return error_response("internal error", 500)


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


class HttpServer:
    """A listening aiohttp application."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=5.0)
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port` (0: any free port) and return the port. Raises `OSError` when it is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024, reuse_address=True)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self.port

    async def stop(self) -> None:
        """Answer what is in flight for up to 5 s, then close every connection."""
        await self._runner.cleanup()
