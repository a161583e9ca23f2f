"""Our peer finds others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from millrace.chain.network import profile
from millrace.gossip.child import GossipError
from millrace.gossip.handle import GossipHandle
from millrace.gossip.wire import GossipStats
from millrace.relayer.network.chain_api import ChainApi
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.statistics.streams import Statistics
from millrace.runtime.tasks import end_tasks


class Handle:
    """A gossip process that knows nobody; only one address can be reached."""

    def __init__(self) -> None:
        self.dialled: asyncio.Queue[str] = asyncio.Queue()

    async def stats(self) -> GossipStats:
        return GossipStats(connected_peers=0)

    async def dial(self, address: str) -> None:
        self.dialled.put_nowait(address)
        if address != "alive":
            raise GossipError("nobody there")

    async def publish(self, topic: str, data: bytes) -> int:
        raise GossipError("down")


class Api:
    async def gossip_peers(self, url: str) -> tuple[str, ...]:
        return ("dead", "alive", "dead too")


def a_peer(tmp_path: Path, handle: Handle) -> Peer:
    settings = RelayerSettings(data_dir=str(tmp_path), gossip_bootstrap_url="http://127.0.0.1:1")
    network = profile("documented")
    peer = Peer(settings, network, Statistics(network), cast(ChainApi, Api()))
    peer._handle = cast(GossipHandle, handle)
    return peer


async def test_peers_behind_one_that_is_dead(tmp_path: Path) -> None:
    """Of the gossip peers that are listed each is dialled, whichever of them cannot be reached."""
    handle = Handle()
    tasks = [asyncio.ensure_future(item) for item in a_peer(tmp_path, handle).endless()]
    try:
        async with asyncio.timeout(10):
            assert sorted([await handle.dialled.get() for _ in range(3)]) == ["alive", "dead", "dead too"]
    finally:
        await end_tasks(tasks)


async def test_a_peer_that_is_down_reaches_nobody(tmp_path: Path) -> None:
    """While the gossip process cannot publish, nobody was told, and nothing is raised."""
    assert await a_peer(tmp_path, Handle()).publish("topic", b"data") == 0
