"""More is asked than can be done: who would wait too long is told so, and no work is done that nobody waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from relayer_support import as_json, connected, raw, start, submit, transfer, wallet

from millrace.relayer.protocol import reasons
from millrace.relayer.rules.stages import Origin
from millrace.relayer.submission.batch import Accepted
from waiting import until

GIVEN_UP = reasons.BUSY.but("given up")


async def test_row_23_who_would_wait_too_long_is_refused_at_once(world: Any) -> None:
    """Both interfaces say when to come again, nothing is done, and a connection is not closed for asking on."""
    await start(world)
    admission = world.service.submitter.admission
    admission.enter("127.0.0.1", 10_000)
    tx = transfer(wallet(1))
    async with connected(world.ws) as client, aiohttp.ClientSession() as http:
        for number in range(300):  # more than may be refused for a client's own fault
            reply = await client.ask(action="relay", tx=as_json(tx), requestId=number)
            assert (reply["reason"], reply["requestId"]) == ("relayer busy", number)
            assert reply["retryAfterMs"] >= 100
        async with http.post(f"{world.http}/v1/sign", json={"transactions": [as_json(tx)]}) as response:
            assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
        assert len(world.service.lifecycle.inflight) == 0
        admission.leave("127.0.0.1", 10_000)
        assert (await client.ask(action="relay", tx=as_json(tx)))["status"] == "completed"
        async with http.post(
            f"{world.http}/v1/sign", json={"transactions": [as_json(transfer(wallet(2)))]}
        ) as response:
            assert response.status == 200
    assert admission.waiting == 0 and not admission._of


@pytest.mark.parametrize("gone", [True, False])
async def test_row_23_what_nobody_waits_for_is_not_done(
    world: Any, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """A client that has gone costs no check and no row any more; what it had taken is free again."""
    await start(world)
    submitter = world.service.submitter
    gone_early, checked = gone, []
    really = submitter._take_part

    async def take_part(*arguments: Any) -> Any:
        checked.append(arguments[1].positions)
        return await really(*arguments)

    monkeypatch.setattr(submitter, "_take_part", take_part)
    txs = [transfer(wallet(1), nonce) for nonce in range(3)]
    batch = await submitter.take(Origin("relay", "ip"), list(map(raw, txs)), None, lambda: GIVEN_UP if gone else None)
    gone = True
    assert await submitter.finish(batch) == [GIVEN_UP] * 3 and batch.unserved == 3
    assert len(checked) == (not gone_early)
    assert world.service.journal.read("SELECT * FROM submissions") == [] and len(world.service.lifecycle.inflight) == 0
    assert await submit(world, *txs) == ["ok"] * 3


async def test_row_23_what_another_waits_for_is_done(world: Any) -> None:
    """The same bytes sent by two of whom one has gone: the other gets what it asked for."""
    await start(world)
    submitter, tx = world.service.submitter, raw(transfer(wallet(1)))
    gone = False
    first = await submitter.take(Origin("relay", "ip"), [tx], None, lambda: GIVEN_UP if gone else None)
    second = await submitter.take(Origin("relay", "ip"), [tx])
    finishing = asyncio.create_task(submitter.finish(second))
    await asyncio.sleep(0)
    gone = True
    (one,), (other,) = await asyncio.gather(submitter.finish(first), finishing)
    assert isinstance(one, Accepted) and isinstance(other, Accepted)


async def test_row_23_a_connection_that_closes_leaves_nothing_waiting(world: Any) -> None:
    """What a client sent and did not wait for is not counted among what waits for ever."""
    await start(world)
    admission = world.service.submitter.admission
    async with connected(world.ws) as client:
        for nonce in range(60):
            await client.socket.send_json({"action": "relay", "tx": as_json(transfer(wallet(1), nonce))})
        await client.reply()
    await until(lambda: not admission.waiting and not world.service.gateway.connections)
    assert not admission._of and world.service.shared.under_way == 0
