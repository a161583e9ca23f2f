"""A page to try the interface in: Swagger UI as it was published, served from here, which asks nobody else.

The files in `swagger_ui/` are of swagger-ui-dist 5.35.0 (Apache-2.0, see `LICENSE` and `NOTICE` there), but for
`index.html` and `start.js`; its style sheet has no line that names a source map.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from aiohttp import web

FILES = {
    "/docs": ("index.html", "text/html"),
    "/docs/start.js": ("start.js", "text/javascript"),
    "/docs/swagger-ui-bundle.js": ("swagger-ui-bundle.js", "text/javascript"),
    "/docs/swagger-ui.css": ("swagger-ui.css", "text/css"),
    "/docs/LICENSE": ("LICENSE", "text/plain"),
    "/docs/NOTICE": ("NOTICE", "text/plain"),
    "/docs/swagger-ui-bundle.js.LICENSE.txt": ("swagger-ui-bundle.js.LICENSE.txt", "text/plain"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: itself. Its styles are partly written into its elements."""


class Page:
    """The files, read when the first one asks and kept: 2 MB."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, str]] = {}

    def add_routes(self, app: web.Application) -> None:
        """Serve the page and its files."""
        for path in FILES:
            app.router.add_get(path, self._file)

    async def _file(self, request: web.Request) -> web.Response:
        name, kind = FILES[request.path]
        if name not in self._known:
            data = (resources.files("millrace.aggregator") / "swagger_ui" / name).read_bytes()
            self._known[name] = data, hashlib.blake2b(data, digest_size=8).hexdigest()
        data, tag = self._known[name]
        headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        headers["X-Content-Type-Options"] = "nosniff"
        if any(known.value == tag for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=data, content_type=kind, charset="utf-8", headers=headers)
