"""Plans within what one transaction may do: gas, built-in calls, transfers, storage reads and pools at once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from millrace.dex.constant_product import FeeDestination, JexPool, TrustedPair, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing.costs import Cost, Table
from millrace.routing.kernelsearch import KernelSearch
from millrace.routing.limits import BOUNDLESS, Limits, Rooms, costs_of
from millrace.routing.plan import Leg, PlanError, cost_of
from millrace.routing.planner import Planner
from millrace.routing.router import Algorithm, NoRoute, Route
from millrace.routing.shares import WHOLE
from millrace.routing.venue import Trade, least_output
from synthetic import WRAPPED, make_market

TABLE = Table()
DEFAULT = Cost(1 << 40, 98, 240, 1_425, 600 * 10**6)
PLENTY = Cost(1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40)
ALGORITHMS: tuple[Algorithm, ...] = ("greedy", "lagrangian", "hybrid")


def planner(pools: int, seed: int, **kind: Any) -> tuple[Planner, list[str]]:
    """A planner of a synthetic market, and its tokens."""
    document = make_market(pools, seed, **kind)
    names = sorted({token for pool in document.pools for token in pool.tokens})
    return Planner(document.pools, DictMarket(document.pools, WRAPPED)), names


MARKETS = {
    "clean": planner(150, 3, curved=0.2),
    "mispriced": planner(60, 4, noise=0.03),
    "large and mispriced": planner(700, 5, noise=0.01),
    "LP": planner(120, 6, traded_lp=8, curved=0.2),
}


def taken_by(route: Route) -> Cost:
    """What a plan's legs take, planned."""
    return TABLE.planned(cost_of(route.execution.legs, TABLE))


@pytest.mark.parametrize("market", MARKETS)
def test_all_limits_hold_at_once(market: str) -> None:
    """Whatever the question and whichever limit is the narrowest, no plan takes more than any of them allows."""
    found, names = MARKETS[market]
    rng, answered = random.Random(market), 0
    for _ in range(60):
        token_in, token_out = rng.sample(names, 2)
        calls, transfers, reads, millions = (
            rng.randint(*bounds) for bounds in ((8, 100), (8, 250), (60, 1500), (30, 600))
        )
        most = Cost(1 << 40, calls, transfers, reads, millions * 10**6)
        ends = TABLE.ends(egld_in=rng.random() < 0.3, egld_out=rng.random() < 0.3)
        pools, liquidity = rng.randint(1, 60), market == "LP"
        limits = Limits(pools, rng.choice((1, 5, 50)), rng.choice((2, 10)), liquidity, TABLE.room(most, ends))
        try:
            route = found.forward(token_in, token_out, 10 ** rng.randrange(3, 24), limits, rng.choice(ALGORITHMS))
        except (NoRoute, PlanError):
            continue
        answered += 1
        whole = ends.plus(cost_of(route.execution.legs, TABLE))
        assert whole._replace(gas=TABLE.gas_limit(whole, 400 + 240 * whole.legs)).within(most)
        assert len(route.execution.legs) <= pools
    assert answered >= 20


def paths(pools: Sequence[Pool], token_in: str, token_out: str, hops: int) -> Iterator[list[Trade]]:
    """Every path without a token twice."""

    def walk(token: str, seen: tuple[str, ...], path: list[Trade]) -> Iterator[list[Trade]]:
        for pool in pools:
            for i, sold in enumerate(pool.tokens):
                for j, bought in enumerate(pool.tokens):
                    if sold != token or i == j or bought in seen:
                        continue
                    longer = [*path, Trade(pool, i, j)]
                    if bought == token_out:
                        yield longer
                    elif len(longer) < hops:
                        yield from walk(bought, (*seen, bought), longer)

    yield from walk(token_in, (token_in,), [])


def pays(path: Sequence[Trade], amount: int) -> int:
    """What a path pays in integers; 0 where a pool refuses."""
    for trade in path:
        try:
            amount = trade.pool.swap(trade.i, trade.j, amount).amount_out
        except PoolError:
            return 0
        if amount < least_output(trade.pool):
            return 0
    return amount


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("calls", [2, 3, 4, 6, 7, 9, 12])
def test_of_all_paths_that_fit_the_best_one_is_the_least_that_is_paid(seed: int, calls: int) -> None:
    """Also where the best path of all is too long for the transaction; if none fits, the words say so."""
    found, names = planner(26, seed, tokens=9, noise=(0.003, 0.02)[seed % 2], curved=0.2)
    pools = make_market(26, seed, tokens=9, noise=(0.003, 0.02)[seed % 2], curved=0.2).pools
    budget = PLENTY._replace(calls=calls)
    rng = random.Random(f"{seed}/{calls}")
    for _ in range(6):
        token_in, token_out = rng.sample(names, 2)
        amount = max(pool.reserves[pool.index(token_in)] for pool in pools if token_in in pool.tokens) // 500
        fitting = [path for path in paths(pools, token_in, token_out, 4) if cost_of_trades(path).calls <= calls]
        best = max((pays(path, amount) for path in fitting), default=0)
        for algorithm in ALGORITHMS:
            limits = Limits(hops=4, budget=budget)
            if not fitting:
                with pytest.raises(NoRoute):
                    found.forward(token_in, token_out, amount, limits, algorithm)
            elif best:
                route = found.forward(token_in, token_out, amount, limits, algorithm)
                assert route.execution.amount_out >= best
                assert taken_by(route).calls <= calls


def cost_of_trades(path: Sequence[Trade]) -> Cost:
    total = Cost()
    for trade in path:
        total = total.plus(trade.cost(TABLE))
    return total


@pytest.mark.parametrize("market", ["clean", "mispriced"])
def test_a_reverse_quote_holds_the_limits_too(market: str) -> None:
    """The plan that pays what is wanted is one within them, and forwards it pays that much."""
    found, names = MARKETS[market]
    rng, answered = random.Random(market), 0
    limits = Limits(budget=PLENTY._replace(calls=9))
    for _ in range(25):
        token_in, token_out = rng.sample(names, 2)
        try:
            wanted = found.forward(token_in, token_out, 10**18, limits, "hybrid").execution.amount_out
            route = found.reverse(token_in, token_out, wanted, limits, "hybrid")
        except (NoRoute, PlanError):
            continue
        assert taken_by(route).calls <= 9
        assert route.execution.amount_out >= wanted
        answered += 1
    assert answered >= 5


def test_a_cycle_holds_the_limits_too() -> None:
    """Profitable cycles of a mispriced market take no more than there is."""
    found, names = MARKETS["mispriced"]
    earned = 0
    for name in names:
        limits = Limits(budget=PLENTY._replace(calls=9))
        try:
            route = found.forward(name, name, 10**16, limits, "hybrid")
        except (NoRoute, PlanError):
            continue
        assert taken_by(route).calls <= 9
        earned += 1
    assert earned


def test_without_binding_limits_the_answer_is_the_same_to_the_unit() -> None:
    """A budget that leaves more than a plan takes changes nothing."""
    for found, names in MARKETS.values():
        rng = random.Random(7)
        for _ in range(15):
            token_in, token_out = rng.sample(names, 2)
            limits = Limits(paths=3, hops=3)
            try:
                free = found.forward(token_in, token_out, 10**18, limits, "hybrid").execution
            except (NoRoute, PlanError):
                continue
            budget = Cost(1 << 40, 99, 249, 1500, 590 * 10**6)
            assert (
                found.forward(token_in, token_out, 10**18, limits._replace(budget=budget), "hybrid").execution == free
            )


@pytest.mark.parametrize("market", ["mispriced", "large and mispriced", "clean"])
def test_a_limit_that_the_best_plan_holds_costs_next_to_nothing(market: str) -> None:
    """With as many built-in calls as the free plan takes, answers pay within 1 bp of it in the mean."""
    found, names = MARKETS[market]
    rng, lost = random.Random(market), []
    while len(lost) < 25:
        token_in, token_out = rng.sample(names, 2)
        amount = 10 ** rng.randrange(15, 22)
        try:
            free = found.forward(token_in, token_out, amount, Limits(100), "hybrid")
        except (NoRoute, PlanError):
            continue
        budget = PLENTY._replace(calls=taken_by(free).calls)
        bound = found.forward(token_in, token_out, amount, Limits(100, budget=budget), "hybrid")
        assert taken_by(bound).within(budget)
        lost.append(1e4 * (1.0 - bound.execution.amount_out / free.execution.amount_out))
    assert sum(lost) / len(lost) <= 1.0


@pytest.mark.parametrize(("pools", "noise"), [(60, 0.003), (60, 0.03), (500, 0.01)])
def test_one_pool_that_takes_much_costs_only_those_who_use_it(pools: int, noise: float) -> None:
    """A pair with many fee destinations changes no answer that does not trade in it."""
    document = make_market(pools, 8, noise=noise)
    rng = random.Random(pools)
    dear = rng.choice([pool for pool in document.pools if isinstance(pool, XExchangePool)])
    to = tuple([FeeDestination(bytes([k]) * 32, "FEE-00c0de") for k in range(20)])
    trusted = (TrustedPair((dear.tokens[0], "FEE-00c0de"), bytes(32)),)
    setup: dict[str, Any] = {"fees_collector": b"c" * 32, "fees_collector_cut": 1, "fee_enabled": True}
    changed = [
        msgspec.structs.replace(pool, **setup, fee_destinations=to, trusted_pairs=trusted) if pool is dear else pool
        for pool in document.pools
    ]
    plain, other = (Planner(listed, DictMarket(listed, WRAPPED)) for listed in (document.pools, changed))
    names = sorted({token for pool in document.pools for token in pool.tokens})
    limits, same = Limits(100, budget=TABLE.room(DEFAULT, TABLE.ends(egld_in=False, egld_out=False))), 0
    for _ in range(30):
        token_in, token_out = rng.sample(names, 2)
        try:
            first = plain.forward(token_in, token_out, 10**19, limits, "hybrid").execution
        except (NoRoute, PlanError):
            continue
        if all(leg.trade.pool.id != dear.id for leg in first.legs if isinstance(leg, Leg)):
            second = other.forward(token_in, token_out, 10**19, limits, "hybrid").execution
            # Paths exchanged one by one among many cycles: what is found hangs on what was tried before.
            assert second.amount_out == first.amount_out or (
                pools == 500 and second.amount_out > 0.995 * first.amount_out
            )
            same += 1
    assert same >= 5


def test_plans_over_dust_pools_hold_the_limits_too() -> None:
    """A pool that holds next to nothing can be the best for a few units; it takes as much as any other."""

    def jex(number: int, reserves: tuple[int, int]) -> JexPool:
        return JexPool(
            id=f"j{number}",
            address=bytes([number]) * 32,
            tokens=("A-000000", "B-000000"),
            reserves=reserves,
            lp_fee=20,
            platform_fee=10,
        )

    dust = XExchangePool(
        id="x",
        address=bytes(32),
        tokens=("A-000000", "B-000000"),
        reserves=(20_000, 60_000),
        total_fee=300,
        special_fee=50,
    )
    pools = [jex(1, (10**24, 10**24)), dust]
    found = Planner(pools, DictMarket(pools, "A-000000"))
    for calls in range(3, 8):
        limits = Limits(hops=1, budget=PLENTY._replace(calls=calls))
        route = found.forward("A-000000", "B-000000", 500, limits, "hybrid")
        assert taken_by(route).calls <= calls
        assert (route.execution.amount_out > 1_000) == (calls >= 5)


def test_shares_are_the_largest_part_of_any_limit() -> None:
    """Of pools, calls, transfers, reads or gas; a limit of nothing leaves room for nothing."""
    costs = np.array([[1.0, 4.0, 3.0, 20.0, 10e6], [2.0, 2.0, 2.0, 2.0, 60e6]])
    rooms = Rooms(costs)
    limits = Limits(pools=50, budget=Cost(1 << 40, 100, 100, 1000, 600 * 10**6))
    assert rooms.of(limits).share.tolist() == pytest.approx([0.04, 0.1])
    assert rooms.of(Limits(pools=10)).share.tolist() == pytest.approx([0.1, 0.2])
    assert min(rooms.of(limits._replace(budget=limits.budget._replace(calls=0))).share) > WHOLE
    assert rooms.of(Limits(pools=100_000, budget=BOUNDLESS)).share.max() < 1e-4


def test_a_room_is_strict_where_the_longest_path_might_not_fit() -> None:
    """Ten trades of a twentieth each do, of an eighth each do not; a lower limit of hops helps."""
    rooms = Rooms(np.array([[1.0, 5.0, 4.0, 44.0, 20e6]]))
    calls = [BOUNDLESS._replace(calls=count) for count in (100, 40)]
    assert not rooms.of(Limits(budget=calls[0])).strict
    assert rooms.of(Limits(budget=calls[1])).strict
    assert not rooms.of(Limits(hops=8, budget=calls[1])).strict


def test_rooms_are_remembered_up_to_a_bound() -> None:
    """The same limits give the same arrays; the ones unused for longest are forgotten."""
    rooms = Rooms(np.ones((3, 5)))
    first = rooms.of(Limits(pools=7))
    assert rooms.of(Limits(pools=7, paths=2)).share is first.share
    for pools in range(100, 200):
        rooms.of(Limits(pools=pools))
    assert rooms.of(Limits(pools=7)).share is not first.share
    assert rooms._known.cache_info().currsize <= 32


def test_the_kernels_know_the_trades_by_the_order_of_the_net() -> None:
    """Each edge of the net has the share of its own trade, however the net has sorted them."""
    found, _ = MARKETS["clean"]
    router = found.router
    search = KernelSearch(router._graph, router._trades, costs_of(router._trades, TABLE))
    share = search.room(Limits(budget=PLENTY._replace(calls=100)), 0).share
    for trade, part in zip(search.trades, share.tolist(), strict=True):
        assert part == pytest.approx(max(trade.cost(TABLE).calls / 100, 1 / 64))


@pytest.mark.parametrize(
    ("market", "token_in", "token_out", "amount", "calls"),
    [
        ((163, 913112), "TK8X-0016ed", "TK40X-1165f0", 148_364_709_579_417_845_760, (20, 21, 22, 23)),
        ((17, 913100), "USDT-f8c08c", "TK5X-2b2606", 1_840_097_448_649, (17,)),
        ((154, 913129), "TK22X-711146", "TK44X-862f77", 163_991_333_497_076_761_755_648, (18, 19)),
    ],
)
def test_a_flow_cut_to_few_calls_is_held_against_a_split(
    market: tuple[int, int], token_in: str, token_out: str, amount: int, calls: tuple[int, ...]
) -> None:
    """Also where no prices are off and any number of paths may be taken: what is left of a flow is not the best."""
    found, _ = planner(*market, one_exchange=True, noise=0.0)
    for most in calls:
        limits = Limits(paths=50, budget=DEFAULT._replace(calls=most))
        best, split = (found.forward(token_in, token_out, amount, limits, name) for name in ("hybrid", "greedy"))
        assert best.execution.amount_out >= split.execution.amount_out
