"""What one client at its full allowed rate does to the others.

The others relay batches of five from an address each: alone, beside the neighbour, and beside a neighbour who talks to
a stand-in that only does what cannot be saved, in turns of a few seconds. The neighbour sends the largest batches its
rates allow from one address of its own: relayed ones that are all accepted, or broadcasts of 4 MB whose signatures are
wrong. Service and stand-in have one core, the others and the neighbour the other one, each a process of its own; the
neighbour gives way to the others there. Goal: 99 of 100 replies to the others come within 1.2 times their time without
the neighbour. The stand-in shows how much of the change is the shared core. Of all turns the median counts.
Usage: `python benchmarks/relayer_noisy.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

import relayer as steady
from _neighbour import write_frames
from _report import Report
from _service import CLIENT_CORE, SERVICE_CORE, allow_files
from _service import relayer as running_relayer
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, signing_message, to_json

OTHERS, RATE, BATCH = 10, 500, 100
"""Other clients, their transactions a second together, and the neighbour's batch."""
ALLOWED, ALLOWED_BYTES = 500, 4_000_000
"""A second from one address: the defaults of `submit_rate` and `receive_rate`."""
DATA = 28_900

HERE = Path(__file__).parent


class Neighbour(NamedTuple):
    """What it sends, and what serving that takes at least."""

    name: str
    frames: list[Path]
    """One file for each turn."""
    pause: float
    """Seconds from one message to the next."""
    message_bytes: int
    """Of each transaction, to be verified."""
    signs: bool


class Others:
    """Clients with their senders, whose nonces go on from turn to turn."""

    def __init__(self, port: int, relayers: list[KeyPair], seconds: float) -> None:
        self._port = port
        count = int(1.2 * seconds * RATE / OTHERS / steady.BATCH) + 20
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


@contextlib.asynccontextmanager
async def process(core: int, *arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """A part of `_neighbour.py` on a core."""
    started = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(core), *(() if core == SERVICE_CORE else ("nice", "-n", "19")),
        sys.executable, str(HERE / "_neighbour.py"), *map(str, arguments),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.wait()


async def beside(others: Others, neighbour: Neighbour, turn: int, port: int, seconds: float) -> list[float]:
    """A turn of the others while the neighbour sends to `port`."""
    arguments = ("send", port, "127.0.2.1", neighbour.pause, seconds, neighbour.frames[turn])
    async with process(CLIENT_CORE, *arguments) as started:
        assert started.stdin is not None and started.stdout is not None
        assert await started.stdout.readline() == b"ready\n"
        started.stdin.write(b"\n")
        times = await others.turn(seconds)
        sent = int(await started.stdout.readline())
        assert sent >= 0.8 * seconds / neighbour.pause, f"the neighbour got only {sent} answers"
    return times


async def measure(report: Report, others: Others, neighbour: Neighbour, port: int, turns: int, seconds: float) -> None:
    """Turns without the neighbour, beside the stand-in and beside the neighbour, and what they change."""
    least: list[float] = []
    change: list[float] = []
    every: list[list[float]] = [[], [], []]
    async with process(SERVICE_CORE, "serve", BATCH, neighbour.message_bytes, int(neighbour.signs)) as stand_in:
        assert stand_in.stdout is not None
        stand_in_port = int(await stand_in.stdout.readline())
        for turn in range(turns):
            alone = _p99(await others.turn(seconds))
            shared = _p99(await beside(others, neighbour, turn, stand_in_port, seconds))
            noisy = _p99(await beside(others, neighbour, turn, port, seconds))
            least.append(shared / alone)
            change.append(noisy / alone)
            for values, value in zip(every, (alone, shared, noisy), strict=True):
                values.append(value * 1000)
    name = neighbour.name
    report.add(f"99 of 100 replies, alone ({name})", statistics.median(every[0]), "ms")
    report.add("beside a stand-in for its service", statistics.median(every[1]), "ms")
    report.add(f"beside {name}", statistics.median(every[2]), "ms")
    report.add("change by the shared core alone", statistics.median(least), "times")
    report.add(f"change by {name}", statistics.median(change), "times", ("<", 1.2))


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


async def main(turns: int, seconds: float) -> int:
    os.sched_setaffinity(0, {CLIENT_CORE})
    allow_files(1_000)
    report = Report("relayer, noisy neighbour")
    relayers = [steady.key_in(shard) for shard in range(3)]
    server, api = await steady.chain_api()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with steady.network() as peer:
            values = steady.settings(folder, relayers, api, peer)
            for limit in ("submit_rate", "submit_burst", "receive_rate", "receive_burst"):
                del values[limit]  # what a client is allowed by default
            async with running_relayer(folder, **values) as service:
                others = Others(service.port, relayers, (6 * turns + 1) * seconds)
                await others.turn(seconds)  # accounts are known, files are open
                large = unsigned()
                write_frames(folder / "large", [large])
                files = [folder / f"relayed{turn}" for turn in range(turns)]
                batches = iter(relayed(relayers, turns * (seconds + 1)))
                for file in files:
                    write_frames(file, list(itertools.islice(batches, int(seconds * ALLOWED / BATCH) + 1)))
                pause = 1.02 * len(large) / ALLOWED_BYTES
                for neighbour in (
                    Neighbour("100 relayed", files, 1.02 * BATCH / ALLOWED, 300, signs=True),
                    Neighbour("4 MB of wrong signatures", [folder / "large"] * turns, pause, DATA, signs=False),
                ):
                    await measure(report, others, neighbour, service.port, turns, seconds)
    await server.stop()
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="turns of 2 seconds instead of 5")
    quick = parser.parse_args().quick
    sys.exit(asyncio.run(main(2, 2.0) if quick else main(4, 5.0)))
