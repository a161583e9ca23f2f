"""What each piece of the search earns: it is left out, and the same questions are asked again, on fresh markets.

    ./run bench ablation [--seed N] [--questions N] [--market PATH] [--markets clean,dusty] [--pieces exchange,order]

Two of three questions are default requests, the third has five paths. Answers are compared less their fees: what they
lose in the mean and at worst, in basis points (below 0: they gain). The CPU time without a piece is a part of
that with it: what is well below 1 costs that much. Python's pieces are patched here;
constants of kernels are switches of kernels compiled for this (`_switches.py`; without a compiler their rows are left
out). `--market` is a market that was (`real.py`). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
import _switches

if __name__ == "__main__":  # before anything imports the others
    with tempfile.TemporaryDirectory() as folder:
        _switches.load(Path(folder))

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

import laws
from _pairs import PairsError, read_pairs
from millrace.dex.pool import Pool
from millrace.routing import answers, kernelsearch, mispricing
from millrace.routing.kernelsearch import KernelSearch
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, Route, Router
from millrace.routing.widepath import WideSearch
from quote import OpenMarket
from real import WHOLE
from synthetic import WRAPPED, make_market

FIVE = 5  # paths of every third question
REPEAT = 2  # times each question is asked with and without a piece, in turns; the fastest counts
CHANGED = 1e-3  # basis points: answers that differ by less are the same
ALL = 1e4  # basis points: an answer that is none, or worth less than its fee, loses so much
COARSE = 6  # digits of the reserves that are left in a market of few decimals, at least

Answer = Route | None
Off = Callable[[], AbstractContextManager[Any]]


class Piece(NamedTuple):
    """A part of the search, how to leave it out, and the limits that questions then have."""

    name: str
    off: Off
    limits: Callable[[Limits], Limits] = lambda limits: limits


class Market(NamedTuple):
    """A market and its questions."""

    name: str
    planner: Planner
    questions: list[tuple[laws.Question, Limits]]


def _constant(name: str, value: float) -> Off:
    """A kernel's constant has another value meanwhile."""

    @contextmanager
    def off() -> Iterator[None]:
        module, constant = name.split(".")
        usual = getattr(sys.modules[f"millrace.routing.{module}"], constant)
        _switches.kernels.switch(name, value)
        try:
            yield
        finally:
            _switches.kernels.switch(name, usual)

    return off


def _patched(where: object, name: str, value: object) -> Off:
    """An attribute is something else meanwhile."""
    return lambda: patch.object(where, name, value)


@contextmanager
def _few_labels() -> Iterator[None]:
    whole = WideSearch.best

    def best(self: WideSearch, *asked: Any) -> Any:
        slots, self._slots = self._slots, 1
        try:
            return whole(self, *asked)
        finally:
            self._slots = slots

    with patch.object(WideSearch, "best", best):
        yield


def _any_order() -> AbstractContextManager[Any]:
    def flow(self: KernelSearch, search: Any, _: Any, limits: Limits) -> Any:
        return self.flow(search, limits)

    return patch.object(KernelSearch, "flow_around", flow)


def _one_path_orders() -> AbstractContextManager[Any]:
    whole = KernelSearch.flow_around

    def flow(self: KernelSearch, search: Any, ways: Any, limits: Limits) -> Any:
        return whole(self, search, kernelsearch.Ways(*(part[:1] for part in ways)), limits)

    return patch.object(KernelSearch, "flow_around", flow)


def _no_single() -> AbstractContextManager[Any]:
    whole = Router._paths

    def paths(self: Router, *asked: Any, split: bool) -> Any:
        return [], whole(self, *asked, split=split)[1]

    return patch.object(Router, "_paths", paths)


def _all_in_whole_market() -> AbstractContextManager[Any]:
    usual = Router.forward

    def forward(self: Router, *asked: Any, **named: Any) -> Route:
        return usual(self.whole, *asked, **named)

    return patch.object(Router, "forward", forward)


def _no_looks(_: Router, __: Any, best: Any, *___: Any) -> int:
    return answers.BUDGET if best is None else 0


def _free(limits: Limits) -> Limits:
    return limits._replace(toll=0.0)


PYTHON = (
    Piece("looks in whole units, among cycles (COUNTS)", _patched(mispricing, "COUNTS", math.inf)),
    Piece("looks in whole units, all", _patched(Router, "_doubts", _no_looks)),
    Piece("greedy split", _patched(kernelsearch, "CHUNKS", 0)),
    Piece("best single path", _no_single),
    Piece("second question, to the whole market", _patched(Router, "_gains_astray", lambda *_: False)),
    Piece("market without edges astray first", _all_in_whole_market),
    Piece("among cycles: exchanges of few paths", _patched(kernelsearch, "OF_FEW", 0)),
    Piece("among cycles: exchanges of more paths", _patched(kernelsearch, "OF_MORE", 0)),
    Piece("among cycles: many partial paths", _few_labels),
    Piece("among cycles: flow in an order", _any_order),
    Piece("among cycles: order around all paths", _one_path_orders),
    Piece("among cycles: exchange", _patched(mispricing, "SHALLOW", math.inf)),
    Piece("pools weighed against the fee", nullcontext, _free),
    Piece("LP tokens in between", nullcontext, lambda limits: limits._replace(liquidity=False)),
)
KERNEL = (
    Piece("exchange: of few paths", _constant("find.WORTHWHILE", 1.0)),
    Piece("exchange: smaller sizes", _constant("exchange.SMALLER", 1.0)),
    Piece("refine: moves", _constant("refine.STEPS", 1)),
    Piece("refine: second climb", _constant("refine.SMALL", 0)),
    Piece("refine: moves at once before it", _constant("refine.KICK", 0)),
    Piece("prune: exact losses", _constant("prune.EXACT_LOSSES_UP_TO", 0)),
    Piece("split among fewer pairs", _constant("find.LARGE", 10**9)),
)


def few_decimals(seed: int) -> tuple[Pool, ...]:
    """Prices off by 3 %, and half of the tokens with so few units that they count."""
    pools = make_market(250, seed, noise=0.03, one_exchange=True).pools
    least: dict[str, int] = {}
    for pool in pools:
        for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
            least[token] = min(reserve, least.get(token, reserve))
    chosen = random.Random(f"decimals/{seed}").sample(sorted(least.keys() - {WRAPPED}), len(least) // 2)
    scale = {token: max(1, least[token] // 10**COARSE) for token in chosen}
    return tuple(
        pool.with_reserves(tuple(r // scale.get(t, 1) for t, r in zip(pool.tokens, pool.reserves, strict=True)))
        for pool in pools
    )


def markets(seed: int, questions: int, path: Path | None, chosen: list[str]) -> Iterator[Market]:
    """The markets asked for, one by one."""
    kinds: dict[str, Callable[[], tuple[Pool, ...]]] = {
        name: lambda name=name: laws.make(name, seed).pools  # type: ignore[misc]
        for name in ("clean", "stable-heavy", "mispriced 1 %", "mispriced 3 %", "dusty")
    }
    kinds["few decimals"] = lambda: few_decimals(seed)
    kinds["LP tokens"] = lambda: make_market(200, seed, traded_lp=40).pools
    for name, make in kinds.items():
        if not chosen or name in chosen:
            pools = make()
            yield asked(name, seed, Planner(pools, laws.DictMarket(pools, WRAPPED), table=laws.TABLE), pools, questions)
    if path is not None and (not chosen or "real" in chosen):
        pairs = read_pairs(path, WHOLE)
        names = {token: WRAPPED if token == pairs.hub else token for token in pairs.worth}
        pools = tuple(replace(pool, tokens=tuple(names[token] for token in pool.tokens)) for pool in pairs.pools)
        yield asked("real", seed, Planner(pools, OpenMarket(pools, WRAPPED), table=laws.TABLE), pools, questions)


def asked(name: str, seed: int, planner: Planner, pools: tuple[Pool, ...], count: int) -> Market:
    """A market with questions whose answers are worth more than their fee."""
    market, rng = laws.Market(name, seed, pools, planner), random.Random(f"ablation/{seed}/{name}")
    rows: list[tuple[laws.Question, Limits]] = []
    while len(rows) < count:
        question = laws.draw(market, rng)
        limits = laws.usual(planner, question.token_out)._replace(liquidity=name == "LP tokens")
        limits = limits._replace(paths=FIVE) if len(rows) % 3 == 2 else limits
        if laws.net(laws.ask(planner, question, limits), limits) > 0.0:  # nobody swaps what the fee is more than
            rows.append((question, limits))
    planner.router.warm()
    return Market(name, planner, rows)


def _timed(planner: Planner, question: laws.Question, limits: Limits) -> tuple[Answer, float]:
    start = time.thread_time()
    answer = laws.ask(planner, question, limits)
    return answer, time.thread_time() - start


def measure(market: Market, piece: Piece) -> dict[str, float]:
    """What the answers of one market lose without a piece, and the time they take."""
    lost, with_it, without = [], 0.0, 0.0
    for question, limits in market.questions:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(REPEAT):
            usual, seconds = _timed(market.planner, question, limits)
            times[0].append(seconds)
            with piece.off():
                other, seconds = _timed(market.planner, question, piece.limits(limits))
            times[1].append(seconds)
        with_it, without = with_it + min(times[0]), without + min(times[1])
        paid, left = laws.net(usual, limits), laws.net(other, limits)
        lost.append(min((1.0 - left / paid) * 1e4, ALL))
    return {
        "mean_bp": statistics.fmean(lost),
        "worst_bp": max(lost),
        "best_bp": min(lost),
        "changed": sum(abs(bp) > CHANGED for bp in lost) / len(lost),
        "time": without / with_it,
    }


def show(market: str, found: dict[str, dict[str, float]]) -> None:
    """A row a piece."""
    table = Table("left out", "bp lost, mean", "at worst", "changed", "time without / with", title=market)
    for piece, figures in found.items():
        lost = f"{figures['mean_bp']:.3g}", f"{figures['worst_bp']:.3g}"
        table.add_row(piece, *lost, f"{figures['changed']:.0%}", f"{figures['time']:.2f}")
    Console(width=110).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--market", type=Path, metavar="PATH")
    parser.add_argument("--markets", default="", help="names, with commas in between")
    parser.add_argument("--pieces", default="", help="parts of names, with commas in between")
    options = parser.parse_args()
    parts = options.pieces.split(",")
    pieces = [
        piece
        for piece in (*PYTHON, *(KERNEL if _switches.kernels else ()))
        if any(part in piece.name for part in parts)
    ]
    print(f"seed {options.seed}, {options.questions} questions per market", flush=True)
    if _switches.kernels is None:
        print("pieces of kernels: not measured (needs uv, a C compiler, Python's headers)")
    found: dict[str, dict[str, dict[str, float]]] = {}
    try:
        for market in markets(
            options.seed, options.questions, options.market, [*filter(None, options.markets.split(","))]
        ):
            found[market.name] = {piece.name: measure(market, piece) for piece in pieces}
            show(market.name, found[market.name])
    except PairsError as error:
        parser.error(str(error))
    print(json.dumps({"benchmark": "ablation", "seed": options.seed, "markets": found}))


if __name__ == "__main__":
    main()
