"""How cheaply the relayer tells the same thing to thousands of clients, and what clients leave behind.

Goals: 4,000 gasStats subscribers on one core (240,000 messages/s), every tick served, 99 of 100 within 50 ms of when
it was due, at most 1.35 times the CPU of a C program that does the same writes, a quarter of what uvicorn with
websockets needs; 10,000 clients of /ws/stats on at most 0.7 core and 20 KB each; memory and descriptors back to where
they were after 16,000 idle connections, and after 5,000 clients that all reconnected within 10 s.
The service runs on one core, the clients (C, see fanout.c) on another. Needs a C compiler.
Usage: `python benchmarks/fanout.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from _hub import Blocks, Hub
from _report import Report
from _service import (
    CLIENT_CORE,
    SERVICE_CORE,
    Relayer,
    allow_files,
    cpu_seconds,
    open_files,
    relayer,
    resident,
)
from millrace.system.ports import free_ports

TICK_MS, SHARDS = 50, 3
STATS_MS = 250
SUBSCRIBE = '{"action":"subscribe","topic":"gasStats"}'
CONNECTORS = 10
ROUNDS = 3
SETTLE = 12.0
"""Seconds until the timers of ended connections have run out, too."""
NOISE = 512 * 1024
"""Bytes by which the memory of a process at rest may change in a second."""


class Scale(NamedTuple):
    """How much of everything."""

    clients: int
    stats_clients: int
    idle: int
    reconnecting: int
    seconds: float


WHOLE, QUICK = Scale(4_000, 10_000, 16_000, 5_000, 10.0), Scale(400, 1_000, 1_600, 500, 3.0)


class Measured(NamedTuple):
    """One run: what the clients counted, and what the server used meanwhile."""

    counted: dict[str, int]
    cores: float
    seconds: float
    resident_per_client: float
    """Bytes."""

    @property
    def cpu(self) -> float:
        """Microseconds a message."""
        return self.cores * self.seconds * 1e6 / max(1, self.counted["frames"])


async def measure(
    binary: Path, port: int, pid: int, path: str, clients: int, seconds: float, tick: tuple[int, int], message: str = ""
) -> Measured:
    """Connect clients, let them settle for two seconds, then count; `tick` is its milliseconds and its frames."""
    before = resident(pid)
    arguments = ["load", str(port), path, str(clients), "2", str(seconds), *map(str, tick), *_wanted(message)]
    load = await _on_client_core(binary, *arguments)
    assert load.stdout is not None
    if (await load.stdout.readline()).strip() != b"START":
        raise SystemExit("the clients could not connect")
    cpu, began, grown = cpu_seconds(pid), time.perf_counter(), resident(pid) - before
    await load.stdout.readline()
    took = time.perf_counter() - began
    cores = (cpu_seconds(pid) - cpu) / took
    counted: dict[str, Any] = msgspec.json.decode(await load.stdout.readline())
    await load.wait()
    return Measured(counted, cores, took, grown / clients)


def _wanted(message: str) -> list[str]:
    return [message] if message else []


async def _on_client_core(binary: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "taskset", "-c", str(CLIENT_CORE), str(binary), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def other_server(*command: str) -> AsyncIterator[int]:
    """Another server on the service's core; its process id, once it runs."""
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(SERVICE_CORE), *command, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await asyncio.sleep(2.0)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):  # the floor ends by itself when its clients leave
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def fed(folder: Path) -> AsyncIterator[Relayer]:
    """A relayer that is told of a block of 20 transactions every 200 ms, so that its numbers are real and change."""
    hub = Hub()
    url = await hub.start()

    async def feed() -> None:
        shards = [Blocks(shard) for shard in range(SHARDS)]
        while True:
            for shard in shards:
                hub.save(shard.next([os.urandom(32) for _ in range(20)]))
                await asyncio.sleep(0.2)

    async with relayer(folder, hub_url=url) as running:
        feeding = asyncio.create_task(feed())
        try:
            yield running
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    await hub.stop()


class Round(NamedTuple):
    """The same fan-out by the relayer, by the C floor and by uvicorn, one right after the other."""

    ours: Measured
    left_out: float
    floor: Measured
    uvicorn: Measured


async def gas_stats_round(binary: Path, folder: Path, clients: int, seconds: float) -> Round:
    """One round; the others send as many bytes and frames as the relayer did, to as many clients."""
    tick = (TICK_MS, SHARDS)
    async with fed(folder) as running:
        ours = await measure(binary, running.port, running.pid, "/ws", clients, seconds, tick, SUBSCRIBE)
        left_out = await running.metric("relayer_conflated_total")
    size = ours.counted["bytes"] * SHARDS // max(1, ours.counted["frames"])
    stream = [str(clients), str(TICK_MS), str(size), str(SHARDS)]
    port = free_ports(1)[0]
    async with other_server(str(binary), "floor", str(port), *stream) as pid:
        floor = await measure(binary, port, pid, "/", clients, seconds, tick)
    port = free_ports(1)[0]
    peer = str(Path(__file__).with_name("_uvicorn_peer.py"))
    async with other_server(sys.executable, peer, str(port), *stream) as pid:
        uvicorn = await measure(binary, port, pid, "/", clients, seconds, tick)
    return Round(ours, left_out, floor, uvicorn)


async def gas_stats(report: Report, binary: Path, folder: Path, scale: Scale) -> None:
    """The gasStats stream against the C floor and against uvicorn: medians of rounds in which each has its turn.

    What a message costs moves with whatever else the machine does, so what is compared is measured within seconds.
    """
    rounds = [
        await gas_stats_round(binary, folder / str(number), scale.clients, scale.seconds / 2)
        for number in range(ROUNDS)
    ]
    seconds, due = scale.seconds / 2, scale.clients * SHARDS * scale.seconds / 2 * 1000 / TICK_MS
    ours = [item.ours for item in rounds]
    report.add("gasStats messages", median(item.counted["frames"] / seconds for item in ours), "1/s")
    report.add("gasStats served of what was due", median(i.counted["frames"] / due for i in ours), "", (">=", 0.995))
    report.add("gasStats ticks left out", median(item.left_out for item in rounds), "", ("<=", 0))
    report.add("gasStats lag, 99 of 100", median(i.counted["lag_p99"] / 1e6 for i in ours), "ms", ("<=", TICK_MS))
    report.add("gasStats lag, median", median(item.counted["lag_p50"] / 1e6 for item in ours), "ms")
    report.add("gasStats CPU", median(item.cpu for item in ours), "us/message")
    report.add("C floor CPU", median(item.floor.cpu for item in rounds), "us/message")
    report.add("C floor lag, 99 of 100", median(item.floor.counted["lag_p99"] / 1e6 for item in rounds), "ms")
    against_floor = median(item.ours.cpu / item.floor.cpu for item in rounds)
    report.add("gasStats CPU against the floor", against_floor, "times", ("<=", 1.35))
    report.add("uvicorn messages", median(item.uvicorn.counted["frames"] / seconds for item in rounds), "1/s")
    report.add("uvicorn CPU", median(item.uvicorn.cpu for item in rounds), "us/message")
    against_uvicorn = median(item.uvicorn.cpu / item.ours.cpu for item in rounds)
    report.add("messages per CPU time against uvicorn", against_uvicorn, "times", (">=", 4.0))
    lost = sum(one.counted["lost"] for item in rounds for one in (item.ours, item.floor, item.uvicorn))
    report.add("connections lost, of all three", lost, "", ("<=", 0))


async def network_stats(report: Report, binary: Path, folder: Path, scale: Scale) -> None:
    """The stream of /ws/stats."""
    async with fed(folder) as running:
        ours = await measure(
            binary, running.port, running.pid, "/ws/stats", scale.stats_clients, scale.seconds, (STATS_MS, 1)
        )
    report.add("/ws/stats messages", ours.counted["frames"] / scale.seconds, "1/s")
    report.add("/ws/stats CPU", ours.cores, "cores", ("<=", 0.7))
    report.add("/ws/stats memory a client", ours.resident_per_client / 1024, "KB", ("<=", 20.0))


class Crowd:
    """Clients that come, stay and leave at a word, in a few processes: each connects one client after the other."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    @classmethod
    async def come(cls, binary: Path, port: int, clients: int, seconds: float, message: str = "") -> Crowd:
        """All are connected when this returns."""
        arguments = ["hold", str(port), "/ws", str(clients // CONNECTORS), str(seconds), *_wanted(message)]
        crowd = cls([await _on_client_core(binary, *arguments) for _ in range(CONNECTORS)])
        await crowd._connected()
        return crowd

    async def _connected(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        for process in self._processes:
            assert process.stdout is not None
            line = await process.stdout.readline()
            if not line:
                raise SystemExit("the clients could not connect")
            told.append(msgspec.json.decode(line))
        return told

    async def again(self) -> tuple[float, float]:
        """All leave at once and come back; how long that took, and the slowest of them (seconds)."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"again\n")
        told = await self._connected()
        return max(item["seconds"] for item in told), max(item["slowest"] for item in told) / 1e9

    async def leave(self) -> None:
        """All are gone."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            await process.wait()


async def _rest(pid: int, files: int) -> tuple[int, int]:
    """What the process holds when it has seen everybody off: memory, and descriptors more than `files`."""
    await asyncio.sleep(SETTLE)
    held = resident(pid)
    for _ in range(30):
        await asyncio.sleep(1.0)
        before, held = held, resident(pid)
        if open_files(pid) <= files and abs(held - before) < NOISE:
            break
    return held, open_files(pid) - files


async def churn(report: Report, binary: Path, folder: Path, scale: Scale) -> None:
    """What is left of those who are gone.

    Two crowds come and go first: what a process needs once is there then, and what long-lived objects hold of the
    memory around them, which is less with each further crowd. A leak would go on growing.
    """
    async with relayer(folder) as running:
        files = open_files(running.pid)
        fresh = resident(running.pid)
        for _ in range(2):
            await (await Crowd.come(binary, running.port, scale.idle, 8.0)).leave()
            before, _ = await _rest(running.pid, files)
        crowd = await Crowd.come(binary, running.port, scale.idle, 8.0)
        full = resident(running.pid)
        await crowd.leave()
        idle_after, idle_files = await _rest(running.pid, files)
        crowd = await Crowd.come(binary, running.port, scale.reconnecting, 5.0, SUBSCRIBE)
        held = resident(running.pid)
        took, slowest = await crowd.again()
        held_again = resident(running.pid)
        await crowd.leave()
        after, storm_files = await _rest(running.pid, files)
    report.add("idle connections", scale.idle)
    report.add("idle connection, memory", (full - before) / scale.idle / 1024, "KB")
    report.add("memory of a new process", fresh / 1e6, "MB")
    report.add("memory before (two crowds have come and gone)", before / 1e6, "MB")
    report.add("memory after idle connections", idle_after / before, "times before", ("<=", 1.1))
    report.add("descriptors more after idle connections", idle_files, "", ("<=", 0))
    report.add("clients reconnecting", scale.reconnecting)
    report.add("all reconnected", took, "s", ("<=", 10.0))
    report.add("slowest reconnect", slowest * 1000, "ms")
    report.add("memory with all of them back", held_again / held, "times before", ("<=", 1.1))
    report.add("memory after they left", after / before, "times before", ("<=", 1.1))
    report.add("descriptors more after they left", storm_files, "", ("<=", 0))


async def main(scale: Scale) -> int:
    allow_files(3 * scale.idle)
    report = Report("fanout")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "fanout"
        source = Path(__file__).with_name("fanout.c")
        compiler = await asyncio.create_subprocess_exec("cc", "-O2", "-o", str(binary), str(source))
        if await compiler.wait():
            return 1
        for number, part in enumerate((gas_stats, network_stats, churn)):
            await part(report, binary, Path(folder) / str(number), scale)
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the clients, for 3 seconds")
    sys.exit(asyncio.run(main(QUICK if parser.parse_args().quick else WHOLE)))
