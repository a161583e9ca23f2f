"""What one client at its full allowed rate does to the others.

The others relay batches of five from an address each, with and without a neighbour in turns of a few seconds. The
neighbour sends the largest batches its rates allow from one address of its own: relayed ones that are all accepted, or
broadcasts of 4 MB whose signatures are wrong. Goal: 99 of 100 replies to the others come within 1.2 times their time
without the neighbour.
Usage: `python benchmarks/relayer_noisy.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

import relayer as steady
from _report import Report
from _service import CLIENT_CORE, allow_files
from _service import relayer as running_relayer
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, signing_message, to_json

OTHERS, RATE, BATCH = 10, 500, 100
"""Other clients, their transactions a second together, and the neighbour's batch."""
ALLOWED, ALLOWED_BYTES = 500, 4_000_000
"""A second from one address: the defaults of `submit_rate` and `receive_rate`."""
DATA = 28_900

Noise = Callable[[aiohttp.ClientWebSocketResponse, float], Coroutine[Any, Any, None]]


class Others:
    """Clients with their senders, whose nonces go on from turn to turn."""

    def __init__(self, port: int, relayers: list[KeyPair], seconds: float) -> None:
        self._port = port
        count = int(seconds * RATE / OTHERS / steady.BATCH) + 10
        self._work = [iter(mine) for mine in steady.batches(relayers, OTHERS, count)]

    async def turn(self, seconds: float) -> list[float]:
        """Each reply's time, from when its batch should have been sent."""
        times: list[float] = []
        pause = OTHERS * steady.BATCH / RATE

        async def client(number: int) -> None:
            async with at(f"127.0.1.{number + 1}") as session, session.ws_connect(url(self._port)) as link:
                await asyncio.sleep(pause * number / OTHERS)
                due = time.perf_counter()
                end = due + seconds
                while due < end:
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    batch = next(self._work[number])
                    await link.send_str('{"action":"relay","requestId":"b","txs":' + batch.decode() + "}")
                    reply = msgspec.json.decode((await link.receive()).data)
                    assert reply["status"] == "completed", reply
                    times.append(time.perf_counter() - due)
                    due += pause

        await asyncio.gather(*(client(number) for number in range(OTHERS)))
        return times


def at(address: str) -> aiohttp.ClientSession:
    """A client with an address of its own."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0)))


def url(port: int) -> str:
    """Where the relayer listens."""
    return f"ws://127.0.0.1:{port}/ws"


def relayed(relayers: list[KeyPair], seconds: float) -> list[str]:
    """The largest batches that are accepted, for so long."""
    sender, receiver = steady.key_in(0), steady.key_in(0).public
    nonces = iter(range(10**9))
    joined = []
    for _ in range(int(seconds * ALLOWED / BATCH) + 5):
        items: list[bytes] = []
        while len(items) < BATCH:
            items += steady._signed(sender, receiver, relayers[0], nonces)
        joined.append('{"action":"relay","txs":[' + b",".join(items).decode() + "]}")
    return joined


def unsigned() -> str:
    """The largest message there may be: transactions with long data and wrong signatures."""
    sender = steady.key_in(0)
    tx = Transaction(
        nonce=0, value=0, receiver=steady.key_in(0).public, sender=sender.public, gas_price=10**9,
        gas_limit=100_000_000, chain_id=steady.NETWORK.chain_id, data=b"A" * DATA,
    )  # fmt: skip
    wrong = msgspec.structs.replace(tx, signature=sender.sign(b"not " + signing_message(tx)))
    item = msgspec.json.encode(to_json(wrong)).decode()
    return '{"action":"broadcast","txs":[' + ",".join([item] * BATCH) + "]}"


async def send(link: aiohttp.ClientWebSocketResponse, texts: list[str], pause: float, seconds: float) -> None:
    """One text every `pause` seconds for so long, taking them from the list; replies are read."""
    end = time.perf_counter() + seconds
    due = time.perf_counter()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await link.send_str(texts.pop() if len(texts) > 1 else texts[0])
        reply = msgspec.json.decode((await link.receive()).data)
        assert "hashes" in reply, reply
        due += pause


async def measure(
    report: Report, name: str, others: Others, port: int, noise: Noise, turns: int, seconds: float
) -> None:
    """Turns without and with the neighbour, and what it changes."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(turns):
        alone += await others.turn(seconds)
        async with at("127.0.2.1") as session, session.ws_connect(url(port), max_msg_size=0) as link:
            neighbour = asyncio.create_task(noise(link, seconds))
            beside += await others.turn(seconds)
            await neighbour
    before, after = (sorted(times)[int(len(times) * 0.99)] * 1000 for times in (alone, beside))
    report.add(f"99 of 100 replies, alone ({name})", before, "ms")
    report.add(f"99 of 100 replies, beside {name}", after, "ms")
    report.add(f"change by {name}", after / before, "times", ("<", 1.2))


async def main(turns: int, seconds: float) -> int:
    os.sched_setaffinity(0, {CLIENT_CORE})
    allow_files(1_000)
    report = Report("relayer, noisy neighbour")
    relayers = [steady.key_in(shard) for shard in range(3)]
    server, api = await steady.chain_api()
    with tempfile.TemporaryDirectory() as folder:
        values = steady.settings(Path(folder), relayers, api)
        for name in ("submit_rate", "submit_burst", "receive_rate", "receive_burst"):
            del values[name]  # what a client is allowed by default
        async with running_relayer(Path(folder), **values) as service:
            others = Others(service.port, relayers, (4 * turns + 1) * seconds)
            await others.turn(seconds)  # accounts are known, files are open
            batches = relayed(relayers, turns * seconds)[::-1]
            large = [unsigned()]

            async def accepted(link: aiohttp.ClientWebSocketResponse, duration: float) -> None:
                await send(link, batches, BATCH / ALLOWED, duration)

            async def refused(link: aiohttp.ClientWebSocketResponse, duration: float) -> None:
                await send(link, large, len(large[0]) / ALLOWED_BYTES * 1.02, duration)

            await measure(report, "100 relayed", others, service.port, accepted, turns, seconds)
            await measure(report, "4 MB of wrong signatures", others, service.port, refused, turns, seconds)
    await server.stop()
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="turns of 2 seconds instead of 5")
    quick = parser.parse_args().quick
    sys.exit(asyncio.run(main(2, 2.0) if quick else main(4, 5.0)))
