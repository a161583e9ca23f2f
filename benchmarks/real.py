"""A market that was: CPU of quotes over real pools, and how much of the certified optimum they pay.

    ./run bench real PATH [--arbitrage-free] [--least-depth N] [--seed N] [--questions N]

PATH is a JSON file of pairs, or a folder of such files (format: `_pairs.py`), as snapshots of Uniswap V2 and others are
published. An old snapshot is full of abandoned pairs at odd prices; the market is measured as it is, and as it
is once all arbitrage has been carried out (`--arbitrage-free`: only so). Dust is kept: pairs count that hold the
worth of `--least-depth` whole tokens of the hub (18 decimals), the token of most pairs, on each side.

The certified optimum is a bound of weak duality that another solver than the router's finds. Where cycles earn, it
holds what all of them do, also those that no trade of this size has a use for: there the share is a lower bound. It is
a bound in fractions of units, too: where units are few, no plan in whole ones may reach it. The shares
of all answers are printed first, then those without such answers, and these apart. The default request weighs pools
against the network's fee, the hub standing for EGLD.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _pairs import Pairs, PairsError, certified, read_pairs, without_arbitrage
from _report import Report
from millrace.aggregator.settings import AggregatorSettings
from millrace.routing.execution import Walked
from millrace.routing.plan import Execution
from millrace.routing.router import Limits, Router
from quote import MOST_POOLS, NO_CAP, SIZES, Question, at, open_router

WHOLE = 10**18  # units of the hub
DEEP = 20  # whole tokens of the hub that all pairs of a token hold in worth, for it to be drawn as often as others
REPEAT = 3  # times each question is asked; the fastest counts
COARSE = 1e-3  # of an answer: where a unit lost in every trade costs more, units are too few to come near a bound


def draw(pairs: Pairs, seed: int, count: int) -> list[Question]:
    """Questions: pairs of tokens half by depth, half evenly among the deep ones, each in three sizes."""
    rng = random.Random(f"real/{seed}")
    totals: dict[str, float] = {}
    for pool in pairs.pools:
        for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
            totals[token] = totals.get(token, 0.0) + reserve * pairs.worth[token]
    names = sorted(totals)
    deep = [token for token in names if totals[token] >= DEEP * WHOLE] or names
    weights = [totals[token] for token in names]
    result: list[Question] = []
    for _ in range(count):
        a = b = ""
        while a == b:
            even = len(result) // len(SIZES) % 2 and len(deep) > 1
            a, b = rng.sample(deep, 2) if even else rng.choices(names, weights, k=2)
        depth = min(totals[a], totals[b]) / pairs.worth[a]
        result += [(a, b, max(1, int(depth * size))) for size in SIZES]
    return result[:count]


def default_limits(router: Router, hub: str, token_out: str) -> Limits:
    """The limits of a request that names none."""
    settings = AggregatorSettings()
    table = settings.table()
    budget = table.room(settings.most(), table.ends(egld_in=False, egld_out=False))
    return Limits(MOST_POOLS, MOST_POOLS, budget=budget, toll=settings.gas_price * router.rate(hub, token_out))


def measure(report: Report, name: str, pairs: Pairs, questions: list[Question]) -> None:
    """Quotes over one market."""
    router = open_router(pairs.pools, pairs.hub)
    shares: list[float] = []
    few: list[float] = []
    for row, limits_of in (
        ("no cap", lambda _: NO_CAP),
        ("default request", lambda token: default_limits(router, pairs.hub, token)),
    ):
        times = []
        for question in questions:
            limits, fastest = limits_of(question[1]), float("inf")
            for _ in range(REPEAT):
                start = time.thread_time()
                route = router.forward(*question, limits, "hybrid")
                fastest = min(fastest, time.thread_time() - start)
            times.append(fastest * 1e3)
            if limits is NO_CAP:
                share = route.execution.amount_out / certified(pairs, *question)
                (few if rounding(route.execution) > COARSE else shares).append(share)
        times.sort()
        report.add(f"{name}: {row}, CPU, median", at(times, 0.5), "ms")
        report.add(f"{name}: {row}, CPU, p99", at(times, 0.99), "ms")
    report_shares(report, f"{name}: share of the certified optimum", [*shares, *few])
    if few and shares:
        report_shares(report, f"{name}: the same where whole units are fine enough", shares)
        report.add(f"{name}: answers where they are not", len(few))
        report.add(f"{name}: their share, worst", min(few))


def rounding(done: Execution) -> float:
    """What a unit lost in every trade makes of an output, relative."""
    trades, sold, bought = zip(*done.fills, strict=True)
    return Walked(done.amount_in, done.amount_out, trades, (), (), sold, bought).rounding()


def report_shares(report: Report, name: str, shares: list[float]) -> None:
    """How much of the optimum answers pay."""
    shares = sorted(shares)
    report.add(f"{name}, mean", statistics.fmean(shares))
    report.add(f"{name}, tenth percentile", at(shares, 0.1))
    report.add(f"{name}, worst", shares[0])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--arbitrage-free", action="store_true")
    parser.add_argument("--least-depth", type=float, default=1.0, metavar="N")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--questions", type=int, default=150)
    options = parser.parse_args()
    try:
        pairs = read_pairs(options.path, options.least_depth * WHOLE)
    except PairsError as error:
        parser.error(str(error))
    questions = draw(pairs, options.seed, options.questions)
    print(f"seed {options.seed}, {len(pairs.pools)} pairs, {len(questions)} questions", flush=True)
    report = Report("real")
    measure(report, "arbitrage-free", without_arbitrage(pairs), questions)
    if not options.arbitrage_free:
        measure(report, "as it is", pairs, questions)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
