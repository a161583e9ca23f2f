"""The operators' port of a service: metrics, and what else nobody outside needs to see.

It is apart from the public one, so that a proxy in front of that cannot pass on what was never there.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp.typedefs import Handler

from millrace.runtime.http import HttpServer, make_app


async def serve(host: str, port: int, handlers: Mapping[str, Handler]) -> tuple[HttpServer, int]:
    """Answer GET requests of these paths; the server, which is to be stopped, and its port. Raises `OSError`."""
    app = make_app()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    server = HttpServer(app)
    return server, await server.start(host, port)
