"""A network of real nodes that tell two notifiers of ours what happens, and our relayer behind one of them.

Needs Go (the first time its module proxy, and some minutes). Run with
`MILLRACE_GO=1 ./run test -m foreign tests/foreign/node`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.foreign.node.network import HERE, Gateway, Nodes
from tests.foreign.node.rarities import Rarities
from tests.foreign.node.recorder import Recorder
from tests.foreign.node.services import Notifier, Relayer
from tests.foreign.node.traffic import Traffic

from servers.tasks import background
from waiting import PATIENCE, until

MARSHALLERS = ("gogo protobuf", "json")
EPOCH = 4
"""From which on all that the nodes' configuration enables is enabled."""

AWAY_SECONDS = 2.0
"""For so long both notifiers stay dead, while the nodes go on or wait: they do either, and say neither."""


class World:
    """All of it, and what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nodes"
        self.folder.mkdir()
        self.recorder = Recorder()
        self.notifiers = {marshaller: Notifier(folder / marshaller) for marshaller in MARSHALLERS}
        self.nodes: Nodes
        self.gateway: Gateway
        self.relayer: Relayer
        self.traffic: Traffic
        self.rounds = 0

    async def start(self, program: Path) -> None:
        """Until the network has come to `EPOCH`, wallets have money, and the relayer runs."""
        await self.recorder.start()
        for notifier in self.notifiers.values():
            await notifier.start()
        drivers = [f"{marshaller}={notifier.save_url}" for marshaller, notifier in self.notifiers.items()]
        self.nodes = await Nodes.start(program, self.folder, *drivers, f"gogo protobuf={self.recorder.url}")
        self.gateway = Gateway(self.nodes)
        await self.gateway.start()
        await self.nodes.ask("epoch", count=EPOCH)
        self.relayer = Relayer(
            self.folder.parent / "relayer", self.notifiers["gogo protobuf"].hub_url, self.gateway.url
        )
        self.traffic = Traffic(self.nodes, self.relayer)
        await self.traffic.fund()
        await self.nodes.blocks(3)
        await self.relayer.start()

    async def pace(self) -> None:
        """A block of every node each second."""
        while True:
            begun = asyncio.get_running_loop().time()
            await self.nodes.blocks()
            self.rounds += 1
            await asyncio.sleep(max(0.0, begun + 1 - asyncio.get_running_loop().time()))

    async def wait(self, rounds: int) -> None:
        """Until so many more are over."""
        last = self.rounds + rounds
        await until(lambda: self.rounds >= last, PATIENCE + 10 * rounds)

    async def happen(self) -> None:
        """Everything that is to be judged."""
        traffic = self.traffic
        await self.relayer.ready()
        await self.wait(5)  # what the keys hold is read at a block that the relayer heard of; then it reckons alone
        rare = Rarities(traffic, self.nodes)
        await rare.begin()
        self.gateway.silent.update(key.public for key in self.relayer.keys)
        await traffic.moves()
        await traffic.issues()
        await traffic.deployments()
        await self.wait(12)
        await traffic.learn_tokens()
        await traffic.calls()
        await self.wait(4)
        await traffic.tokens_move()
        await self.wait(4)
        await traffic.chains_of_calls()
        await traffic.poverty()
        await self.wait(3)
        await rare.roles()
        await rare.relayed_by_others()
        await self.wait(7)
        await traffic.moves("around a crash ")
        for notifier in self.notifiers.values():
            await notifier.kill()
        await asyncio.sleep(AWAY_SECONDS)
        for notifier in self.notifiers.values():
            await notifier.start()
        await self.wait(25)

    async def close(self) -> None:
        """End it all."""
        await self.relayer.close()
        await self.gateway.close()
        await self.nodes.close()
        await self.recorder.close()
        for notifier in self.notifiers.values():
            await notifier.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of nodes, compiled."""
    if shutil.which("go") is None or not os.environ.get("MILLRACE_GO"):
        pytest.skip("set MILLRACE_GO=1, with Go installed, to build a network of nodes")
    program = tmp_path_factory.mktemp("program") / "nodes"
    subprocess.run(["nice", "go", "build", "-o", program, "."], cwd=HERE, check=True)
    return program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(program: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A network on which much has happened, and nothing more does."""
    world = World(tmp_path_factory.mktemp("world"))
    await world.start(program)
    try:
        async with background(world.pace()):
            await world.happen()
        yield world
    finally:
        await world.close()
