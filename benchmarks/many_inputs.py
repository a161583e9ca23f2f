"""What requests with many inputs take: processor time of POST /api/v1/multi-swap without HTTP, on fresh markets.

    ./run bench many_inputs [--seed N] [--rounds N]

A thousand pools, inputs of random tokens: small ones, and ones of a hundredth of each token's deepest pool, whose
transactions move pools for those after them. Processor time of the answering thread counts, JSON included: what else
runs on the machine does not.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from _report import Report
from millrace.aggregator.batch_answers import multi_swap
from millrace.aggregator.batch_requests import BatchItem, MultiSwapRequest, multi_swap_order
from millrace.aggregator.responses import encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.document import encode as written
from synthetic import make_market

SETTINGS = AggregatorSettings()
SENDER = SETTINGS.contract  # any address will do
USDC = SETTINGS.usdc
POOLS = 1000
COUNTS = (2, 4, 10, 25, 100)
PARTS = {"small": 10**6, "1 % of depth": 100}
BAR = ("<=", 10.0)  # ms, of 25 small inputs
T = TypeVar("T")


def finished(parts: Generator[None, None, T]) -> T:
    """The answer, all its parts done."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            answer: T = end.value
            return answer


def measure(snapshot: Snapshot, requests: list[MultiSwapRequest]) -> list[float]:
    """Milliseconds of processor time of each request, sorted."""
    times = []
    for request in requests:
        order = multi_swap_order(request, SETTINGS)
        start = time.thread_time()
        encode(finished(multi_swap(snapshot, snapshot.main, order, request.sender, SETTINGS, math.inf)))
        times.append((time.thread_time() - start) * 1e3)
    return sorted(times)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    report = Report(f"many inputs, seed {options.seed}")
    for kind, changes in {"constant product": {}, "a tenth curved": {"curved": 0.1, "traded_lp": 5}}.items():
        document = make_market(POOLS, options.seed, **changes)
        snapshot = build(written(document), 0.0)
        deepest: dict[str, int] = {}
        for pool in document.pools:
            for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
                deepest[token] = max(deepest.get(token, 0), reserve)
        names = sorted(info.identifier for info in document.tokens if not info.is_lp and info.identifier in deepest)
        names.remove(USDC)
        for size, part in PARTS.items():
            for count in COUNTS:
                rng = random.Random(f"{options.seed}/{count}/{part}")
                requests = []
                for _ in range(options.rounds):
                    chosen = rng.sample(names, count)
                    items = [BatchItem(token=token, amount=str(max(1, deepest[token] // part))) for token in chosen]
                    requests.append(MultiSwapRequest(inputs=items, to=USDC, sender=SENDER))
                bar = BAR if (size, count) == ("small", 25) else None
                median = statistics.median(measure(snapshot, requests))
                report.add(f"{kind}, {size}, {count} inputs, median", median, "ms", bar)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
