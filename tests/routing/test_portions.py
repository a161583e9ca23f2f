"""Amounts of any size are divided to the unit: floats say which part, integers how much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.costs import Table
from millrace.routing.execution import RESOLUTION, execute, execute_paths, portion, portions
from millrace.routing.plan import Execution, Fill, Leg, net_of
from millrace.routing.router import Algorithm, Limits, Route, Router
from millrace.routing.venue import Trade

A, B = "AAA-111111", "BBB-222222"
AMOUNTS = st.integers(0, 36).flatmap(lambda digits: st.integers(1, 10**digits))
FLOWS = st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=12)
MOST_RESERVE = 2**127


def pair(name: str, tokens: tuple[str, str], reserves: tuple[int, int]) -> JexPool:
    """A constant-product pool that its address finds."""
    address = bytes(8) + b"\x05\x00" + name.encode().rjust(22, b"-")
    return JexPool(id=name, address=address, tokens=tokens, reserves=reserves, lp_fee=20, platform_fee=10)


def beside(count: int, reserve: int) -> list[Pool]:
    """Pools of equal size that buy one token for another one."""
    return [pair(f"p{k}", (A, B), (reserve, reserve)) for k in range(count)]


@given(AMOUNTS)
def test_the_whole_of_an_amount_is_all_of_it(amount: int) -> None:
    """A part of 1, or what floating point makes a little more of it, is the very amount."""
    assert portion(amount, 1.0) == portion(amount, 1.0 + 1e-15) == amount
    assert portion(amount, 0.0) == 0


@given(AMOUNTS, FLOWS)
def test_parts_never_come_to_more_than_all(amount: int, flows: list[float]) -> None:
    """Whatever the flows: all parts together are the amount, and none is more than a step off."""
    whole = sum(flows)
    parts = portions(amount, flows, whole)
    assert sum(parts) == amount
    for part, flow in zip(parts, flows, strict=True):
        assert abs(part - amount * (flow / whole)) <= 2 * amount / RESOLUTION + len(flows)


@settings(max_examples=300)
@given(st.integers(9, 36), FLOWS)
def test_cycles_that_sell_all_there_is_lose_no_trade(digits: int, flows: list[float]) -> None:
    """A flow of cycles that has a use for the whole amount is walked with every trade of it, whatever the sizes."""
    pools = beside(len(flows), 10 ** (digits + 3))
    trades = [Trade(pool, 0, 1) for pool in pools]
    last = Trade(pair("back", (B, A), (10 ** (digits + 6), 10 ** (digits + 6) * 11 // 10)), 0, 1)
    flows = [max(flow, 1e-6) for flow in flows]
    done = execute([*trades, last], [*flows, sum(flows)], {A: 10**digits}, A, sum(flows))
    assert len(done.trades) == len(trades) + 1


@settings(max_examples=300)
@given(st.integers(9, 36), FLOWS, st.booleans())
def test_paths_beside_a_tiny_one_lose_nothing(digits: int, flows: list[float], cycle: bool) -> None:
    """The rounding of many parts takes nothing from a path that would then be dropped."""
    pools = beside(len(flows) + 1, 10 ** (digits + 3))
    parts = [flow / sum(flows) * (1.0 - 1e-7) for flow in (max(flow, 1e-3) for flow in flows)] + [1e-7]
    whole = sum(parts)
    back = pair("back", (B, A), (10 ** (digits + 6), 10 ** (digits + 6)))
    paths = [[Trade(pool, 0, 1), *([Trade(back, 0, 1)] if cycle else [])] for pool in pools]
    done = execute_paths(paths, [part / whole for part in parts], A, A if cycle else B, 10**digits)
    assert {pool.id for pool in pools[:-1]} <= {trade.pool.id for trade in done.trades}


@settings(max_examples=300)
@given(st.floats(1e-11, 1e-3), st.integers(24, 36))
def test_a_part_of_any_size_is_sold_as_it_was_found(part: float, digits: int) -> None:
    """A pool of which a billionth of the amount is much gets that, as exactly as others, as flow and as path."""
    small, other = (Trade(pair(name, (A, B), (10**reserve,) * 2), 0, 1) for name, reserve in (("s", 20), ("o", 40)))
    flows = [part, 1.0 - part]
    for done in (
        execute([small, other], flows, {A: 10**digits}, B),
        execute_paths([[small], [other]], flows, A, B, 10**digits),
    ):
        assert done.trades[0] is small
        assert abs(done.sold[0] / 10**digits / part - 1.0) < 2.0**-19  # part and whole have 20 bits each


def ring(scale: int, depths: Sequence[int]) -> list[Pool]:
    """Two tokens beside a first one, at odds with it and each other, `scale` units to one."""
    sides = [("a", A, B, 1.0), ("b", B, "CCC-333333", 1.03), ("c", "CCC-333333", A, 1.0), ("d", A, "DDD-444444", 1.02)]
    sides += [("e", "DDD-444444", B, 1.0), ("f", "DDD-444444", "CCC-333333", 1.0)]
    return [
        pair(name, (one, other), (depth * scale, depth * scale * round(rate * 100) // 100))
        for (name, one, other, rate), depth in zip(sides, depths, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(200, 5_000), min_size=6, max_size=6), st.integers(1, 400), st.integers(7, 33))
def test_what_is_earned_does_not_depend_on_the_units(depths: list[int], amount: int, digits: int) -> None:
    """The same market with tokens of more decimals, up to reserves of 2^127 units, earns and pays the same."""
    earned: list[float] = []
    paid: list[float] = []
    for scale in (10**6, 10**digits):
        pools = ring(scale, depths)
        assert max(max(pool.reserves) for pool in pools) < MOST_RESERVE
        router = Router(pools, DictMarket(pools, A))
        plan = router.forward(A, B, amount * scale, Limits(100, 100, toll=0.0), "hybrid").execution
        paid.append(plan.amount_out / scale)
        cycle = router.forward(A, A, amount * scale, Limits(100, 100), "hybrid").execution
        earned.append((cycle.amount_out - amount * scale) / scale)
    assert paid[1] >= paid[0] * (1.0 - 1e-5) - 1e-4
    assert earned[1] >= earned[0] * (1.0 - 1e-4) - 1e-4


@given(st.integers(54, 127), st.integers(1, 10**6))
def test_of_two_answers_the_one_of_a_unit_more_is_better(bits: int, toll: int) -> None:
    """Answers are compared in whole units, also where a float cannot tell their amounts apart."""
    pools = [pair("p", (A, B), (10**9, 10**9))]
    trade = Trade(pools[0], 0, 1)
    router, table = Router(pools, DictMarket(pools, A)), Table()
    plans = [Execution([Leg(trade, 0, 0)], [Fill(trade, 1, out)], 1, out) for out in (2**bits, 2**bits + 1)]
    for weight in (0.0, toll / 10**6):
        limits = Limits(toll=weight)
        assert net_of(plans[1], table, weight) - net_of(plans[0], table, weight) == 1
        assert router._better(Route(plans[0], None), Route(plans[1], None), limits).execution is plans[1]


def test_of_two_paths_the_one_of_a_unit_more_is_found() -> None:
    """The search for the best single path tells outputs apart that are the same as floats, fees or not."""
    much = 10**30
    pools: list[Pool] = [pair("few", (A, B), (much, much)), pair("more", (A, B), (much, much + 3 * 10**6))]
    for order in (pools, pools[::-1]):
        router = Router(order, DictMarket(order, A))
        for toll in (0.0, 1e-9):
            found = router.exact_path(A, B, much, Limits(toll=toll))
            assert found is not None
            assert found[0].pool.id == "more"


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
@pytest.mark.parametrize("algorithm", ["lagrangian", "hybrid"])
def test_a_small_part_of_a_flow_is_not_left_to_rounding(names: tuple[str, str], algorithm: Algorithm) -> None:
    """A pool that pays a tenth of all for three parts in ten million of the input gets these, whatever its place."""
    large, small = pair(names[0], (A, B), (10**33,) * 2), pair(names[1], (A, B), (10**18, 10**29))
    pools = [large, small]
    fills = Router(pools, DictMarket(pools, A)).forward(A, B, 10**30, Limits(), algorithm).execution.fills
    sold = sum(fill.amount_in for fill in fills if fill.trade.pool is small)
    best = int((10**18 * 10**29) ** 0.5)
    assert 0.9 * best < sold < 1.1 * best
