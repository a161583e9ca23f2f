"""Our peer and the p2p messenger of a MultiversX node (mx-chain-communication-go 1.3.0) understand each other.

Needs Go. Run with `MILLRACE_GO=1 ./run test -m foreign tests/foreign/gossip`.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.gossip.conftest import build_go

from millrace.chain.gossip import unwrap_transactions, wrap_transactions
from millrace.chain.proto.p2p_pb2 import Batch
from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, PeerSettings

if TYPE_CHECKING:
    from tests.foreign.gossip.conftest import ForeignPeer, StartNode

pytestmark = pytest.mark.foreign

TOPIC = "transactions_0_1"


def batches(count: int) -> list[bytes]:
    """Payloads of wrapped messages, the last one near the bound of a node's batch."""
    return [Batch(data=[b"tx %d" % number]).SerializeToString() for number in range(count - 1)] + [
        Batch(data=[os.urandom(250 * 1024)]).SerializeToString()
    ]


PROBE = Batch(data=[b"probe"]).SerializeToString()


async def joined(node: ForeignPeer, handle: GossipHandle, received: list[GossipMessage]) -> None:
    """Wait until each side knows the other to be on the topic: the node's own list of that is 10 s old."""

    async def both() -> bool:
        await node.ask("publish", data=PROBE.hex())
        return bool(received) and (await handle.stats()).peers_by_topic.get(TOPIC) == 1

    await node.until(both)


@pytest.mark.parametrize("we_dial", [True, False])
async def test_messages_both_ways(start_node: StartNode, we_dial: bool) -> None:
    """Whoever dials: what we publish passes the node's checks (strict signature, wrapper, time) and what the
    node broadcasts passes ours, 100 of 100 each way."""
    node = await start_node()
    received: list[GossipMessage] = []
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=(node.address,) if we_dial else ())
    async with GossipHandle(GossipSettings(peers=(settings,)), received.append) as handle:
        if not we_dial:
            await node.ask("dial", address=handle.addresses[0])
        await joined(node, handle, received)
        now = int(time.time())
        ours = batches(100)
        wrapped = [wrap_transactions(list(Batch.FromString(payload).data), now) for payload in ours]
        assert set(await asyncio.gather(*(handle.publish(TOPIC, data) for data in wrapped))) == {1}

        def accepted() -> list[tuple[str, int]]:
            own = [m for m in node.messages if m["from"] == handle.peer_ids[0]]  # it hears itself, too
            return [(m["payload"], m["timestamp"]) for m in own]

        async def all_there() -> bool:
            return len(accepted()) >= 100

        await node.until(all_there)
        # A node checks messages concurrently: it does not keep their order.
        assert sorted(accepted()) == sorted((payload.hex(), now) for payload in ours)

        theirs = batches(100)
        for payload in theirs:
            await node.ask("publish", data=payload.hex())

        def transactions() -> list[list[bytes]]:
            found = [unwrap_transactions(message.data, int(time.time())) for message in received]
            return [batch for batch in found if batch != [b"probe"]]

        async def all_here() -> bool:
            return len(transactions()) >= 100

        await node.until(all_here)
        assert sorted(transactions()) == sorted(list(Batch.FromString(payload).data) for payload in theirs)
        assert {message.source_peer for message in received} == {node.id}
        assert (await handle.stats()).invalid == 0


async def test_publish_without_subscription_reaches_a_node(start_node: StartNode) -> None:
    """Fanout: a node gets what a peer publishes that is subscribed to nothing."""
    node = await start_node()
    data = wrap_transactions([b"tx"], int(time.time()))
    async with GossipHandle(GossipSettings(peers=(PeerSettings(bootstrap=(node.address,)),))) as handle:

        async def sent() -> bool:
            return await handle.publish(TOPIC, data) == 1

        await node.until(sent)
        assert (await node.received(1))[0]["payload"] == Batch(data=[b"tx"]).SerializeToString().hex()


async def test_nodes_find_each_other_through_us_and_we_find_them(start_node: StartNode) -> None:
    """Two nodes that have only our peer as a seed get connected by Kademlia; another peer of ours that knows
    only one of them is led to the other."""
    hub, seeker = PeerSettings(dht=True), PeerSettings(dht=True)
    async with GossipHandle(GossipSettings(peers=(hub, seeker))) as handle:
        seed = handle.addresses[0]
        first, second = await asyncio.gather(start_node(seed), start_node(seed))

        async def met() -> bool:
            return second.id in (await first.ask("peers"))["connected"]

        await first.until(met)
        await handle.dial(first.address, peer=1)

        async def found() -> bool:
            return (await handle.stats(peer=1)).connected_peers >= 3

        await first.until(found)


@pytest.mark.parametrize("engine", ["python", "go"])
async def test_requests_of_a_node_are_read_and_unanswered(start_node: StartNode, engine: str) -> None:
    """A node's direct requests reach us by its own code; it gets no answer and stays connected."""
    if engine == "go":
        build_go()
    node = await start_node()
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=(node.address,))
    async with GossipHandle(GossipSettings(peers=(settings,), engine=engine)) as handle:

        async def connected() -> bool:
            return handle.peer_ids[0] in (await node.ask("peers"))["connected"]

        await node.until(connected)
        for _ in range(3):
            await node.ask("request", address=handle.peer_ids[0], data=PROBE.hex())

        async def read() -> bool:
            return (await handle.stats()).requests == 3

        await node.until(read)
        stats = await handle.stats()
        assert (stats.invalid, stats.connected_peers) == (0, 1)
        assert await connected()
