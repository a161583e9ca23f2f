"""Pools at a rate as edges: used up to what they can pay and no further, with bounds that hold."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from millrace.chain.call import TokenPayment
from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.rate import HatomRedeem, LxoxnoStaking, RatePool, XoxnoStaking
from millrace.dex.vault import execute
from millrace.routing.curve import NoCurve, rate_knots
from millrace.routing.plan import Ends, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Algorithm, Limits, Route, Router

A, B, C = "WEGLD-bd4d79", "SEGLD-3ad2d0", "USDC-c76f1f"
UNIT = 10**18


def rated(kind: type[RatePool] = HatomRedeem, rate: tuple[int, int] = (1, 1), stock: int = 10**9 * UNIT) -> RatePool:
    reserves = (max(stock * rate[1] // rate[0], 1), stock)
    return kind(
        id=kind.__name__, address=kind.__name__.encode().ljust(32, b"."), tokens=(A, B), reserves=reserves, rate=rate
    )


PAIR = XExchangePool(
    id="x:1", address=b"\5" * 32, tokens=(A, B), reserves=(10**6 * UNIT, 10**6 * UNIT), total_fee=300, special_fee=50
)


def ask(pools: list[Pool], amount: int, algorithm: Algorithm = "hybrid") -> Route:
    """The answer, which the contract pays to the unit."""
    book = DictMarket(pools, A)
    route = Router(pools, book).forward(A, B, amount, Limits(), algorithm)
    program = make_program(route.execution.legs, Ends(A, B), A, 0, 0)
    assert execute(program, [TokenPayment(A, 0, amount)], book).amount_out == route.execution.amount_out
    return route


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian", "greedy"])
def test_what_a_stock_cannot_pay_goes_elsewhere(algorithm: Algorithm) -> None:
    """An amount of a few times the stock is paid it and what the pair pays for the rest, but for 1e-4 of it."""
    stock = 1_000 * UNIT
    for amount in (900 * UNIT, 1_000 * UNIT, 1_100 * UNIT, 5_000 * UNIT):
        rest = max(amount - stock, 0)
        best = min(amount, stock) + (PAIR.amount_out(0, 1, rest) if rest else 0)
        route = ask([PAIR, rated(stock=stock)], amount, algorithm)
        assert best * (1 - 1e-4) <= route.execution.amount_out <= route.bound() * (1 + 1e-12)


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian", "greedy"])
@given(
    share=st.floats(-6.0, 0.2),
    amount=st.integers(10**18, 10**25),
    rate=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    before=st.booleans(),
)
@example(share=-4.296875, amount=3922188549467120284484816, rate=(1000000, 14117), before=False)  # 50.48 millionths
@settings(max_examples=60, deadline=None)
def test_a_stock_of_any_size_beside_the_amount_is_used(
    algorithm: Algorithm, share: float, amount: int, rate: tuple[int, int], before: bool
) -> None:
    """Nothing pays less for a pool at a better rate, and by flows what it can give is taken but for some 1e-4 of it."""
    stock = max(int(amount * 10**share), 10)
    pair = structs.replace(PAIR, reserves=(10**24, 10**24 * rate[0] // rate[1] * 9 // 10 + 10))
    pool = rated(rate=rate, stock=max(stock * rate[0] // rate[1], 2))
    if before:  # the pool comes second on its path
        pool = structs.replace(pool, tokens=(C, B))
        pair_ac = structs.replace(PAIR, id="x:2", address=b"\6" * 32, tokens=(A, C), reserves=(10**26, 10**26))
        pools: list[Pool] = [pair, pair_ac, pool]
    else:
        pools = [pair, pool]
    alone = pair.amount_out(0, 1, amount)
    paid = ask(pools, amount, algorithm).execution.amount_out
    assert paid >= alone * (1 - 1e-9)
    if algorithm != "greedy" and not before:
        most = min(pool.most_in(), amount)
        rest = amount - most
        best = pool.amount_out(0, 1, most) + (pair.amount_out(0, 1, rest) if rest > 10**9 else 0)
        assert paid >= best - (best - alone) * 2e-3 - best * 2e-6 - 10


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian", "greedy"])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.96, 0.99, 0.999])
@pytest.mark.parametrize("depth", [0.05, 1.0, 30.0])
def test_all_of_a_stock_is_used_by_every_algorithm(algorithm: Algorithm, share: float, depth: float) -> None:
    """Just below the amount or far below it, in equal chunks or not: the pair gets the rest, whatever its depth."""
    amount = 10**22
    pair = structs.replace(PAIR, reserves=(int(amount * depth), int(amount * depth * 0.9)))
    pool = rated(stock=int(amount * share))
    best = pool.amount_out(0, 1, pool.most_in()) + pair.amount_out(0, 1, amount - pool.most_in())
    assert ask([pair, pool], amount, algorithm).execution.amount_out >= best * (1 - 1e-3)


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian", "greedy"])
@pytest.mark.parametrize("depth", [20, 50, 70])
@pytest.mark.parametrize("stocks", [(100, 20), (100, 50), (300, 20)])
def test_a_stock_behind_another_pool_is_brought_what_it_takes(
    algorithm: Algorithm, depth: int, stocks: tuple[int, int]
) -> None:
    """What leads there only brings a little too much, which costs neither this stock nor another one."""
    amount = 10**22
    pair = structs.replace(PAIR, reserves=(amount * depth // 1000,) * 2)
    before = structs.replace(pair, id="x:2", address=b"\6" * 32, tokens=(A, C), reserves=(amount * depth // 100,) * 2)
    first = rated(rate=(8, 10), stock=amount * stocks[0] // 1000)
    second = structs.replace(rated(XoxnoStaking, (8, 10), amount * stocks[1] // 1000), tokens=(C, B))
    rest = amount - first.most_in() - before.amount_in(0, 1, second.most_in())
    best = first.reserves[1] + second.reserves[1] + pair.amount_out(0, 1, rest)
    paid = ask([pair, before, first, second], amount, algorithm).execution.amount_out
    assert paid >= best * (1 - 1e-3)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.97, 0.999])
def test_a_whole_balance_is_sold_to_the_stock_and_the_pair(share: float) -> None:
    """Of a request with many inputs: a stock at odds with the pair counts where the pair alone would lose much."""
    amount = 10**22
    pair = structs.replace(PAIR, reserves=(amount // 2, amount // 2 * 9 // 10))
    pool = rated(stock=int(amount * share))
    best = pool.amount_out(0, 1, pool.most_in()) + pair.amount_out(0, 1, amount - pool.most_in())
    sale = Planner([pair, pool], DictMarket([pair, pool], A)).sale(A, amount, B, Limits(8, 2, 4))
    assert sale.amount_out >= best * (1 - 1e-3)


def test_where_stocks_end_on_all_paths_there_is_one_that_takes_the_rest() -> None:
    """With two paths and two stocks that cannot take the amount, a stock makes room for the pair."""
    amount = 10**22
    pair = structs.replace(PAIR, reserves=(amount // 20, amount // 20))
    pools: list[Pool] = [pair, rated(stock=amount * 7 // 10), rated(XoxnoStaking, (9, 10), amount // 5)]
    sale = Planner(pools, DictMarket(pools, A)).sale(A, amount, B, Limits(8, 2, 4))
    assert sale.amount_out >= amount * 7 // 10


@pytest.mark.parametrize("part", [0.01, 0.5, 0.99, 0.999999])
@pytest.mark.parametrize("rate", [(1, 1), (19, 20), (10**12, 7), (3, 10**12)])
def test_no_plan_pays_more_than_the_bound(part: float, rate: tuple[int, int]) -> None:
    """Up to the whole stock, at any rate: where the curve is nearly a line the bound is not below the line."""
    pool = rated(rate=rate)
    amount = int(part * pool.reserves[0])
    assert pool.amount_out(0, 1, amount) <= ask([pool], amount).bound()


def test_a_better_rate_by_a_unit_is_found() -> None:
    """Whole numbers decide: of two rates that are the same in floating point the better one is taken, in any order."""
    one, more = rated(XoxnoStaking, (10**24, 10**24)), rated(LxoxnoStaking, (10**24 + 1, 10**24))
    for pools in ([one, more], [more, one]):
        router = Router(pools, DictMarket(pools, A))
        path = router.exact_path(A, B, 10**24, Limits())
        assert path is not None
        assert path[0].pays(10**24) == 10**24 + 1


def test_a_stock_of_a_unit_is_no_edge() -> None:
    """The contract keeps one unit: with no more there is nothing to pay out, and the router says so."""
    with pytest.raises(NoCurve):
        rate_knots(rated(stock=1))
    empty = structs.replace(rated(), reserves=(1, 1))
    assert ask([PAIR, empty], UNIT).execution.amount_out == PAIR.amount_out(0, 1, UNIT)
