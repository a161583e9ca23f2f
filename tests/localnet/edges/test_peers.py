"""The gossip peers take what nodes would take, whole batches or nothing, and tell that validators live."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from millrace.chain import gossip as wire
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction, to_proto
from millrace.gossip.handle import GossipHandle, GossipMessage
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.localnet.edges.peers import Peers
from millrace.localnet.settings import LocalnetSettings

SETTINGS = LocalnetSettings(heartbeat_seconds=0.5)
NETWORK = SETTINGS.network()


def transaction(shard: int, nonce: int = 0) -> Transaction:
    """A transaction of a sender in this shard; nobody looks at its signature here."""
    sender = bytes(31) + bytes([shard])
    return Transaction(nonce, 0, sender, sender, 10**9, 50_000, "local", signature=bytes(64))


def message(topic: str, *items: bytes, age: int = 0) -> GossipMessage:
    """A gossip message with a batch of items."""
    return GossipMessage(topic, wire.wrap_transactions(list(items), int(time.time()) - age), "peer", 0)


@pytest.fixture
def taken() -> list[Transaction]:
    """Transactions that came through."""
    return []


@pytest.fixture
def peers(taken: list[Transaction]) -> Peers:
    """Peers that were not started: messages are put in by hand."""
    return Peers(SETTINGS, NETWORK, taken.append)


def test_a_batch_comes_in_whole_and_in_order(peers: Peers, taken: list[Transaction]) -> None:
    """Every transaction of a good batch is handed on."""
    batch = [transaction(1, nonce) for nonce in range(3)]
    peers.take(message("transactions_1_2", *map(to_proto, batch)))
    assert taken == batch and (peers.received, peers.transactions, peers.refused) == (1, 3, 0)


@pytest.mark.parametrize(
    "bad",
    [
        message("transactions_1_0", to_proto(transaction(1)), to_proto(transaction(2))),
        message("transactions_1_0", to_proto(transaction(1)), b"\xff"),
        message("transactions_1_0", to_proto(transaction(1)), age=700),
        GossipMessage("transactions_1_0", b"nonsense", "peer", 0),
        message("transactions_1_0", to_proto(msgspec.structs.replace(transaction(1), sender=b"short"))),
    ],
    ids=["another shard's sender", "not a transaction", "too old", "no wrapper", "short address"],
)
def test_one_bad_item_refuses_the_batch(peers: Peers, taken: list[Transaction], bad: GossipMessage) -> None:
    """As on nodes: nothing of a message that breaks a rule is used, and it is counted."""
    peers.take(bad)
    assert taken == [] and peers.refused == 1


def test_heartbeats_of_others_are_no_transactions(peers: Peers, taken: list[Transaction]) -> None:
    """Messages on other topics are left alone."""
    peers.take(GossipMessage("heartbeatV2_0", b"anything", "peer", 0))
    assert taken == [] and peers.refused == 0


async def test_over_real_sockets(taken: list[Transaction]) -> None:
    """Another peer that knows the addresses gets transactions in and hears every validator of every shard."""
    arrived = asyncio.Event()
    heard: set[bytes] = set()

    def on_transaction(tx: Transaction) -> None:
        taken.append(tx)
        arrived.set()

    def on_message(message: GossipMessage) -> None:
        heard.add(wire.unwrap_heartbeat(message.data, int(time.time())).public_key)
        if len(heard) == len(keys) * 2:
            all_heard.set()

    keys: dict[int, Any] = {
        shard: [bytes([shard % 251, index]) * 48 for index in (1, 2)] for shard in (0, 1, 2, METACHAIN)
    }
    all_heard = asyncio.Event()
    peers = Peers(SETTINGS, NETWORK, on_transaction)
    await peers.start()
    beats = asyncio.create_task(peers.send_heartbeats(keys, lambda shard: 1))
    topics = tuple(NETWORK.heartbeat_topic(shard) for shard in keys)
    settings = GossipSettings(peers=(PeerSettings(bootstrap=tuple(peers.addresses), subscribe=topics),))
    try:
        async with GossipHandle(settings, on_message) as other, asyncio.timeout(20):
            await all_heard.wait()
            for shard in range(3):
                topic = NETWORK.transactions_topic(shard, 0)
                data = wire.wrap_transactions([to_proto(transaction(shard))], int(time.time()))
                while not await other.publish(topic, data):
                    await asyncio.sleep(0.1)
            while len(taken) < 3:
                arrived.clear()
                await arrived.wait()
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
        await peers.stop()
    assert {NETWORK.shard_of(tx.sender) for tx in taken} == {0, 1, 2}


def test_identities_differ_per_shard_and_seed() -> None:
    """Two chains with different seeds, and two shards of one, are different peers."""
    seeds = {
        peer.key_seed
        for seed in (1, 2)
        for peer in Peers(LocalnetSettings(seed=seed), NETWORK, lambda tx: None)._gossip.settings.peers
    }
    assert len(seeds) == 8
