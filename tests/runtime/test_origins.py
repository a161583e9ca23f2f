"""Which pages may read answers in a browser."""

from __future__ import annotations

from collections.abc import Iterable

import aiohttp
import pytest
from aiohttp import web

from millrace.runtime import http
from millrace.runtime.origins import Origins

PAGE = "https://app.example"
PREFLIGHT = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}


class Served:
    """A server with an answer of each kind."""

    def __init__(self, allowed: Iterable[str], *, at_once: bool) -> None:
        app = http.make_app()
        handlers: dict[str, http.AtOnce] = {"/json": self._plain, "/broken": self._broken}
        for path, handler in handlers.items():
            app.router.add_get(path, http.in_turn(handler))
        app.router.add_post("/json", self._json)
        app.router.add_get("/page", self._page)
        app.router.add_get("/stream", self._stream)
        self._server = http.HttpServer(app, at_once=handlers if at_once else None, origins=Origins(allowed))

    async def __aenter__(self) -> str:
        return f"http://127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def _plain(self, _: http.Ask) -> http.Json:
        return http.Json(b"{}", headers={"Retry-After": "1"})

    async def _json(self, _: web.Request) -> web.Response:
        return http.json_response({}, headers={"Retry-After": "1"})

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text="<p>", content_type="text/html")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=dict(http.origin_headers(request)))
        await response.prepare(request)
        await response.write(b"data")
        return response

    def _broken(self, _: http.Ask) -> http.Json:
        raise RuntimeError("detail")


def said(answer: aiohttp.ClientResponse) -> dict[str, list[str]]:
    """What an answer says of origins."""
    names = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary")
    return {name: answer.headers.getall(name) for name in names if name in answer.headers}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("path", ["/json", "/page", "/stream", "/broken", "/nowhere"])
@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        (["*"], PAGE, ("*", None)),
        (["*"], None, ("*", None)),
        ([PAGE], PAGE, (PAGE, "Origin")),
        ([PAGE, "http://127.0.0.1:8080"], "http://127.0.0.1:8080", ("http://127.0.0.1:8080", "Origin")),
        ([PAGE], "https://evil.example", (None, "Origin")),
        ([PAGE], None, (None, "Origin")),
        ([], PAGE, (None, None)),
    ],
)
async def test_every_answer_says_who_may_read_it(
    at_once: bool, path: str, allowed: list[str], origin: str | None, expected: tuple[str | None, str | None]
) -> None:
    """Each kind of answer, errors too, names an allowed origin and no other, once, and lets it read all headers."""
    async with Served(allowed, at_once=at_once) as base, aiohttp.ClientSession() as client:
        async with client.get(base + path, headers={"Origin": origin} if origin else {}) as answer:
            reader, vary = expected
            whole = {
                "Access-Control-Allow-Origin": [reader] if reader else None,
                "Access-Control-Expose-Headers": ["*"] if reader else None,
                "Vary": [vary] if vary else None,
            }
            assert said(answer) == {name: value for name, value in whole.items() if value}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("allowed", [["*"], [PAGE]])
async def test_a_page_may_ask_before_it_sends_json(allowed: list[str], at_once: bool) -> None:
    """A browser's question before a request that a form could not send names the methods of that path."""
    async with Served(allowed, at_once=at_once) as base, aiohttp.ClientSession() as client:
        async with client.options(base + "/json", headers=PREFLIGHT) as answer:
            assert answer.status == 204 and await answer.read() == b""
            methods = set(answer.headers["Access-Control-Allow-Methods"].split(","))
            assert methods == {"GET", "HEAD", "POST"}
            assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type, Last-Event-ID, traceparent"
            assert answer.headers["Access-Control-Max-Age"] == "7200"
            assert said(answer)["Access-Control-Allow-Origin"] == [allowed[0]]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/json", {"Origin": PAGE}, 405),
        ("/nowhere", PREFLIGHT, 404),
        ("/json", PREFLIGHT | {"Origin": "https://evil.example"}, 405),
    ],
    ids=["a plain OPTIONS", "an unknown path", "another origin"],
)
async def test_other_questions_are_refused(path: str, headers: dict[str, str], status: int) -> None:
    """OPTIONS is no method of the services: only a browser's question about a path that there is gets an answer."""
    async with Served([PAGE], at_once=False) as base, aiohttp.ClientSession() as client:
        async with client.options(base + path, headers=headers) as answer:
            assert answer.status == status
            assert "Access-Control-Allow-Methods" not in answer.headers


@pytest.mark.parametrize(
    "text",
    ["", "app.example", "https://app.example/", "https://App.example", "https://a b", "ftp://a", "**", "https://"],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    """A list that no browser's `Origin` could ever equal is an error, and it says what to write."""
    with pytest.raises(ValueError, match="write https://host"):
        Origins([text])
