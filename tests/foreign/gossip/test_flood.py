"""Six peers with a node's messenger flood a topic, and we miss nothing that another of them got.

Needs Go. Run with `MILLRACE_GO=1 ./run test -m foreign tests/foreign/gossip/test_flood.py -s`; each run lasts
`MILLRACE_FLOOD_SECONDS` (20; 600 for the long one) and prints its numbers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.gossip.conftest import build_go

from millrace.chain.gossip import unwrap
from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, GossipStats, PeerSettings

if TYPE_CHECKING:
    from tests.foreign.gossip.conftest import ForeignPeer, StartNode

pytestmark = pytest.mark.foreign

TOPIC = "transactions_0_1"
NODES = 6
SECONDS = int(os.environ.get("MILLRACE_FLOOD_SECONDS", "20"))
DEGREE_LOW = 5  # a mesh of as many is not filled up (docs/gossip.md)
MARK = 0xF1
"""First byte of a flood's payload; then one of the publisher and four of the message's number."""
TICKS = os.sysconf("SC_CLK_TCK")


class Flood:
    """What we got of it, by publisher."""

    def __init__(self) -> None:
        self.got: dict[int, set[int]] = defaultdict(set)
        self.greetings = 0

    def __call__(self, message: GossipMessage) -> None:
        payload = unwrap(message.data, int(time.time()))
        if payload[0] == MARK:
            self.got[payload[1]].add(int.from_bytes(payload[2:6], "big"))
        else:
            self.greetings += 1

    def total(self) -> int:
        return sum(len(numbers) for numbers in self.got.values())


async def connected(nodes: list[ForeignPeer], handle: GossipHandle) -> None:
    """Every node has all others and us as neighbours, and we are as deep in the mesh as gossipsub asks for.

    Whether the sixth is in it is chance: who has five asks for no more.
    """
    for index, node in enumerate(nodes):
        for other in nodes[index + 1 :]:
            await node.ask("dial", address=other.address)

    async def all_there() -> bool:
        counts = [len((await node.ask("peers"))["connected"]) for node in nodes]
        topic = (await handle.stats()).topics[TOPIC]
        return counts == [NODES] * NODES and topic.peers == NODES and topic.mesh >= DEGREE_LOW

    await nodes[0].until(all_there)


async def seen_by(nodes: list[ForeignPeer]) -> dict[int, set[int]]:
    """By publisher, the numbers that a node other than the publisher received."""
    union: dict[int, set[int]] = defaultdict(set)
    for index, node in enumerate(nodes):
        for publisher, bits in (await node.ask("flooded"))["seen"].items():
            if int(publisher) != index:
                raw = bytes.fromhex(bits)
                union[int(publisher)] |= {n for n in range(8 * len(raw)) if raw[n // 8] >> n % 8 & 1}
    return union


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(("engine", "rate"), [("go", 1000), ("python", 300)])
async def test_nothing_is_missed_that_another_got(start_node: StartNode, engine: str, rate: int) -> None:
    """Of `rate` distinct messages a second in all, 300 bytes each, we get every one that some node got."""
    if engine == "go":
        build_go()
    nodes = [await start_node() for _ in range(NODES)]
    flood = Flood()
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=tuple(node.address for node in nodes))
    async with GossipHandle(GossipSettings(peers=(settings,), engine=engine), flood) as handle:
        await connected(nodes, handle)
        assert handle.pid is not None
        each = rate // NODES
        began, cpu = time.monotonic(), cpu_seconds(handle.pid)
        await asyncio.gather(
            *(
                node.ask("flood", patience=SECONDS + 120, number=index, count=each * SECONDS, rate=each)
                for index, node in enumerate(nodes)
            )
        )
        lasted, cpu = time.monotonic() - began, cpu_seconds(handle.pid) - cpu
        last = -1
        while last != flood.total():  # what is still under way, IWANT included, comes within a few heartbeats
            last = flood.total()
            await asyncio.sleep(4)
        theirs = await seen_by(nodes)
        missed = {publisher: sorted(numbers - flood.got[publisher]) for publisher, numbers in theirs.items()}
        stats = await handle.stats()
        _report(engine, each * NODES * SECONDS, theirs, flood, lasted, cpu, stats)
        print(f"missed: {sum(map(len, missed.values()))}")
        assert not any(missed.values()), missed
        assert stats.connected_peers == NODES
        assert (stats.invalid, stats.dropped_inbound, stats.dropped_validation) == (0, 0, 0)


def _report(
    engine: str, sent: int, theirs: dict[int, set[int]], flood: Flood, lasted: float, cpu: float, stats: GossipStats
) -> None:
    others = sum(len(numbers) for numbers in theirs.values())
    print(
        f"\n{engine}: {sent} sent in {lasted:.0f} s, {others} reached some node, {flood.total()} us;"
        f" {stats.duplicates / max(1, stats.delivered):.1f} copies each, {cpu / lasted:.2f} cores;"
        f" dropped: outbound {stats.dropped_outbound}, control {stats.dropped_control},"
        f" validation {stats.dropped_validation}, inbound {stats.dropped_inbound}"
    )
