"""The public interface, table by table and row by row, through a running relayer's sockets.

Rows that need more than one exchange have their tests elsewhere, named after the row: limits in test_ws.py, states of a
subscription in test_subscriptions.py, permutations of block events in test_tracker.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import NETWORK, RELAYERS, BlockMaker, as_json, connected, sign, transfer, wallet

from millrace.chain import address
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import TransactionJson, chain_hash, client_hash, from_json
from millrace.relayer.gateway import limits, subscriptions
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.statistics import gas, streams

FRONTS = "relayer", "edge", "sharing"
"""Clients come to the relayer itself, and to an edge before it."""
ALICE, BOB = wallet(1), wallet(1, 3)


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in as_json(transfer(ALICE)).items() if name != field}


SUBMISSION_REASONS: dict[str, Callable[[], dict[str, Any]]] = {
    "invalid relayer address": lambda: as_json(sign(transfer(ALICE), ALICE, relayer=RELAYERS[2].public)),
    "relayer field missing": lambda: without("relayer"),
    "invalid user signature": lambda: (
        as_json(transfer(ALICE, relayed=False)) | {"relayer": address.encode(RELAYERS[1].public)}
    ),
    "invalid signature": lambda: as_json(transfer(ALICE)) | {"signature": "00" * 64},
    "nonce too low": lambda: as_json(transfer(ALICE, 4)),
    "nonce too high": lambda: as_json(transfer(ALICE, 6)),
    "invalid nonce": lambda: as_json(transfer(ALICE)) | {"nonce": -1},
    "insufficient balance": lambda: as_json(sign(transfer(ALICE, 5), ALICE, value=1001)),
}


@pytest.mark.parametrize("reason", SUBMISSION_REASONS)
async def test_table_relayer_submission_reasons(world: Any, reason: str) -> None:
    """Each cause has its reason, word for word, in `failed`, with its code; the whole request is `failed`."""
    await world.start()
    world.api.set(ALICE.public, 5, 1000)
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", requestId="r", tx=SUBMISSION_REASONS[reason]())
    assert (reply["action"], reply["status"], reply["requestId"], reply["hashes"]) == ("relay", "failed", "r", [])
    (failed,) = reply["failed"]
    assert (failed["index"], failed["reason"], failed["code"]) == (0, reason, reason.replace(" ", "_"))


REQUIRED = {
    "nonce": "invalid nonce", "value": "invalid value", "receiver": "invalid receiver address",
    "sender": "invalid sender address", "gasPrice": "invalid gas price", "gasLimit": "invalid gas limit",
    "chainID": "invalid chain id", "version": "invalid transaction version", "signature": "invalid signature",
    "relayer": "relayer field missing",
}  # fmt: skip


@pytest.mark.parametrize("field", REQUIRED)
async def test_table_transaction_object_required(world: Any, field: str) -> None:
    """A transaction to relay without a required field is refused by the reason of that field."""
    await world.start()
    async with connected(world.ws) as client:
        (failed,) = (await client.ask(action="relay", tx=without(field)))["failed"]
    assert failed["reason"] == REQUIRED[field]


@pytest.mark.parametrize("field", ["data", "options", "guardian", "guardianSignature"])
async def test_table_transaction_object_not_required(world: Any, field: str) -> None:
    """Without the other fields a transaction is taken."""
    await world.start()
    async with connected(world.ws) as client:
        assert (await client.ask(action="relay", tx=without(field)))["status"] == "completed"


@pytest.mark.parametrize("action", ["relay", "broadcast"])
async def test_table_submission_response(world: Any, action: str) -> None:
    """completed, partial and failed; echoed requestId; hashes of what was sent; index and reason of what failed."""
    await world.start()
    relayed = action == "relay"
    good = [as_json(transfer(ALICE, nonce, relayed=relayed)) for nonce in range(2)]
    bad = as_json(transfer(BOB, relayed=relayed)) | {"signature": "00" * 64}
    async with connected(world.ws) as client:
        single = await client.ask(action=action, requestId="1", tx=good[0])
        batch = await client.ask(action=action, requestId="2", txs=[bad, good[1]])
        none = await client.ask(action=action, requestId="3", txs=[bad, bad])
    assert [reply["action"] for reply in (single, batch, none)] == [action] * 3
    assert [reply["requestId"] for reply in (single, batch, none)] == ["1", "2", "3"]
    assert [reply["status"] for reply in (single, batch, none)] == ["completed", "partial", "failed"]
    assert [len(reply["hashes"]) for reply in (single, batch, none)] == [1, 1, 0]
    assert [item["index"] for item in batch["failed"]] == [0] and [item["index"] for item in none["failed"]] == [0, 1]
    assert all(len(bytes.fromhex(name)) == 32 for name in single["hashes"])


async def test_table_transaction_object_minimum_gas_price(world: Any) -> None:
    """A gas price of 1000000000 is taken, one less is not."""
    await world.start()
    async with connected(world.ws) as client:
        low = sign(transfer(ALICE), ALICE, gas_price=10**9 - 1)
        assert (await client.ask(action="relay", tx=as_json(low)))["failed"][0]["reason"] == "gas price too low"
        assert (await client.ask(action="relay", tx=as_json(transfer(ALICE))))["status"] == "completed"


def test_table_limits() -> None:
    """The documented values, as defaults and constants."""
    settings = RelayerSettings()
    assert NETWORK.gas.min_gas_price == 1_000_000_000
    assert (settings.max_topics, settings.max_control_messages, limits.CONTROL_WINDOW) == (64, 64, 5.0)
    assert (settings.max_message_bytes, settings.ping_interval) == (4 * 1024 * 1024, 30.0)
    assert (streams.GAS_SECONDS, streams.NETWORK_SECONDS) == (0.05, 0.25)
    assert (gas.WINDOW_SECONDS, gas.BUCKET_SECONDS) == (1800.0, 10.0)
    assert subscriptions.STATUS_SECONDS == 60.0
    assert settings.max_batch == 100 and settings.pong_timeout == 20.0 and settings.max_nonce_gap == 0


@pytest.mark.parametrize(("words", "status"), [("", "success"), ("wrong number", "fail")])
async def test_table_status_as_seen_on_chain(world: Any, words: str, status: str) -> None:
    """pending → success, pending → fail: one tx-status with hash and status, and on failure `execution failed`."""
    await world.start()
    tx = transfer(ALICE, relayed=False)
    name = chain_hash(tx)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{name.hex()}")
        world.hub.save(BlockMaker(1).block([tx], failing={name: words} if words else None))
        push = await client.push()
    assert push["type"] == "tx-status" and push["data"]["hash"] == name.hex() and push["data"]["status"] == status
    assert ("execution failed" in push["data"].get("reason", "")) == bool(words)


async def test_decision_n3_both_hashes(world: Any) -> None:
    """Both hashes of a relayed transaction are topics; `hash` is the one subscribed to, `chainHash` the other."""
    await world.start()
    tx = transfer(ALICE)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{client_hash(tx).hex()}")
        reply = await client.ask(action="relay", tx=as_json(tx))
        (result,) = reply["results"]
        assert (result["hash"], result["clientHash"]) == (reply["hashes"][0], client_hash(tx).hex())
        assert result["index"] == 0 and len(bytes.fromhex(result["relayerSignature"])) == 64
        (sent,) = await world.api.wait_submitted(1)
        whole = from_json(msgspec.convert(sent, TransactionJson))
        assert chain_hash(whole).hex() == result["hash"] and whole.relayer_signature.hex() == result["relayerSignature"]
        world.hub.save(BlockMaker(1).block([whole]))
        data = (await client.push())["data"]
        assert data == {"hash": result["clientHash"], "status": "success", "chainHash": result["hash"]}


async def test_decision_n4_in_flight_counts(world: Any) -> None:
    """The expected nonce is the account's plus what is in flight, from earlier messages and the same batch."""
    await world.start()
    world.api.set(ALICE.public, 7, 10**18)
    async with connected(world.ws) as client:
        assert (await client.ask(action="relay", tx=as_json(transfer(ALICE, 7))))["status"] == "completed"
        batch = [as_json(transfer(ALICE, nonce)) for nonce in (8, 9, 11)]
        reply = await client.ask(action="relay", txs=batch)
        assert [(item["index"], item["reason"]) for item in reply["failed"]] == [(2, "nonce too high")]


async def test_table_topics_address(world: Any) -> None:
    """An account's balance and nonce come after the final block that changed it, with its shard and the block."""
    await world.start()
    text = address.encode(ALICE.public)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{text}")
        block = BlockMaker(1).block(accounts={ALICE.public: (3, 77)})
        world.hub.save(block)
        push = await client.push()
    assert push["type"] == "accountDelta"
    data = push["data"]
    assert (data["address"], data["nonce"], data["balances"]["EGLD"], data["shardId"]) == (text, 3, "77", 1)
    assert data["blockHash"] == block.blockData.headerHash.hex()
    assert data["blockNonce"] == 1


async def test_table_gas_stats(world: Any) -> None:
    """`type`, `data.shard` and the three percentiles, for each shard."""
    await world.start()
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="gasStats")
        messages = [await client.push() for _ in range(3)]
    assert {message["type"] for message in messages} == {"gasStats"}
    assert [message["data"]["shard"] for message in messages] == [0, 1, 2]
    assert all(set(message["data"]["gasPrice"]["percentiles"]) == {"p50", "p75", "p90"} for message in messages)


NUMBER, TEXT = (int, float), str
NETWORK_STATS = {
    "network": {
        "currentTps": NUMBER, "avgTps10s": NUMBER, "avgTps30s": NUMBER, "connectedPeers": NUMBER,
        "activeValidators": NUMBER, "wsLagMs": NUMBER,
    },
    "blocks": {
        "latestShard": {
            "shardId": NUMBER, "nonce": NUMBER, "round": NUMBER, "epoch": NUMBER, "txCount": NUMBER,
            "executedTxCount": NUMBER, "timestampMs": NUMBER, "leaderSignatureHex": TEXT, "accumulatedFees": TEXT,
            "developerFees": TEXT,
        },
        "latestMeta": {
            "nonce": NUMBER, "round": NUMBER, "epoch": NUMBER, "txCount": NUMBER, "executedTxCount": NUMBER,
            "timestampMs": NUMBER,
        },
        "blockTimeMsP50ByShard": {"0": NUMBER, "1": NUMBER, "2": NUMBER},
        "nonceGapEvents1m": NUMBER, "duplicateNonceEvents1m": NUMBER,
    },
    "mempool": {"estimatedQueue": NUMBER, "ingressTps": NUMBER, "inclusionTps": NUMBER, "pressure": NUMBER},
    "validators": {
        "onlineByShard": {"0": NUMBER, "1": NUMBER, "2": NUMBER, "meta": NUMBER}, "totalOnline": NUMBER,
        "heartbeatRatePerSec": NUMBER,
    },
    "health": {"p2pDedupRatio1m": NUMBER, "streamSubscribers": NUMBER, "dataCompleteness": NUMBER},
}  # fmt: skip


def leaves(shape: Any, path: str = "") -> dict[str, Any]:
    """Every field down to its value, by its path."""
    if not isinstance(shape, dict):
        return {path: shape}
    return {name: value for key, part in shape.items() for name, value in leaves(part, f"{path}.{key}").items()}


async def test_table_network_stats(world: Any) -> None:
    """Every documented field, of its type or null; in schema 1.1.0; completeness is the share that is known."""
    await world.start()
    makers = [BlockMaker(shard) for shard in range(3)]
    async with connected(world.ws + "/stats") as stats:
        nothing = await stats.next()
        for _ in range(2):
            for maker in makers:
                world.hub.save(maker.block())
        world.hub.save(meta_block())
        while (message := await stats.next())["data"]["blocks"]["latestMeta"]["nonce"] is None:
            pass
    assert set(message) == {"type", "schemaVersion", "sequence", "ts", "data"}
    assert (message["type"], message["schemaVersion"]) == ("networkStats", "1.1.0")
    assert message["sequence"] > nothing["sequence"] and message["ts"] >= nothing["ts"] > 1_600_000_000_000
    wanted, found = leaves(NETWORK_STATS), leaves(message["data"])
    assert found.keys() == wanted.keys()
    assert [path for path, value in found.items() if value is not None and not isinstance(value, wanted[path])] == []
    unknown = {path for path, value in found.items() if value is None}
    assert not any(path.startswith((".blocks", ".mempool")) for path in unknown)
    assert unknown == {
        ".network.connectedPeers", ".network.activeValidators", ".validators.onlineByShard.0",
        ".validators.onlineByShard.1", ".validators.onlineByShard.2", ".validators.onlineByShard.meta",
        ".validators.totalOnline", ".validators.heartbeatRatePerSec", ".health.p2pDedupRatio1m",
    }  # fmt: skip
    known = len(found) - len(unknown)
    assert message["data"]["health"]["dataCompleteness"] == pytest.approx(known / len(found), abs=0.02)


def meta_block() -> pb.OutportBlock:
    """A block of the metachain."""
    message = pb.OutportBlock(shardID=METACHAIN)
    data = message.blockData
    data.shardID, data.headerHash, data.headerType = METACHAIN, b"\xff" * 32, "MetaBlock"
    data.headerBytes = pb.MetaBlock(nonce=9, round=9, epoch=1, timeStamp=1_700_000_000, txCount=0).SerializeToString()
    data.timestampMs = 1_700_000_000_000
    return message


async def test_table_rest(world: Any) -> None:
    """The three paths with their methods: signed and not sent, sent, and the history as points."""
    await world.start()
    async with aiohttp.ClientSession(base_url=world.http) as session:
        async with session.post("/v1/sign", json={"transactions": [as_json(transfer(ALICE))]}) as answer:
            signed = await answer.json()
        assert len(signed["transactions"][0]["relayerSignature"]) == 128 and world.api.submitted == []
        async with session.post("/v1/broadcast", json={"transactions": signed["transactions"]}) as answer:
            assert (await answer.json())["status"] == "completed"
        assert (await world.api.wait_submitted(1))[0]["relayerSignature"] == signed["transactions"][0][
            "relayerSignature"
        ]
        async with session.get("/v1/network-stats/history", params={"resolution": "1"}) as answer:
            history = await answer.json()
        assert history["resolution"] == 1 and isinstance(history["points"], list)
        async with session.get("/v1/network-stats/blocks", params={"after": "1"}) as answer:
            assert await answer.json() == {"blocks": {"0": [], "1": [], "2": [], "meta": []}}
        async with session.get("/v1/network-stats/blocks", params={"after": "-1"}) as answer:
            assert answer.status == 400 and await answer.json() == {"error": "after: expected unsigned integer"}
        for path in ("/v1/sign", "/v1/broadcast"):
            async with session.get(path) as answer:
                assert answer.status == 405 and set(await answer.json()) == {"error"}


async def test_decision_r1_acknowledgements_and_errors(world: Any) -> None:
    """Replies carry action and status, pushes carry type; requestId comes back in every reply to one that had it."""
    await world.start()
    async with connected(world.ws) as client:
        done = await client.ask(action="subscribe", topic="gasStats", requestId="a")
        assert done == {"action": "subscribe", "status": "ok", "topic": "gasStats", "requestId": "a"}
        assert "type" in await client.push()
        refused = await client.ask(action="subscribe", topic="x", requestId="b")
        assert (refused["action"], refused["status"], refused["requestId"]) == ("subscribe", "fail", "b")
        assert refused["reason"] == "unknown topic" and refused["code"] == "unknown_topic"
        assert "requestId" not in await client.ask(action="unsubscribe", topic="gasStats")


async def test_decision_r5_never_sign(world: Any) -> None:
    """A relayer key as sender or receiver, and a relayed call within a relayed one, are refused."""
    await world.start()
    own = RELAYERS[1]
    async with connected(world.ws) as client:
        for tx in (transfer(own), transfer(ALICE, receiver=RELAYERS[2].public)):
            (failed,) = (await client.ask(action="relay", tx=as_json(tx)))["failed"]
            assert failed["reason"] == "relayer key not allowed as sender, guardian or receiver"
        nested = transfer(ALICE, data=b"relayedTx@00", gas_limit=200_000)
        (failed,) = (await client.ask(action="relay", tx=as_json(nested)))["failed"]
        assert failed["reason"] == "nested relayed transaction"
    await asyncio.sleep(0)
    assert world.api.submitted == []


async def test_decision_r7_batches(world: Any) -> None:
    """A hundred transactions are taken, each reported by itself; a hundred and one are refused as a whole."""
    await world.start()
    async with connected(world.ws) as client:
        batch = [as_json(transfer(ALICE, nonce)) for nonce in range(100)]
        reply = await client.ask(action="relay", txs=batch)
        assert len(reply["hashes"]) == 100 and [item["index"] for item in reply["results"]] == list(range(100))
        assert (await client.ask(action="relay", txs=[*batch, batch[0]]))["reason"] == "batch too large"
