"""One transaction through all three services on the local chain: one trace, from the quote to the status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from millrace.aggregator import app as aggregator
from millrace.aggregator.settings import AggregatorSettings
from millrace.chain import address
from millrace.chain.transaction import client_hash, from_json, signing_message, to_json
from millrace.localnet import app as localnet
from millrace.localnet.settings import NEVER, LocalnetSettings
from millrace.notifier.app import Notifier
from millrace.notifier.settings import NotifierSettings
from millrace.relayer import app as relayer
from millrace.relayer.protocol.messages import TransactionJson
from millrace.relayer.settings import RelayerSettings
from millrace.runtime import otlp
from millrace.runtime.process import wait_first
from millrace.runtime.tracing import Tracer, TracingSettings
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports, relayer_keys, services, wallet_in_shard
from servers.otlp_receiver import receiving

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CLIENT}-01"
PAY, GET, AMOUNT = "USDC-c76f1f", "UTK-2f80e9", 1_000 * 10**6
DEADLINE = 60.0
PATIENT = {"gossip": False, "max_wait": DEADLINE, "chain_api_timeout": DEADLINE, "stale_seconds": 10 * DEADLINE}
"""All services share one processor here, and maybe with others."""
TRACED = TracingSettings(tracing="otlp", trace_rate=1_000.0)


@contextlib.asynccontextmanager
async def _running(plan: Plan, collector: str) -> AsyncIterator[None]:
    """The whole system in this process, each service with a tracer of its own, for the collector at this address."""
    said = {service.name: dict(service.settings) for service in services(plan)}
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        tracers = {
            name: Tracer(TRACED, stack.enter_context(otlp.exporting(name, collector)))
            for name in ("aggregator", "relayer", "notifier")
        }
        notifier = Notifier(_made(NotifierSettings, said["notifier"]), tracers["notifier"])
        await notifier.start(stack)
        work: list[Awaitable[object]] = [
            localnet.run(_made(LocalnetSettings, said["localnet"] | {"gossip": False}), stop)
        ]
        settings = _made(AggregatorSettings, said["aggregator"])
        work.append(aggregator.serve(settings, stop, tracers["aggregator"]))
        service = relayer.Service(_made(RelayerSettings, said["relayer"] | PATIENT), tracers["relayer"])
        stack.push_async_callback(service.stop)
        running = asyncio.ensure_future(wait_first(stop, *work))
        try:
            await _until(plan.chain_url + "/health")
            await service.start()
            served = asyncio.ensure_future(wait_first(stop, *service.endless()))
            await _until(plan.aggregator_url + "/api/v1/config")
            await _until(plan.relayer_url + "/v1/relayers", _all_pay)
            yield
        finally:
            stop.set()
            await running
        await served


def _made(kind: type[Any], said: dict[str, Any]) -> Any:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in said.items()})


def _all_pay(body: Any) -> bool:
    """Whether every key pays: what each holds is known after a while."""
    return all(relayer["state"] == "ready" for relayer in body["relayers"])


async def _until(url: str, holds: Callable[[Any], bool] = bool) -> None:
    """Wait until something answers well."""
    async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as http:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as response:
                    if response.status == 200 and holds(await response.json()):
                        return
            await asyncio.sleep(0.05)


async def _answer(ws: aiohttp.ClientWebSocketResponse, request: dict[str, Any]) -> Any:
    """The reply to a submission, which is sent again for as long as the relayer says when to try again."""
    async with asyncio.timeout(DEADLINE):
        while True:
            await ws.send_json(request)
            reply = await ws.receive_json()
            pauses = [failure["retryAfterMs"] for failure in reply["failed"] if "retryAfterMs" in failure]
            if not pauses:
                return reply
            await asyncio.sleep(max(pauses) / 1000)


@pytest.mark.parametrize("supernova_epoch", [0, NEVER], ids=["present", "earlier"])
async def test_one_trace_from_the_quote_to_the_status(tmp_path: Path, supernova_epoch: int) -> None:
    """Every service sends its part to the collector under the client's id, whatever the format of blocks; nobody else's
    is in it."""
    plan = Plan(Ports.free(), tmp_path, poll_seconds=0.5, supernova_epoch=supernova_epoch)
    wallet = wallet_in_shard(1, plan.network)
    own = address.encode(wallet.public)
    with receiving() as collector:
        async with _running(plan, collector.url), aiohttp.ClientSession() as http, LocalChain(plan.chain_url) as chain:
            await chain.fund(own, PAY, 2 * AMOUNT)
            asked = {"from": PAY, "to": GET, "amountIn": str(AMOUNT), "slippage": "0.5", "sender": own}
            async with http.get(
                plan.aggregator_url + "/api/v1/quote", params=asked, headers={"traceparent": PARENT}
            ) as answer:
                quote = await answer.json()
                assert answer.status == 200, quote
            relaying = address.encode(relayer_keys(plan)[1].public)
            told = quote["transaction"] | {"relayer": relaying, "gasPrice": 10**9, "nonce": 0, "signature": "00" * 64}
            told = {name: value for name, value in told.items() if value is not None}
            told["gasLimit"] += 50_000
            unsigned = from_json(msgspec.convert(told, TransactionJson))
            tx = msgspec.structs.replace(unsigned, signature=wallet.sign(signing_message(unsigned)))
            async with http.ws_connect(plan.relayer_ws_url) as ws:
                await ws.send_json({"action": "subscribe", "topic": f"tx-status/{client_hash(tx).hex()}"})
                await ws.receive_json()
                body = msgspec.to_builtins(to_json(tx))
                reply = await _answer(ws, {"action": "relay", "requestId": "r", "tx": body, "traceparent": PARENT})
                assert reply["status"] == "completed", reply
                async with asyncio.timeout(DEADLINE):
                    status = await ws.receive_json()
            assert status["data"]["chainHash"] == reply["hashes"][0]
    finished = collector.spans
    assert {span.trace_id for span in finished} == {TRACE}
    by_service: dict[str, set[str]] = {}
    for span in finished:
        by_service.setdefault(span.service, set()).add(span.name)
    assert by_service == {
        "millrace-aggregator": {"quote"},
        "millrace-relayer": {"relay", "verify", "journal", "co-sign", "send", "status"},
        "millrace-notifier": {"block"},
    }
    ids = {span.span_id: span.name for span in finished}
    for span in finished:
        assert span.parent_id == CLIENT if span.name in ("quote", "relay") else ids[span.parent_id] == "relay"
    (end,) = (span for span in finished if span.name == "status")
    blocks = [span for span in finished if span.name == "block"]
    assert end.attributes["tx"] == reply["hashes"][0]
    assert end.attributes["status"] == status["data"]["status"]
    assert all(block.began_ns < end.ended_ns for block in blocks)
