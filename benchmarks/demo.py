"""How long a person waits: until the whole system is ready, for a quote, and from relaying to the status.

Starts the real processes on loopback as `./run demo` does, then makes swaps through all of them. Goals: ready in under
10 s from a warm install, a quote in under 5 ms, the status of a transaction within four rounds in the same shard.
Usage: `./run bench demo [swaps]`.
"""

from __future__ import annotations

import asyncio
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from _report import Report
from millrace.client import Aggregator, Relayer
from millrace.system.demo import AMOUNT_IN, GET, PAY, STATUS_SECONDS, Scene, start
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports
from millrace.system.processes import Processes
from millrace.system.story import Story

ROUND_SECONDS = 0.6
QUOTES_PER_SWAP = 20


async def measure(swaps: int) -> Report:
    """Run the system once and make `swaps` swaps, one after the other."""
    report = Report("demo")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        plan = Plan(Ports.free(), Path(folder), poll_seconds=0.5)
        story = Story(Console(file=io.StringIO()))
        async with Processes(plan.data / "logs") as processes:
            begun = time.perf_counter()
            await start(plan, processes, story)
            report.add("ready", time.perf_counter() - begun, "s", ("<", 10.0))
            async with (
                LocalChain(plan.chain_url) as chain,
                Aggregator(plan.aggregator_url) as aggregator,
                Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer,
            ):
                scene = Scene(plan, story, chain, aggregator, relayer)
                await scene.prepare()
                await chain.fund(scene.address, PAY, swaps * AMOUNT_IN)
                await _swap_often(scene, swaps, report)
    return report


async def _swap_often(scene: Scene, swaps: int, report: Report) -> None:
    quotes: list[float] = []
    waits: list[float] = []
    for done in range(swaps):
        print(f"\rswap {done + 1} of {swaps}", end="", file=sys.stderr, flush=True)
        quote = await scene.fresh_quote()
        for _ in range(QUOTES_PER_SWAP):
            begun = time.perf_counter()
            await scene.aggregator.quote(PAY, GET, amount_in=AMOUNT_IN, sender=scene.address)
            quotes.append((time.perf_counter() - begun) * 1000)
        transaction = await scene.signed(quote)
        async with await scene.relayer.subscribe(f"tx-status/{transaction.client_hash()}") as status:
            begun = time.perf_counter()
            handle = await scene.relayer.relay(transaction)
            await status.next(STATUS_SECONDS)
            waits.append((time.perf_counter() - begun) / ROUND_SECONDS)
        outcome = await handle.final(STATUS_SECONDS)
        assert outcome.state == "success", outcome
    print(file=sys.stderr)
    report.add("quote, median", statistics.median(quotes), "ms", ("<", 5.0))
    report.add("quote, worst", max(quotes), "ms")
    report.add("submission to status, median", statistics.median(waits), "rounds", ("<=", 4.0))
    report.add("submission to status, worst", max(waits), "rounds", ("<=", 4.0))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    sys.exit(asyncio.run(measure(count)).finish())
