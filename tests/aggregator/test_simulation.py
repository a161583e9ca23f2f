"""A quote's transaction is run through the gateway; whatever the gateway does, the quote is answered in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from millrace.aggregator import simulation
from millrace.aggregator.settings import AggregatorSettings
from millrace.runtime.http import HttpServer
from servers.aggregator_service import Service, end, start

USDC = "USDC-c76f1f"
SENDER = AggregatorSettings().contract
GOOD = {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000000", "sender": SENDER, "simulate": "true"}
DONE = {"status": "success", "hash": "00", "scResults": {"ab": {"returnMessage": "", "value": 5}}}
REVERTED = {
    "status": "success",
    "logs": {"events": [{"identifier": "writeLog"}, {"identifier": "signalError"}]},
    "scResults": {"ab": {"returnMessage": "Slippage limit exceeded: have 1, need 2"}},
}

DEEP = '{"a":' * 50_000 + "1" + "}" * 50_000


def told(result: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"result": result}, "error": "", "code": "successful"}


class Gateway:
    """A stand-in whose simulations a test chooses."""

    def __init__(self) -> None:
        self.body: Any = told(DONE)
        self.status = 200
        self.hold = asyncio.Event()
        self.hold.set()
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/address/{address}", self.account)
        app.router.add_post("/transaction/{what}", self.transaction)
        return app

    async def account(self, _: web.Request) -> web.Response:
        return web.json_response({"data": {"account": {"nonce": 7, "balance": "1"}}, "error": "", "code": "successful"})

    async def transaction(self, request: web.Request) -> web.Response:
        await self.hold.wait()
        self.asked.append((request.path_qs, await request.json()))
        if request.match_info["what"] == "cost":
            return web.json_response({"data": {"txGasUnits": 12_345_678, "returnMessage": ""}, "error": ""})
        text = self.body if isinstance(self.body, str) else msgspec.json.encode(self.body).decode()
        return web.Response(text=text, status=self.status, content_type="application/json")


Make = Callable[..., Any]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    yield Gateway()


@pytest.fixture
async def make(gateway: Gateway) -> AsyncIterator[Make]:
    server = HttpServer(gateway.application())
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    running: list[Any] = []

    async def made(**settings: Any) -> Service:
        running.append(await start(gateway=url, **settings))
        service: Service = running[-1][0]
        await service.until("/health", 200)
        return service

    yield made
    gateway.hold.set()
    for each in running:
        await end(*each)
    await server.stop()


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (DONE, {"status": "success", "gasUsed": 12_345_678}),
        ({"senderShard": {"status": "pending"}, "receiverShard": DONE}, {"status": "success", "gasUsed": 12_345_678}),
        ({"status": "fail", "failReason": "insufficient funds"}, {"status": "fail", "reason": "insufficient funds"}),
        ({"status": "fail"}, {"status": "fail", "reason": "the node gave no reason"}),
        (REVERTED, {"status": "fail", "reason": "Slippage limit exceeded: have 1, need 2"}),
        (
            {"senderShard": {"status": "fail", "failReason": "lowerNonceInTx"}, "receiverShard": DONE},
            {"status": "fail", "reason": "lowerNonceInTx"},
        ),
        ({"status": "pending"}, {"status": "unknown", "reason": "the gateway calls it pending"}),
        ({}, {"status": "unknown", "reason": "the gateway calls it nothing"}),
    ],
)
async def test_what_the_gateway_says_is_in_the_answer(
    make: Make, gateway: Gateway, result: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Success with its gas, or the reason of a failure: a revert too, which nodes tell in logs only."""
    service, gateway.body = await make(), told(result)
    status, body = await service.get("/api/v1/quote", **GOOD)
    assert (status, body["simulation"]) == (200, expected)


async def test_what_is_simulated_is_the_quotes_transaction(make: Make, gateway: Gateway) -> None:
    """Field by field, with the nonce that the gateway knows, and never from memory: each request asks anew."""
    service = await make()
    for _ in range(2):
        _, body = await service.get("/api/v1/quote", **GOOD)
    assert len(gateway.asked) == 4
    asked = dict(gateway.asked)
    simulated = asked["/transaction/simulate?checkSignature=false"]
    assert simulated["nonce"] == 7
    for name, value in body["transaction"].items():
        assert name == "chainId" or simulated[name] == value
    assert asked["/transaction/cost"] == simulated | {"gasLimit": 0}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            500,
            {"data": None, "error": "sending request error", "code": "internal_issue"},
            "the gateway refused: sending",
        ),
        (
            400,
            {"data": {}, "error": "transaction generation failed: x", "code": "bad_request"},
            "the gateway refused: tr",
        ),
        (200, "not JSON", "the gateway did not answer in its usual form"),
        (200, "[]", "the gateway did not answer in its usual form"),
        (200, {"error": ""}, "the gateway did not answer in its usual form"),
        (200, {"data": {"result": {"status": 5}}}, "the gateway did not answer in its usual form"),
        (200, DEEP, "the gateway did not answer in its usual form"),
        (200, '{"data": {"result": ' + DEEP + "}}", "the gateway did not answer in its usual form"),
        (429, {}, "the gateway did not answer in its usual form"),
        (200, '{"data": "' + "x" * 2_000_000, "the gateway did not answer in its usual form"),
    ],
)
async def test_a_gateway_that_fails_costs_the_result_only(
    make: Make, gateway: Gateway, status: int, body: Any, reason: str
) -> None:
    """The quote is there, and says that nothing is known and why."""
    service = await make()
    gateway.status, gateway.body = status, body
    got, answer = await service.get("/api/v1/quote", **GOOD)
    assert (got, answer["simulation"]["status"]) == (200, "unknown")
    assert answer["simulation"]["reason"].startswith(reason)
    assert answer["txData"]


async def test_a_slow_gateway_is_not_waited_for(make: Make, gateway: Gateway) -> None:
    """Past the setting the answer goes out without a result."""
    gateway.hold.clear()
    service = await make(simulation_timeout=0.05)
    _, body = await service.get("/api/v1/quote", **GOOD)
    assert body["simulation"] == {"status": "unknown", "reason": "the gateway did not answer within 0.05 s"}


async def test_so_many_at_a_time(make: Make, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the gateway is not asked."""
    monkeypatch.setattr(simulation, "MAX_WAITING", 0)
    service = await make()
    _, body = await service.get("/api/v1/quote", **GOOD)
    assert body["simulation"] == {"status": "unknown", "reason": "too many simulations are under way"}
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("path", "change", "error"),
    [
        ("/api/v1/quote", {"sender": ""}, "invalid simulate: expected a sender, too"),
        ("/api/v1/quote", {"simulate": "yes"}, "invalid simulate: expected true or false"),
        ("/api/v1/quote/stream", {}, "invalid simulate: only a single quote is simulated"),
        ("/api/v1/price-ladder", {"amounts": "5"}, "invalid simulate: only a single quote is simulated"),
    ],
)
async def test_what_cannot_be_simulated_is_refused(make: Make, path: str, change: dict[str, str], error: str) -> None:
    """Without a sender there is no transaction, and of many answers none is simulated."""
    service = await make()
    assert await service.get(path, **(GOOD | change)) == (400, {"error": error})


async def test_without_a_gateway_it_is_refused() -> None:
    """Nobody is left to believe that a quote was simulated."""
    running = await start()
    try:
        await running[0].until("/health", 200)
        status, body = await running[0].get("/api/v1/quote", **GOOD)
        assert (status, body) == (400, {"error": "invalid simulate: this service has no gateway to simulate with"})
    finally:
        await end(*running)
