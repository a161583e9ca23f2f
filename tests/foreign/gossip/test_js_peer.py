"""Our peer and js-libp2p's understand each other.

Needs npm. Run with `MILLRACE_JS_PREFIX=<directory> pytest -m foreign tests/foreign/gossip`: the packages of
`package.json` (Node among them) are installed into that directory the first time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, PeerSettings
from millrace.gossip.settings import KAD_PROTOCOLS

pytestmark = pytest.mark.foreign

HERE = Path(__file__).parent
TOPIC = "transactions_0_1"
PATIENCE = 30.0


class JsPeer:
    """A js-libp2p peer in a Node process, driven by lines of JSON."""

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
    async def start(cls, prefix: Path) -> JsPeer:
        process = await asyncio.create_subprocess_exec(
            prefix / "node_modules/.bin/node", prefix / "peer.mjs", TOPIC, KAD_PROTOCOLS[0],
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=16 * 1024 * 1024,
        )  # fmt: skip
        peer = cls(process)
        ready = await asyncio.wait_for(peer._ready, PATIENCE)
        peer.id, peer.address = ready["id"], ready["address"]
        return peer

    async def ask(self, do: str, **arguments: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = len(self._requests)
        answer = self._requests[request] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"request": request, "do": do, **arguments}).encode() + b"\n")
        done = await asyncio.wait_for(answer, PATIENCE)
        assert "error" not in done, done["error"]
        return done

    async def received(self, count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return [bytes.fromhex(message["data"]) for message in self.messages]

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

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)
        await self._reader


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The directory with the JavaScript packages."""
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
async def js(prefix: Path) -> AsyncIterator[JsPeer]:
    """A running js-libp2p peer."""
    peer = await JsPeer.start(prefix)
    yield peer
    await peer.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the network has got there."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


async def meshed(js: JsPeer, handle: GossipHandle) -> None:
    """Wait until each side has the other in its mesh."""

    async def both() -> bool:
        return (await js.ask("mesh"))["mesh"] == 1 and (await handle.stats()).topics[TOPIC].mesh == 1

    await until(both)


@pytest.mark.parametrize("we_dial", [True, False])
async def test_messages_both_ways(js: JsPeer, we_dial: bool) -> None:
    """Whoever dials: gossipsub 1.2 over noise and yamux, 100 of 100 signed messages each way, in order,
    and one of 1 MiB."""
    received: list[GossipMessage] = []
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=(js.address,) if we_dial else ())
    async with GossipHandle(GossipSettings(peers=(settings,)), received.append) as handle:
        if not we_dial:
            await js.ask("dial", address=handle.addresses[0])
        await meshed(js, handle)
        assert (await js.ask("mesh"))["protocols"] == ["/meshsub/1.2.0"]
        large = os.urandom(1024 * 1024)
        ours = [b"py %d" % number for number in range(100)] + [large]
        theirs = [b"js %d" % number for number in range(100)] + [large]
        assert set(await asyncio.gather(*(handle.publish(TOPIC, data) for data in ours))) == {1}
        assert await js.received(101) == ours
        assert {message["type"] for message in js.messages} == {"signed"}
        assert {message["from"] for message in js.messages} == {handle.peer_ids[0]}
        for data in theirs:
            assert (await js.ask("publish", data=data.hex()))["recipients"] == 1

        async def all_here() -> bool:
            return len(received) >= 101

        await until(all_here)
        assert [message.data for message in received] == theirs
        assert {message.source_peer for message in received} == {js.id}
        stats = await handle.stats()
        assert (stats.invalid, stats.dropped_inbound, stats.dropped_outbound) == (0, 0, 0)


async def test_publish_without_subscription_reaches_js(js: JsPeer) -> None:
    """Fanout: js gets what a peer publishes that is subscribed to nothing."""
    async with GossipHandle(GossipSettings(peers=(PeerSettings(bootstrap=(js.address,)),))) as handle:

        async def sent() -> bool:
            return await handle.publish(TOPIC, b"fanout") == 1

        await until(sent)
        assert await js.received(1) == [b"fanout"]


async def test_js_finds_a_peer_through_our_table(js: JsPeer) -> None:
    """A js peer that knows only one of ours learns of our other one by Kademlia, under the network's id."""
    settings = GossipSettings(peers=(PeerSettings(dht=True), PeerSettings(key_seed="hidden", dht=True)))
    async with GossipHandle(settings) as handle:
        await handle.dial(handle.addresses_of(1)[0], peer=0)
        await js.ask("dial", address=handle.addresses[0])
        key = b"\x12\x20" + hashlib.sha256(b"anything").digest()
        found: dict[str, list[str]] = {}

        async def learned() -> bool:
            named = (await js.ask("closest", key=key.hex()))["peers"]
            found.update({peer["id"]: peer["addresses"] for peer in named})
            return handle.peer_ids[1] in found

        await until(learned)
        assert any(handle.addresses_of(1)[0].startswith(address) for address in found[handle.peer_ids[1]])
