"""The page's files: read and compressed once, when the console starts. They are a few hundred kilobytes."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load and ask: its own origin."""
SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer of the console; an answer of a service may bring a policy of its own."""
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_PACKED = (".woff2",)
NOTICE = "vendor/NOTICE.txt"
"""Licences of what is not ours; no page loads it."""


class _File(NamedTuple):
    data: bytes
    packed: bytes | None
    tag: str
    kind: str


class Page:
    """The files by path."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._read(resources.files("millrace.console") / "page", "")
        self._files[""] = self._files["index.html"]

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            name = prefix + entry.name
            if entry.is_dir():
                self._read(entry, name + "/")
                continue
            suffix = "." + entry.name.rpartition(".")[2]
            if suffix in _KINDS:
                data = entry.read_bytes()
                packed = None if suffix in _PACKED else gzip.compress(data, 9, mtime=0)
                self._files[name] = _File(
                    data, packed, hashlib.blake2b(data, digest_size=8).hexdigest(), _KINDS[suffix]
                )

    @property
    def compressed_size(self) -> int:
        """Bytes of all of it as a browser gets it."""
        return sum(len(file.packed or file.data) for name, file in self._files.items() if name not in ("", NOTICE))

    def answer(self, request: web.Request) -> web.Response | None:
        """The file that a GET request names; None: there is none."""
        file = self._files.get(request.path.removeprefix("/"))
        if file is None:
            return None
        headers = {"ETag": f'"{file.tag}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if any(known.value in (file.tag, "*") for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = file.kind
        if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=file.packed, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=file.data, headers=headers)
