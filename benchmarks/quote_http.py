"""Load on a whole aggregator process over HTTP, for benchmarks/quote.py."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp import web

from millrace.dex.document import PoolDocument, decode
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing.router import Router
from millrace.system.ports import free_ports

CONNECTIONS = 4
SECONDS = 2.0  # of one round of load
ROUNDS = 5
TURN, TURNS = 0.5, 24  # s, and how many of them, where two services are asked in turns
SETTLE = 1.0  # until the last refresh with a changed market is over
MOST_TRADED, LEAST_TRADED = 2e-4, 1e-5  # parts of what a pool holds
PER_SECOND = 5_000  # distinct questions at hand; nothing that remembers answers would help
SERVICE_CORE, CLIENT_CORE = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))

PROGRAM = """
import sys
from millrace.aggregator.app import run
from millrace.aggregator.settings import AggregatorSettings
from millrace.runtime.process import run_service
settings = AggregatorSettings(
    port=int(sys.argv[1]), pools_url=sys.argv[2], poll_seconds=float(sys.argv[3]), requests_per_second=10**6,
    metrics_port=int(sys.argv[4]), workers=int(sys.argv[5]),
)
run_service(lambda stop: run(settings, stop), uvloop=True)
"""


async def measure_http(first: bytes, second: bytes, similar: bytes) -> dict[str, float]:
    """Quotes per second, p99 with and without refreshes, time to build a snapshot, time to be ready.

    Refreshes bring the first and second document in turn, which differ in every pool; at the end the first and a
    `similar` one. The service has one core, the client another. No question is asked twice. Rounds with and without
    refreshes take turns, as the machine's speed moves; what is compared is of the same turn, and of all turns the
    median counts.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CLIENT_CORE})
    try:
        return await _measured(first, second, similar)
    finally:
        os.sched_setaffinity(0, allowed)


async def _measured(first: bytes, second: bytes, similar: bytes) -> dict[str, float]:
    upstream = _Upstream([first])
    port_upstream = await upstream.start()
    started = time.monotonic()
    process, port, metrics_port = await _start(port_upstream, 0.5, 1)
    base, operators = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}"
    try:
        await _until_ready(base)
        ready = time.monotonic() - started
        requests = itertools.cycle(_requests(first, port, int(PER_SECOND * SECONDS * (2 * ROUNDS + 2))))
        await _load(port, requests, SECONDS)
        cpu, refreshed, quiet, busy = 0.0, 0.0, [], []
        for _ in range(ROUNDS):
            upstream.documents = [first]
            await asyncio.sleep(SETTLE)
            cpu -= _cpu_seconds(process.pid)
            quiet.append(await _load(port, requests, SECONDS))
            cpu += _cpu_seconds(process.pid)
            upstream.documents = [first, second]  # every refresh brings a changed market
            refreshed -= await _metric(operators, "aggregator_refreshes_total")
            busy.append(await _load(port, requests, SECONDS))
            refreshed += await _metric(operators, "aggregator_refreshes_total")
        build = await _metric(operators, "aggregator_snapshot_build_seconds")
        upstream.documents = [first, similar]
        await _load(port, requests, SECONDS)
        similar_build = await _metric(operators, "aggregator_snapshot_build_seconds")
    finally:
        process.terminate()
        await process.wait()
        await upstream.stop()
    return {
        "ready_s": ready,
        "per_second": statistics.median(len(times) for times in quiet) / SECONDS,
        "per_cpu_second": sum(len(times) for times in quiet) / cpu,
        "p99_ms": statistics.median(_p99(times) for times in quiet) * 1e3,
        "p99_refresh_ms": statistics.median(_p99(times) for times in busy) * 1e3,
        "refresh_ratio": statistics.median(_p99(b) / _p99(q) for q, b in zip(quiet, busy, strict=True)),
        "refreshes_per_second": refreshed / (SECONDS * ROUNDS),
        "build_ms": build * 1e3,
        "similar_build_ms": similar_build * 1e3,
    }


async def measure_workers(document: bytes, workers: int) -> float:
    """Quotes per CPU second of a service with so many workers, to those of one without.

    Both have every core, and are asked in many short turns, each one first in every second: the machine's speed moves.
    The CPU time is of all their processes, the one that fetches included, at the usual rate of refreshes.
    """
    upstream = _Upstream([document])
    port_upstream = await upstream.start()
    cores = {SERVICE_CORE, CLIENT_CORE}
    services = [await _start(port_upstream, 5.0, count, cores) for count in (1, workers)]
    try:
        asked = []
        for _, port, operators in services:
            await _until_ready(f"http://127.0.0.1:{port}")
            await _until_workers(f"http://127.0.0.1:{operators}")
            asked.append(itertools.cycle(_requests(document, port, int(PER_SECOND * TURN * TURNS))))
        answered, cpu = [0, 0], [0.0, 0.0]
        for turn in range(2 * TURNS):
            which = turn % 2 ^ turn // 2 % 2
            process, port, _ = services[which]
            begun = _cpu_of_family(process.pid)
            count = len(await _load(port, asked[which], TURN, connections=4 * CONNECTIONS))
            if turn >= 4:  # the first turns warm both
                answered[which] += count
                cpu[which] += _cpu_of_family(process.pid) - begun
        return answered[1] / cpu[1] / (answered[0] / cpu[0])
    finally:
        for process, _, _ in services:
            process.terminate()
            await process.wait()
        await upstream.stop()


async def _start(
    port_upstream: int, poll: float, workers: int, cores: Collection[int] = (SERVICE_CORE,)
) -> tuple[asyncio.subprocess.Process, int, int]:
    """A service on these cores: its process, its port, the operators' port."""
    port, operators = free_ports(2)
    source = f"http://127.0.0.1:{port_upstream}/pools"
    arguments = (str(port), source, str(poll), str(operators), str(workers))
    command = ("taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", PROGRAM, *arguments)
    return await asyncio.create_subprocess_exec(*command), port, operators


async def _until_workers(operators: str) -> None:
    """Wait until all workers answer."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(operators + "/health") as answer:
                health = await answer.json()
                if health["workers"] == health["workersWanted"]:
                    return
            await asyncio.sleep(0.01)


def _cpu_of_family(pid: int) -> float:
    """CPU time of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(_cpu_seconds, (pid, *map(int, children))))


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def traded(document: PoolDocument, seed: int, part: float = 1.0) -> PoolDocument:
    """The market some blocks later: this part of the pools has seen a trade of up to 0.02 % of what it holds.

    Where that leaves a cycle that gains, trades are smaller: it is to be a market of the same kind, without any.
    """
    most = MOST_TRADED
    while True:
        market = _traded(document, seed, part, most)
        if not Router(market.pools, DictMarket(market.pools, market.wrapped_native_token)).whole.mispriced:
            return market
        most /= 2.0
        if most < LEAST_TRADED:
            raise ValueError("this market has cycles that gain before any trade")


def _traded(document: PoolDocument, seed: int, part: float, most: float) -> PoolDocument:
    """The market after trades of up to the part `most` of what pools hold."""
    rng = random.Random(f"traded/{seed}")

    def moved(pool: Pool) -> Pool:
        if rng.random() >= part:
            return pool
        i = rng.randrange(len(pool.tokens))
        try:
            amount = max(1, int(pool.reserves[i] * rng.uniform(LEAST_TRADED, most)))
            return pool.swap(i, (i + 1) % len(pool.tokens), amount).pool
        except PoolError:  # too small, or closed for swaps
            return pool

    block = msgspec.structs.replace(document.block, nonce=document.block.nonce + 1)
    return msgspec.structs.replace(document, block=block, pools=tuple(moved(pool) for pool in document.pools))


class _Upstream:
    """Serves its documents in turn."""

    def __init__(self, documents: list[bytes]) -> None:
        self.documents = documents
        self._served = 0
        app = web.Application()
        app.router.add_get("/pools", self._pools)
        self._runner = web.AppRunner(app)

    async def start(self) -> int:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _pools(self, _: web.Request) -> web.Response:
        self._served += 1
        return web.Response(body=self.documents[self._served % len(self.documents)])


def _cpu_seconds(pid: int) -> float:
    """CPU time a process has used, from /proc (fields 14 and 15, in clock ticks)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _until_ready(base: str) -> None:
    deadline = time.monotonic() + 120
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            try:
                async with session.get(base + "/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.01)
    raise TimeoutError("the aggregator did not become ready")


def _requests(document: bytes, port: int, count: int, seed: int = 0) -> list[bytes]:
    """Raw requests of a mixed set of forward quotes, each with an amount of its own."""
    rng = random.Random(seed)
    pools = decode(document).pools
    requests = []
    for _ in range(count):
        pool = rng.choice(pools)
        token_out = rng.choice(rng.choice(pools).tokens)
        if token_out == pool.tokens[0]:
            continue
        amount = max(1, int(pool.reserves[0] * 10 ** rng.uniform(-5, -2)))
        query = urlencode({"from": pool.tokens[0], "to": token_out, "amountIn": str(amount)})
        requests.append(f"GET /api/v1/quote?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return requests


async def _load(port: int, requests: Iterator[bytes], seconds: float, connections: int = CONNECTIONS) -> list[float]:
    """Latencies (s) of requests over kept connections, each sent when the one before is answered."""
    end = time.perf_counter() + seconds

    async def client() -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        times = []
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            times.append(time.perf_counter() - start)
        writer.close()
        return times

    results = await asyncio.gather(*(client() for _ in range(connections)))
    return [value for result in results for value in result]


async def _metric(base: str, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(base + "/metrics") as answer:
        for line in (await answer.text()).splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise KeyError(f"{name} in process {os.getpid()}")
