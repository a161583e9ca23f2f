"""The HTTP shell: JSON answers, plain errors, metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import msgspec
import prometheus_client
import pytest
from aiohttp import web

from millrace.runtime import http


class Answer(msgspec.Struct, rename="camel"):
    big_number: str


@pytest.fixture
async def base() -> AsyncIterator[str]:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("things", "Things.", registry=registry).inc()

    async def good(_: web.Request) -> web.Response:
        return http.json_response(Answer("1"))

    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("secret detail")

    async def take(request: web.Request) -> web.Response:
        return http.json_response({"size": len(await request.read())})

    app = http.make_app(max_body=100)
    app.router.add_get("/good", good)
    app.router.add_get("/broken", broken)
    app.router.add_post("/take", take)
    app.router.add_get("/metrics", http.metrics_handler(registry))
    server = http.HttpServer(app)
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
    ],
)
async def test_every_answer_is_json(base: str, method: str, path: str, status: int, body: object) -> None:
    """Answers and errors alike are JSON objects, and a defect shows no detail to the caller."""
    async with aiohttp.ClientSession() as client, client.request(method, base + path) as response:
        assert (response.status, await response.json()) == (status, body)


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
