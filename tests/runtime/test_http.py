"""The HTTP shell: JSON answers, plain errors, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
import prometheus_client
import pytest
import uvloop
from aiohttp import web

from millrace.runtime import http
from millrace.runtime.origins import Origins


class Answer(msgspec.Struct, rename="camel"):
    big_number: str


@pytest.fixture(params=[False, True], ids=["in turn", "at once"])
async def base(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The address of a server that answers plain requests in turn, or as soon as they are read; else they are equal."""
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("things", "Things.", registry=registry).inc()

    def good(_: http.Ask) -> http.Json:
        return http.Json(msgspec.json.encode(Answer("1")))

    def broken(_: http.Ask) -> http.Json:
        raise RuntimeError("secret detail")

    def echo(ask: http.Ask) -> http.Json:
        return http.Json(msgspec.json.encode(ask), 203, {"X-Query": ask.query})

    def late(ask: http.Ask) -> http.Later:
        async def answer() -> http.Json:
            await asyncio.sleep(0)
            if ask.query == "broken":
                raise RuntimeError("secret detail")
            return http.Json(msgspec.json.encode({"late": ask.query}))

        return answer

    async def take(request: web.Request) -> web.Response:
        return http.json_response({"size": len(await http.read_body(request))})

    app = http.make_app(max_body=100)
    handlers: dict[str, http.AtOnce] = {"/good": good, "/broken": broken, "/echo": echo, "/late": late}
    for path, handler in handlers.items():
        app.router.add_get(path, http.in_turn(handler))
    app.router.add_post("/take", take)
    app.router.add_get("/metrics", http.metrics_handler(registry))
    server = http.HttpServer(app, at_once=handlers if request.param else None)
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.stop()


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/good", 200, {"bigNumber": "1"}),
        ("GET", "/nowhere", 404, {"error": "not found"}),
        ("POST", "/good", 405, {"error": "method not allowed"}),
        ("GET", "/broken", 500, {"error": "internal error"}),
        ("GET", "/late?x=1", 200, {"late": "x=1"}),
        ("GET", "/late?broken", 500, {"error": "internal error"}),
    ],
)
async def test_every_answer_is_json(base: str, method: str, path: str, status: int, body: object) -> None:
    """Answers and errors alike are JSON objects, and a defect shows no detail to the caller."""
    async with aiohttp.ClientSession() as client, client.request(method, base + path) as response:
        assert (response.status, await response.json()) == (status, body)


async def test_an_expectation_that_is_not_met_gets_the_error_body() -> None:
    """What aiohttp refuses before any handler is asked is told in JSON too, and to the pages that may read it."""
    app = http.make_app()
    server = http.HttpServer(app, origins=Origins(["*"]))
    app.router.add_get("/", http.metrics_handler(prometheus_client.CollectorRegistry()))
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/"
    async with aiohttp.ClientSession() as client, client.get(url, headers={"Expect": "cake"}) as response:
        assert (response.status, await response.json()) == (417, {"error": "expectation failed"})
        assert response.headers["Access-Control-Allow-Origin"] == "*"
    await server.stop()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "x, gzip"])
async def test_a_compressed_body_is_refused(base: str, encoding: str) -> None:
    """A body that would have to be unpacked is refused with how to send it."""
    async with aiohttp.ClientSession() as client:
        headers = {"Content-Encoding": encoding}
        async with client.post(base + "/take", data=zlib.compress(b"a"), headers=headers) as response:
            assert (response.status, await response.json()) == (415, {"error": "send the body uncompressed"})
        async with client.post(base + "/take", data=b"abc", headers={"Content-Encoding": "identity"}) as response:
            assert (response.status, await response.json()) == (200, {"size": 3})


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_row_22_nothing_is_unpacked(encoding: str) -> None:
    """A few bytes stay a few bytes: nobody's megabytes are unpacked, whether their request is wanted or not."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    packed = packer.compress(b" " * 10_000_000) + packer.flush()
    seen = []

    async def look(request: web.Request) -> web.Response:
        seen.append(await request.read())
        return http.json_response({})

    app = http.make_app()
    app.router.add_post("/", look)
    server = http.HttpServer(app)
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/"
    async with aiohttp.ClientSession() as client:
        async with client.post(url, data=packed, headers={"Content-Encoding": encoding}) as response:
            assert response.status == 200
    await server.stop()
    assert seen == [packed]


def test_the_fast_event_loop_serves_too() -> None:
    """The server answers on uvloop, whose transports are no `asyncio.Transport`."""

    async def ask() -> int:
        server = http.HttpServer(http.make_app())
        port = await server.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/") as response:
                return response.status
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(ask(), 20)) == 404


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", None),
        (b"GET /" + b"a" * http.MAX_LINE + b" HTTP/1.1\r\nHost: x\r\n\r\n", "longer than 16384 bytes"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (http.MAX_LINE + 1) + b"\r\n\r\n", "longer than 16384 bytes"),
        (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", "bad request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "bad request"),
        (b"GET / HTTP/9.9\r\nContent-Length: -1\r\n\r\n", "bad request"),
    ],
)
async def test_what_is_no_request_gets_the_error_body(
    base: str, head: bytes, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no HTTP request is answered 400 (404 where it names a path) in JSON, without a traceback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rsplit(":", 1)[1]))
    writer.write(head)
    status, _, rest = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).partition(b"\r\n")
    size = int(re.search(rb"content-length: (\d+)", rest.lower())[1])  # type: ignore[index]
    error = msgspec.json.decode(await reader.readexactly(size))["error"]
    writer.close()
    assert int(status.split()[1]) in ((400,) if words else (400, 404))
    assert words is None or words in error
    assert not caplog.records


@pytest.mark.parametrize(
    ("head", "answered", "connection", "open_after"),
    [
        ("GET /good HTTP/1.1", "HTTP/1.1 200 OK", None, True),
        ("GET /good HTTP/1.1\r\nConnection: close", "HTTP/1.1 200 OK", "close", False),
        ("GET /good HTTP/1.0", "HTTP/1.0 200 OK", "close", False),
        ("GET /good HTTP/1.0\r\nConnection: keep-alive", "HTTP/1.0 200 OK", "keep-alive", True),
        ("HEAD /good HTTP/1.1", "HTTP/1.1 200 OK", None, True),
        ("GET /nowhere HTTP/1.1", "HTTP/1.1 404 Not Found", None, True),
    ],
)
async def test_the_head_of_an_answer(
    base: str, head: str, answered: str, connection: str | None, open_after: bool
) -> None:
    """Status, length and date are there, the connection stays or ends as it was asked, and HEAD has no body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(f"{head}\r\nHost: here\r\n\r\n".encode())
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert first == answered
    assert headers["content-type"] == "application/json"
    assert parsedate_to_datetime(headers["date"]).utcoffset() == timedelta(0)
    assert headers.get("connection") == connection
    body = await reader.readexactly(0 if head.startswith("HEAD") else int(headers["content-length"]))
    assert body == b"" or msgspec.json.decode(body)
    if open_after:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    else:
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("head", "query", "forwarded"),
    [
        ("GET /echo HTTP/1.1", "", ""),
        ("GET /echo?a=%41+b&a=&c HTTP/1.1", "a=%41+b&a=&c", ""),
        (
            "GET /echo?a=b?c=d HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8",
            "a=b?c=d",
            "1.2.3.4,5.6.7.8",
        ),
        ("GET /echo?a=b HTTP/1.1\r\nTraceParent: one\r\ntraceparent: two", "a=b", ""),
        ("GET /echo?a=b HTTP/1.0\r\nTraceParent: one", "a=b", ""),
        ("GET /echo?a=b#c HTTP/1.1", "a=b", ""),
        ("GET http://here/echo?a=b HTTP/1.1", "a=b", ""),
        ("GET /echo?a=b HTTP/1.0", "a=b", ""),
        ("GET /echo?a=b HTTP/1.1\r\nExpect: 100-continue", "a=b", ""),
        ("GET /echo?a=b HTTP/1.1\r\nConnection: close", "a=b", ""),
        ("GET /echo?a=b HTTP/1.1\r\nContent-Length: 0", "a=b", ""),
    ],
)
async def test_a_handler_is_told_the_same_on_both_ways(base: str, head: str, query: str, forwarded: str) -> None:
    """Query string, peer, proxies and traces are the request's in any form; status and headers are the answer's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(f"{head}\r\nHost: here\r\n\r\n".encode())
    if "Expect" in head:
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = msgspec.json.decode(await reader.readexactly(int(headers["content-length"])))
    assert first.endswith(" 203 Non-Authoritative Information")
    assert headers["x-query"] == query
    assert body == [query, "127.0.0.1", forwarded, re.findall(r"(?i)traceparent: (\w+)", head)]
    writer.close()


async def test_answers_come_in_the_order_of_the_questions(base: str) -> None:
    """Requests sent together are answered one after the other, those that take longer and those with a body as well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    sent = [
        b"GET /late?1 HTTP/1.1",
        b"GET /echo?2 HTTP/1.1",
        b"POST /take HTTP/1.1\r\nContent-Length: 3",
        b"GET /good HTTP/1.1",
    ]
    got = []
    for together in (sent, sent[:1], sent[1:2], sent[2:] + sent[:1]):
        writer.write(b"".join(head + b"\r\nHost: x\r\n\r\n" + b"abc" * head.startswith(b"POST") for head in together))
        for _ in together:
            size = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
            got.append(msgspec.json.decode(await reader.readexactly(int(size[1]))))  # type: ignore[index]
    late, echo, taken, good = {"late": "1"}, ["2", "127.0.0.1", "", []], {"size": 3}, {"bigNumber": "1"}
    assert got == [late, echo, taken, good, late, echo, taken, good, late]
    writer.close()


_HEADS = (  # the request line and further headers, and what the handler is told of the query and the proxies
    ("GET /echo?a={} HTTP/1.1", "a={}", ""),
    ("GET /echo?a={} HTTP/1.1\r\ntraceparent: one", "a={}", ""),
    ("GET /echo?a={} HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4", "a={}", "1.2.3.4"),
    ("GET /echo?a={}&b=%41+c HTTP/1.1", "a={}&b=%41+c", ""),
    ("GET /echo?a={}#b HTTP/1.1", "a={}", ""),
    ("GET /echo?a={}?b/c:d HTTP/1.1", "a={}?b/c:d", ""),
    ("GET /echo?a={} HTTP/1.1\r\nContent-Length: 0", "a={}", ""),
)


@pytest.mark.parametrize("seed", range(10))
async def test_requests_in_any_pieces_have_the_same_answers(base: str, seed: int) -> None:
    """However a connection's requests are cut, and whatever came before: the handler is told of each what it says."""
    rng = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    for turn in range(60):
        head, query, forwarded = rng.choice(_HEADS[:3] if turn % 20 < 10 else _HEADS)
        numbers = [rng.randrange(1000) for _ in range(rng.choice((1, 1, 1, 3)))]
        sent = "".join(f"{head.format(number)}\r\nHost: x\r\n\r\n" for number in numbers).encode()
        if rng.random() < 0.2:
            sent = b"POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" + sent
        if rng.random() < 0.2:
            sent = b"GET /late?1 HTTP/1.1\r\nHost: x\r\n\r\n" + sent
        cuts = sorted(rng.sample(range(len(sent)), rng.choice((0, 0, 1, 2))))
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            writer.write(sent[start:end])
            for _ in range(3):
                await asyncio.sleep(0)
        traces = ["one"] if "traceparent" in head else []
        expected = [[query.format(number), "127.0.0.1", forwarded, traces] for number in numbers]
        before = [{"late": "1"}] * (b"/late" in sent) + [{"size": 3}] * (b"/take" in sent)
        got = []
        for _ in (*before, *numbers):
            size = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
            got.append(msgspec.json.decode(await reader.readexactly(int(size[1]))))  # type: ignore[index]
        assert got == [*before, *expected]
    writer.close()


async def test_what_looks_like_a_request_within_another_is_none(base: str) -> None:
    """A header whose value is cut off where it begins like the request before stays a header."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    whole = b"GET /echo?%d HTTP/1.1\r\nHost: x\r\n\r\n"
    for number, pieces in enumerate([[whole % 0], [b"GET /echo?1 HTTP/1.1\r\nX: ", whole % 7], [whole % 2]]):
        for piece in pieces:
            writer.write(piece)
            for _ in range(10):  # turns of the event loop, in which it arrives
                await asyncio.sleep(0)
        await reader.readuntil(b"\r\n\r\n")
        assert msgspec.json.decode(await reader.readuntil(b"]]")) == [str(number), "127.0.0.1", "", []]
    writer.close()


async def test_a_request_like_the_one_before_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests answered at once, those are parsed that differ from the one before in more than a plain query."""
    parsed: list[bytes] = []
    parse = web.RequestHandler.data_received
    monkeypatch.setattr(
        web.RequestHandler, "data_received", lambda self, data: parsed.append(data) or parse(self, data)
    )
    app = http.make_app()
    server = http.HttpServer(app, at_once={"/": lambda ask: http.Json(msgspec.json.encode(ask.query))})
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    one, other = (b"GET /?%%s HTTP/1.1\r\nHost: %s\r\n\r\n" % host for host in (b"x", b"y"))
    for request in (one % b"1", one % b"2", other % b"3", other % b"", one % b"4", one % b"a?b", one % b"5"):
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(len(request) - len(one % b"") + 2) == b'"%s"' % request[6:].partition(b" ")[0]
    writer.write(one % (b"a" * http.MAX_LINE))
    assert b" 400 " in await reader.readline()
    assert parsed[:4] == [one % b"1", other % b"3", one % b"4", one % b"a?b"]
    assert b"".join(parsed[4:]) == one % (b"a" * http.MAX_LINE)
    writer.close()
    await server.stop()


async def test_a_handler_that_wants_to_wait_is_asked_once() -> None:
    """Also of requests like the one before, a handler that returns what to wait for hears once, in their order."""
    asked = []

    def late(ask: http.Ask) -> http.Json | http.Later:
        async def answer() -> http.Json:
            await asyncio.sleep(0)
            return http.Json(msgspec.json.encode(ask.query))

        asked.append(ask.query)
        return answer if int(ask.query) % 3 else http.Json(msgspec.json.encode(ask.query))

    app = http.make_app()
    app.router.add_get("/", http.in_turn(late))
    server = http.HttpServer(app, at_once={"/": late})
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    for number in range(12):
        writer.write(b"GET /?%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(2 + len(str(number))) == b'"%d"' % number
    assert asked == [str(number) for number in range(12)]
    writer.close()
    await server.stop()


async def test_who_reads_nothing_is_answered_no_more() -> None:
    """A client that sends and does not read is answered until its buffers are full, and on when it reads again."""
    asked = []

    def answer(ask: http.Ask) -> http.Json:
        asked.append(ask.query)
        return http.Json(b"x" * 100_000)

    app = http.make_app()
    app.router.add_get("/", http.in_turn(answer))
    server = http.HttpServer(app, at_once={"/": answer})
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    sent, turns = 0, 0
    while turns < 100:  # of the event loop in which the last request has not been looked at
        turns += 1
        if len(asked) == sent:
            sent, turns = sent + 1, 0
            writer.write(b"GET /?%d HTTP/1.1\r\nHost: x\r\n\r\n" % sent)
            assert sent < 1_000
        await asyncio.sleep(0)
    assert sent == len(asked) + 1
    for _ in range(sent):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(100_000)
    assert asked == [str(k + 1) for k in range(sent)]
    writer.close()
    await server.stop()


async def test_a_connection_in_use_stays_open(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time after which an idle connection is closed begins anew with every answer."""
    loop, ahead = asyncio.get_running_loop(), [0.0]
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + ahead[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    for _ in range(3):
        writer.write(b"GET /good HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        ahead[0] += http.KEEP_ALIVE_SECONDS * 0.7
        for _ in range(10):  # what is due by now runs
            await asyncio.sleep(0)
    ahead[0] += http.KEEP_ALIVE_SECONDS
    assert await reader.read() == b""
    writer.close()


async def test_bodies_are_bounded(base: str) -> None:
    """A body over the bound is refused with 413."""
    async with aiohttp.ClientSession() as client:
        async with client.post(base + "/take", data=b"x" * 100) as response:
            assert await response.json() == {"size": 100}
        async with client.post(base + "/take", data=b"x" * 101) as response:
            assert response.status == 413
            assert "error" in await response.json()


async def test_metrics(base: str) -> None:
    """The metrics page shows the registry in the Prometheus text format."""
    async with aiohttp.ClientSession() as client, client.get(base + "/metrics") as response:
        assert "things_total 1.0" in await response.text()


async def test_row_26_a_first_request_must_come_soon(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that brings no whole head is dropped; one that has brought a request may rest."""
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.2)
    port = int(base.rsplit(":", 1)[1])
    rested, resting = await asyncio.open_connection("127.0.0.1", port)
    resting.write(b"GET /good HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(rested.readuntil(b"}"), 5)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /good HTTP/1.1\r\nHost:")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    resting.write(b"GET /good HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(rested.readuntil(b"}"), 5)
    resting.close()
    writer.close()


async def test_row_26_a_body_must_end_soon(
    base: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that stops in the middle is answered 408; one whose sender goes away leaves no trace in the log."""
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)
    port = int(base.rsplit(":", 1)[1])
    head = b"POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    answer = await asyncio.wait_for(reader.readuntil(b"}"), 5)
    assert answer.startswith(b"HTTP/1.1 408") and b'{"error":"request timeout"}' in answer
    writer.close()
    _, gone = await asyncio.open_connection("127.0.0.1", port)
    gone.write(head)
    await gone.drain()
    gone.transport.abort()
    async with aiohttp.ClientSession() as client, client.post(base + "/take", data=b"abc") as response:
        assert await response.json() == {"size": 3}
    assert not caplog.records


class _Doors:
    """Lets one connection in at a time."""

    def __init__(self) -> None:
        self.inside: list[str] = []

    def enter(self, peer: str) -> bool:
        self.inside.append(peer)
        return len(self.inside) == 1

    def leave(self, peer: str) -> None:
        self.inside.remove(peer)


async def test_row_30_connections_are_let_in_or_reset() -> None:
    """Who may not enter is reset before anything is read; each connection, let in or not, leaves when it ends."""
    doors = _Doors()
    server = http.HttpServer(http.make_app(), doors=doors)
    port = await server.start("127.0.0.1", 0)
    try:
        first, keep = await asyncio.open_connection("127.0.0.1", port)
        keep.write(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await first.readline()).startswith(b"HTTP/1.1 404")
        second, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(second.read(), 5) == b""
        writer.close()
        assert doors.inside == ["127.0.0.1"]
        keep.close()
        async with asyncio.timeout(5):
            while doors.inside:
                await asyncio.sleep(0)
    finally:
        await server.stop()
