"""How good and how fast quotes are, against certified optima and a peer, in one run on fresh markets.

    ./run bench quote [--seed N] [--questions N] [--no-peer] [--market PATH [--optimum PATH]]

Optimality is output / upper bound of any routing (weak duality; see docs/aggregator.md), so no solver has to
be believed. The peer is @sushiswap/tines 1.0.11, fetched with npm into a temporary directory and called, never
copied; its routes are executed again in exact integers. Without npm the rows that need it are left out.
`--market` (or MILLRACE_BENCH_MARKET) is a real market without arbitrage, as JSON: `tokens` (`id`), constant-product
`pools` (`tokens` by number, `reserves`, `fee_ppm` on the input) and `queries` (`from`, `to`, `amount_in`);
`--optimum` are certified optima of the queries by another solver (`results`, each with its `q` and `upper`). Without
them outputs are held against the router's own bound, which is looser there.
The last line is one JSON object: figures, bars, all_bars_hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from millrace.aggregator.settings import AggregatorSettings
from millrace.dex.constant_product import XExchangePool
from millrace.dex.document import PoolDocument, encode
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, Route, Router
from quote_http import measure_http, measure_workers, traded
from synthetic import make_market, of_single_trades

HERE = Path(__file__).parent
Question = tuple[str, str, int]  # token in, token out, amount in
NO_CAP = Limits(pools=100_000, paths=100_000, hops=16)
MOST_POOLS, MOST_PATHS = 100, 50  # the largest `maxPools` and `maxSplits`
FEW_PATHS = 5
BLOCK = 15  # questions that the peer answers before it is our turn again
REPEAT = 2  # times each of them is asked in a turn; there is one of ours before and one after the peer's
TRADED_PART = 0.1  # of the pools, from one document to the next in a quiet market
SIZES = (0.0001, 0.01, 0.1)  # of the smaller reserve total of the pair


class OpenMarket(DictMarket):
    """A market in which every pool can be called, as on chains without one router per exchange."""

    def reaches(self, pool: Pool) -> bool:
        return True


def open_router(pools: Sequence[Pool], hub: str) -> Router:
    """A router over pools that can all be called, with its kernels loaded."""
    router = Router(pools, OpenMarket(pools, hub))
    router.warm()
    return router


def optimality(router: Router, questions: Sequence[Question]) -> list[float]:
    """Output / upper bound of any routing, without a cap, sorted."""
    ratios = []
    for question in questions:
        gap = router.forward(*question, NO_CAP, "hybrid").gap
        assert gap is not None
        ratios.append(1.0 - gap)
    return sorted(ratios)


def optimality_of_single_trades(router: Router, questions: Sequence[Question]) -> list[float]:
    """Output / upper bound of plans that trade once with each pool in each direction, without a cap, sorted.

    That is the optimum of a split. The bound of `optimality` is that of trades in any number of pieces, which pay more
    where a pool's fee grows with the trade. Paths that share a crypto pool visit it more than once: what they pay more
    than that optimum does not count.
    """
    ratios, once = [], of_single_trades(router)
    for question in questions:
        paid = router.forward(*question, NO_CAP, "hybrid").execution.amount_out
        ratios.append(min(paid / once.forward(*question, NO_CAP, "lagrangian").bound(), 1.0))
    return sorted(ratios)


def read_market(path: Path) -> tuple[list[Pool], list[Question]]:
    """Pools and questions of a market file (see above)."""
    market = json.loads(path.read_text())
    names = [token["id"] for token in market["tokens"]]
    pools: list[Pool] = []
    for number, pool in enumerate(market["pools"]):
        a, b = (names[k] for k in pool["tokens"])
        pools.append(
            XExchangePool(
                id=str(number),
                address=number.to_bytes(32, "big"),
                tokens=(a, b),
                reserves=(int(pool["reserves"][0]), int(pool["reserves"][1])),
                total_fee=pool["fee_ppm"],
                special_fee=0,
                fee_base=10**6,
            )
        )
    asked = [(names[ask["from"]], names[ask["to"]], int(ask["amount_in"])) for ask in market["queries"]]
    return pools, asked


class Bench:
    """One market with its router and questions."""

    def __init__(self, pools: int, seed: int, questions: int, **kind: Any) -> None:
        self.document: PoolDocument = make_market(pools, seed, one_exchange=True, **kind)
        self.router = open_router(self.document.pools, self.document.wrapped_native_token)
        self.questions = self._questions(random.Random(f"questions/{seed}/{pools}"), questions)

    def _questions(self, rng: random.Random, count: int) -> list[tuple[str, str, int]]:
        """Pairs half by depth, half evenly, each in three sizes."""
        totals: dict[str, int] = {}
        for pool in self.document.pools:
            for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
                totals[token] = totals.get(token, 0) + reserve
        names = sorted(totals)
        hub = self.document.wrapped_native_token
        weights = [totals[name] * (self.router.spot_rate(name, hub) if name != hub else 1.0) for name in names]
        result: list[tuple[str, str, int]] = []
        while len(result) < count:
            a, b = rng.choices(names, weights, k=2) if len(result) % 2 else rng.sample(names, 2)
            if a == b:
                continue
            rate = self.router.spot_rate(a, b)
            depth = min(float(totals[a]), totals[b] / rate if rate > 0.0 else math.inf)
            result += [(a, b, max(1, int(depth * size))) for size in SIZES]
        return result[:count]

    def ask(self, question: tuple[str, str, int], limits: Limits, algorithm: str = "hybrid") -> Route:
        return self.router.forward(*question, limits, algorithm)  # type: ignore[arg-type]

    def optimality(self) -> list[float]:
        """Output / upper bound, of trades large enough that whole units do not matter."""
        return optimality(self.router, self.questions)

    def latency(self, limits: Limits, algorithm: str, repeat: int = 5, *, cold: bool = False) -> list[float]:
        """Milliseconds per quote (search and exact integers), the fastest of `repeat`, sorted.

        The fastest is the steadier figure on a machine that does other things as well; the peer gets the same.
        `cold` quotes are the first of their tokens in a snapshot: best rates from and to them are not known yet.
        """
        return sorted(self.fastest(question, limits, algorithm, repeat, cold=cold) for question in self.questions)

    def default(self, question: Question) -> Limits:
        """The limits of a request that names none: one transaction, and pools that are worth their fee."""
        settings = AggregatorSettings()
        table = settings.table()
        budget = table.room(settings.most(), table.ends(egld_in=False, egld_out=False))
        toll = settings.gas_price * self.router.rate(self.document.wrapped_native_token, question[1])
        return Limits(MOST_POOLS, MOST_POOLS, budget=budget, toll=toll)

    def default_latency(self, repeat: int, *, cold: bool = False) -> list[float]:
        """`latency` of default requests."""
        asked = [(question, self.default(question)) for question in self.questions]
        return sorted(self.fastest(question, limits, "hybrid", repeat, cold=cold) for question, limits in asked)

    def times(self, start: int, end: int, limits: Limits, algorithm: str, repeat: int) -> list[float]:
        """The same for some questions, in their order."""
        return [self.fastest(question, limits, algorithm, repeat) for question in self.questions[start:end]]

    def fastest(self, question: Question, limits: Limits, algorithm: str, repeat: int, *, cold: bool = False) -> float:
        """Milliseconds of the fastest of `repeat` times."""
        times = []
        for _ in range(repeat):
            if cold:
                self.router.forget()
            start = time.perf_counter()
            self.ask(question, limits, algorithm)
            times.append((time.perf_counter() - start) * 1e3)
        return min(times)


class Peer:
    """tines in a Node process."""

    def __init__(self, modules: Path) -> None:
        self._modules = modules

    @classmethod
    def install(cls, where: Path) -> Peer | None:
        """Fetch the package; None where node, npm or the network is missing."""
        if shutil.which("node") is None or shutil.which("npm") is None:
            return None
        (where / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", "@sushiswap/tines@1.0.11", "viem@1.16.2"]
        done = subprocess.run(command, cwd=where, capture_output=True, timeout=300, check=False)
        return cls(where) if done.returncode == 0 else None

    def run(
        self, bench: Bench, repeat: int = 1, between: Callable[[int, int], None] = lambda _start, _end: None
    ) -> list[dict[str, Any]]:
        """Per question: ms (of CPU, if less), the fastest of `repeat`, and legs: pool, tokens, part of what is left.

        It is asked block by block; `between` is called before and after each, while the peer waits.
        """
        index = {info.identifier: k for k, info in enumerate(bench.document.tokens)}
        market = {
            "decimals": [info.decimals for info in bench.document.tokens],
            "pools": [self._pool(pool, index) for pool in bench.document.pools],
            "questions": [[index[a], index[b], str(amount)] for a, b, amount in bench.questions],
            "repeat": repeat,
        }
        file = self._modules / "market.json"
        file.write_text(json.dumps(market))
        command = ["node", str(HERE / "quote_tines.mjs"), str(self._modules), str(file)]
        result: list[dict[str, Any]] = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for start in range(0, len(bench.questions), BLOCK):
                end = min(start + BLOCK, len(bench.questions))
                between(start, end)
                process.stdin.write(f"{start} {end}\n")
                process.stdin.flush()
                result += json.loads(process.stdout.readline())
                between(start, end)
            process.stdin.close()
        return result

    @staticmethod
    def _pool(pool: Pool, index: dict[str, int]) -> list[object]:
        assert isinstance(pool, XExchangePool)
        a, b = pool.tokens
        return [index[a], index[b], *map(str, pool.reserves), pool.total_fee / pool.fee_base]


def execute_legs(bench: Bench, question: tuple[str, str, int], legs: list[list[float]]) -> int:
    """What a peer's legs really pay, in exact integers; a pool used twice is as the first use left it."""
    token_in, token_out, amount = question
    tokens = [info.identifier for info in bench.document.tokens]
    balances = {token_in: amount}
    touched: dict[int, Pool] = {}
    for number, source, sink, part in legs:
        pool = touched.get(int(number), bench.document.pools[int(number)])
        a, b = tokens[int(source)], tokens[int(sink)]
        have = balances.get(a, 0)
        sold = have if part >= 1 else int(have * part)
        if sold <= 0:
            continue
        swap = pool.swap(pool.index(a), pool.index(b), sold)
        touched[int(number)] = swap.pool
        balances[a] = have - sold
        balances[b] = balances.get(b, 0) + swap.amount_out
    return balances.get(token_out, 0)


def compare(bench: Bench, answers: list[dict[str, Any]], *, same_pools: bool) -> dict[str, float]:
    """Our output against the peer's, in basis points, with as many pools as it used (or without a cap)."""
    gains, singles = [], 0
    for question, answer in zip(bench.questions, answers, strict=True):
        theirs = execute_legs(bench, question, answer["legs"])
        if theirs <= 0:
            continue
        used = len(answer["legs"])
        limits = NO_CAP._replace(pools=used) if same_pools else NO_CAP
        try:
            ours = bench.ask(question, limits).execution.amount_out
        except PlanError:
            ours = 0
        single = bench.ask(question, NO_CAP._replace(paths=1), "greedy").execution.amount_out
        singles += ours < single and not same_pools
        gains.append((ours / theirs - 1.0) * 1e4)
    return {
        "win_or_tie": sum(gain >= -0.001 for gain in gains) / len(gains),
        "mean_gain_bp": statistics.fmean(gains),
        "worst_bp": min(gains),
        "below_single": singles,
    }


def at(values: list[float], part: float) -> float:
    """The value at a part of a sorted list."""
    return values[min(len(values) - 1, int(part * len(values)))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--market", type=Path, default=os.environ.get("MILLRACE_BENCH_MARKET"), metavar="PATH")
    parser.add_argument("--optimum", type=Path, default=os.environ.get("MILLRACE_BENCH_OPTIMUM"), metavar="PATH")
    options = parser.parse_args()
    report = Report()
    print(f"seed {options.seed}, {options.questions} questions per market", flush=True)
    measure_search(report, options.seed, options.questions)
    measure_market(report, options.market, options.optimum)
    with tempfile.TemporaryDirectory() as folder:
        peer = None if options.no_peer else Peer.install(Path(folder))
        if peer is None:
            print("peer: not measured (needs node, npm and the registry)")
        else:
            measure_peer(report, peer, options.seed, options.questions)
    measure_service(report, options.seed)
    report.finish()


class Report:
    """Figures, and which bars they hold."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.bars: dict[str, bool] = {}

    def add(self, name: str, value: float, bar: str = "", limit: float = 0.0) -> None:
        """Note and print a figure; `bar` is `>=` or `<=`."""
        self.figures[name] = value
        text = f"{name:60s} {value:14.7g}"
        if bar:
            held = value >= limit if bar == ">=" else value <= limit
            self.bars[f"{name} {bar} {limit:g}"] = held
            part = f"{value / limit:8.2%}" if limit else " " * 8
            text += f"   bar {bar} {limit:<9g} {part} of it   {'held' if held else 'NOT HELD'}"
        print(text, flush=True)

    def finish(self) -> None:
        summary = {"figures": self.figures, "bars": self.bars, "all_bars_hold": all(self.bars.values())}
        print(json.dumps(summary))


def measure_search(report: Report, seed: int, questions: int) -> None:
    """Optimality and latency of the search with exact integers."""
    medians = {}
    for pools in (100, 1000):
        bench = Bench(pools, seed, questions)
        ratios = bench.optimality()
        report.add(f"{pools} pools: output / bound, mean", statistics.fmean(ratios), ">=", 0.99999)
        report.add(f"{pools} pools: output / bound, tenth percentile", at(ratios, 0.1), ">=", 0.9999)
        times = bench.latency(NO_CAP, "lagrangian")
        medians[pools] = at(times, 0.5)
        if pools == 1000:
            report.add("1000 pools: quote ms, median", medians[pools], "<=", 0.15)
            report.add("1000 pools: quote ms, p99", at(times, 0.99), "<=", 1.0)
            measure_default(report, bench, 0.15, 1.0)
            measure_transaction(report, bench)
    noisy = Bench(1000, seed + 2, questions, noise=0.01).default_latency(3)
    report.add("1000 pools, 1 % mispricing: default request ms, median", at(noisy, 0.5))
    report.add("1000 pools, 1 % mispricing: default request ms, p99", at(noisy, 0.99))
    stable = Bench(1000, seed + 1, questions, curved=0.2, crypto=False).optimality()
    report.add("20 % stable pools: output / bound, mean", statistics.fmean(stable), ">=", 0.99999)
    report.add("20 % stable pools: output / bound, tenth percentile", at(stable, 0.1), ">=", 0.9999)
    mixed = Bench(1000, seed + 1, questions, curved=0.2)
    once = optimality_of_single_trades(mixed.router, mixed.questions)
    report.add("20 % stable and crypto pools: one trade per pool, mean", statistics.fmean(once), ">=", 0.99999)
    report.add("20 % stable and crypto pools: the same, tenth percentile", at(once, 0.1), ">=", 0.9999)
    report.add("20 % stable and crypto pools: in any pieces, mean", statistics.fmean(mixed.optimality()))
    bench = Bench(10_000, seed, questions)
    large = bench.latency(NO_CAP, "lagrangian", 3)
    report.add("10000 pools: quote ms, median", at(large, 0.5), "<=", 1.0)
    report.add("10000 pools: quote ms, p99", at(large, 0.99), "<=", 3.0)
    measure_default(report, bench, 1.0, 3.0)
    measure_transaction(report, bench)
    exponent = math.log10(at(large, 0.5) / medians[100]) / 2.0
    report.add("growth exponent of the median, 100 to 10000 pools", exponent, "<=", 0.9)


def measure_default(report: Report, bench: Bench, median: float, slowest: float) -> None:
    """Latency of default requests, and of those that are the first of their tokens in a snapshot."""
    name = f"{len(bench.document.pools)} pools: default request (hybrid) ms"
    times = bench.default_latency(3)
    report.add(f"{name}, median", at(times, 0.5), "<=", median)
    report.add(f"{name}, p99", at(times, 0.99), "<=", slowest)
    cold = bench.default_latency(3, cold=True)
    report.add(f"{name}, cold, median", at(cold, 0.5))
    report.add(f"{name}, cold, p99", at(cold, 0.99))


def measure_transaction(report: Report, bench: Bench) -> None:
    """What the limits of one transaction (gas, built-in calls, transfers, storage reads) cost, and how long they take.

    Held against the same questions with at most 100 pools, which the network would not execute.
    """
    settings = AggregatorSettings()
    table = settings.table()
    budget = table.room(settings.most(), table.ends(egld_in=False, egld_out=False))
    for paths in (FEW_PATHS, MOST_PATHS):
        free, bound = Limits(MOST_POOLS, paths), Limits(MOST_POOLS, paths, budget=budget)
        lost, times = [], []
        for question in bench.questions:
            paid = [bench.ask(question, limits).execution.amount_out for limits in (free, bound)]
            lost.append((1.0 - paid[1] / paid[0]) * 1e4)
            turns = [[bench.fastest(question, limits, "hybrid", 2) for limits in (free, bound)] for _ in range(2)]
            times.append([min(turn[k] for turn in turns) for k in range(2)])
        name = f"{len(bench.document.pools)} pools: {paths} paths within one transaction"
        report.add(f"{name}: answers it makes smaller", sum(bp > 0.001 for bp in lost) / len(lost))
        report.add(f"{name}: what it costs, bp, mean", statistics.fmean(lost))
        report.add(f"{name}: the same, worst", max(lost))
        medians = [statistics.median(row[k] for row in times) for k in range(2)]
        report.add(f"{name}: ms / ms without, medians", medians[1] / medians[0])


def measure_market(report: Report, path: Path | None, optimum: Path | None) -> None:
    """Optimality on a real market, if there is one to read."""
    if path is None:
        print("real market: not measured: give --market PATH")
        return
    pools, questions = read_market(path)
    held = [token for pool in pools for token in pool.tokens]
    router = open_router(pools, max(sorted(set(held)), key=held.count))
    if optimum is None:
        ratios, of = optimality(router, questions), "own bound"
    else:
        rows = [row for row in json.loads(optimum.read_text())["results"] if row.get("upper")]
        paid = [router.forward(*questions[row["q"]], NO_CAP, "hybrid").execution.amount_out for row in rows]
        ratios, of = sorted(out / row["upper"] for out, row in zip(paid, rows, strict=True)), "optimum"
    name = f"real market, {len(pools)} pools: output / {of}"
    report.add(f"{name}, mean", statistics.fmean(ratios), ">=", 0.9999)
    report.add(f"{name}, tenth percentile", at(ratios, 0.1))


def measure_peer(report: Report, peer: Peer, seed: int, questions: int) -> None:
    """The peer on the same questions, in turns with us, so that both see the machine at the same speed."""
    bench = Bench(1000, seed, questions)
    ours = [math.inf] * len(bench.questions)

    def measure_ours(start: int, end: int) -> None:
        for k, ms in enumerate(bench.times(start, end, NO_CAP, "lagrangian", REPEAT), start):
            ours[k] = min(ours[k], ms)

    answers = peer.run(bench, 2 * REPEAT, measure_ours)
    theirs, mine = statistics.median(answer["ms"] for answer in answers), statistics.median(ours)
    report.add("peer: ms, median", theirs)
    report.add("peer: ours on the same questions in turns, ms, median", mine)
    report.add("times faster than the peer, medians", theirs / mine, ">=", 200.0)
    same = compare(bench, answers, same_pools=True)
    report.add("same number of pools: wins and ties", same["win_or_tie"], ">=", 0.97)
    report.add("same number of pools: mean gain, bp", same["mean_gain_bp"], ">=", 3.0)
    report.add("same number of pools: worst, bp", same["worst_bp"], ">=", -1.0)
    noisy = Bench(1000, seed + 2, questions, noise=0.01)
    mispriced = compare(noisy, peer.run(noisy), same_pools=False)
    report.add("1 % mispricing: at least the peer", mispriced["win_or_tie"], ">=", 0.95)
    report.add("1 % mispricing: below the single path", mispriced["below_single"], "<=", 0)


def measure_service(report: Report, seed: int) -> None:
    """The whole service over HTTP."""
    market = make_market(1000, seed)
    found = asyncio.run(
        measure_http(encode(market), encode(traded(market, seed)), encode(traded(market, seed, TRADED_PART)))
    )
    report.add("HTTP: quotes per second of the server's CPU", found["per_cpu_second"], ">=", 2000.0)
    ratio = asyncio.run(measure_workers(encode(market), 2))
    report.add("HTTP: quotes per CPU second with two workers / with one", ratio, ">=", 0.9)
    report.add("HTTP: quotes per second, service on one core, client on another", found["per_second"])
    report.add("HTTP: p99 ms", found["p99_ms"], "<=", 5.0)
    report.add("HTTP: p99 ms while refreshing", found["p99_refresh_ms"])
    report.add("HTTP: refreshes a second meanwhile", found["refreshes_per_second"])
    report.add("HTTP: p99 while refreshing / p99", found["refresh_ratio"], "<=", 2.0)
    report.add("snapshot of 1000 pools, all of them changed, under load, ms of CPU", found["build_ms"], "<=", 50.0)
    report.add("the same, a tenth of them changed", found["similar_build_ms"])
    report.add("ready with a warm cache, s", found["ready_s"], "<=", 3.0)


if __name__ == "__main__":
    main()
