"""What wallets made with the official SDKs send, and how they find out what became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relayer_support import Chain, connected, start, wallet

from millrace.chain.address import is_contract

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "vectors" / "sdk_hashes.json").read_text())[
    "vectors"
]
RELAYED = [
    vector for vector in VECTORS
    if "relayer" in vector["transaction"] and not vector["request"].keys() & {"relayerSeed", "guardianSeed"}
]  # fmt: skip
"""To be relayed, of one sender, with nonces from 0 on."""
ALICE = wallet(1)


async def test_a_status_comes_by_whichever_hash_an_sdk_computes(world: Any) -> None:
    """Of each official SDK's transactions the status comes once, by the hash subscribed to and with the chain's."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as python, connected(world.ws) as javascript, connected(world.ws) as curious:
        for vector in RELAYED:
            await python.ask(action="subscribe", topic=f"tx-status/{vector['python']}")
            await javascript.ask(action="subscribe", topic=f"tx-status/{vector['javascript']}")
            reply = await javascript.ask(action="relay", tx=vector["transaction"])
            assert reply["status"] == "completed", reply
            (result,) = reply["results"]
            known = [result["hash"], result["clientHash"], result["sdkHash"]]
            assert known[1:] == [vector["python"], vector["javascript"]] and len(set(known)) == 3
            for name in known:
                await curious.ask(action="subscribe", topic=f"tx-status/{name}")
            (entry,) = world.service.lifecycle.inflight.entries()
            for name in known:
                assert world.service.lifecycle.inflight.by_any_hash(bytes.fromhex(name)) is entry
            words = {entry.chain_hash: "slippage"} if is_contract(entry.tx.receiver) else {}
            chain.finalise(chain.final([entry.tx], failing=words))
            heard = [(await client.push())["data"] for client in (python, javascript)]
            assert [item["hash"] for item in heard] == known[1:]
            assert {item["chainHash"] for item in heard} == {result["hash"]}
            everything = [(await curious.push())["data"] for _ in known]
            assert {(item["hash"], item.get("chainHash")) for item in everything} == {
                (known[0], None), (known[1], known[0]), (known[2], known[0]),
            }  # fmt: skip
            assert {item["status"] for item in (*heard, *everything)} == {"fail" if words else "success"}
        for client in (python, javascript, curious):
            await client.ask(action="subscribe", topic="x")
            assert client.pushed == [], "nobody was told twice"


async def test_what_was_superseded_is_refused(world: Any) -> None:
    """A transaction whose nonce was used by another is not answered with a hash that is never sent."""
    await start(world, hub_url="")
    async with connected(world.ws) as client:
        first = await client.ask(action="relay", tx=RELAYED[0]["transaction"])
        assert first["status"] == "completed"
        Chain(world, 1).final(accounts={ALICE.public: (1, 10**18)})
        await world.service.journal.flush()
        again = await client.ask(action="relay", tx=RELAYED[0]["transaction"])
        assert again["hashes"] == [] and again["failed"][0]["reason"] == "nonce too low"
        assert "not sent again" in again["failed"][0]["detail"]


async def test_the_same_bytes_have_the_same_hashes(world: Any) -> None:
    """Who sends a transaction again gets the three hashes it got first, also when it is over, and nothing is sent."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        first = await client.ask(action="relay", tx=RELAYED[0]["transaction"])
        assert (await client.ask(action="relay", tx=RELAYED[0]["transaction"]))["results"] == first["results"]
        (entry,) = world.service.lifecycle.inflight.entries()
        chain.final([entry.tx], accounts={ALICE.public: (1, 10**18)})
        assert (await client.ask(action="relay", tx=RELAYED[0]["transaction"]))["results"] == first["results"]
        assert len(world.service.lifecycle.inflight) == 0
