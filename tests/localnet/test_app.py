"""The running chain: rounds by the clock, HTTP, node events over a socket, control."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from millrace.chain import outport
from millrace.chain.address import encode
from millrace.chain.headers import read_header
from millrace.chain.keys import KeyPair
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash, client_hash, signing_message, to_json
from millrace.dex import document
from millrace.localnet import app
from millrace.localnet.settings import NEVER, LocalnetSettings
from millrace.relayer.network.chain_api import ChainApi
from millrace.runtime import websocket
from millrace.system.ports import free_ports
from waiting import until

EGLD = 10**18


def key_in(shard: int, start: int = 0) -> KeyPair:
    """A wallet of a shard (last byte modulo 3)."""
    number = start
    while True:
        key = KeyPair.from_seed(number.to_bytes(32, "big"))
        if key.public[-1] % 3 == shard:
            return key
        number += 1


class Notifier:
    """Takes every event and acknowledges it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.changed = asyncio.Event()

    def session(self, request: websocket.Request) -> websocket.Session:
        """One node."""
        notifier = self

        class Session(websocket.Session):
            def on_message(self, kind: websocket.Kind, data: bytes) -> None:
                message = outport.decode_envelope(data)
                notifier.events.append((message.topic, outport.decode_payload(message.topic, message.payload)))
                self.send_binary(outport.ack_envelope(message.counter))
                notifier.changed.set()

        return Session()

    async def until(self, condition: Callable[[list[tuple[str, Any]]], bool]) -> None:
        """Wait until the events so far make the condition hold."""
        async with asyncio.timeout(10):
            while not condition(self.events):
                self.changed.clear()
                await self.changed.wait()

    def of(self, topic: str, shard: int) -> list[Any]:
        """The payloads of one topic and shard."""
        return [payload for name, payload in self.events if name == topic and payload.shardID == shard]


class Running:
    """A running chain, asked over HTTP."""

    def __init__(self, url: str, notifier: Notifier, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.notifier = notifier
        self.http = http

    async def get(self, path: str, status: int = 200) -> Any:
        """The body of an answer with this status."""
        async with self.http.get(self.url + path) as answer:
            body = await answer.json()
            assert answer.status == status, body
            return body

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        """The body of an answer with this status."""
        async with self.http.post(self.url + path, data=msgspec.json.encode(body)) as answer:
            reply = await answer.json()
            assert answer.status == status, reply
            return reply

    async def settled(self, tx_hash: bytes) -> Any:
        """A transaction once it is no longer pending."""
        async with asyncio.timeout(10):
            while (found := await self.get(f"/transactions/{tx_hash.hex()}"))["status"] == "pending":
                await asyncio.sleep(0.02)
        return found


RELAYER = key_in(0, 1000)


def pools(block: pb.OutportBlock) -> list[Any]:
    """The transactions that a block tells as executed: at its top or in its results."""
    return [
        pool.transactions
        for pool in (block.transactionPool, *(r.transactionPool for r in block.blockData.results.values()))
    ]


@pytest.fixture(params=[NEVER, 0], ids=["earlier", "present"])
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """A small chain with fast rounds and two observers per shard, without gossip and traders, in either format."""
    notifier = Notifier()
    server = await websocket.serve(notifier.session, "127.0.0.1", 0, max_message_size=1 << 24)
    port = free_ports(1)[0]
    settings = LocalnetSettings(
        port=port,
        pools=30,
        tokens=12,
        round_ms=40,
        traders_per_second=0,
        gossip=False,
        observers_per_shard=2,
        notifier_url=f"ws://127.0.0.1:{server.port}/save",
        retry_seconds=0.02,
        relayers=(encode(RELAYER.public),),
        supernova_epoch=request.param,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(app.run(settings, stop))
    async with aiohttp.ClientSession() as http:
        chain = Running(f"http://127.0.0.1:{port}", notifier, http)
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    await chain.get("/health")
                    break
                await asyncio.sleep(0.02)
        yield chain
    stop.set()
    await asyncio.wait_for(task, 10)
    await server.close(grace=0.1)


def signed(key: KeyPair, **fields: Any) -> Transaction:
    """A transaction, co-signed if it names the relayer."""
    draft = Transaction(
        **(
            {
                "nonce": 0,
                "value": 0,
                "gas_price": 10**9,
                "gas_limit": 100_000,
                "chain_id": "local",
                "sender": key.public,
            }
            | fields
        )
    )
    message = signing_message(draft)
    return msgspec.structs.replace(
        draft,
        signature=key.sign(message),
        relayer_signature=RELAYER.sign(message) if draft.relayer else b"",
    )


async def test_each_notifier_is_told_everything() -> None:
    """A chain with two notifiers has connections of its own to each of them."""
    several = [Notifier(), Notifier()]
    servers = [await websocket.serve(each.session, "127.0.0.1", 0, max_message_size=1 << 24) for each in several]
    urls = [f"ws://127.0.0.1:{server.port}/save" for server in servers]
    settings = LocalnetSettings(
        port=free_ports(1)[0], pools=10, tokens=10, round_ms=40, traders_per_second=0, gossip=False, retry_seconds=0.02,
        notifier_url=urls[0], more_notifier_urls=tuple(urls[1:]),
    )  # fmt: skip
    stop = asyncio.Event()
    task = asyncio.create_task(app.run(settings, stop))
    try:
        await until(lambda: all(len(each.of("SaveBlock", 0)) >= 3 for each in several))
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)
        for server in servers:
            await server.close(grace=0.1)
    one, two = ([block.SerializeToString() for block in each.of("SaveBlock", 0)[:3]] for each in several)
    assert one == two


async def test_a_relayed_transfer_from_faucet_to_status(running: Running) -> None:
    """Faucet, submission, status by both hashes, accounts, and the block's events at the notifier."""
    key, other = key_in(0), key_in(2)
    address = encode(key.public)
    granted = await running.post("/faucet", {"address": address, "token": "EGLD", "amount": str(EGLD)})
    assert granted["amount"] == str(EGLD)
    assert (await running.get(f"/accounts/{address}"))["balance"] == str(EGLD)
    tx = signed(key, receiver=other.public, value=5, relayer=RELAYER.public)
    reply = await running.post("/transactions", to_json(tx), 201)
    assert reply["txHash"] == chain_hash(tx).hex() and (reply["senderShard"], reply["receiverShard"]) == (0, 2)
    found = await running.settled(chain_hash(tx))
    assert (found["status"], found["isRelayed"], found["clientHash"]) == ("success", True, client_hash(tx).hex())
    assert (await running.get(f"/transactions/{client_hash(tx).hex()}"))["txHash"] == chain_hash(tx).hex()
    account = await running.get(f"/accounts/{address}")
    assert (account["balance"], account["nonce"], account["shard"]) == (str(EGLD - 5), 1, 0)
    assert (await running.get(f"/accounts/{encode(other.public)}"))["balance"] == "5"
    wanted = chain_hash(tx).hex()
    await running.notifier.until(
        lambda events: (
            {p.shardID for t, p in events if t == "SaveBlock" and any(wanted in pool for pool in pools(p))} == {0, 2}
        )
    )


async def test_tokens_from_the_faucet_reach_every_shard(running: Running) -> None:
    """The answer comes when the account has them, also where the contracts are not."""
    for shard in range(3):
        address = encode(key_in(shard).public)
        await running.post("/faucet", {"address": address, "token": "WEGLD-bd4d79", "amount": "77"})
        (token,) = await running.get(f"/accounts/{address}/tokens")
        assert (token["identifier"], token["decimals"], token["balance"]) == ("WEGLD-bd4d79", 18, "77")


async def test_errors_have_the_api_shape(running: Running) -> None:
    """Unknown and impossible requests are answered with statusCode, message and error."""
    missing = {"statusCode": 404, "message": "Transaction not found", "error": "Not Found"}
    assert await running.get("/transactions/" + "00" * 32, 404) == missing
    assert await running.get("/transactions/zz", 404) == missing
    assert (await running.get("/accounts/erd1nonsense", 400))["statusCode"] == 400
    for body in (b"{", b"[]", b'{"nonce":1}', b"\xff", b"[" * 100_000):
        async with running.http.post(running.url + "/transactions", data=body) as answer:
            assert answer.status == 400
    tx = signed(key_in(0), receiver=key_in(0).public)
    assert "insufficient funds" in (await running.post("/transactions", to_json(tx), 400))["message"]
    bad = msgspec.structs.replace(tx, nonce=1)
    assert "invalid signature" in (await running.post("/transactions", to_json(bad), 400))["message"]
    for grant in (
        {"address": "x", "token": "EGLD", "amount": "1"},
        {"address": encode(key_in(0).public), "token": "NOPE-123456", "amount": "1"},
        {"address": encode(key_in(0).public), "token": "EGLD", "amount": "-1"},
        {"address": encode(key_in(0).public)},
        *({"address": encode(bytes(31) + bytes([shard])), "token": "EGLD", "amount": "1"} for shard in range(3)),
    ):
        assert (await running.post("/faucet", grant, 400))["error"] == "Bad Request"


async def test_the_pool_document_decodes_and_follows_the_blocks(running: Running) -> None:
    """`/pools` is a whole document of the newest block of the contracts' shard."""
    async with running.http.get(running.url + "/pools") as answer:
        first = document.decode(await answer.read())
    assert len(first.pools) == 30
    await running.notifier.until(lambda events: len(running.notifier.of("SaveBlock", 1)) > 12)
    async with running.http.get(running.url + "/pools") as answer:
        assert document.decode(await answer.read()).block.nonce > first.block.nonce


async def test_every_observer_tells_the_start_and_then_every_block(running: Running) -> None:
    """Keys, ratings and genesis accounts first; then each block of each shard from both observers."""
    meta = 0xFFFFFFFF
    await running.notifier.until(lambda events: len(running.notifier.of("SaveBlock", meta)) >= 6)
    notifier = running.notifier
    assert len(notifier.of("SaveValidatorsPubKeys", meta)) == 2
    assert {shard for shard in range(3) if len(notifier.of("SaveAccounts", shard)) == 2} == {0, 1, 2}
    assert any(encode(RELAYER.public) in accounts.alteredAccounts for accounts in notifier.of("SaveAccounts", 0))
    hashes = [block.blockData.headerHash for block in notifier.of("SaveBlock", 0)]
    assert len(hashes) - len(set(hashes)) >= len(hashes) // 2 - 2
    final = {event.headerHash for event in notifier.of("FinalizedBlock", 0)}
    assert set(hashes) <= final | {hashes[-1]}


async def test_revert_over_http(running: Running) -> None:
    """Late finality, then a revert: RevertIndexedBlock newest first, then the same nonces under other hashes."""
    await running.post("/control/finality", {"delayRounds": 20})
    notifier = running.notifier
    count = len(notifier.of("SaveBlock", 1))
    await notifier.until(lambda events: len(notifier.of("SaveBlock", 1)) >= count + 8)
    answer = await running.post("/control/revert", {"shard": 1, "depth": 2})
    assert answer["reverted"] == 2
    await notifier.until(lambda events: len(notifier.of("RevertIndexedBlock", 1)) >= 4)
    nonces = [_nonce(data) for data in notifier.of("RevertIndexedBlock", 1)]
    top = answer["blockNonce"] + 2
    assert sorted(nonces, reverse=True) == [top, top, top - 1, top - 1] and nonces[0] == top
    await notifier.until(lambda events: len(_hashes(notifier, top)) == 2)
    assert "not final" in (await running.post("/control/revert", {"shard": 1, "depth": 500}, 400))["message"]


def _nonce(data: pb.BlockData) -> int:
    header = read_header(data)
    assert header is not None
    return header.nonce


def _hashes(notifier: Notifier, nonce: int) -> set[bytes]:
    return {block.blockData.headerHash for block in notifier.of("SaveBlock", 1) if _nonce(block.blockData) == nonce}


async def test_other_controls(running: Running) -> None:
    """Stop and start a shard, break and double an observer's words, quiet the traders; nonsense is refused."""
    notifier = running.notifier
    await running.post("/control/stop", {"shard": 2})
    stopped = (await running.get("/health"))["blocks"]["2"]
    others = len(notifier.of("SaveBlock", 0))
    await notifier.until(lambda events: len(notifier.of("SaveBlock", 0)) >= others + 8)
    assert (await running.get("/health"))["blocks"]["2"] == stopped
    await running.post("/control/start", {"shard": 2})
    await running.post("/control/disconnect", {"shard": 0, "observer": 1})
    await running.post("/control/duplicate", {"shard": 0, "observer": 0})
    before = len(notifier.of("SaveBlock", 2))
    await notifier.until(lambda events: len(notifier.of("SaveBlock", 2)) >= before + 4)
    quiet = await running.post("/control/traders", {"enabled": False})
    assert quiet["blockNonce"] <= (await running.get("/health"))["blocks"]["1"]
    for action, body in (
        ("stop", {"shard": 7}),
        ("stop", {}),
        ("finality", {"delayRounds": -1}),
        ("finality", {"delayRounds": 10**9}),
        ("traders", {"enabled": "no"}),
        ("execution", {"shard": 0}),
        ("execution", {"shard": 7, "enabled": False}),
        ("disconnect", {"shard": 0, "observer": 5}),
        ("revert", []),
    ):
        assert (await running.post(f"/control/{action}", body, 400))["statusCode"] == 400
    assert (await running.post("/control/nonsense", {}, 404))["statusCode"] == 404


async def test_the_network_says_which_format_and_how_far(running: Running) -> None:
    """Change-over epoch and round length; where blocks are executed later, the two nonces and milliseconds."""
    notifier = running.notifier
    await notifier.until(lambda events: len(notifier.of("SaveBlock", 0xFFFFFFFF)) >= 6)
    epochs = (await running.get("/network/enable-epochs"))["data"]["enableEpochs"]
    present = epochs["erd_supernova_enable_epoch"] == 0
    by_name = (await running.get("/network/enable-epochs-v2"))["data"]["enableEpochs"]
    assert by_name == {"SupernovaEnableEpoch": epochs["erd_supernova_enable_epoch"]}
    first = (await running.get("/network/enable-rounds"))["data"]["enableRounds"]["SupernovaEnableRound"]
    config = (await running.get("/network/config"))["data"]["config"]
    assert first == 0 if present else first > config["erd_rounds_per_epoch"]
    assert config["erd_round_duration"] == 40
    for shard in (0, 4294967295):
        status = (await running.get(f"/network/status/{shard}"))["data"]["status"]
        if present:
            assert status["erd_block_timestamp"] == status["erd_block_timestamp_ms"]
            assert status["erd_last_executed_nonce"] <= status["erd_proposed_nonce"] == status["erd_nonce"]
        else:
            assert status["erd_block_timestamp"] == status["erd_block_timestamp_ms"] // 1000
            assert "erd_proposed_nonce" not in status


async def test_execution_is_paused_and_resumed_over_http(running: Running) -> None:
    """Paused, an account stays as it was while its virtual nonce goes on; in the earlier format nothing waits."""
    present = (await running.get("/network/enable-epochs"))["data"]["enableEpochs"]["erd_supernova_enable_epoch"] == 0
    key = key_in(1)
    address = encode(key.public)
    await running.post("/faucet", {"address": address, "token": "EGLD", "amount": str(EGLD)})
    paused = await running.post("/control/execution", {"shard": 1, "enabled": False})
    assert paused["enabled"] is False
    tx = signed(key, receiver=key.public, value=5)
    await running.post("/transactions", to_json(tx), 201)
    async with asyncio.timeout(10):
        while (await _virtual_nonce(running, address)) != 1:
            await asyncio.sleep(0.02)
    account = await running.get(f"/accounts/{address}")
    assert account["nonce"] == (0 if present else 1)
    health = await running.get("/health")
    assert (health["executed"]["1"] == paused["executedNonce"]) == present
    assert health["executed"]["0"] <= health["blocks"]["0"]
    if present:
        assert (await running.get(f"/transactions/{chain_hash(tx).hex()}"))["status"] == "pending"
    await running.post("/control/execution", {"shard": 1, "enabled": True})
    assert (await running.settled(chain_hash(tx)))["status"] == "success"
    assert (await running.get(f"/accounts/{address}"))["nonce"] == 1
    assert (await running.get("/transaction/pool/nonsense/virtual-nonce", 400))["statusCode"] == 400


async def _virtual_nonce(running: Running, address: str) -> int:
    answer = await running.get(f"/transaction/pool/{address}/virtual-nonce")
    return int(answer["data"]["virtualNonce"])


async def test_a_simulation_over_http(running: Running) -> None:
    """What would come of a transaction, in one shard or in two; nobody hears of it afterwards."""
    key = key_in(0)
    await running.post("/faucet", {"address": encode(key.public), "token": "EGLD", "amount": str(EGLD)})
    near, far = (signed(key, receiver=key_in(shard, 50).public, relayer=RELAYER.public) for shard in (0, 1))
    unsigned = msgspec.structs.replace(near, relayer_signature=b"")
    path = "/transaction/simulate?checkSignature=false"
    assert (await running.post(path, to_json(unsigned)))["data"]["result"]["status"] == "success"
    both = (await running.post(path, to_json(far)))["data"]["result"]
    assert [both[name]["status"] for name in ("senderShard", "receiverShard")] == ["success", "success"]
    broke = signed(key, receiver=key_in(0, 50).public, value=2 * EGLD, relayer=RELAYER.public)
    result = (await running.post(path, to_json(broke)))["data"]["result"]
    assert (result["status"], result["failReason"]) == ("fail", "insufficient funds")
    api = ChainApi(running.url, 5.0)
    assert [await api.simulate(tx) for tx in (unsigned, far, broke)] == [True, True, False], "as a relayer reads it"
    await api.close()
    refused = (await running.post("/transaction/simulate", to_json(unsigned)))["data"]["result"]
    assert refused["status"] == "fail" and refused["failReason"] == "invalid relayed transaction"
    await running.get(f"/transactions/{chain_hash(near).hex()}", 404)


async def test_an_account_with_its_block(running: Running) -> None:
    """A gateway's question tells an account together with the block that was executed last, by height and hash."""
    address = encode(key_in(1).public)
    await running.post("/faucet", {"address": address, "token": "EGLD", "amount": "5"})
    account = await running.get(f"/accounts/{address}")
    data = (await running.get(f"/address/{address}"))["data"]
    assert (data["account"]["balance"], data["account"]["nonce"]) == (account["balance"], account["nonce"])
    executed = (await running.get("/health"))["executed"]["1"]
    assert 0 < data["blockInfo"]["nonce"] <= executed and len(bytes.fromhex(data["blockInfo"]["hash"])) == 32
    assert (await running.get("/address/nonsense", 400))["statusCode"] == 400


async def test_a_transaction_is_simulated_as_a_gateway_does(running: Running) -> None:
    """In its shard, across shards, unsigned or not; with its cost; and the chain is as it was."""
    sender, near, far = key_in(0), key_in(0, 400), key_in(1)
    await running.post("/faucet", {"address": encode(sender.public), "token": "EGLD", "amount": str(EGLD)})
    query = "/transaction/simulate?checkSignature=false"
    for receiver, fields in ((near, {"status"}), (far, {"senderShard", "receiverShard"})):
        body = msgspec.to_builtins(to_json(signed(sender, receiver=receiver.public, value=5)))
        for path, asked in ((query, body | {"signature": "00" * 64}), ("/transaction/simulate", body)):
            result = (await running.post(path, asked))["data"]["result"]
            assert fields <= result.keys()
            assert result.get("receiverShard", result)["status"] == "success"
    answer = await running.post("/transaction/simulate", body | {"signature": "00" * 64})
    assert answer["data"]["result"]["failReason"] == "ed25519: invalid signature"
    answer = await running.post("/transaction/cost", body | {"gasLimit": 0})
    assert answer["data"] == {"txGasUnits": 50_000, "returnMessage": ""}
    await running.post("/transaction/cost", {"nonce": 1}, 400)
    assert (await running.get(f"/accounts/{encode(sender.public)}"))["nonce"] == 0
