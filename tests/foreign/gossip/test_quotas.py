"""A node that keeps 41 connections, with far more peers than places, keeps the one to us.

Needs Go. Run with `MILLRACE_GO=1 ./run test -m foreign tests/foreign/gossip/test_quotas.py -s`; each run lasts
`MILLRACE_QUOTA_SECONDS` (30; 600 for the long one).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from typing import TYPE_CHECKING

import pytest
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.peer.id import ID
from tests.gossip.conftest import build_go

from millrace.chain.gossip import CONNECTION_TOPIC
from millrace.chain.network import profile
from millrace.gossip import GossipHandle, GossipSettings, PeerSettings
from millrace.gossip.identity import from_seed
from millrace.relayer.network.observer import Observer

if TYPE_CHECKING:
    from tests.foreign.gossip.conftest import StartNode

pytestmark = pytest.mark.foreign

TOPIC = "transactions_0_1"
CROWD = 60
QUOTA = 41
SECONDS = int(os.environ.get("MILLRACE_QUOTA_SECONDS", "30"))


def furthest_seed(node: str) -> str:
    """A seed whose peer the node would turn away before the others: it measures in bits between hashes of ids."""
    own = int.from_bytes(hashlib.sha256(ID.from_string(node).to_bytes()).digest(), "big")

    def distance(seed: str) -> int:
        peer = ID.from_pubkey(create_new_key_pair(from_seed(seed)).public_key)
        return (own ^ int.from_bytes(hashlib.sha256(peer.to_bytes()).digest(), "big")).bit_count()

    return max(map(str, range(1000)), key=distance)


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize(("engine", "speaks"), [("python", True), ("python", False), ("go", True), ("go", False)])
async def test_still_connected_under_a_nodes_quotas(start_node: StartNode, engine: str, speaks: bool) -> None:
    """While 60 peers who say nothing come back as often as they are turned away, our connection stays.

    It is the one of all that a node would end first, and that is what happens to it if we say nothing either.
    """
    if engine == "go":
        build_go()
    node = await start_node(quotas=True)
    network = profile("mainnet")
    settings = PeerSettings(
        subscribe=(TOPIC, CONNECTION_TOPIC, network.heartbeat_topic(0)),
        bootstrap=(node.address,),
        key_seed=furthest_seed(node.id),
    )
    async with GossipHandle(GossipSettings(peers=(settings,), engine=engine), lambda message: None) as handle:
        observer = Observer(network, 0, "", handle.publish)

        async def settled() -> bool:
            stats = await handle.stats()
            if speaks:
                await observer.look(stats, time.monotonic(), int(time.time()))
            return observer.announcements > 0 if speaks else stats.connected_peers > 0

        await node.until(settled)
        await node.ask("crowd", count=CROWD, patience=60)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            await settled()
            if speaks:
                assert handle.peer_ids[0] in (await node.ask("peers"))["connected"]
            await asyncio.sleep(0.5)
        stats, crowd = await handle.stats(), await node.ask("crowded")
        print(f"\n{engine}: {stats.connections} connections of ours; {crowd['connected']} of {CROWD} others'")
        assert crowd["joined"] > CROWD, "others were turned away"
        assert crowd["connected"] < QUOTA
        assert (stats.connections == 1) == speaks, "made once and never again, if we say what we are"
