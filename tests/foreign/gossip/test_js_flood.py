"""Three js peers flood a topic, and we miss nothing that another of them got.

Needs npm. Run with `MILLRACE_JS_PREFIX=<directory> ./run test -m foreign tests/foreign/gossip/test_js_flood.py -s`.
Lasts `MILLRACE_FLOOD_SECONDS` (20; 600 for the long one) and prints its numbers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, PeerSettings
from millrace.gossip.settings import KAD_PROTOCOLS

from .conftest import TOPIC, ForeignPeer

pytestmark = pytest.mark.foreign

PEERS = 3
RATE = 50  # messages a second, of all together
SECONDS = int(os.environ.get("MILLRACE_FLOOD_SECONDS", "20"))


@pytest.fixture
async def peers(js_prefix: Path) -> AsyncIterator[list[ForeignPeer]]:
    """Each connected to all others."""
    command = js_prefix / "node_modules/.bin/node", js_prefix / "peer.mjs", TOPIC, KAD_PROTOCOLS[0]
    running = [await ForeignPeer.start(*command) for _ in range(PEERS)]
    for number, peer in enumerate(running):
        for other in running[number + 1 :]:
            await peer.ask("dial", address=other.address)
    yield running
    for peer in running:
        await peer.stop()


@pytest.mark.timeout(SECONDS + 300)
async def test_nothing_is_missed_that_another_got(peers: list[ForeignPeer]) -> None:
    """Of 50 distinct messages a second in all we get every one that some js peer got."""
    received: list[GossipMessage] = []
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=tuple(peer.address for peer in peers))
    async with GossipHandle(GossipSettings(peers=(settings,)), received.append) as handle:

        async def meshed() -> bool:
            meshes = [(await peer.ask("mesh"))["mesh"] for peer in peers]
            return meshes == [PEERS] * PEERS and (await handle.stats()).topics[TOPIC].mesh == PEERS

        await peers[0].until(meshed)
        count = RATE * SECONDS // PEERS
        floods = [
            peer.ask("flood", patience=SECONDS + 120, number=number, count=count, rate=RATE // PEERS)
            for number, peer in enumerate(peers)
        ]
        done = await asyncio.gather(*floods)
        before = -1
        while before != len(received):  # what is still under way, IWANT included, comes within a few heartbeats
            before = len(received)
            await asyncio.sleep(4)
        theirs = {message["data"] for peer in peers for message in peer.messages}
        ours = {message.data.hex() for message in received}
        stats = await handle.stats()
        print(
            f"\n{count * PEERS} sent, {len(theirs)} reached another js peer, {len(ours)} us;"
            f" missed {len(theirs - ours)}; found no peer {[flood['alone'] for flood in done]},"
            f" connections ended {[flood['ended'] for flood in done]};"
            f" connected {stats.connected_peers}; dropped: outbound {stats.dropped_outbound},"
            f" control {stats.dropped_control}, validation {stats.dropped_validation}, inbound {stats.dropped_inbound}"
        )
        assert len(theirs) > count, "they heard each other"
        assert not theirs - ours
        assert stats.connected_peers == PEERS
        assert (stats.invalid, stats.dropped_inbound, stats.dropped_validation) == (0, 0, 0)
