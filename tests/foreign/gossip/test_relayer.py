"""A running relayer and js-libp2p peers on one network: they decode what it publishes, it counts what they send.

Needs npm; see test_js_peer.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from millrace.chain.fees import GasSchedule
from millrace.chain.gossip import Heartbeat, wrap_heartbeat, wrap_transactions
from millrace.chain.keys import KeyPair
from millrace.chain.network import profile
from millrace.chain.transaction import Transaction, signing_message, to_json, to_proto
from millrace.gossip.settings import KAD_PROTOCOLS
from millrace.relayer.journal import identity
from millrace.system.ports import free_ports

if TYPE_CHECKING:
    from tests.foreign.gossip.conftest import ForeignPeer

pytestmark = pytest.mark.foreign

NETWORK = profile("documented", chain_id="local")
TOPIC = "transactions_0_1"
HEARTBEATS = "heartbeatV2_2"
GAS: GasSchedule = NETWORK.gas


def key_in(shard: int) -> KeyPair:
    while True:
        pair = KeyPair.generate()
        if NETWORK.shard_of(pair.public) == shard:
            return pair


class Relayer:
    """A relayer process, and what it says over its public interface."""

    def __init__(self, ws: str, session: aiohttp.ClientSession, keys: list[KeyPair]) -> None:
        self.ws, self.session, self.keys = ws, session, keys

    async def relay(self, tx: Transaction) -> dict[str, Any]:
        async with self.session.ws_connect(self.ws) as link:
            await link.send_json({"action": "relay", "tx": msgspec.to_builtins(to_json(tx))})
            reply: dict[str, Any] = await link.receive_json(timeout=10)
            return reply

    async def statistics(self) -> dict[str, Any]:
        """The newest networkStats."""
        async with self.session.ws_connect(self.ws + "/stats") as link:
            await link.receive(timeout=10)  # of the moment before
            data: dict[str, Any] = (await link.receive_json(timeout=10))["data"]
            return data


@pytest.fixture
async def relayer(js: ForeignPeer, tmp_path: Path) -> AsyncIterator[Relayer]:
    """A relayer that knows the js peer as its only first peer."""
    keys = [key_in(shard) for shard in range(3)]
    files = []
    for shard, pair in enumerate(keys):
        file = tmp_path / f"{shard}.pem"
        file.touch(mode=0o600)
        file.write_text(pair.to_pem())
        files.append(str(file))
    accounts = web.Application()
    accounts.add_routes([web.get("/accounts/{address}", _account)])
    runner = web.AppRunner(accounts)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ports = free_ports(2)
    identity.make(tmp_path / "data")
    values = {
        "port": ports[0], "http_port": ports[1], "chain_id": NETWORK.chain_id, "hub_url": "",
        "key_files": json.dumps(files),
        "chain_api_url": f"http://127.0.0.1:{runner.addresses[0][1]}", "data_dir": tmp_path / "data",
        "lease_dir": tmp_path / "leases",
        "gossip_bootstrap": json.dumps([js.address]),
    }  # fmt: skip
    arguments = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "millrace", "relayer", *arguments)
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(120):
            while process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{ports[1]}/ready") as response:
                        if response.status == 200:
                            break
                await asyncio.sleep(0.1)
            yield Relayer(f"ws://127.0.0.1:{ports[0]}/ws", session, keys)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await runner.cleanup()


async def _account(_: web.Request) -> web.Response:
    return web.json_response({"nonce": 0, "balance": str(10**18)})


def signed(sender: KeyPair, relayer: bytes, nonce: int = 0) -> Transaction:
    """A transfer from shard 0 to shard 1."""
    tx = Transaction(
        nonce=nonce, value=0, receiver=key_in(1).public, sender=sender.public, gas_price=GAS.min_gas_price,
        gas_limit=200_000, data=b"hello", chain_id=NETWORK.chain_id, relayer=relayer,
    )  # fmt: skip
    return msgspec.structs.replace(tx, signature=sender.sign(signing_message(tx)))


async def test_js_decodes_what_the_relayer_publishes(js: ForeignPeer, relayer: Relayer) -> None:
    """A relayed transaction reaches a js peer by gossip, which reads all of it, the co-signature included."""
    tx = signed(key_in(0), relayer.keys[0].public)
    reply = await relayer.relay(tx)
    assert reply["status"] == "completed", reply
    (message, *_) = await js.received(1)
    assert message["topic"] == TOPIC and message["type"] == "signed"
    (decoded,) = (await js.ask("decode", data=message["data"]))["transactions"]
    assert decoded == {
        "nonce": 0, "receiver": tx.receiver.hex(), "sender": tx.sender.hex(), "gasPrice": tx.gas_price,
        "gasLimit": tx.gas_limit, "data": tx.data.hex(), "chainID": tx.chain_id, "version": 2,
        "signature": tx.signature.hex(), "relayer": relayer.keys[0].public.hex(),
        "relayerSignature": reply["results"][0]["relayerSignature"],
    }  # fmt: skip
    signature = bytes.fromhex(decoded["relayerSignature"])
    assert signature == relayer.keys[0].sign(signing_message(tx))


async def test_what_js_sends_is_in_the_statistics(js: ForeignPeer, relayer: Relayer, js_prefix: Path) -> None:
    """Transactions and heartbeats of js peers, the peers themselves and the copies they forward are counted."""
    from tests.foreign.gossip.conftest import ForeignPeer as Peer

    other = await Peer.start(js_prefix / "node_modules/.bin/node", js_prefix / "peer.mjs", TOPIC, KAD_PROTOCOLS[0])
    try:
        await other.ask("dial", address=js.address)
        for peer in (js, other):
            await peer.ask("subscribe", topic=HEARTBEATS)

        async def meshed() -> bool:
            return (await js.ask("mesh"))["mesh"] == 2

        await js.until(meshed)

        async def one_peer() -> bool:
            return (await relayer.statistics())["network"]["connectedPeers"] == 1

        await js.until(one_peer)
        now = int(time.time())
        sender = key_in(0)
        transactions = [to_proto(signed(sender, b"", nonce)) for nonce in range(30)]
        for start in range(0, 30, 3):
            await js.ask("publish", data=wrap_transactions(transactions[start : start + 3], now).hex())
        await js.ask("publish", data=wrap_transactions(transactions[:3], now).hex())  # in another message, known
        for number in range(5):
            beat = Heartbeat(public_key=bytes([number]) * 96, timestamp=now, version="v1")
            await js.ask("publish", on=HEARTBEATS, data=wrap_heartbeat(beat, now).hex())

        async def counted() -> bool:
            data = await relayer.statistics()
            return data["mempool"]["estimatedQueue"] == 30 and data["validators"]["onlineByShard"]["2"] == 5

        await js.until(counted)
        data = await relayer.statistics()
        assert data["mempool"]["ingressTps"] > 0
        assert data["validators"]["totalOnline"] == 5 and data["validators"]["heartbeatRatePerSec"] > 0
        assert data["health"]["p2pDedupRatio1m"] == 0.0, "one peer sends everything once"

        async def connected_to_both() -> bool:
            for peer in (await js.ask("addresses"))["of"]:
                if peer["id"] != other.id:
                    await other.ask("dial", address=f"{peer['addresses'][0].partition('/p2p/')[0]}/p2p/{peer['id']}")
            return (await relayer.statistics())["network"]["connectedPeers"] == 2

        await other.until(connected_to_both)

        async def copies() -> bool:
            """Each of the two forwards what the other published, so that some arrive twice."""
            for peer in (js, other):
                await peer.ask("publish", data=wrap_transactions([b"x"], now).hex())
            return (await relayer.statistics())["health"]["p2pDedupRatio1m"] > 0

        await other.until(copies)
    finally:
        await other.stop()
