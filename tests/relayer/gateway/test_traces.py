"""Traces of submissions: what of a `traceparent` is heeded, on both interfaces, and that it changes no answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import BlockMaker, as_json, connected, transfer, wallet

from millrace.chain.transaction import TransactionJson, client_hash, from_json
from millrace.runtime.spans import parse

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
NONSENSE: list[Any] = [
    "",
    "nonsense",
    PARENT + "-x",
    PARENT[:-1],
    PARENT.upper(),
    7,
    None,
    [PARENT],
    {"a": 1},
    "x" * 4096,
]


def spans_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Name and trace of each span that was logged."""
    return [(record.span, record.trace_id) for record in caplog.records if record.message == "span"]


async def test_every_step_of_a_relayed_transaction(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Verified, journalled, co-signed, sent, answered, told: a span each of the client's trace; the hub hears of it."""
    caplog.set_level(logging.INFO)
    await world.start(tracing="log")
    alice = wallet(1)
    tx = transfer(alice)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{client_hash(tx).hex()}")
        reply = await client.ask(action="relay", requestId="r", tx=as_json(tx), traceparent=PARENT)
        assert reply["status"] == "completed" and "traceparent" not in reply
        (sent,) = await world.api.wait_submitted(1)
        whole = from_json(msgspec.convert(sent, TransactionJson))
        world.hub.save(BlockMaker(1).block([whole], accounts={alice.public: (1, 10**18)}))
        assert (await client.push())["data"]["status"] == "success"
        await world.hub.acknowledged(2)
    names = ["verify", "journal", "co-sign", "relay", "send", "status"]
    assert sorted(spans_of(caplog)) == sorted((name, TRACE) for name in names)
    (told,) = world.hub.traces
    root = next(record for record in caplog.records if getattr(record, "span", "") == "relay")
    context = parse(told)
    assert context is not None and (context.trace_id, context.span_id) == (TRACE, root.span_id)


@pytest.mark.parametrize("traceparent", NONSENSE, ids=repr)
async def test_what_is_malformed_changes_nothing(
    world: Any, traceparent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction is relayed, and nothing is traced."""
    caplog.set_level(logging.INFO)
    await world.start(tracing="log")
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(transfer(wallet(1))), traceparent=traceparent)
    assert reply["status"] == "completed" and spans_of(caplog) == []


async def test_rest_takes_the_header(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A submission by REST is traced by its header; two headers are none; a refused one says why."""
    caplog.set_level(logging.INFO)
    await world.start(tracing="log")
    async with aiohttp.ClientSession(world.http) as http:
        for nonce, lines in enumerate([[PARENT], [PARENT, PARENT], ["nonsense"]]):
            headers = [("traceparent", line) for line in lines]
            body = {"transactions": [as_json(transfer(wallet(0), nonce))]}
            async with http.post("/v1/relay", json=body, headers=headers) as response:
                assert (await response.json())["status"] == "completed"
        body = {"transactions": [as_json(transfer(wallet(1), 9))]}
        async with http.post("/v1/sign", json=body, headers={"traceparent": PARENT}) as response:
            (failed,) = (await response.json())["failed"]
    roots = [record for record in caplog.records if getattr(record, "span", "") in ("relay", "sign")]
    assert [(record.span, record.trace_id, record.refused) for record in roots] == [
        ("relay", TRACE, 0),
        ("sign", TRACE, 1),
    ]
    assert roots[1].code == failed["code"]


async def test_a_share_of_the_others_is_sampled(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With a share of one each submission is traced, under an id of its own; its metric counts them."""
    caplog.set_level(logging.INFO)
    await world.start(tracing="log", trace_share=1.0, trace_rate=1.0)
    async with connected(world.ws) as client:
        for nonce in range(20):
            assert (await client.ask(action="relay", tx=as_json(transfer(wallet(1), nonce))))["status"] == "completed"
    roots = {record.trace_id for record in caplog.records if getattr(record, "span", "") == "relay"}
    tracer = world.service.tracer
    assert 5 <= len(roots) == tracer.begun < 20 and tracer.begun + tracer.left_out == 20
    async with aiohttp.ClientSession(world.operators) as http, http.get("/metrics") as response:
        assert f"millrace_traces_begun_total {tracer.begun:.1f}" in await response.text()


async def test_off_says_nothing(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Without the setting no client can have anything traced."""
    caplog.set_level(logging.INFO)
    await world.start()
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(transfer(wallet(1))), traceparent=PARENT)
    assert reply["status"] == "completed" and spans_of(caplog) == [] and not world.service.followed


def test_the_field_is_documented() -> None:
    """AsyncAPI names it."""
    from millrace.relayer.gateway.openapi import asyncapi

    document = asyncapi()
    for name in ("Relay", "Broadcast"):
        assert document["components"]["schemas"][name]["properties"]["traceparent"]["type"] == "string"
    assert "traceparent" not in json.dumps(document["components"]["schemas"]["SubmissionReply"])
