"""How cheaply the relayer tells the same thing to thousands of clients.

Goals: 4,000 gasStats subscribers on one core (240,000 messages/s), every tick served, at most 1.35 times the CPU of a
C program that does the same writes; 10,000 clients of /ws/stats on at most 0.7 core and 20 KB each. The service runs on
one core, the clients (C, see fanout.c) on another; gaps are the time between two ticks as one client sees them.
Needs a C compiler. Usage: `python benchmarks/fanout.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from _report import Report

SERVICE_CORE, CLIENT_CORE = 0, max(os.sched_getaffinity(0))
TICK_MS = 50
SUBSCRIBE = '{"action":"subscribe","topic":"gasStats"}'


class Measured(NamedTuple):
    """One run: what the clients counted, and the CPU share of the server meanwhile."""

    counted: dict[str, int]
    cores: float
    resident_per_client: float
    """Bytes; 0 for the floor."""

    def cpu_per_message(self, seconds: float) -> float:
        return self.cores * seconds / max(1, self.counted["frames"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def relayer(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """A relayer process; its WebSocket port and process id."""
    port, http_port = free_port(), free_port()
    values = {
        "port": port, "http_port": http_port, "hub_url": "", "chain_api_url": "", "gossip": "false",
        "data_dir": folder / "data", "max_connections": 20_000,
    }  # fmt: skip
    arguments = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(SERVICE_CORE), sys.executable, "-m", "millrace", "relayer", "--log-level", "error",
        *arguments,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{http_port}/health") as response:
                        if response.status == 200:
                            break
                await asyncio.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def floor(binary: Path, clients: int, size: int) -> AsyncIterator[tuple[int, int]]:
    """The C server which writes as many bytes to as many clients."""
    port = free_port()
    arguments = ["floor", str(port), str(clients), str(TICK_MS), str(size)]
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(SERVICE_CORE), str(binary), *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield port, process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):  # it ends by itself when its clients leave
            process.kill()
        await process.wait()


async def measure(
    binary: Path, port: int, pid: int, path: str, clients: int, seconds: float, message: str | None
) -> Measured:
    """Connect clients, let them settle for two seconds, then count."""
    before = resident(pid)
    arguments = ["load", str(port), path, str(clients), "2", str(seconds)] + ([message] if message else [])
    load = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(CLIENT_CORE), str(binary), *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert load.stdout is not None
    if (await load.stdout.readline()).strip() != b"START":
        raise SystemExit("the clients could not connect")
    cpu, began, grown = cpu_seconds(pid), time.perf_counter(), resident(pid) - before
    await load.stdout.readline()
    cores = (cpu_seconds(pid) - cpu) / (time.perf_counter() - began)
    counted: dict[str, Any] = msgspec.json.decode(await load.stdout.readline())
    await load.wait()
    return Measured(counted, cores, grown / clients)


async def main(clients: int, stats_clients: int, seconds: float) -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report = Report("fanout")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "fanout"
        source = Path(__file__).with_name("fanout.c")
        compiler = await asyncio.create_subprocess_exec("cc", "-O2", "-o", str(binary), str(source))
        if await compiler.wait():
            return 1
        async with relayer(Path(folder)) as (port, pid):
            gas = await measure(binary, port, pid, "/ws", clients, seconds, SUBSCRIBE)
            ticks = seconds * 1000 / TICK_MS
            size = gas.counted["bytes"] // max(1, gas.counted["frames"]) * 3
        async with floor(binary, clients, size) as (port, pid):
            least = await measure(binary, port, pid, "/", clients, seconds, None)
        async with relayer(Path(folder)) as (port, pid):
            stats = await measure(binary, port, pid, "/ws/stats", stats_clients, seconds, None)
    report.add("gasStats messages", gas.counted["frames"] / seconds, "1/s")
    report.add("gasStats ticks served", gas.counted["frames"] / (3 * clients * ticks), "", (">=", 0.99))
    report.add("gasStats gap, 99 of 100", gas.counted["gap_p99"] / 1e6, "ms", ("<=", 2.0 * TICK_MS))
    report.add("gasStats CPU", gas.cores, "cores")
    report.add("C floor CPU", least.cores, "cores")
    report.add("gasStats CPU against the floor", gas.cores / max(least.cores, 1e-9), "times", ("<=", 1.35))
    report.add("/ws/stats messages", stats.counted["frames"] / seconds, "1/s")
    report.add("/ws/stats CPU", stats.cores, "cores", ("<=", 0.7))
    report.add("/ws/stats memory a client", stats.resident_per_client / 1024, "KB", ("<=", 20.0))
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the clients, for 3 seconds")
    quick = parser.parse_args().quick
    sys.exit(asyncio.run(main(400, 1_000, 3.0) if quick else main(4_000, 10_000, 10.0)))
