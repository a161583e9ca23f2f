"""The aggregator's client: questions as they are sent, other deployments' answers, and the quote stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace_client import Aggregator, ClientError, Missed, Quote, Refused, aggregator

LEAST = {"txData": "c3dhcA==", "amountOutMin": "99", "priceImpact": 0.01}
WAIT = 20.0


class Service:
    """Answers with what a test lays down, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.bodies: list[Any] = []
        self.answer: Any = LEAST
        self.streams: list[list[bytes]] = []
        """What each further stream sends before it ends; without one it stays open."""
        self.busy: list[web.Response] = []
        """Answers that come before."""

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if request.can_read_body:
            self.bodies.append(await request.json())
        if request.path != "/api/v1/quote/stream":
            return web.json_response(self.answer)
        if self.busy:
            return self.busy.pop(0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if not self.streams:
            await asyncio.Event().wait()
        for event in self.streams.pop(0):
            await response.write(event)
        return response


@pytest.fixture
async def service() -> AsyncIterator[tuple[Service, Aggregator]]:
    """A service and a client of it."""
    fake = Service()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.take)
    async with TestServer(app) as server, Aggregator(str(server.make_url("/"))) as client:
        yield fake, client


async def test_a_question_is_the_wire_s(service: tuple[Service, Aggregator]) -> None:
    """Amounts are digits, truth values in lower case, lists with commas; what is not given is not sent."""
    fake, client = service
    await client.quote("A-1", "B-2", amount_in=10**20, slippage="0.005", includePaths=False, excludePools=["x", "y"])
    assert dict(fake.asked[0].query) == {
        "from": "A-1",
        "to": "B-2",
        "amountIn": str(10**20),
        "slippage": "0.005",
        "includePaths": "false",
        "excludePools": "x,y",
    }


async def test_bodies_of_many_inputs(service: tuple[Service, Aggregator]) -> None:
    """Many inputs are sent in the shape of the multi-swap, dust mode by its name on the wire."""
    fake, client = service
    with pytest.raises(ClientError, match="does not understand"):
        await client.multi_swap({"A-1": 5}, "B-2", slippage="0.01", dust_mode=False)
    assert fake.bodies == [
        {"inputs": [{"token": "A-1", "amount": "5"}], "to": "B-2", "slippage": 0.01, "dust_mode": False}
    ]


async def test_the_least_that_the_interface_promises(service: tuple[Service, Aggregator]) -> None:
    """A quote of another deployment needs only what the public interface names; fields nobody knows are passed over."""
    fake, client = service
    fake.answer = LEAST | {"novelty": 1}
    quote = await client.quote("A-1", "B-2", amount_in=1)
    assert (quote.tx_data, quote.amount_out_min, quote.amount_out) == ("c3dhcA==", 99, None)


async def test_a_stream_goes_on(service: tuple[Service, Aggregator]) -> None:
    """Quotes and refusals come as values; when the stream ends it is opened again and says what was missed."""
    fake, client = service
    quote = b'event: quote\nid: 1\ndata: {"txData": "", "amountOutMin": "%d", "priceImpact": 0}\n\n'
    error = b'event: error\r\ndata: {"error": "simulation failed"}\r\n\r\n'
    fake.streams = [[b": keep-alive\n\n", quote % 1, error], [quote[:20], quote[20:] % 2]]
    async with await client.stream("A-1", "B-2", amount_in=1, policy="drop") as stream:
        seen = [await stream.next(WAIT) for _ in range(4)]
    first, refused, missed, second = seen
    assert isinstance(first, Quote) and first.amount_out_min == 1
    assert isinstance(refused, Refused) and refused.reason == "simulation failed"
    assert isinstance(missed, Missed) and missed.why == "connection lost"
    assert isinstance(second, Quote) and second.amount_out_min == 2


async def test_a_stream_told_to_wait_very_long(
    service: tuple[Service, Aggregator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that names a very long time is asked again after a minute, neither at once nor never."""
    fake, client = service
    fake.busy = [web.json_response({"error": "busy"}, status=429, headers={"Retry-After": "100000000"})]
    fake.streams = [[b'event: error\ndata: {"error": "no route"}\n\n']]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.Event().wait() if len(waits) > 1 else None

    monkeypatch.setattr(aggregator, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    async with await client.stream("A-1", "B-2", amount_in=1) as stream:
        while not isinstance(await stream.next(WAIT), Refused):
            pass
    assert waits[0] == 60.0
