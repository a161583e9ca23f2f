"""What an edge adds to a relayed transaction, and whether two edges serve twice the clients at the same price.

Goals: forwarding adds at most 2 ms to 99 of 100 replies and 60 us of CPU to a transaction, of edge and relayer together
and against the same relayer asked directly, in turns in the same run (of 400 us on a quiet machine: 1.15 times as much,
which is what can be judged on a busy one), where each transaction comes by itself and where several leave an edge in
one message; 20,000 clients of networkStats over two edges cost, per message, at most 1.1 times what half of them cost
on one. Services run on one core, clients on another.
Needs a C compiler. Usage: `python benchmarks/edge.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

import fanout
import relayer as relaying
from _report import Report
from _service import Relayer, allow_files, cpu_seconds_of_all, relayer
from millrace.runtime import websocket

CONNECTIONS = 20
RATES = 250, 800, 1_600
"""Transactions a second, one by one over all connections. At the first each wakes every process by itself; at the
others several come within the time for which submissions wait for each other."""
TOGETHER = 2
"""Edges."""


class Scale(NamedTuple):
    """How much of everything."""

    rounds: int
    transactions: int
    clients: int
    """Of each edge."""
    seconds: float


WHOLE, QUICK = Scale(5, 2_000, 10_000, 5.0), Scale(3, 1_000, 1_000, 3.0)


class Way(NamedTuple):
    """One way to the relayer, in one round."""

    cpu: float
    """Microseconds of a transaction, of all services."""
    p50: float
    p99: float
    """Milliseconds to a reply."""


class Asker(websocket.Session):
    """A client that sends one transaction after the other and notes when each reply came."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[int, float] = {}

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        reply = msgspec.json.decode(data)
        assert reply["status"] == "completed", reply
        self.replies[reply["requestId"]] = time.perf_counter()


async def relayed(port: int, work: list[list[bytes]], rate: int, pids: list[int]) -> Way:
    """Send so many transactions a second, each when it is due, and wait for all replies."""
    clients = [Asker() for _ in work]
    for client in clients:
        await websocket.connect(f"ws://127.0.0.1:{port}/ws", client)
    before, pause, times = sum(map(cpu_seconds_of_all, pids)), len(work) / rate, []

    async def send(client: Asker, items: list[bytes], first: float) -> None:
        due = first
        sent = []
        for number, item in enumerate(items):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent.append(time.perf_counter())
            client.send_text(b'{"action":"relay","requestId":%d,"tx":%b}' % (number, item))
            due += pause
        async with asyncio.timeout(30):
            while len(client.replies) < len(items):
                await asyncio.sleep(0.01)
        times.extend(client.replies[number] - began for number, began in enumerate(sent))

    now = time.perf_counter() + 0.1
    pairs = enumerate(zip(clients, work, strict=True))
    await asyncio.gather(*(send(client, items, now + pause * place / len(work)) for place, (client, items) in pairs))
    cpu = (sum(map(cpu_seconds_of_all, pids)) - before) / len(times) * 1e6
    for client in clients:
        client.close()
    times.sort()
    return Way(cpu, times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3)


async def forwarding(report: Report, folder: Path, scale: Scale) -> None:
    """What an edge adds at each rate."""
    for rate in RATES:
        place, at = folder / str(rate), f"{rate:,} a second: "
        place.mkdir()
        direct, by_edge = await _in_turns(place, scale, rate)
        pairs = list(zip(direct, by_edge, strict=True))
        against = median(two.cpu / one.cpu for one, two in pairs)
        p50 = median(two.p50 - one.p50 for one, two in pairs)
        p99 = median(two.p99 - one.p99 for one, two in pairs)
        report.add(at + "relayed directly, CPU", median(way.cpu for way in direct), "us")
        report.add(at + "relayed by an edge, CPU", median(way.cpu for way in by_edge), "us")
        report.add(at + "CPU that the edge adds", median(two.cpu - one.cpu for one, two in pairs), "us", ("<=", 60.0))
        report.add(at + "CPU by an edge against directly", against, "times", ("<=", 1.15))
        report.add(at + "reply directly, median", median(way.p50 for way in direct), "ms")
        report.add(at + "reply directly, 99 of 100", median(way.p99 for way in direct), "ms")
        report.add(at + "time that the edge adds, median", p50, "ms")
        report.add(at + "time that the edge adds, 99 of 100", p99, "ms", ("<=", 2.0))


async def _in_turns(folder: Path, scale: Scale, rate: int) -> tuple[list[Way], list[Way]]:
    """The same relayer asked directly and by an edge, in turns."""
    keys = [relaying.key_in(shard) for shard in range(3)]
    each = scale.transactions // CONNECTIONS // relaying.BATCH
    server, api = await relaying.chain_api()
    direct: list[Way] = []
    by_edge: list[Way] = []
    async with relaying.network() as peer:
        values = relaying.settings(folder, keys, api, peer) | {"edges": ["127.0.0.0/8"], "max_wait": 30.0}
        async with relayer(folder / "signer", **values) as signer:
            told = {"forward_to": [f"ws://127.0.0.1:{signer.port}"], "chain_id": relaying.NETWORK.chain_id}
            told |= {name: values[name] for name in values if name.startswith(("submit_", "receive_"))}
            async with relayer(folder / "edge", **told) as edge:
                pids = [signer.pid, edge.pid]
                for number in range(scale.rounds + 1):
                    ways = (direct, signer.port), (by_edge, edge.port)
                    for way, port in ways if number % 2 else reversed(ways):  # what is in flight grows, and is resent
                        work = [_singles(mine) for mine in relaying.batches(keys, CONNECTIONS, each)]
                        found = await relayed(port, work, rate, pids)
                        if number:  # in the first round everything is new
                            way.append(found)
    await server.stop()
    return direct, by_edge


def _singles(batches: list[bytes]) -> list[bytes]:
    return [bytes(item) for batch in batches for item in msgspec.json.decode(batch, type=list[msgspec.Raw])]


async def serving(report: Report, folder: Path, scale: Scale) -> None:
    """Clients of one edge, then as many on each of two, in turns."""
    binary = folder / "fanout"
    compiler = await asyncio.create_subprocess_exec(
        "cc", "-O2", "-o", str(binary), str(Path(__file__).with_name("fanout.c"))
    )
    if await compiler.wait():
        raise SystemExit("the clients cannot be compiled")

    async def load(edge: Relayer) -> tuple[float, int]:
        """Seconds of CPU, and messages."""
        tick = fanout.STATS_MS, 1
        found = await fanout.measure(binary, edge.port, edge.pid, "/ws/stats", scale.clients, scale.seconds, tick)
        return found.cores * found.seconds, found.counted["frames"]

    single: list[float] = []
    double: list[float] = []
    served = 0
    async with relayer(folder / "signer", edges=["127.0.0.0/8"]) as signer:
        away = {"forward_to": [f"ws://127.0.0.1:{signer.port}"]}
        async with relayer(folder / "one", **away) as one, relayer(folder / "two", **away) as two:
            for number in range(scale.rounds):
                alone = await load((one, two)[number % TOGETHER])
                both = await asyncio.gather(load(one), load(two))
                single.append(alone[0] / alone[1] * 1e6)
                double.append(sum(cpu for cpu, _ in both) / sum(count for _, count in both) * 1e6)
                served += sum(count for _, count in both)
    against = median(two / one for one, two in zip(single, double, strict=True))
    report.add(f"networkStats of {scale.clients:,} clients on one edge, CPU", median(single), "us/message")
    report.add(f"… of {TOGETHER * scale.clients:,} on two, CPU", median(double), "us/message")
    report.add("CPU a message of two edges against one", against, "times", ("<=", 1.1))
    due = scale.rounds * TOGETHER * scale.clients * scale.seconds * 1000 / fanout.STATS_MS
    report.add("served of what was due on two", served / due, "")


async def main(scale: Scale) -> int:
    allow_files(3 * scale.clients)
    report = Report("edge")
    with tempfile.TemporaryDirectory() as name:
        for number, part in enumerate((forwarding, serving)):
            folder = Path(name) / str(number)
            folder.mkdir()
            await part(report, folder, scale)
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer transactions, and a tenth of the clients")
    sys.exit(asyncio.run(main(QUICK if parser.parse_args().quick else WHOLE)))
