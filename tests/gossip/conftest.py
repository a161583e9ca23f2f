"""A small network of handles, and waiting for what it does in its own time."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any

import pytest

from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, PeerSettings
from millrace.gossip.child import GO_PROGRAM
from millrace.gossip.handle import OnMessage

PATIENCE = 20.0
"""Seconds after which something that takes well under one on an idle machine is taken for broken."""


class Inbox:
    """Collects messages; `wait(n)` returns the data of all once there are `n`."""

    def __init__(self) -> None:
        self.messages: list[GossipMessage] = []
        self._arrived = asyncio.Event()

    def __call__(self, message: GossipMessage) -> None:
        self.messages.append(message)
        self._arrived.set()

    async def wait(self, count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return [message.data for message in self.messages]


class Network:
    """Starts handles on one engine, and stops them at the end of the test."""

    def __init__(self, engine: str = "python") -> None:
        self.engine = engine
        self._handles: list[GossipHandle] = []

    def inbox(self) -> Inbox:
        return Inbox()

    def handle(self, *peers: PeerSettings, inbox: OnMessage | None = None, **shared: Any) -> GossipHandle:
        handle = GossipHandle(GossipSettings(peers=peers, engine=self.engine, **shared), inbox)
        self._handles.append(handle)
        return handle

    async def start(self, *peers: PeerSettings, inbox: OnMessage | None = None, **shared: Any) -> GossipHandle:
        handle = self.handle(*peers, inbox=inbox, **shared)
        await handle.start()
        return handle

    async def stop(self) -> None:
        await asyncio.gather(*(handle.stop() for handle in self._handles))

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Ask again and again until the network has got there."""
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0.02)

    async def knows(self, handle: GossipHandle, topic: str, peers: int = 1, peer: int = 0) -> None:
        """Wait until one of the handle's peers knows `peers` remote subscribers of `topic`."""

        async def enough() -> bool:
            return (await handle.stats(peer)).peers_by_topic.get(topic, 0) >= peers

        await self.until(enough)

    async def connected(self, handle: GossipHandle, peers: int, peer: int = 0) -> None:
        """Wait until one of the handle's peers has exactly `peers` connected peers."""

        async def so_many() -> bool:
            return (await handle.stats(peer)).connected_peers == peers

        await self.until(so_many)


@pytest.fixture(params=["python", pytest.param("go", marks=pytest.mark.foreign)])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine; the Go one is built first."""
    name: str = request.param
    if name == "go":
        build_go()
    return name


@cache
def build_go() -> None:
    """Build the Go engine of this checkout."""
    subprocess.run(["bash", GO_PROGRAM.parents[1] / "build.sh"], check=True)


@pytest.fixture
async def network(engine: str) -> AsyncIterator[Network]:
    """An empty network."""
    network = Network(engine)
    yield network
    await network.stop()
