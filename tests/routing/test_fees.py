"""Plans in which every pool is worth what it adds to the transaction's fee."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.costs import FEE_PER_LEG, PROCESSING_DISCOUNT, Cost, Table
from millrace.routing.limits import Limits
from millrace.routing.plan import PlanError, cost_of
from millrace.routing.router import Algorithm, NoRoute, Route, Router
from synthetic import WRAPPED, make_market

TABLE = Table()
BUDGET = TABLE.room(Cost(1 << 40, 98, 240, 1_425, 600 * 10**6), TABLE.ends(egld_in=False, egld_out=False))
GAS_PRICES = (10**9, 10**11, 10**13)  # the network's, and dearer ones, at which few pools are worth their fee
OPEN = Limits(100, 100, 10, budget=BUDGET)
TOLERATED = 1e-6  # of an output: what a larger freedom may cost
ALGORITHMS: tuple[Algorithm, ...] = ("lagrangian", "hybrid")


class Market:
    """Pools with their router, and questions about them."""

    def __init__(self, pools: int, seed: int, **kind: Any) -> None:
        document = make_market(pools, seed, **kind)
        self.pools = document.pools
        self.book = DictMarket(self.pools, WRAPPED)
        self.names = sorted({token for pool in self.pools for token in pool.tokens})
        self.router = Router(self.pools, self.book)
        self.seed = seed

    def ask(self, question: tuple[str, str, int], limits: Limits, algorithm: Algorithm = "hybrid") -> Route:
        return self.router.forward(*question, limits, algorithm)

    def toll(self, token_out: str, gas_price: int) -> float:
        return gas_price * self.router.rate(WRAPPED, token_out)

    def questions(self, count: int) -> Iterator[tuple[tuple[str, str, int], float]]:
        """Pairs in sizes from next to nothing to a tenth of the smaller side, with a toll each."""
        rng = random.Random(self.seed)
        for _ in range(count):
            a, b = rng.sample(self.names, 2)
            depth = max(pool.reserves[pool.index(a)] for pool in self.pools if a in pool.tokens)
            amount = max(1, int(depth * 10 ** rng.uniform(-6, -1)))
            yield (a, b, amount), self.toll(b, rng.choice(GAS_PRICES))


MARKETS = {
    "clean": Market(120, 3),
    "stable and crypto": Market(100, 4, curved=0.3),
    "mispriced": Market(60, 5, noise=0.03),
}


def net(route: Route, toll: float) -> int:
    """What a plan pays, less its pools' fee."""
    done = route.execution
    return done.amount_out - int(TABLE.fee(cost_of(done.legs, TABLE)) * toll)


def used(route: Route) -> list[Pool]:
    """The pools of a plan, each once."""
    return list({leg.trade.pool.id: leg.trade.pool for leg in route.execution.legs}.values())  # type: ignore[union-attr]


def among(
    pools: Sequence[Pool], book: DictMarket, question: tuple[str, str, int], algorithm: Algorithm = "hybrid"
) -> Route | None:
    """The best plan over nothing but these pools."""
    try:
        return Router(pools, book).forward(*question, OPEN, algorithm)
    except (NoRoute, PlanError):
        return None


def test_a_fee_is_data_at_the_full_price_and_gas_at_the_price_of_processing() -> None:
    """Of each leg and of all its gas."""
    cost = Cost(3, 7, 7, 7, 10**7)
    assert TABLE.fee(cost) == 3 * FEE_PER_LEG + TABLE.planned(cost).gas // PROCESSING_DISCOUNT
    assert TABLE.fee(Cost()) == 0


@pytest.mark.parametrize("market", MARKETS)
def test_a_larger_freedom_never_pays_less_net_of_the_fee(market: str) -> None:
    """Asked without a number of paths an answer pays at least what fewer paths, pools or hops do, each with its fee."""
    found, looked = MARKETS[market], 0
    tolerated = 1e-3 if market == "mispriced" else TOLERATED  # paths are exchanged one by one there, from few starts
    for question, toll in found.questions(60):
        wide = OPEN._replace(toll=toll)
        narrower = [OPEN._replace(paths=paths) for paths in (1, 5, 50)]
        if market != "mispriced":  # there plans of few pools go along other cycles
            narrower += [wide._replace(pools=4), wide._replace(hops=2)]
        try:
            best = net(found.ask(question, wide), toll)
        except PlanError:
            continue
        if best <= 0:  # the whole output is worth less than the fee
            continue
        for limits in narrower:
            try:
                other = net(found.ask(question, limits), toll)
            except (NoRoute, PlanError):
                continue
            looked += 1
            assert best >= other - abs(other) * tolerated - 2, (question, toll, limits)
    assert looked > 100


@pytest.mark.parametrize("market", ["clean", "stable and crypto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_pool_of_a_plan_is_worth_its_fee(market: str, algorithm: Algorithm) -> None:
    """Without any one of them the others pay less, even where the fee that is saved is added.

    What a curved pool is worth beside others is estimated when pools are dropped.
    """
    found, looked = MARKETS[market], 0
    tolerated = TOLERATED if market == "clean" else 1e-4
    for question, toll in found.questions(60):
        try:
            route = found.ask(question, OPEN._replace(toll=toll), algorithm)
        except PlanError:
            continue
        paid, pools = net(route, toll), used(route)
        for pool in pools if len(pools) > 1 else []:
            rest = among([other for other in pools if other is not pool], found.book, question, algorithm)
            if rest is not None:
                looked += 1
                assert net(rest, toll) <= paid + abs(paid) * tolerated + 2, (question, toll, pool.id)
    assert looked > 30


def test_dear_gas_makes_plans_shorter() -> None:
    """Where no pool is worth its fee a single path is left; where fees do not count there are most pools."""
    found, shorter = MARKETS["clean"], 0
    for question, _ in found.questions(30):
        free = found.ask(question, OPEN).execution.legs
        dear = found.ask(question, OPEN._replace(toll=found.toll(question[1], 10**20))).execution.legs
        assert len({leg.trade.token_in for leg in dear}) == len(dear)  # type: ignore[union-attr]
        shorter += len(dear) < len(free)
    assert shorter > 5
