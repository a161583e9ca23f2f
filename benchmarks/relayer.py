"""How fast the relayer accepts transactions: verified, reserved, on disk, co-signed, on their way, replied.

Goals, with the service and its signing process on one core and the clients on another: 2,000 relayed transactions a
second sustained with 99 of 100 replies within 20 ms; 6,000 a second co-signed by /v1/sign. The floor is what cannot be
saved: one signature verified and one made for each transaction on that core.
Usage: `python benchmarks/relayer.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from _report import Report
from millrace.chain.keys import KeyPair, verify
from millrace.chain.network import NetworkProfile, profile
from millrace.chain.transaction import Transaction, signing_message, to_json
from millrace.runtime import http

NETWORK: NetworkProfile = profile("documented", chain_id="local")
SERVICE_CORE, CLIENT_CORE = 0, max(os.sched_getaffinity(0))
RATE, CONNECTIONS, BATCH = 2_000, 20, 5
POLICY = """
[budget]
per_minute = 1000000000000000000000000
per_hour = 1000000000000000000000000
per_day = 1000000000000000000000000
at_risk = 1000000000000000000000000
at_risk_sign_only = 1000000000000000000000000
loss_per_hour = 1000000000000000000000000
[quotas]
sender_per_hour = 1000000000000000000000000
ip_per_hour = 1000000000000000000000000
receiver_per_hour = 1000000000000000000000000
sender_at_risk_sign_only = 1000000000000000000000000
ip_at_risk_sign_only = 1000000000000000000000000
sign_only_ahead = 1000000
sender_in_flight = 100000
"""


def key_in(shard: int) -> KeyPair:
    """A new key whose address lives in `shard`."""
    while True:
        pair = KeyPair.generate()
        if NETWORK.shard_of(pair.public) == shard:
            return pair


def batches(relayers: list[KeyPair], connections: int, count: int) -> list[list[bytes]]:
    """For each connection `count` batches of transfers of one sender, as JSON lists."""
    made = []
    for number in range(connections):
        shard = number % 3
        sender, receiver = key_in(shard), key_in(shard).public
        nonces = iter(range(count * BATCH))
        made.append([b"[" + b",".join(_signed(sender, receiver, relayers[shard], nonces)) + b"]" for _ in range(count)])
    return made


def _signed(sender: KeyPair, receiver: bytes, relayer: KeyPair, nonces: Any) -> list[bytes]:
    items = []
    for _ in range(BATCH):
        tx = Transaction(
            nonce=next(nonces), value=0, receiver=receiver, sender=sender.public, gas_price=10**9,
            gas_limit=100_000, chain_id=NETWORK.chain_id, relayer=relayer.public,
        )  # fmt: skip
        whole = msgspec.structs.replace(tx, signature=sender.sign(signing_message(tx)))
        items.append(msgspec.json.encode(to_json(whole)))
    return items


async def chain_api() -> tuple[http.HttpServer, str]:
    """A chain where every account has plenty, and every transaction is taken."""

    async def account(_: web.Request) -> web.Response:
        return http.json_response({"nonce": 0, "balance": str(10**24)})

    async def submit(request: web.Request) -> web.Response:
        await request.read()
        return http.json_response({}, 201)

    app = http.make_app()
    app.add_routes([web.get("/accounts/{address}", account), web.post("/transactions", submit)])
    server = http.HttpServer(app)
    return server, f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"


@contextlib.asynccontextmanager
async def relayer(folder: Path, relayers: list[KeyPair], api: str) -> AsyncIterator[tuple[int, int, int]]:
    """A relayer process on its core; its WebSocket port, HTTP port and process id."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
    files = []
    for shard, pair in enumerate(relayers):
        file = folder / f"{shard}.pem"
        file.touch(mode=0o600)
        file.write_text(pair.to_pem())
        files.append(str(file))
    (folder / "policy.toml").write_text(POLICY)
    values = {
        "port": ports[0], "http_port": ports[1], "chain_id": NETWORK.chain_id, "hub_url": "", "chain_api_url": api,
        "gossip": "false", "data_dir": folder / "data", "policy_file": folder / "policy.toml",
        "key_files": msgspec.json.encode(files).decode(), "submit_rate": 10**6, "submit_burst": 10**6,
    }  # fmt: skip
    arguments = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(SERVICE_CORE),
        sys.executable, "-m", "millrace", "relayer", "--log-level", "error", *arguments,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{ports[1]}/ready") as response:
                        if response.status == 200:
                            break
                await asyncio.sleep(0.1)
        yield *ports, process.pid
    finally:
        process.terminate()
        await process.wait()


async def relay_steadily(port: int, work: list[list[bytes]]) -> tuple[float, list[float]]:
    """Offer `RATE` transactions a second over all connections; the accepted rate and each reply's time."""
    times: list[float] = []
    pause = CONNECTIONS * BATCH / RATE
    started = time.perf_counter()

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"ws://127.0.0.1:{port}/ws") as link:
            await asyncio.sleep(pause * number / CONNECTIONS)
            due = time.perf_counter()
            for batch in work[number]:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await link.send_str('{"action":"relay","requestId":"b","txs":' + batch.decode() + "}")
                reply = msgspec.json.decode((await link.receive()).data)
                assert reply["status"] == "completed", reply
                times.append(time.perf_counter() - due)  # from when it should have been sent
                due += pause

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(number, session) for number in range(CONNECTIONS)))
    return len(times) * BATCH / (time.perf_counter() - started), times


async def sign_fast(port: int, work: list[list[bytes]]) -> float:
    """Co-sign as fast as it goes; transactions a second."""

    async def client(mine: list[bytes], session: aiohttp.ClientSession) -> None:
        for start in range(0, len(mine), 10):
            joined = b",".join(item[1:-1] for item in mine[start : start + 10])
            body = b'{"transactions":[' + joined + b"]}"
            headers = {"Content-Type": "application/json"}
            async with session.post(f"http://127.0.0.1:{port}/v1/sign", data=body, headers=headers) as response:
                assert not (await response.json())["failed"]

    started = time.perf_counter()
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(mine, session) for mine in work))
    return sum(map(len, work)) * BATCH / (time.perf_counter() - started)


def floor() -> float:
    """Transactions a second that one core can verify and sign, and nothing else."""
    pair, message = KeyPair.generate(), b"x" * 300
    signature = pair.sign(message)
    started = time.perf_counter()
    for _ in range(1_000):
        verify(pair.public, message, signature)
        pair.sign(message)
    return 1_000 / (time.perf_counter() - started)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main(seconds: float) -> int:
    os.sched_setaffinity(0, {CLIENT_CORE})
    report = Report("relayer")
    report.add("floor: verify and sign, one core", floor(), "tx/s")
    relayers = [key_in(shard) for shard in range(3)]
    count = int(RATE * seconds / CONNECTIONS / BATCH)
    first, second = batches(relayers, CONNECTIONS, count), batches(relayers, CONNECTIONS, count)
    server, api = await chain_api()
    with tempfile.TemporaryDirectory() as folder:
        async with relayer(Path(folder), relayers, api) as (port, http_port, pid):
            before = cpu_seconds(pid)
            rate, times = await relay_steadily(port, first)
            spent = cpu_seconds(pid) - before
            ordered = sorted(times)
            report.add("relayed, durable", rate, "tx/s", (">=", 0.98 * RATE))
            report.add("reply, median", ordered[len(ordered) // 2] * 1000, "ms")
            report.add("reply, 99 of 100", ordered[int(len(ordered) * 0.99)] * 1000, "ms", ("<=", 20.0))
            report.add("CPU of the service", spent / (len(times) * BATCH) * 1e6, "us/tx")
            report.add("co-signed only", await sign_fast(http_port, second), "tx/s", (">=", 6_000))
    await server.stop()
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 seconds instead of 15")
    sys.exit(asyncio.run(main(3.0 if parser.parse_args().quick else 15.0)))
