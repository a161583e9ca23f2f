"""A wallet's way over HTTP: relayers, prepare, relay, and what became of a transaction."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_later import LaterChain
from relayer_support import RELAYERS, Chain, as_json, entry_of, start, submit, transfer, wallet

from millrace.chain import address
from millrace.chain.transaction import (
    TransactionError,
    TransactionJson,
    chain_hash,
    early_hashes,
    from_json,
    signing_message,
)
from millrace.relayer.ledger import fates
from millrace.relayer.signing.handle import SignerError
from waiting import until

FRONTS = "relayer", "edge"
"""Clients come to the relayer itself, and to an edge before it."""
ALICE, BOB = wallet(1), wallet(1, 20).public
CONTRACT = b"\0" * 8 + b"\5\0" + b"swap" * 5 + b"\0\1"


async def get(world: Any, path: str, status: int = 200) -> Any:
    async with aiohttp.ClientSession(world.http) as http, http.get(path) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def post(world: Any, path: str, body: Any, status: int = 200) -> Any:
    async with aiohttp.ClientSession(world.http) as http, http.post(path, json=body) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_a_wallets_way(world: Any) -> None:
    """Relayers, prepare, sign, relay, follow: nothing else has to be known, each answer is the next step's input."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    known = await get(world, "/v1/relayers")
    assert (known["chainId"], known["profile"], known["shardRule"], known["shards"]) == (
        "local",
        "documented",
        "modulo",
        3,
    )
    assert [(item["shard"], item["address"], item["state"]) for item in known["relayers"]] == [
        (shard, address.encode(pair.public), "ready") for shard, pair in RELAYERS.items()
    ]
    wish = {"sender": address.encode(ALICE.public), "receiver": address.encode(BOB), "value": "5"}
    prepared = await post(world, "/v1/prepare", {"transaction": wish})
    assert prepared["sponsored"] and prepared["transaction"]["relayer"] == known["relayers"][1]["address"]
    tx = from_json(msgspec.convert(prepared["transaction"], TransactionJson))
    signed = msgspec.structs.replace(tx, signature=ALICE.sign(signing_message(tx)))
    relayed = await post(world, "/v1/relay", {"transactions": [as_json(signed)]})
    assert (relayed["action"], relayed["status"]) == ("relay", "completed")
    (entry,) = world.service.lifecycle.inflight.entries()
    assert str(entry.fee) == prepared["maxFee"]
    names = [*(item.hex() for item in early_hashes(signed)), relayed["hashes"][0]]
    for name in names:
        before = await get(world, f"/v1/transactions/{name}")
        assert (before["hash"], before["state"], before["sending"]) == (name, "pending", True)
    data = chain.final([entry.tx], accounts={ALICE.public: (1, 10**18)}).blockData
    for name in names:
        assert await get(world, f"/v1/transactions/{name}") == {
            "hash": name, "state": "success", "clientHash": names[0], "sdkHash": names[1], "chainHash": names[2],
            "sender": wish["sender"], "nonce": 0, "action": "relay", "payer": known["relayers"][1]["address"],
            "maxFee": prepared["maxFee"], "fee": str(50_000 * 10**9), "sending": False,
            "block": {"shard": 1, "nonce": 1, "hash": data.headerHash.hex(), "timestamp": data.timestampMs},
        }  # fmt: skip


async def test_relayers_of_a_service_without_keys(world: Any) -> None:
    """It has none, and says so; what would be sponsored is nothing, and the answer says for which shard."""
    await start(world, hub_url="", key_files=())
    known = await get(world, "/v1/relayers")
    assert known["relayers"] == [] and known["chainId"] == "local"
    wish = {"sender": address.encode(ALICE.public), "receiver": address.encode(BOB)}
    prepared = await post(world, "/v1/prepare", {"transaction": wish})
    assert not prepared["sponsored"] and prepared["reason"] == "invalid relayer address"
    assert prepared["detail"] == "this service has no relayer for shard 1"


async def test_relayers_say_who_cannot_pay(world: Any) -> None:
    """A paused shard is paused, a key without money short of funds, and the caps are those of the policy."""
    world.api.set(RELAYERS[0].public, 0, 0)
    await start(world, 'paused_shards = [2]\n[caps]\ngas_price = 3000000000\nfee = "70"', hub_url="")
    async with asyncio.timeout(10):  # until the chain API has told what the keys hold
        while (known := await get(world, "/v1/relayers"))["relayers"][0]["state"] != "short of funds":
            await asyncio.sleep(0.01)
    assert [item["state"] for item in known["relayers"]] == ["short of funds", "ready", "paused"]
    assert (known["caps"]["fee"], known["caps"]["gasPrice"]) == ("70", 3_000_000_000)
    assert {item["maxGasPrice"] for item in known["relayers"]} == {2_000_000_000}, "the floor, while nobody paid more"
    world.service.lifecycle.sponsor.untold = lambda shard: "no block" if shard == 1 else None
    assert [item["state"] for item in (await get(world, "/v1/relayers"))["relayers"]][1] == "not ready"
    assert known["gas"] == {
        "minGasPrice": 10**9, "minGasLimit": 50_000, "gasPerDataByte": 1_500, "extraGasRelayed": 50_000,
        "extraGasGuarded": 50_000,
    }  # fmt: skip


GUARDIAN = wallet(0, 30)
WISH = {"sender": address.encode(ALICE.public), "receiver": address.encode(BOB)}
DATA = base64.b64encode(b"12345678").decode()
FILLED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"gasLimit": 100_000, "nonce": 3, "gasPrice": 10**9}),
    ({"data": DATA}, {"gasLimit": 112_000, "data": DATA}),
    ({"gasLimit": 60_000}, {"gasLimit": 110_000}),
    ({"gasLimit": 110_000, "relayer": address.encode(RELAYERS[1].public)}, {"gasLimit": 110_000}),
    ({"guardian": address.encode(GUARDIAN.public)}, {"gasLimit": 150_000, "options": 2}),
    ({"guardian": address.encode(GUARDIAN.public), "options": 1}, {"gasLimit": 150_000, "options": 3}),
    ({"nonce": 3, "gasPrice": 2 * 10**9}, {"nonce": 3, "gasPrice": 2 * 10**9}),
]


@pytest.mark.parametrize(("known", "filled"), FILLED)
async def test_prepare_fills_in_what_a_wallet_leaves_out(
    world: Any, known: dict[str, Any], filled: dict[str, Any]
) -> None:
    """Nonce, gas and price are the service's where the wallet has none; what is signed so is accepted for that fee."""
    await start(world, hub_url="")
    world.api.set(ALICE.public, 3, 10**18)
    prepared = await post(world, "/v1/prepare", {"transaction": WISH | known})
    assert prepared["transaction"].items() >= filled.items() and prepared["extraGas"] == 50_000
    tx = from_json(msgspec.convert(prepared["transaction"], TransactionJson))
    signed = {"signature": ALICE.sign(signing_message(tx))}
    if tx.guardian:
        signed["guardian_signature"] = GUARDIAN.sign(signing_message(tx))
    assert await submit(world, msgspec.structs.replace(tx, **signed)) == ["ok"]
    assert str(entry_of(world, tx).fee) == prepared["maxFee"]
    again = await post(world, "/v1/prepare", {"transaction": WISH})
    assert again["transaction"]["nonce"] == 4, "behind what is in flight"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("", {"nonce": 2}, "nonce too low"),
    ("", {"nonce": 9}, "nonce too high"),
    ("", {"value": "2000000000000000000"}, "insufficient balance"),
    ("", {"value": "-1"}, "invalid value"),
    ("", {"receiver": address.encode(RELAYERS[0].public)}, "relayer key not allowed as sender, guardian or receiver"),
    ("", {"relayer": address.encode(RELAYERS[0].public)}, "invalid relayer address"),
    ("", {"gasLimit": 49_999}, "gas limit too low"),
    ("", {"gasPrice": 5 * 10**9}, "gas price too high"),
    ("", {"gasLimit": 10**4300 - 1}, "invalid gas limit"),
    ("", {"gasPrice": 2**64}, "invalid gas price"),
    ("", {"gasPrice": 10**4300 - 1}, "invalid gas price"),
    ("", {"nonce": 10**4300 - 1}, "invalid nonce"),
    ("", {"options": 2, "gasLimit": 200_000}, "invalid guardian"),
    ("paused_shards = [1]", {}, "shard paused"),
    ("[budget]\nper_minute = 5", {}, "budget exhausted"),
    ("[quotas]\nsender_per_hour = 5", {}, "quota exhausted"),
    (f'[lists]\ndeny_senders = ["{WISH["sender"]}"]', {}, "sender not allowed"),
]


@pytest.mark.parametrize(("rules", "asked", "reason"), REFUSED)
async def test_prepare_refuses_what_relay_would(world: Any, rules: str, asked: dict[str, Any], reason: str) -> None:
    """What would not be sponsored is said in the words that `relay` uses, for the same transaction signed."""
    await start(world, rules, hub_url="")
    world.api.set(ALICE.public, 3, 10**18)
    prepared = await post(world, "/v1/prepare", {"transaction": WISH | asked})
    assert not prepared["sponsored"] and prepared["reason"] == reason and prepared["code"] == reason_code(reason)
    assert "transaction" not in prepared and "until" not in prepared
    tx = {
        "nonce": 3, "value": "0", "gasPrice": 10**9, "gasLimit": 100_000, "chainID": "local", "version": 2,
        "relayer": address.encode(RELAYERS[1].public), "signature": "00" * 64,
    } | WISH | asked  # fmt: skip
    with contextlib.suppress(TransactionError):
        parsed = from_json(msgspec.convert(tx, TransactionJson))
        tx["signature"] = ALICE.sign(signing_message(parsed)).hex()
    assert await submit(world, tx) == [reason]


async def test_prepare_refuses_a_nonce_that_stays_taken(world: Any) -> None:
    """What was signed for it is not in flight any more, and no other is signed: a wallet hears so before it signs."""
    await start(world, hub_url="")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    (entry,) = world.service.lifecycle.inflight.entries()
    assert world.service.lifecycle.write_off(entry.client_hash)
    prepared = await post(world, "/v1/prepare", {"transaction": WISH})
    other = as_json(transfer(ALICE, gas_limit=200_000))
    relayed = await post(world, "/v1/relay", {"transactions": [other]})
    assert not prepared["sponsored"] and prepared["reason"] == "nonce too low"
    for word in ("reason", "code", "detail"):
        assert prepared[word] == relayed["failed"][0][word]


def reason_code(reason: str) -> str:
    return reason.replace(",", "").replace(" ", "_")


async def test_prepare_reserves_nothing(world: Any) -> None:
    """However often it is asked, there is as much for who submits; it counts as a submission in its address's rate."""
    fee = 100_000 * 10**9
    await start(world, f"[budget]\nper_minute = {fee}", hub_url="", submit_rate=0.001, submit_burst=100)
    for _ in range(100):
        assert (await post(world, "/v1/prepare", {"transaction": WISH}))["sponsored"]
    assert world.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0
    assert await submit(world, transfer(ALICE)) == ["ok"]
    limited = await post(world, "/v1/prepare", {"transaction": WISH}, 429)
    assert limited["error"].startswith("rate limit exceeded")


async def test_prepare_of_what_is_no_question(world: Any) -> None:
    """Bodies that are no question, and senders that are no address, get an error with what is wrong."""
    await start(world, hub_url="")
    for body in ({}, {"transaction": 5}, {"transaction": {"sender": "x"}}, {"transaction": WISH | {"nonce": -1}}):
        assert "error" in await post(world, "/v1/prepare", body, 400)
    wrong = await post(world, "/v1/prepare", {"transaction": WISH | {"sender": "erd1x"}}, 400)
    assert wrong["error"].startswith("invalid sender address: sender")


async def test_relay_that_waits_for_the_end(world: Any) -> None:
    """With `wait=final` the answer comes when all has ended, and says how; what is refused is not waited for."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    good, bad = transfer(ALICE), transfer(wallet(1, 4), receiver=CONTRACT, gas_limit=200_000)
    body = {"transactions": [as_json(good), as_json(bad), {}]}
    asking = asyncio.create_task(post(world, "/v1/relay?wait=final", body))
    await until(lambda: world.service.lifecycle.fates.waiters >= 2)
    signed = [entry.tx for entry in world.service.lifecycle.inflight.entries()]
    chain.final([signed[0]])
    assert not asking.done()
    chain.final([signed[1]], failing={chain_hash(signed[1]): "no"})
    reply = await asking
    ends = [(item["transaction"]["state"], item["transaction"].get("reason")) for item in reply["results"]]
    assert ends == [("success", None), ("fail", "execution failed: no")]
    assert [item["index"] for item in reply["failed"]] == [2] and reply["status"] == "partial"
    assert [item["transaction"]["block"]["nonce"] for item in reply["results"]] == [1, 2]
    again = await post(world, "/v1/relay?wait=final", {"transactions": [as_json(good)]})
    assert again["results"][0]["transaction"]["state"] == "success", "of what is over at once"
    assert world.service.lifecycle.fates.waiters == 0


async def until_waiting(world: Any, waiters: int) -> None:
    """Until so many wait for ends."""
    await until(lambda: world.service.lifecycle.fates.waiters == waiters)


async def test_relay_that_ends_unsigned(world: Any) -> None:
    """Who waits for what was accepted is told when it ends without a signature, and it can still be asked for."""
    await start(world, hub_url="", sign_wait=0)

    async def lost(_: list[bytes]) -> list[Any]:
        raise SignerError("lost")

    world.service.signer.sign = lost
    tx = transfer(ALICE)
    asking = asyncio.create_task(post(world, "/v1/relay?wait=final&timeout=60", {"transactions": [as_json(tx)]}))
    await until_waiting(world, 1)
    world.service.lifecycle.nonce_moved(ALICE.public, 1)
    async with asyncio.timeout(10):
        (result,) = (await asking)["results"]
    found = await get(world, f"/v1/transactions/{early_hashes(tx)[0].hex()}")
    for known in (result["transaction"], found):
        assert (known["state"], known["reason"], known["sending"]) == ("superseded", "nonce too low", False)


async def test_relay_of_a_client_that_hung_up(world: Any) -> None:
    """Its wait ends long before its timeout, and the room is another's."""
    await start(world, hub_url="")
    body = {"transactions": [as_json(transfer(ALICE))]}
    asking = asyncio.create_task(post(world, "/v1/relay?wait=final&timeout=60", body))
    await until_waiting(world, 1)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await until_waiting(world, 0)


async def test_relay_that_waits_no_longer(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout, or where too many wait, the answer says what is known; waits that are none are refused."""
    await start(world, hub_url="")
    for nonce, most in ((0, 1_000), (1, 0)):
        monkeypatch.setattr(fates, "MAX_WAITERS", most)
        body = {"transactions": [as_json(transfer(ALICE, nonce))]}
        wait = 0 if most else 60
        (result,) = (await post(world, f"/v1/relay?wait=final&timeout={wait}", body))["results"]
        assert (result["transaction"]["state"], result["transaction"]["sending"]) == ("pending", True)
    assert world.service.lifecycle.fates.waiters == 0
    for query in ("wait=long", "wait=final&timeout=61", "wait=final&timeout=-1", "timeout=x"):
        assert "invalid message" in (await post(world, f"/v1/relay?{query}", {"transactions": []}, 400))["error"]
    assert "transaction" not in (await post(world, "/v1/relay", body))["results"][0]


async def test_what_became_of_it_after_a_restart(world: Any) -> None:
    """What ended is known after a restart, by each hash, and what had not ended then is followed on."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    inside, across = transfer(ALICE), transfer(wallet(1, 4), receiver=wallet(2).public)
    assert await submit(world, inside, across) == ["ok", "ok"]
    signed = [entry.tx for entry in world.service.lifecycle.inflight.entries()]
    chain.final(signed)
    names = [chain_hash(tx).hex() for tx in signed]
    assert [(await get(world, f"/v1/transactions/{name}"))["state"] for name in names] == ["success", "included"]
    await world.stop()
    await start(world, hub_url="")
    for tx, state in zip(signed, ("success", "included"), strict=True):
        for name in (*early_hashes(tx), chain_hash(tx)):
            found = await get(world, f"/v1/transactions/{name.hex()}")
            assert (found["state"], found["block"]["nonce"]) == (state, 1)
    source, target = Chain(world, 1), Chain(world, 2)
    source.final([signed[1]])
    target.final([signed[1]])
    assert (await get(world, f"/v1/transactions/{names[1]}"))["state"] == "success"


async def test_what_is_not_known(world: Any) -> None:
    """A hash that nobody submitted is not known; one that is none is refused."""
    await start(world, hub_url="")
    assert (await get(world, f"/v1/transactions/{'00' * 32}", 404))["error"].startswith("transaction not known")
    for name in ("00" * 31, "0G" * 32, "AB" * 32):
        assert (await get(world, f"/v1/transactions/{name}", 400))["error"].startswith("invalid transaction hash")


async def test_what_was_not_executable_and_what_was_written_off(world: Any) -> None:
    """Ends that are none on the chain are told as such, and the same bytes sent again are pending again."""
    await start(world, hub_url="")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    (entry,) = world.service.lifecycle.inflight.entries()
    path = f"/v1/transactions/{entry.chain_hash.hex()}"
    chain = LaterChain(world.service.events, 1)
    chain.execute(chain.propose([entry.tx]))
    found = await get(world, path)
    assert (found["state"], found["reason"], found["sending"]) == ("fail", "not executable in block", False)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    assert (await get(world, path))["state"] == "pending"
    assert world.service.lifecycle.write_off(entry.client_hash)
    assert (await get(world, path))["state"] == "written off"
