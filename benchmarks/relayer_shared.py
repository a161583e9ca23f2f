"""What sharing claims costs: CPU of one relayed transaction by two relayers on PostgreSQL, beside one on SQLite.

Goals: with two relayers that share their claims, the server's work included, at most 1.2 times the CPU of one relayer
that is as busy as each of them; beside it what the same load takes on one. What is spread over two wakes each for fewer
transactions at a time, which costs more with and without claims. When the primary is lost and its standby promoted, at
most 10 s without an answer to who asks, and everything acknowledged is claimed on the new primary.
Usage: `python benchmarks/relayer_shared.py [--quick]`. The server is Debian's, as the tests start it.
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

import aiohttp
import msgspec
from aiohttp import web

from _report import Report
from _service import CLIENT_CORE, Relayer, allow_files, cpu_seconds, cpu_seconds_of_all, relayer
from millrace.chain.keys import KeyPair
from millrace.runtime import http
from relayer import BATCH, CONNECTIONS, batches, key_in, network
from relayer import settings as unlimited

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from servers.postgres import Postgres, Standby

RATE = 600
"""Transactions a second for each relayer: two of them and a server have to find room on two cores."""
Around = tuple[list[KeyPair], str, str]
"""Keys, chain API and gossip peer."""


async def chain_api() -> tuple[http.HttpServer, str]:
    """Accounts at nonce 0, rich enough for what relayers leave alone for each other; takes transactions."""

    async def account(_: web.Request) -> web.Response:
        return http.json_response({"nonce": 0, "balance": str(10**30)})

    async def submit(request: web.Request) -> web.Response:
        await request.read()
        return http.json_response({"txHash": ""}, 201)

    app = http.make_app()
    app.add_routes([web.get("/accounts/{address}", account), web.post("/transactions", submit)])
    server = http.HttpServer(app)
    return server, f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"


def settings(folder: Path, keys: list[KeyPair], api: str, peer: str) -> dict[str, object]:
    """Settings of a relayer with these keys that gossips to this peer, whose budgets and rates are no limit."""
    return unlimited(folder, keys, api, peer) | {"regossip_seconds": 10_000}


def load(around: Around, rate: int, seconds: float) -> list[list[bytes]]:
    """What clients send in so many seconds."""
    return batches(around[0], CONNECTIONS, int(rate * seconds / CONNECTIONS / BATCH))


async def relay_steadily(ports: list[int], work: list[list[bytes]], rate: int) -> tuple[int, float]:
    """Offer batches at a rate, spread over all relayers; how many were accepted, and the longest time between answers.

    What is refused is sent again: the server may be away, and a machine that others use too slow for a moment.
    """
    accepted, longest, last = 0, 0.0, time.perf_counter()
    pause = CONNECTIONS * BATCH / rate

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        nonlocal accepted, longest, last
        async with session.ws_connect(f"ws://127.0.0.1:{ports[number % len(ports)]}/ws") as link:
            await asyncio.sleep(pause * number / CONNECTIONS)
            due = time.perf_counter()
            for batch in work[number]:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                while True:
                    await link.send_str('{"action":"relay","requestId":"b","txs":' + batch.decode() + "}")
                    reply = msgspec.json.decode((await link.receive()).data)
                    if reply.get("status") == "completed":
                        break
                    await asyncio.sleep(0.05)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
                accepted += BATCH
                due = max(due + pause, now - pause)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(number, session) for number in range(CONNECTIONS)))
    return accepted, longest


def cpu_of_server(server: Postgres) -> float:
    """Of all processes of a PostgreSQL server, also those that have ended."""
    pid = server.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ended + cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children)


async def alone(folder: Path, around: Around, rate: int, seconds: float) -> float:
    """Seconds of CPU for a transaction, by one relayer."""
    os.mkdir(folder)  # noqa: PTH102 - this loop has nothing else to do
    work = load(around, rate, seconds)
    async with relayer(folder, **settings(folder, *around)) as running:
        before = cpu_seconds_of_all(running.pid)
        count, _ = await relay_steadily([running.port], work, rate)
        return (cpu_seconds_of_all(running.pid) - before) / count


@contextlib.asynccontextmanager
async def two(folder: Path, around: Around, url: str) -> AsyncIterator[list[Relayer]]:
    """Two relayers that share."""
    os.mkdir(folder)  # noqa: PTH102
    async with contextlib.AsyncExitStack() as stack:
        running: list[Relayer] = []
        for name in ("one", "two"):
            os.mkdir(folder / name)  # noqa: PTH102
            values = settings(folder / name, *around) | {
                "claims_url": url, "claims_schema": folder.name, "lease_schema": f"{folder.name}_leases",
                "claims_seats": 2,
            }  # fmt: skip
            running.append(await stack.enter_async_context(relayer(folder / name, **values)))
        yield running


async def shared(folder: Path, around: Around, seconds: float, server: Postgres) -> tuple[float, float]:
    """The same by two, and what of it is the server's."""
    work = load(around, 2 * RATE, seconds)
    async with two(folder, around, server.url) as running:
        before = [cpu_seconds_of_all(item.pid) for item in running], cpu_of_server(server)
        count, _ = await relay_steadily([item.port for item in running], work, 2 * RATE)
        of_server = cpu_of_server(server) - before[1]
        spent = sum(cpu_seconds_of_all(item.pid) for item in running) - sum(before[0]) + of_server
    return spent / count, of_server / count


async def fail_over(report: Report, folder: Path, around: Around, seconds: float, primary: Postgres) -> None:
    """The primary is lost while clients ask; what was acknowledged is looked for on its standby."""
    work = load(around, 2 * RATE, seconds)
    standby = Standby(primary)
    try:
        standby.start()
        primary.wait_for_standby()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://millrace:{primary.password}@{hosts}/postgres?target_session_attrs=read-write"
        async with two(folder, around, url) as running:
            asking = asyncio.create_task(relay_steadily([item.port for item in running], work, 2 * RATE))
            await asyncio.sleep(seconds / 2)
            primary.kill()
            await asyncio.to_thread(standby.promote)
            count, longest = await asking
            there = int(standby.sql(f'SELECT count(*) FROM "{folder.name}".claims'))
        report.add("longest time between answers as the primary is lost", longest, "s", ("<=", 10.0))
        report.add("acknowledged and not claimed on its standby", max(0, count - there), "tx", ("<=", 0))
    finally:
        standby.close()


async def main(seconds: float) -> int:
    os.sched_setaffinity(0, {CLIENT_CORE})
    allow_files(4_000)
    report = Report("relayer_shared")
    keys = [key_in(shard) for shard in range(3)]
    server, api = await chain_api()
    primary = Postgres()
    try:
        primary.start()
        with tempfile.TemporaryDirectory() as name:
            async with network() as peer:
                folder, rounds, around = Path(name), [], (keys, api, peer)
                for number in range(3):
                    one = await alone(folder / f"alone{number}", around, RATE, seconds)
                    both, of_server = await shared(folder / f"shared{number}", around, seconds, primary)
                    all_of_it = await alone(folder / f"all{number}", around, 2 * RATE, seconds)
                    rounds.append((both / one, one, both, of_server, both / all_of_it))
                ratio, one, both, of_server, _ = sorted(rounds)[1]
                report.add(f"CPU of one relayed, one relayer on SQLite, {RATE} tx/s", one * 1e6, "us")
                report.add(f"CPU of one relayed, two relayers with {RATE} tx/s each, PostgreSQL", both * 1e6, "us")
                report.add("of it PostgreSQL", of_server * 1e6, "us")
                report.add("two that share against one, median of three rounds", ratio, "times", ("<=", 1.2))
                together = sorted(item[-1] for item in rounds)[1]
                report.add("two that share against the same load on one, median", together, "times")
                await fail_over(report, folder / "lost", around, seconds, primary)
    finally:
        primary.close()
        await server.stop()
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 seconds a round instead of 15")
    arguments = parser.parse_args()
    raise SystemExit(asyncio.run(main(4.0 if arguments.quick else 15.0)))
