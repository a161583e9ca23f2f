"""What others wait while four clients ask the dearest questions as fast as they may.

    ./run bench fairness [--seed N] [--rounds N]

A whole service of one process over HTTP, a thousand pools. One client asks forward, reverse and LP quotes, each kind on
a connection of its own, some ten a second; in every other turn four further addresses ask for the same dear thing, each
a hundred times a second at most, one question after the other. Service and clients go first on the machine where that
is allowed (run it as root); turns of both kinds are interleaved, as its speed moves. In both turns of a round the
client asks the same, but for some units: questions differ by more from each other than others may add to them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import msgspec

from _report import Report
from millrace.dex.document import PoolDocument, encode
from quote_http import _start, _until_ready, _Upstream
from synthetic import make_market

POOLS = 1000
ASKERS = 4
LEAST_PAUSE = 0.01  # s between two questions of an asker: 100 a second and address are answered
FIRST = -20  # niceness
SECONDS = 6.0  # of a turn
PERIODS = {"forward": 0.02, "reverse": 0.1, "LP": 0.4}  # s between two questions of the client that others are
REFUSED = "503"
Ask = Callable[[random.Random], bytes]


class Questions:
    """Raw requests by kind, each with an amount of its own: nothing that remembers answers helps."""

    def __init__(self, document: PoolDocument, usdc: str) -> None:
        self.turn = 0
        """So many units more than the dice say: what is asked again in another turn is asked anew."""
        units = {pool.lp_token for pool in document.pools}  # questions about them are dear ones
        self._pools = [pool for pool in document.pools if len(pool.tokens) == 2 and units.isdisjoint(pool.tokens)]
        self._usdc = usdc
        self._minted = [pool for pool in self._pools if pool.lp_token and pool.lp_supply]
        self.of: dict[str, Ask] = {
            "forward": self._forward,
            "reverse": self._reverse,
            "LP": self._lp,
            "reverse LP": self._reverse_lp,
            "100 inputs": self._many,
        }

    def _forward(self, rng: random.Random) -> bytes:
        pool, other = rng.sample(self._pools, 2)
        amount = max(1, int(pool.reserves[0] * 10 ** rng.uniform(-5, -2))) + self.turn
        out = next(token for token in other.tokens if token != pool.tokens[0])
        return _get({"from": pool.tokens[0], "to": out, "amountIn": amount})

    def _reverse(self, rng: random.Random) -> bytes:
        pool, other = rng.sample(self._pools, 2)
        amount = max(1, int(pool.reserves[0] * 10 ** rng.uniform(-5, -3))) + self.turn
        token_in = next(token for token in other.tokens if token != pool.tokens[0])
        return _get({"from": token_in, "to": pool.tokens[0], "amountOut": amount})

    def _lp(self, rng: random.Random) -> bytes:
        pool, other = rng.choice(self._minted), rng.choice(self._pools)
        amount = max(1, int(other.reserves[0] * 10 ** rng.uniform(-5, -2))) + self.turn
        return _get({"from": other.tokens[0], "to": pool.lp_token, "amountIn": amount})

    def _reverse_lp(self, rng: random.Random) -> bytes:
        pool, other = rng.choice(self._minted), rng.choice(self._pools)
        amount = max(1, int(pool.lp_supply * 10 ** rng.uniform(-5, -3))) + self.turn
        return _get({"from": other.tokens[0], "to": pool.lp_token, "amountOut": amount})

    def _many(self, rng: random.Random) -> bytes:
        held = {token: pool.reserves[at] for pool in self._pools for at, token in enumerate(pool.tokens)}
        held.pop(self._usdc, None)
        chosen = rng.sample(sorted(held), 100)
        inputs = [{"token": token, "amount": str(max(1, held[token] // rng.randrange(100, 200)))} for token in chosen]
        body = msgspec.json.encode({"inputs": inputs, "to": self._usdc})
        return b"POST /api/v1/multi-swap HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _get(query: dict[str, object]) -> bytes:
    return f"GET /api/v1/quote?{urlencode(query)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def _ask(
    port: int, address: str, ask: Ask, rng: random.Random, pause: float, end: float, statuses: Counter[str]
) -> list[float]:
    """Ask until `end`, at most once in `pause`; what those answers took that are no refusals, which come at once."""
    times = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    due = time.perf_counter() + rng.uniform(0, pause)
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        request = ask(rng)
        start = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        status = head[9:12].decode()
        statuses[status] += 1
        if status != REFUSED:
            times.append(time.perf_counter() - start)
        due = max(due + pause, time.perf_counter())
    writer.close()
    return times


async def measure(document: PoolDocument, usdc: str, rounds: int, seed: int, report: Report) -> None:
    """Quiet and loud turns for each dear kind."""
    upstream = _Upstream([encode(document)])
    process, port, _ = await _start(await upstream.start(), 5.0, 1, os.sched_getaffinity(0))
    questions = Questions(document, usdc)
    try:
        await _until_ready(f"http://127.0.0.1:{port}")

        async def turn(dear: str | None, statuses: Counter[str], number: int = -1) -> dict[str, list[float]]:
            questions.turn += 1
            end = time.perf_counter() + SECONDS
            others = [
                _ask(port, "127.0.0.2", questions.of[kind], _dice(seed, number, kind), PERIODS[kind], end, statuses)
                for kind in PERIODS
            ]
            refused: Counter[str] = Counter()
            askers = [
                _ask(port, f"127.0.0.{host}", questions.of[dear], _dice(seed, number, host), LEAST_PAUSE, end, refused)
                for host in range(3, 3 + ASKERS)
                if dear
            ]
            found = await asyncio.gather(*others, *askers)
            if dear:
                print(f"  {dear}: answers to askers {dict(refused)}, to others {dict(statuses)}", file=sys.stderr)
            return dict(zip(PERIODS, found, strict=False))

        await turn(None, Counter())
        for dear in ("LP", "reverse LP", "100 inputs"):
            quiet: dict[str, list[float]] = {kind: [] for kind in PERIODS}
            loud: dict[str, list[float]] = {kind: [] for kind in PERIODS}
            answers: Counter[str] = Counter()
            for number in range(rounds):
                for into, asked, statuses in ((quiet, None, Counter()), (loud, dear, answers)):
                    for kind, times in (await turn(asked, statuses, number)).items():
                        into[kind].append(_p99(times))
            for kind in PERIODS:
                before, after = statistics.median(quiet[kind]) * 1e3, statistics.median(loud[kind]) * 1e3
                bar = max(1.5 * before, before + 10.0)
                report.add(f"{kind}, p99 alone", before, "ms")
                report.add(f"{kind}, p99 while four ask {dear}", after, "ms", ("<=", bar))
            refused = 100.0 * answers[REFUSED] / max(1, answers.total())
            report.add(f"refused of the others' questions while four ask {dear}", refused, "%")
    finally:
        process.terminate()
        await process.wait()
        await upstream.stop()


def _dice(seed: int, number: int, who: object) -> random.Random:
    """The same in both turns of a round."""
    return random.Random(f"{seed} {number} {who}")


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)] if times else SECONDS


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.suppress(OSError):  # niceness counts within a session only, unless all of it goes first
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(FIRST))
    report = Report(f"fairness, seed {options.seed}")
    document = make_market(POOLS, options.seed, traded_lp=20)
    usdc = next(info.identifier for info in document.tokens if info.identifier.startswith("USDC"))
    asyncio.run(measure(document, usdc, options.rounds, options.seed, report))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
