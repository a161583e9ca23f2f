"""The clients against small servers that answer as the services do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from millrace.chain.transaction import Transaction
from millrace.client import AggregatorClient, QuoteError, RelayerClient, RelayerError
from millrace.runtime import http, websocket

TX = Transaction(
    nonce=1, value=0, receiver=bytes(32), sender=b"\1" * 32, gas_price=10**9, gas_limit=50_000, chain_id="local"
)


class FakeRelayer(websocket.Session):
    """Acknowledges subscriptions, refuses the topic `bad`, echoes submissions, and pushes what a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        request = msgspec.json.decode(data)
        self.requests.append(request)
        reply = {"action": request["action"], "requestId": request["requestId"], "status": "ok"}
        if request.get("topic") == "bad":
            reply |= {"status": "fail", "reason": "unknown topic", "code": "unknownTopic"}
        elif request["action"] in ("relay", "broadcast"):
            reply |= {"status": "completed", "hashes": ["ab"], "failed": []}
        elif request.get("topic") == "end":
            self.close()
            return
        self.push(reply)

    def push(self, message: dict[str, Any]) -> None:
        self.send_text(msgspec.json.encode(message))


@pytest.fixture
async def relayer() -> AsyncIterator[tuple[RelayerClient, FakeRelayer]]:
    session = FakeRelayer()
    server = await websocket.serve(lambda _: session, "127.0.0.1", 0)
    async with RelayerClient(f"ws://127.0.0.1:{server.port}/ws", timeout=5.0) as client:
        yield client, session
    await server.close()


async def test_requests_are_answered(relayer: tuple[RelayerClient, FakeRelayer]) -> None:
    """Each request gets its own reply, also when several are under way; a refusal is raised with its reason."""
    client, session = relayer
    await asyncio.gather(client.subscribe("gasStats"), client.subscribe("accounts"), client.unsubscribe("accounts"))
    assert (await client.relay(TX))["hashes"] == ["ab"]
    assert (await client.broadcast(TX, TX))["status"] == "completed"
    assert "tx" in session.requests[-2]
    assert len(session.requests[-1]["txs"]) == 2
    with pytest.raises(RelayerError, match="unknown topic") as refused:
        await client.subscribe("bad")
    assert refused.value.reply["code"] == "unknownTopic"


async def test_messages_wait_per_topic(relayer: tuple[RelayerClient, FakeRelayer]) -> None:
    """Pushed messages are kept by topic, in order, until they are taken; waiting for none ends in TimeoutError."""
    client, session = relayer
    await client.subscribe("tx-status/aa")
    session.push({"type": "tx-status", "data": {"hash": "aa", "status": "success"}})
    session.push({"type": "accountDelta", "data": {"address": "erd1x", "nonce": 1}})
    session.push({"type": "accountDelta", "data": {"address": "erd1x", "nonce": 2}})
    assert (await client.next_message("address/erd1x", 5))["data"]["nonce"] == 1
    assert (await client.next_message("tx-status/aa", 5))["data"]["status"] == "success"
    assert (await client.next_message("address/erd1x", 5))["data"]["nonce"] == 2
    with pytest.raises(TimeoutError):
        await client.next_message("tx-status/aa", 0.05)


async def test_a_lost_connection_is_an_error(relayer: tuple[RelayerClient, FakeRelayer]) -> None:
    """When the relayer closes, requests under way and waits for messages end with RelayerError."""
    client, _ = relayer
    waiting = asyncio.ensure_future(client.next_message("gasStats", 5))
    with pytest.raises(RelayerError, match="has ended"):
        await client.subscribe("end")
    with pytest.raises(RelayerError, match="has ended"):
        await waiting


async def test_a_client_must_be_entered() -> None:
    """A client that was not entered says so instead of failing somewhere inside."""
    with pytest.raises(RelayerError, match="async with"):
        await RelayerClient("ws://127.0.0.1:1/ws").subscribe("gasStats")


async def test_quotes() -> None:
    """Parameters travel by their wire names, truth values in lower case; an error body becomes QuoteError."""
    seen: list[dict[str, str]] = []

    async def quote(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        if request.query["from"] == "X":
            return http.error_response("unknown token_in 'X'", 400)
        return http.json_response({"amountOut": "7"})

    app = http.make_app()
    app.router.add_get("/api/v1/quote", quote)
    app.router.add_get("/api/v1/pair-config", quote)
    app.router.add_get("/health", quote)
    server = http.HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    async with AggregatorClient(f"http://127.0.0.1:{port}/") as client:
        assert await client.quote("A", "B", amount_in=5, includePaths=False, slippage="0.01") == {"amountOut": "7"}
        await client.quote("A", "B", amount_out=6)
        await client.pair_config("A", "B")
        with pytest.raises(QuoteError, match="unknown token_in") as refused:
            await client.quote("X", "B", amount_in=1)
    assert (refused.value.status, refused.value.text) == (400, "unknown token_in 'X'")
    assert seen[:3] == [
        {"from": "A", "to": "B", "includePaths": "false", "slippage": "0.01", "amountIn": "5"},
        {"from": "A", "to": "B", "amountOut": "6"},
        {"from": "A", "to": "B"},
    ]
    await server.stop()
