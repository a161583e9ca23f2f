"""Peers of other implementations, driven by lines of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.gossip.settings import KAD_PROTOCOLS

HERE = Path(__file__).parent
TOPIC = "transactions_0_1"
PATIENCE = 30.0


class ForeignPeer:
    """A process that takes commands on its stdin and tells events on its stdout, each a line of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._arrived = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self.messages: list[dict[str, Any]] = []
        self.id = ""
        self.address = ""

    @classmethod
    async def start(cls, *command: str | Path, **environment: str) -> ForeignPeer:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
            env=os.environ | environment,
        )
        peer = cls(process)
        ready = await asyncio.wait_for(peer._ready, PATIENCE)
        peer.id, peer.address = ready["id"], ready["address"]
        return peer

    async def ask(self, do: str, patience: float = PATIENCE, **arguments: str | int) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = len(self._requests)
        answer = self._requests[request] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"request": request, "do": do, **arguments}).encode() + b"\n")
        done = await asyncio.wait_for(answer, patience)
        assert "error" not in done, done["error"]
        return done

    async def received(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Ask again and again until the network has got there."""
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            event = json.loads(line)
            match event["event"]:
                case "ready":
                    self._ready.set_result(event)
                case "message":
                    self.messages.append(event)
                    self._arrived.set()
                case "done":
                    self._requests[event["request"]].set_result(event)
                case failed:
                    self._ready.set_exception(RuntimeError(f"{failed}: {event}"))

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)
        await self._reader


@pytest.fixture(scope="session")
def js_prefix() -> Path:
    """The directory with the JavaScript packages (Node among them), installed the first time."""
    place = os.environ.get("MILLRACE_JS_PREFIX")
    if not place:
        pytest.skip("set MILLRACE_JS_PREFIX to a directory for the JavaScript packages")
    path = Path(place)
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "node_modules").exists():
        shutil.copy(HERE / "package.json", path)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=path, check=True)
    shutil.copy(HERE / "peer.mjs", path)
    return path


@pytest.fixture
async def js(js_prefix: Path) -> AsyncIterator[ForeignPeer]:
    """A running js-libp2p peer, subscribed to `TOPIC`."""
    program = js_prefix / "peer.mjs"
    peer = await ForeignPeer.start(js_prefix / "node_modules/.bin/node", program, TOPIC, KAD_PROTOCOLS[0])
    yield peer
    await peer.stop()


@pytest.fixture(scope="session")
def node_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MultiversX node's messenger, compiled."""
    if shutil.which("go") is None or not os.environ.get("MILLRACE_GO"):
        pytest.skip("set MILLRACE_GO=1, with Go installed, to build a node's messenger")
    program = tmp_path_factory.mktemp("node") / "node"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "node", check=True)
    return program


StartNode = Callable[..., Awaitable[ForeignPeer]]


@pytest.fixture
async def start_node(node_program: Path) -> AsyncIterator[StartNode]:
    """Starts node messengers, subscribed to `TOPIC`, with the given addresses to find peers from.

    With `quotas` a node keeps no more connections than the network's nodes do, and chooses them as they do.
    """
    running: list[ForeignPeer] = []

    async def start(*seeds: str, quotas: bool = False) -> ForeignPeer:
        running.append(await ForeignPeer.start(node_program, TOPIC, *seeds, **({"NODE_QUOTAS": "1"} if quotas else {})))
        return running[-1]

    yield start
    for node in running:
        await node.stop()
