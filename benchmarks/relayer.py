"""How fast the relayer accepts transactions: verified, reserved, on disk, co-signed, gossiped, replied.

Goals, with the service, its signing and its gossip process on one core and the clients with their gossip peer on
another: 2,000 relayed transactions a second sustained with 99 of 100 replies within 20 ms; 6,000 a second co-signed by
/v1/sign; 350 us of the core for a transaction sent alone, with its status, at 1,600 a second; others' replies at most
three times as late beside 20 addresses that flood wrong signatures; every answer within 1.5 s at twice what can be
served. The floor is what cannot be saved: for each transaction one signature verified, one made, and a row committed
with the others of its request, all on that core and by nothing but the libraries that do it.
Usage: `python benchmarks/relayer.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

import _overload
from _hub import Blocks, Hub
from _report import Report
from _service import CLIENT_CORE, SERVICE_CORE, allow_files, cpu_seconds_of_all, relayer
from millrace.chain.keys import KeyPair, verify
from millrace.chain.network import NetworkProfile, profile
from millrace.chain.transaction import Transaction, signing_message, to_json
from millrace.gossip.handle import GossipHandle
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.runtime import http, websocket

NETWORK: NetworkProfile = profile("documented", chain_id="local")
GOAL, RATE, CONNECTIONS, BATCH = 2_000, 2_100, 20, 5
"""More is offered than the goal asks for: what is offered can at best be reached."""
BLOCK, BLOCK_SECONDS = 50, 0.2
KNEE = 2_500
"""What is served at most, of batches."""
WHOLE_RATES = 600, 1_600
"""Transactions a second whose whole life is looked at: the goal is one of the second, where some are always under way
together. At the first each wakes every process by itself, and the figure shows what that costs."""
ROUND = 0.6
"""Seconds from one block of a shard to the next."""
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
ip_in_flight = 1000000
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
async def network() -> AsyncIterator[str]:
    """A gossip network of one peer, on the clients' core, that takes every transaction; its address."""
    topics = [topic for shard in range(3) for topic in NETWORK.transactions_topics(shard)]
    peer = GossipHandle(GossipSettings(peers=(PeerSettings(subscribe=tuple(dict.fromkeys(topics))),)))
    await peer.start()
    try:
        yield peer.addresses[0]
    finally:
        await peer.stop()


def settings(folder: Path, relayers: list[KeyPair], api: str, peer: str) -> dict[str, object]:
    """Settings of a relayer with these keys that gossips to this peer, whose budgets and rates are no limit."""
    files = []
    for shard, pair in enumerate(relayers):
        file = folder / f"{shard}.pem"
        file.touch(mode=0o600)
        file.write_text(pair.to_pem())
        files.append(str(file))
    (folder / "policy.toml").write_text(POLICY)
    return {
        "chain_id": NETWORK.chain_id, "chain_api_url": api, "policy_file": folder / "policy.toml",
        "gossip": "true", "gossip_bootstrap": [peer],
        "key_files": files, "submit_rate": 10**6, "submit_burst": 10**6, "receive_rate": 10**9, "receive_burst": 10**9,
    }  # fmt: skip


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


def floor(folder: Path, batch: int) -> float:
    """Seconds of one core for a transaction: verified, signed, and committed with a batch."""
    os.sched_setaffinity(0, {SERVICE_CORE})
    pair, message = KeyPair.generate(), b"x" * 300
    signature = pair.sign(message)
    connection = sqlite3.connect(folder / "floor.sqlite", isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE IF NOT EXISTS t (row BLOB);"
    )
    count, started = 200 * batch, time.process_time()
    for _ in range(200):
        for _ in range(batch):
            verify(pair.public, message, signature)
            pair.sign(message)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t VALUES (?)", [(message,)] * batch)
        connection.execute("COMMIT")
    spent = time.process_time() - started
    connection.close()
    os.sched_setaffinity(0, {CLIENT_CORE})
    return spent / count


class Subscriber(websocket.Session):
    """A client that waits for the fate of one transaction."""

    def __init__(self, tx_hash: bytes) -> None:
        super().__init__()
        self.tx_hash = tx_hash
        self.subscribed = asyncio.get_running_loop().create_future()
        self.told = asyncio.get_running_loop().create_future()
        """When it was told."""

    def on_open(self) -> None:
        self.send_text(b'{"action":"subscribe","topic":"tx-status/%s"}' % self.tx_hash.hex().encode())

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if not self.subscribed.done():
            self.subscribed.set_result(data)
        elif not self.told.done():
            self.told.set_result(time.perf_counter())


async def tell_statuses(hub: Hub, port: int, count: int) -> list[float]:
    """Seconds from when a final block was sent to the relayer to each client's word of its transaction."""
    clients = [Subscriber(os.urandom(32)) for _ in range(count)]
    for start in range(0, count, 50):
        part = clients[start : start + 50]
        await asyncio.gather(*(websocket.connect(f"ws://127.0.0.1:{port}/ws", client) for client in part))
        await asyncio.gather(*(client.subscribed for client in part))
    shards = [Blocks(shard) for shard in range(3)]
    waits = []
    for start in range(0, count, BLOCK):
        part = clients[start : start + BLOCK]
        block = shards[start // BLOCK % 3].next([client.tx_hash for client in part])
        began = time.perf_counter()
        hub.save(block)
        waits += [told - began for told in await asyncio.gather(*(client.told for client in part))]
        await asyncio.sleep(max(0.0, began + BLOCK_SECONDS - time.perf_counter()))
    for client in clients:
        client.close()
    return waits


class Whole(_overload.Asker):
    """A client that is told what became of all it sent, and makes blocks of it."""

    def __init__(self, pending: list[bytes]) -> None:
        super().__init__()
        self._pending = pending
        self.told = 0

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        reply = msgspec.json.decode(data)
        if reply.get("type") == "tx-status":
            self.told += 1
            return
        super().on_message(kind, data)
        self._pending += map(bytes.fromhex, reply.get("hashes", ()))


async def whole_lives(report: Report, folder: Path, rate: int, seconds: float, goal: tuple[str, float] | None) -> None:
    """CPU of a transaction from its message to the word of its block; each client sends one by one, at its pace.

    Of the service with its signing and its gossip process, and of nothing else.
    """
    relayers, hub = [key_in(shard) for shard in range(3)], Hub()
    work = batches(relayers, CONNECTIONS, int(rate * seconds / CONNECTIONS) // BATCH + 1)
    server, api = await chain_api()
    url = await hub.start()
    pending: list[list[bytes]] = [[], [], []]
    async with network() as peer:
        values = settings(folder, relayers, api, peer) | {"hub_url": url, "max_topics": 10**6, "max_nonce_gap": 10**6}
        async with relayer(folder, **values) as running:
            clients = [Whole(pending[number % 3]) for number in range(CONNECTIONS)]
            for client in clients:
                await websocket.connect(f"ws://127.0.0.1:{running.port}/ws", client)
            before = cpu_seconds_of_all(running.pid)
            making = asyncio.create_task(_make_blocks(hub, pending))
            await asyncio.gather(*(_send(clients, work, number, CONNECTIONS / rate) for number in range(CONNECTIONS)))
            while any(client.told < len(client.taken) for client in clients):
                await asyncio.sleep(0.01)
            spent = cpu_seconds_of_all(running.pid) - before
            making.cancel()
            for client in clients:
                client.close()
    await hub.stop()
    await server.stop()
    taken = sum(len(client.taken) for client in clients)
    report.add(f"relayed one by one with their status, {rate:,} a second offered", taken)
    report.add(f"CPU of one relayed with its status, {rate:,} a second", spent / taken * 1e6, "us", goal)


async def _send(clients: list[Whole], work: list[list[bytes]], position: int, pause: float) -> None:
    """Send a client's transactions one by one, one each `pause` seconds whatever is answered."""
    due = time.perf_counter() + pause * position / len(clients)
    singles = [item for batch in work[position] for item in msgspec.json.decode(batch, type=list[msgspec.Raw])]
    for number, item in enumerate(singles):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        clients[position].ask(number, b"[%b]" % bytes(item), due, subscribe=True)
        due += pause
    await clients[position].all_answered()


async def _make_blocks(hub: Hub, pending: list[list[bytes]]) -> None:
    """A block of each shard a round, with what was accepted since the one before."""
    chains = [Blocks(shard) for shard in range(3)]
    while True:
        await asyncio.sleep(ROUND)
        for chain, hashes in zip(chains, pending, strict=True):
            hub.save(chain.next(list(hashes)))
            hashes.clear()


async def too_much(report: Report, folder: Path, seconds: float) -> None:
    """A flood of wrong signatures, and twice what can be served."""
    relayers = [key_in(shard) for shard in range(3)]
    server, api = await chain_api()
    async with network() as peer:
        values = settings(folder, relayers, api, peer) | {"max_nonce_gap": 10**6}
        offered = {name: values.pop(name) for name in ("submit_rate", "submit_burst", "receive_rate", "receive_burst")}
        async with relayer(folder, **values) as running:  # with the limits a client has
            (work,) = batches(relayers, 1, int(50 * seconds))
            quiet = await _overload.one_by_one(running.port, work[: len(work) // 2], 0.01)
            message = _overload.wrong(key_in(0), relayers[0].public, NETWORK.chain_id)
            async with _overload.flooding(CLIENT_CORE, running.port, 60.0, folder, message):
                await asyncio.sleep(5.0)  # what the addresses may send at once is through
                loud = await _overload.one_by_one(running.port, work[len(work) // 2 :], 0.01)
        report.add("reply, median, quiet", quiet * 1000, "ms")
        report.add(f"beside {_overload.FLOODERS} addresses with wrong signatures", loud / quiet, "times", ("<=", 3.0))
        async with relayer(folder, **values, **offered) as running:
            pause = 2 * CONNECTIONS * BATCH / (2 * KNEE)
            work_of_all = batches(relayers, 2 * CONNECTIONS, int(seconds / pause))
            taken, refused = await _overload.offer(running.port, work_of_all, pause)
    await server.stop()
    report.add(f"twice the knee ({2 * KNEE:,} tx/s): batches taken", len(taken))
    report.add("longest answer", max(taken + refused), "s", ("<=", 1.5))


async def statuses(report: Report, folder: Path, subscribers: int) -> None:
    """From a block to the sockets of those who wait for its transactions."""
    hub = Hub()
    url = await hub.start()
    async with relayer(folder, hub_url=url) as running:
        waits = sorted(await tell_statuses(hub, running.port, subscribers))
    await hub.stop()
    report.add("statuses told", len(waits))
    report.add("block seen to status, median", waits[len(waits) // 2] * 1000, "ms", ("<=", 3.0))
    report.add("block seen to status, 99 of 100", waits[int(len(waits) * 0.99)] * 1000, "ms", ("<=", 15.0))


async def submissions(report: Report, folder: Path, seconds: float) -> None:
    """Relayed and co-signed transactions."""
    relayers = [key_in(shard) for shard in range(3)]
    count = int(RATE * seconds / CONNECTIONS / BATCH)
    first, second = batches(relayers, CONNECTIONS, count), batches(relayers, CONNECTIONS, count)
    server, api = await chain_api()
    async with network() as peer, relayer(folder, **settings(folder, relayers, api, peer)) as running:
        before = cpu_seconds_of_all(running.pid)
        rate, times = await relay_steadily(running.port, first)
        between = cpu_seconds_of_all(running.pid)
        ordered = sorted(times)
        report.add(f"relayed, durable, of {RATE:,} offered", rate, "tx/s", (">=", GOAL))
        report.add("reply, median", ordered[len(ordered) // 2] * 1000, "ms")
        report.add("reply, 99 of 100", ordered[int(len(ordered) * 0.99)] * 1000, "ms", ("<=", 20.0))
        report.add("co-signed only", await sign_fast(running.http_port, second), "tx/s", (">=", 6_000))
        after = cpu_seconds_of_all(running.pid)
    await server.stop()
    number = sum(map(len, first)) * BATCH
    for name, batch, spent in (("relayed", BATCH, between - before), ("co-signed", 10 * BATCH, after - between)):
        least = floor(folder, batch) * 1e6
        report.add(f"CPU of one {name}, all processes", spent / number * 1e6, "us")
        report.add(f"floor: verify, sign, commit {batch} together", least, "us")
        report.add(f"CPU of one {name} against the floor", spent / number * 1e6 / least, "times")


async def main(seconds: float, subscribers: int) -> int:
    os.sched_setaffinity(0, {CLIENT_CORE})
    allow_files(2 * subscribers + 1_000)
    report = Report("relayer")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("submissions", "statuses", "much", *map(str, WHOLE_RATES)):
            (Path(folder) / name).mkdir()
        await submissions(report, Path(folder) / "submissions", seconds)
        await statuses(report, Path(folder) / "statuses", subscribers)
        for rate, goal in zip(WHOLE_RATES, (None, ("<=", 350.0)), strict=True):
            await whole_lives(report, Path(folder) / str(rate), rate, seconds, goal)
        await too_much(report, Path(folder) / "much", seconds)
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 seconds instead of 15, a tenth of the subscribers")
    quick = parser.parse_args().quick
    sys.exit(asyncio.run(main(3.0, 500) if quick else main(15.0, 5_000)))
