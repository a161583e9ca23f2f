"""What operators see of keys and transactions, and what a pause is."""

from __future__ import annotations

import threading
from typing import Any

import aiohttp
import pytest
from relayer_support import RELAYERS, BlockMaker, as_json, connected, submit, transfer, wallet

from millrace.chain import address
from millrace.relayer.journal import journal
from millrace.relayer.protocol.reasons import NONCE_TOO_HIGH
from millrace.runtime.settings import Secret

TOKEN = "a token of operators"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
ALICE, BOB = wallet(1), wallet(2)


async def get(world: Any, path: str) -> Any:
    """An answer of the operators' port."""
    async with aiohttp.ClientSession(world.operators) as http, http.get(path) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def pause(world: Any, body: Any, headers: dict[str, str] = HEADERS) -> tuple[int, Any]:
    """Status and body of the answer to a pause."""
    async with aiohttp.ClientSession(world.operators, headers=headers) as http:
        async with http.post("/control/pause", json=body) as response:
            return response.status, await response.json()


async def test_keys_and_refusals(world: Any) -> None:
    """Each key's money and windows add up, and refusals are counted by their code."""
    await world.start()
    async with connected(world.ws) as client:
        await client.ask(action="relay", tx=as_json(transfer(ALICE)))
        await client.ask(action="relay", tx=as_json(transfer(ALICE, 7)))
    state = await get(world, "/v1/state")
    assert state["ready"] and state["sponsoring"] == "ok" and state["paused"] == [] and state["inFlight"] == 1
    assert [key["address"] for key in state["relayers"]] == [address.encode(RELAYERS[s].public) for s in range(3)]
    one = state["relayers"][1]
    assert int(one["atRisk"]) > 0 and {item["spent"] for item in one["budget"]} == {one["atRisk"]}
    assert int(one["balance"]) - int(one["atRisk"]) == int(one["spendable"]) and one["secondsToEmpty"] > 0
    assert "secondsToEmpty" not in state["relayers"][0] and state["relayers"][0]["atRisk"] == "0"
    assert state["refused"] == {NONCE_TOO_HIGH.code: 1}


async def test_the_latest_transactions(world: Any) -> None:
    """Newest first, each with what became of it."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0), transfer(BOB, 0)) == ["ok", "ok"]
    sent = await world.api.wait_submitted(2)
    assert len(sent) == 2
    world.hub.save(BlockMaker(0).block([]))
    shown = (await get(world, "/v1/transactions"))["transactions"]
    assert [item["transaction"]["sender"] for item in shown] == [address.encode(who.public) for who in (BOB, ALICE)]
    assert {item["transaction"]["state"] for item in shown} == {"pending"}
    assert all(item["created"] > 1_700_000_000_000 and item["transaction"]["chainHash"] for item in shown)


async def test_the_latest_transactions_hold_up_nobody(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is read for operators in another thread than the one that answers clients."""
    service = await world.start()
    assert await submit(world, transfer(ALICE)) == ["ok"]
    monkeypatch.setattr(service.journal, "read", lambda *_: pytest.fail("read in the event loop"))
    seen: list[int] = []
    made = journal.rows.record
    monkeypatch.setattr(journal.rows, "record", lambda row: seen.append(threading.get_ident()) or made(row))
    assert len((await get(world, "/v1/transactions"))["transactions"]) == 1
    assert seen and threading.get_ident() not in seen


async def test_a_pause_holds_over_a_restart(world: Any) -> None:
    """A paused shard pays for nobody, others do; only the next request ends it; only operators ask."""
    await world.start(operators_token=Secret(TOKEN))
    assert (await pause(world, {"shards": [1]}, {}))[0] == 401
    assert await pause(world, {"shards": [1]}) == (200, {"paused": [1]})
    assert await submit(world, transfer(ALICE), transfer(BOB)) == ["shard paused", "ok"]
    state = await get(world, "/v1/state")
    assert state["paused"] == [1] and [key["state"] for key in state["relayers"]] == ["ok", "paused", "ok"]
    await world.stop()
    await world.start(operators_token=Secret(TOKEN))
    assert await submit(world, transfer(ALICE)) == ["shard paused"]
    assert await pause(world, {"shards": []}) == (200, {"paused": []})
    assert await submit(world, transfer(ALICE)) == ["ok"]
    await world.stop()
    await world.start()
    assert (await get(world, "/v1/state"))["paused"] == []


@pytest.mark.parametrize(
    "body", [{}, {"shards": 1}, {"shards": [3]}, {"shards": [-1]}, {"shards": ["1"]}, [], {"a": []}]
)
async def test_what_is_no_pause(world: Any, body: Any) -> None:
    """It is refused, and nothing is paused."""
    await world.start(operators_token=Secret(TOKEN))
    status, answer = await pause(world, body)
    assert status == 400 and "numbers from 0 to 2" in answer["error"]
    assert not world.service.lifecycle.sponsor.paused
