"""Answers that are JSON, each sent in one piece."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from aiohttp import HttpVersion11, web

_encoder = msgspec.json.Encoder()
_CONNECTION = {True: "Connection: keep-alive\r\n", False: "Connection: close\r\n"}


class Json(NamedTuple):
    """An answer: JSON, status, and headers of one line each."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = {}

    def sent(self, more: Mapping[str, str]) -> bytes:
        """All of it as HTTP 1.1 sends it over a connection that stays, with `more` headers."""
        return _head(_start(self.status), _lines(self.headers) + _lines(more), len(self.body)) + self.body


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with `body` (msgspec structs included) as JSON."""
    return json_body(_encoder.encode(body), status, headers)


def json_body(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with what is JSON already."""
    return JsonResponse(body, status, headers or {})


class JsonResponse(web.Response):
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
        start = f"HTTP/{request.version.major}.{request.version.minor} {self.status} {self.reason}"
        head = _head(start, self._lines + connection, len(body))
        await request.writer.write_eof(head + (body if request.method != "HEAD" else b""))

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""


def _head(start: str, lines: str, length: int) -> bytes:
    """The head of an answer with `length` bytes of JSON. `lines` are further headers, each with its line end."""
    return (
        f"{start}\r\n{lines}Content-Type: application/json\r\nContent-Length: {length}\r\n"
        f"Date: {_date(int(time.time()))}\r\n\r\n"
    ).encode()


@lru_cache(maxsize=64)
def _start(status: int) -> str:
    """The first line of an answer."""
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


def _lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """A moment (s since 1970) in the form of HTTP."""
    return formatdate(second, usegmt=True)


def error_json(text: str, status: int, headers: Mapping[str, str] | None = None) -> Json:
    """The error body of every millrace service: `{"error": text}`."""
    return Json(_encoder.encode({"error": text}), status, headers or {})


def error_response(text: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with the error body of every millrace service."""
    return json_body(*error_json(text, status, headers))
