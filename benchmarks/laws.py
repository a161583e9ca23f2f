"""The laws of the search, on fresh markets of every kind: what no answer may do, whatever the market.

    ./run bench laws [--seed N] [--count N] [--markets clean,dusty] [--laws narrower,bound]

`--count` is how many questions each law gets in each market. What a plan pays is compared less its fee, as the default
request weighs it. Every answer is executed again by the model of the contract, which shares no code with the walkers.
Violations are printed as they are found, with what asks the question again; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from millrace.aggregator.settings import AggregatorSettings
from millrace.chain.call import TokenPayment
from millrace.dex.constant_product import OneDexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.vault import execute
from millrace.routing.plan import Ends, PlanError, cost_of, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Route
from synthetic import WRAPPED, make_market

SETTINGS = AggregatorSettings()
TABLE = SETTINGS.table()
MOST = 100  # the largest `maxPools`, and so the most paths
FEW_UNITS, ROUNDING, ASKED = 2, 1e-6, 1e-5  # what a larger freedom may cost: units, and parts of the output
STRAY = 1e-5  # of an answer: what one more pool may cost
LOOKS = 30_000  # trades evaluated in a complete search for the best path; questions that need more do not count
CERTAIN = 1.0 + 1e-9  # what floating point is off in a bound


class Market(NamedTuple):
    """Pools, and who answers questions about them."""

    name: str
    seed: int
    pools: tuple[Pool, ...]
    planner: Planner

    def asks(self, pools: Sequence[Pool]) -> Planner:
        """Another planner, over other pools."""
        return Planner(pools, DictMarket(pools, WRAPPED), table=TABLE)


class Question(NamedTuple):
    """Sell an amount of a token for another one."""

    token_in: str
    token_out: str
    amount: int


class Breach(NamedTuple):
    """What was not kept: what it says, and by how much (basis points of the answer)."""

    what: str
    bp: float


Law = Callable[[Market, random.Random], Iterator[Breach]]


def make(name: str, seed: int) -> Market:
    """A market of a named kind."""
    rng = random.Random(f"laws/{name}/{seed}")
    pools = _KINDS[name](seed, rng)
    return Market(name, seed, pools, Planner(pools, DictMarket(pools, WRAPPED), table=TABLE))


def _dusty(seed: int, rng: random.Random) -> tuple[Pool, ...]:
    """Besides others, pools that hold from a few to some ten thousand units, at any price."""
    pools = make_market(300, seed).pools
    names = sorted({token for pool in pools for token in pool.tokens})
    dust = [
        stray(f"dust:{k}", *rng.sample(names, 2), *(int(10 ** rng.uniform(0.5, 5)) for _ in range(2)))
        for k in range(25)
    ]
    return (*pools, *dust)


def _disconnected(seed: int, _: random.Random) -> tuple[Pool, ...]:
    """Two markets that share no token but their names' beginnings; the wrapped native token is in the first."""
    other = make_market(80, seed + 1).pools
    return (*make_market(120, seed).pools, *(_renamed(pool) for pool in other if isinstance(pool, XExchangePool)))


def _renamed(pool: XExchangePool) -> XExchangePool:
    tokens = tuple("Z" + token for token in pool.tokens)
    return stray("z" + pool.id, *tokens, *pool.reserves)  # type: ignore[arg-type]


_KINDS: dict[str, Callable[[int, random.Random], tuple[Pool, ...]]] = {
    "clean": lambda seed, _: make_market(400, seed).pools,
    "stable-heavy": lambda seed, _: make_market(200, seed, curved=0.5).pools,
    "mispriced 0.1 %": lambda seed, _: make_market(300, seed, noise=0.004).pools,
    "mispriced 1 %": lambda seed, _: make_market(250, seed, noise=0.01).pools,
    "mispriced 3 %": lambda seed, _: make_market(500, seed, noise=0.03).pools,
    "dusty": _dusty,
    "disconnected": _disconnected,
    "tiny": lambda seed, _: make_market(3, seed, tokens=3, noise=0.01).pools,
    "huge": lambda seed, _: make_market(30_000, seed, one_exchange=True).pools,
}
KINDS = tuple(_KINDS)


def stray(name: str, a: str, b: str, reserve_a: int, reserve_b: int) -> XExchangePool:
    """A constant-product pool of this size."""
    return XExchangePool(
        id=name,
        address=bytes(8) + b"\x05\x00" + name.encode().rjust(22, b"-")[-22:],
        tokens=(a, b),
        reserves=(reserve_a, reserve_b),
        total_fee=300,
        special_fee=50,
    )


def draw(market: Market, rng: random.Random) -> Question:
    """A question in an amount of any size that a pool knows, from few units to a third of the deepest."""
    router = market.planner.router
    while True:
        pool, other = rng.choices(market.pools, k=2)
        a, b = rng.choice(pool.tokens), rng.choice(other.tokens)
        if a != b and router.connected(a, b):
            deepest = router.depth(a)
            return Question(a, b, max(1, int(deepest * 10 ** rng.uniform(-6, -0.5))))


def usual(planner: Planner, token_out: str, **narrower: int) -> Limits:
    """The limits of a request that names none, or these."""
    budget = TABLE.room(SETTINGS.most(), TABLE.ends(egld_in=False, egld_out=False))
    toll = SETTINGS.gas_price * planner.router.rate(WRAPPED, token_out)
    return Limits(MOST, MOST, budget=budget, toll=toll)._replace(**narrower)


def ask(planner: Planner, question: Question, limits: Limits, algorithm: str = "hybrid") -> Route | None:
    """The answer; None where there is none."""
    try:
        return planner.forward(*question, limits, algorithm)  # type: ignore[arg-type]
    except (NoRoute, PlanError):
        return None


def net(route: Route | None, limits: Limits) -> float:
    """What an answer pays, less its fee; minus infinity without one."""
    if route is None:
        return -math.inf
    done = route.execution
    return done.amount_out - TABLE.fee(cost_of(done.legs, TABLE)) * limits.toll


def worse(less: float, more: float, tolerance: float, of: int, what: str) -> Iterator[Breach]:
    """A breach if `less` is below `more` by more than a part of what is paid, and by more than few units."""
    if more - less > max(tolerance * of, FEW_UNITS):
        yield Breach(what, (more - less) / of * 1e4)


def narrower(market: Market, rng: random.Random) -> Iterator[Breach]:
    """Whoever asks with more freedom is paid no less."""
    question = draw(market, rng)
    limits = usual(market.planner, question.token_out)
    free = ask(market.planner, question, limits)
    others: dict[str, Planner] = {}
    kinds: list[tuple[str, Planner, Limits]] = [
        *((f"{hops} hops", market.planner, limits._replace(hops=hops)) for hops in (1, 2, 3, 4, 6)),
        *((f"{paths} paths", market.planner, limits._replace(paths=paths)) for paths in (1, 2, 5, 20)),
        *((f"{pools} pools", market.planner, limits._replace(pools=pools)) for pools in (2, 4, 16)),
    ]
    if len(market.pools) <= 1000:
        for exchange in sorted({pool.exchange for pool in market.pools}):
            without = market.asks([pool for pool in market.pools if pool.exchange != exchange])
            if without.router.connected(question.token_in, question.token_out):
                others[f"without {exchange}"] = without
    kinds += [(name, without, limits) for name, without in others.items()]
    for name, planner, asked in kinds:
        found = ask(planner, question, asked)
        if found is not None:
            paid = found.execution.amount_out
            yield from worse(net(free, limits), net(found, limits), ROUNDING, paid, f"{question}: {name} pays more")
    few = ask(market.planner, question, limits._replace(paths=5))
    for paths in (1, 2, 4):
        found = ask(market.planner, question, limits._replace(paths=paths))
        if found is not None:
            paid = found.execution.amount_out
            yield from worse(net(few, limits), net(found, limits), ASKED, paid, f"{question}: 5 paths below {paths}")
    for hops in (1, 2, 3, 4):
        short = limits._replace(hops=hops)
        less = [
            *((f"{paths} paths", market.planner, short._replace(paths=paths)) for paths in (1, 4)),
            *((name, without, short) for name, without in others.items()),
            *((f"{fewer} hops", market.planner, limits._replace(hops=fewer)) for fewer in range(1, hops)),
        ]
        whole = ask(market.planner, question, short)
        for name, planner, asked in less:
            found = ask(planner, question, asked)
            if found is not None:
                paid, what = found.execution.amount_out, f"{question}: {hops} hops below {name}"
                yield from worse(net(whole, limits), net(found, limits), ASKED, paid, what)


def algorithms(market: Market, rng: random.Random) -> Iterator[Breach]:
    """`hybrid` is never below `greedy` or `lagrangian`."""
    question = draw(market, rng)
    limits = usual(market.planner, question.token_out, paths=rng.choice((3, 5, MOST)))
    both = ask(market.planner, question, limits)
    for algorithm in ("greedy", "lagrangian"):
        found = ask(market.planner, question, limits, algorithm)
        if found is not None:
            paid = found.execution.amount_out
            yield from worse(
                net(both, limits), net(found, limits), ROUNDING, paid, f"{question}: {algorithm} pays more"
            )


def one_more_pool(market: Market, rng: random.Random) -> Iterator[Breach]:
    """A pool of two dollars that is five per cent off makes no answer worse."""
    router = market.planner.router
    names = [token for token in sorted(router.index) if router.rate(WRAPPED, token) > 0.0]
    a, b = rng.sample(names, 2)
    worth = 10**18 * 2.0 / 40.0 / 2.0  # a dollar of the wrapped native token, which is worth 40 in these markets
    units = [max(1, int(worth * router.rate(WRAPPED, token))) for token in (a, b)]
    more = market.asks([*market.pools, stray("stray", a, b, units[0], int(units[1] * 1.05) + 1)])
    for question in [draw(market, rng) for _ in range(4)]:
        limits = usual(market.planner, question.token_out)
        before, after = ask(market.planner, question, limits), ask(more, question, limits)
        if before is not None:
            paid = before.execution.amount_out
            what = f"{question}: less with a pool of {a} and {b}"
            yield from worse(net(after, limits), net(before, limits), STRAY, paid, what)


def single_path(market: Market, rng: random.Random) -> Iterator[Breach]:
    """No answer is below any single path that a complete search finds."""
    question = draw(market, rng)
    limits = usual(market.planner, question.token_out, hops=rng.choice((2, 3, 4, 10)))
    best = best_path(market, question, limits)
    for algorithm in ("greedy", "lagrangian", "hybrid"):
        found = ask(market.planner, question, limits, algorithm)
        if best > 0:
            yield from worse(net(found, limits), best, 0.0, int(best), f"{question}: {algorithm} below one path")


def best_path(market: Market, question: Question, limits: Limits) -> float:
    """What the best single path pays, less its fee; 0 where there is none, or the search took too long.

    Partial paths over the same tokens are compared by what they bring; nothing else is left out but those that could
    not become as much at the best rates of walks on the hops left.
    """
    router = market.planner.router
    trades: dict[str, list[object]] = {}
    for trade in router._trades:  # the trades themselves are checked elsewhere
        trades.setdefault(trade.token_in, []).append(trade)
    on: list[dict[str, float]] = [{question.token_out: 1.0}]
    for _ in range(limits.hops):
        last, more = on[-1], dict(on[-1])
        for trade in router._trades:
            more[trade.token_in] = max(more.get(trade.token_in, 0.0), trade.spot * last.get(trade.token_out, 0.0))
        on.append(more)
    best, looks = 0.0, 0
    first = TABLE.fee(TABLE.cost("onedex")) * limits.toll  # besides the fee of each of its pools
    start = (question.token_in, question.amount, (question.token_in,), 0.0, False)
    heap: list[tuple[float, int, tuple[str, int, tuple[str, ...], float, bool]]] = [(-math.inf, 0, start)]
    seen: dict[tuple[str, frozenset[str]], float] = {}
    while heap and -heap[0][0] > best:
        _, _, (token, amount, held, fee, onedex) = heapq.heappop(heap)
        for trade in trades.get(token, ()):
            looks += 1
            if looks > LOOKS:
                return 0.0
            out, target = trade.pays(amount), trade.token_out  # type: ignore[attr-defined]
            left = limits.hops - len(held)
            cost = fee + TABLE.fee(trade.cost(TABLE)) * limits.toll  # type: ignore[attr-defined]
            there = isinstance(trade.pool, OneDexPool)  # type: ignore[attr-defined]
            cost += first if there and not onedex else 0.0
            if out <= 0 or target in held:
                continue
            if target == question.token_out:
                best = max(best, out - cost)
                continue
            most = (out + 4) * on[left].get(target, 0.0) * (1.0 + 1e-6) + 4 - cost
            key = target, frozenset(held)
            if left > 0 and most > best and out - cost > seen.get(key, -math.inf):
                seen[key] = out
                heapq.heappush(heap, (-most, looks, (target, out, (*held, target), cost, onedex or there)))
    return best


def arbitrage(market: Market, rng: random.Random) -> Iterator[Breach]:
    """What cycles earn does not fall as more may be used."""
    token = rng.choice((WRAPPED, draw(market, rng).token_in))
    deepest = market.planner.router.depth(token)
    if not deepest:
        return
    before, last = 0.0, 0
    for step in range(6):
        amount = max(1, int(deepest * 10.0 ** (step - 4)))
        limits = usual(market.planner, token)
        found = ask(market.planner, Question(token, token, amount), limits)
        earned = 0.0 if found is None else max(net(found, limits) - amount, 0.0)
        scale = max(1, int(before))
        yield from worse(earned, before, ASKED, scale, f"{token}: {amount} earn less than {last}")
        if earned > before:
            before, last = earned, amount


def reverse(market: Market, rng: random.Random) -> Iterator[Breach]:
    """Of what a reverse quote asks for, a millionth less does not pay."""
    question = draw(market, rng)
    limits = usual(market.planner, question.token_out)
    forward = ask(market.planner, question, limits)
    if forward is None:
        return
    wanted = forward.execution.amount_out
    try:
        done = market.planner.reverse(question.token_in, question.token_out, wanted, limits, "hybrid").execution
    except (NoRoute, PlanError):
        yield Breach(f"{question}: its output has no reverse quote", math.inf)
        return
    if done.amount_out < wanted:
        yield Breach(f"{question}: a reverse quote pays less than was asked for", math.inf)
    yield from worse(-done.amount_in, -question.amount, 1e-6, question.amount, f"{question}: back for {done.amount_in}")
    less = done.amount_in - max(done.amount_in // 10**6, 1)
    found = ask(market.planner, question._replace(amount=less), limits) if less > 0 else None
    if found is not None and found.execution.amount_out >= wanted:
        yield Breach(f"{question}: {less} pays as much as the reverse quote {done.amount_in}", 0.01)
    again = ask(market.planner, question._replace(amount=done.amount_in), limits)
    paid = 0 if again is None else again.execution.amount_out
    yield from worse(paid, wanted, 1e-6, wanted, f"{question}: {done.amount_in} pays less than its reverse quote")


def bound(market: Market, rng: random.Random) -> Iterator[Breach]:
    """No answer pays more than any other answer's bound to the same question."""
    question = draw(market, rng)
    limits = usual(market.planner, question.token_out)
    free = limits._replace(toll=0.0)
    asked = [limits, free, free._replace(paths=1), free._replace(paths=2), free._replace(paths=5)]
    found = [route for route in (ask(market.planner, question, each) for each in asked) if route is not None]
    paid = max((route.execution.amount_out for route in found), default=0)
    least = min((route.bound() for route in found), default=math.inf)
    if paid > least * CERTAIN + 1e-6:
        yield Breach(f"{question}: {paid} is more than the bound {least}", (paid / least - 1.0) * 1e4)


def equal(market: Market, rng: random.Random) -> Iterator[Breach]:
    """Equal questions have equal answers, whatever was asked before; and plans pay to the unit what they say."""
    other = market.asks(market.pools) if len(market.pools) <= 1000 else market.planner.twin()
    book = DictMarket(market.pools, WRAPPED)
    questions = [draw(market, rng) for _ in range(4)]
    answers = {}
    for planner, order in ((market.planner, questions), (other, questions[::-1])):
        for question in order:
            found = ask(planner, question, usual(planner, question.token_out))
            legs = None if found is None else [(*leg[1:], found.execution.amount_out) for leg in found.execution.legs]
            if answers.setdefault(question, legs) != legs:
                yield Breach(f"{question}: another answer when asked in another order", math.inf)
            if found is None or other is planner:
                continue
            done = found.execution
            program = make_program(done.legs, Ends(*question[:2]), WRAPPED, done.amount_out, 0)
            paid = execute(program, [TokenPayment(question.token_in, 0, question.amount)], book)
            if paid.amount_out != done.amount_out:
                yield Breach(f"{question}: {done.amount_out} quoted, {paid.amount_out} paid", math.inf)


LAWS: dict[str, Law] = {
    "narrower": narrower,
    "algorithms": algorithms,
    "one-more-pool": one_more_pool,
    "single-path": single_path,
    "arbitrage": arbitrage,
    "reverse": reverse,
    "bound": bound,
    "equal": equal,
}


def breaches(law: str, market: Market, count: int) -> list[list[Breach]]:
    """What a law finds in a market: a list for each of so many questions."""
    rng = random.Random(f"{law}/{market.name}/{market.seed}")
    return [list(LAWS[law](market, rng)) for _ in range(count)]


def main() -> None:
    """Ask, print what is found, and sum it up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--markets", default=",".join(KINDS))
    parser.add_argument("--laws", default=",".join(LAWS))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.count} questions per law and market", flush=True)
    summary: dict[str, dict[str, float]] = {}
    for name in options.markets.split(","):
        market = make(name, options.seed)
        for law in options.laws.split(","):
            start = time.thread_time()
            found = breaches(law, market, options.count)
            broken = [max(row, key=lambda breach: breach.bp) for row in found if row]
            worst = max((breach.bp for breach in broken), default=0.0)
            seconds = time.thread_time() - start
            summary[f"{name}: {law}"] = {"questions": len(found), "broken": len(broken), "worst_bp": worst}
            print(
                f"{name:18s} {law:14s} {len(broken):4d} of {len(found)}, worst {worst:9.4g} bp, {seconds:6.1f} s",
                flush=True,
            )
            for breach in sorted(broken, key=lambda breach: -breach.bp)[:3]:
                print(f"    {breach.bp:10.4g} bp  {breach.what}", flush=True)
    print(
        json.dumps({"seed": options.seed, "laws": summary, "all_hold": not any(v["broken"] for v in summary.values())})
    )


if __name__ == "__main__":
    main()
