"""The whole relayer: submissions in, gossip out, blocks in, statuses out."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import (
    GAS_PRICE,
    RELAYERS,
    BlockMaker,
    as_json,
    connected,
    submit,
    transfer,
    wallet,
    write_keys,
)

from millrace.chain import address
from millrace.chain.keys import verify
from millrace.chain.transaction import chain_hash, client_hash, from_json, signing_message
from millrace.relayer.gateway import gateway
from millrace.relayer.protocol.messages import TransactionJson
from millrace.runtime import extras
from millrace.runtime.settings import Secret
from waiting import until


async def test_relay_is_cosigned_sent_and_told(world: Any) -> None:
    """A relayed transaction gets the shard key's signature, reaches the chain and its status its subscriber."""
    await world.start()
    alice = wallet(1)
    tx = transfer(alice)
    async with connected(world.ws) as client:
        topic = f"tx-status/{client_hash(tx).hex()}"
        assert await client.ask(action="subscribe", topic=topic, requestId="s") == {
            "action": "subscribe", "status": "ok", "topic": topic, "requestId": "s",
        }  # fmt: skip
        own = f"address/{address.encode(alice.public)}"
        await client.ask(action="subscribe", topic=own)
        reply = await client.ask(action="relay", requestId="r", tx=as_json(tx))
        assert reply["status"] == "completed" and reply["failed"] == [] and reply["requestId"] == "r"
        (sent,) = await world.api.wait_submitted(1)
        whole = from_json(msgspec.convert(sent, TransactionJson))
        assert verify(RELAYERS[1].public, signing_message(tx), whole.relayer_signature)
        assert reply["hashes"] == [chain_hash(whole).hex()]
        assert reply["results"][0]["clientHash"] == client_hash(tx).hex()
        world.hub.save(BlockMaker(1).block([whole], accounts={alice.public: (1, 10**18)}))
        delta, status = await client.push(), await client.push()
        assert delta["type"] == "accountDelta" and delta["data"]["nonce"] == 1
        assert delta["data"]["balances"] == {"EGLD": str(10**18)}
        assert status == {
            "type": "tx-status",
            "data": {"hash": client_hash(tx).hex(), "status": "success", "chainHash": chain_hash(whole).hex()},
        }


async def test_rest_sign_then_broadcast(world: Any) -> None:
    """POST /v1/sign co-signs without sending; POST /v1/broadcast sends what was signed."""
    await world.start()
    tx = transfer(wallet(0))
    async with aiohttp.ClientSession(world.http) as http:
        async with http.post("/v1/sign", json={"transactions": [as_json(tx)]}) as response:
            signed = (await response.json())["transactions"]
        assert response.status == 200 and len(signed[0]["relayerSignature"]) == 128
        assert world.api.submitted == []
        async with http.post("/v1/broadcast", json={"transactions": signed}) as response:
            body = await response.json()
        assert body["status"] == "completed" and body["action"] == "broadcast"
        await world.api.wait_submitted(1)
        for base, metrics in ((world.http, 404), (world.operators, 200)):  # which have a port of their own
            for path, status in (("/health", 200), ("/ready", 200), ("/metrics", metrics)):
                async with aiohttp.ClientSession(base) as asking, asking.get(path) as response:
                    assert response.status == status
    assert GAS_PRICE


async def test_ready_is_who_listens_to_websockets_too(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hub to wait for, too: HTTP is open first, and who asks there before the WebSocket is hears 503."""
    listen, heard = gateway.Gateway.start, []

    async def ask() -> int:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{world.service.http_port}") as http:
            async with http.get("/ready") as answer:
                return answer.status

    async def listen_late(self: gateway.Gateway, doors: Any = None) -> int:
        heard.append(await ask())
        return await listen(self, doors)

    monkeypatch.setattr(gateway.Gateway, "start", listen_late)
    await world.start(hub_url="")
    assert [*heard, await ask()] == [503, 200]


async def test_keys_are_read_again_by_whom_the_operators_token_lets(world: Any) -> None:
    """POST /control/read-keys does what SIGHUP does, for the token of the settings only, and not on the public port."""
    token = "a token of operators"
    service = await world.start(operators_token=Secret(token))
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        async with http.post(f"{world.http}/control/read-keys") as response:
            assert response.status == 404
        before = service.signer
        async with http.post(f"{world.operators}/control/read-keys") as response:
            assert (response.status, await response.json()) == (202, {"status": "accepted"})
    async with aiohttp.ClientSession() as http, http.post(f"{world.operators}/control/read-keys") as response:
        assert response.status == 401
    await until(lambda: service.signer is not before)
    assert service.signer.running


async def test_restart_keeps_promises(world: Any) -> None:
    """What was accepted before a stop is sent again after it, and its nonce is still taken."""
    await world.start()
    world.api.down = True
    first = transfer(wallet(2))
    async with connected(world.ws) as client:
        world.api.down = False
        await client.ask(action="subscribe", topic="accounts")
        reply = await client.ask(action="relay", tx=as_json(first))
        assert reply["status"] == "completed", reply
    await world.stop()
    world.api.submitted.clear()
    await world.start()
    await world.api.wait_submitted(1)
    async with connected(world.ws) as client:
        again = await client.ask(action="relay", tx=as_json(first))
        assert again["hashes"] == reply["hashes"]
        other = transfer(wallet(2), data=b"x")
        refused = await client.ask(action="relay", tx=as_json(other))
        assert refused["failed"][0]["reason"] == "conflicting transaction"
    await asyncio.sleep(0)


async def test_without_gossip_installed(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A relayer that should gossip and lacks the packages says so once, is ready, and sends through the chain API."""
    monkeypatch.setitem(extras.MODULES, "gossip", ("no_such_package",))
    await world.start(gossip=True)
    tx = transfer(wallet(1))
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", requestId="r", tx=as_json(tx))
        assert reply["status"] == "completed", reply
    await world.api.wait_submitted(1)
    async with aiohttp.ClientSession(world.http) as http, http.get("/health") as response:
        assert (response.status, (await response.json())["gossip"]) == (200, "not installed")
    (line,) = [record for record in caplog.records if "no gossip" in record.message]
    assert line.__dict__["remedy"] == extras.remedy("gossip")


async def test_each_property_of_the_network_can_be_set_alone(world: Any) -> None:
    """One shard in the place of the profile's three: its one key pays for every sender, signed by the signing process,
    and clients are told of that network."""
    (key,) = write_keys(world.folder / "keys")[:1]
    await world.start(shards=1, shard_rule="mask", topic_scheme="live", key_files=(key,))
    payer = world.service.relayers().by_shard[0]
    sender = wallet(2)
    assert await submit(world, transfer(sender, relayer=payer)) == ["ok"]
    async with aiohttp.ClientSession() as http, http.get(f"{world.http}/v1/relayers") as answer:
        told = await answer.json()
    assert (told["profile"], told["shards"], told["shardRule"]) == ("documented", 1, "mask")
    assert world.service.network.transactions_topics(0) == ("transactions_0",)


async def test_a_network_of_sixteen_shards_is_told_of(world: Any) -> None:
    """Who has no keys serves the streams of every shard that there is."""
    await world.start(shards=16, key_files=())
    maker = BlockMaker(15)
    sender = next(pair for number in range(200) if (pair := wallet(0, number)).public[-1] % 16 == 15)
    block = maker.block([transfer(sender, relayed=False)])
    block.blockData.body.miniBlocks[0].senderShardID = block.blockData.body.miniBlocks[0].receiverShardID = 15
    world.hub.save(block)
    await until(lambda: world.service.statistics.numbers.final_blocks(0).blocks["15"])
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="gasStats/all")
        shards = (await client.push())["data"]["shards"]
    assert [each["shard"] for each in shards] == list(range(16))
    assert [each["gasPrice"]["max"] for each in shards] == [None] * 15 + [GAS_PRICE]
