"""The operators' port of a service: metrics, what else nobody outside needs to see, and what may be done to it.

It is apart from the public one, so that a proxy in front of that cannot pass on what was never there. Who may look may
not yet act: actions want a token, and without one in the settings there are none.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from millrace.runtime.http import HttpServer, error_response, json_response, make_app
from millrace.runtime.settings import Secret

log = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")
SHORTEST_TOKEN = 16
"""Characters; a shorter one is guessed."""


class _Level(msgspec.Struct, forbid_unknown_fields=True):
    level: str


async def serve(
    host: str,
    port: int,
    handlers: Mapping[str, Handler],
    actions: Mapping[str, Handler] | None = None,
    token: Secret | None = None,
) -> tuple[HttpServer, int]:
    """Answer GET requests of `handlers`' paths, and POST requests of `actions`' to who sends `token`.

    Every service has the action `/control/log-level`. Returns the server, which is to be stopped, and its port. Raises
    `OSError`, also for a token that is too short.
    """
    app = make_app()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    if token:
        if len(token.reveal()) < SHORTEST_TOKEN:
            raise OSError(f"operators_token is too short: give it at least {SHORTEST_TOKEN} characters")
        for path, action in {"/control/log-level": _log_level, **(actions or {})}.items():
            app.router.add_post(path, _guarded(action, token))
    server = HttpServer(app)
    return server, await server.start(host, port)


def _guarded(action: Handler, token: Secret) -> Handler:
    """An action for those who have the token; each is logged with who asked."""
    wanted = f"Bearer {token.reveal()}".encode()

    async def guarded(request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, wanted):
            log.warning("an operator's action was refused", extra={"path": request.path, "client": request.remote})
            headers = {"WWW-Authenticate": "Bearer"}
            return error_response("send the operators' token: Authorization: Bearer TOKEN", 401, headers)
        response = await action(request)
        log.info(
            "an operator's action",
            extra={"path": request.path, "client": request.remote, "status": response.status},
        )
        return response

    return guarded


async def _log_level(request: web.Request) -> web.Response:
    """POST {"level": …}: what is logged from now on, until the service ends."""
    try:
        level = msgspec.json.decode(await request.read(), type=_Level).level
    except msgspec.DecodeError:
        level = ""
    if level not in LEVELS:
        return error_response(f'send {{"level": …}} with one of {", ".join(LEVELS)}', 400)
    logging.getLogger().setLevel(level.upper())
    return json_response({"level": level})
