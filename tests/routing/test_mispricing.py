"""Answers in large markets with mispricing, against those of the search that small ones have."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from millrace.dex.market import DictMarket
from millrace.routing import router as routers
from millrace.routing.attempt import Ask
from millrace.routing.kernelsearch import Ways
from millrace.routing.limits import path_hops
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, NoRoute, Route, Router
from synthetic import WRAPPED, make_market

MARKETS = ((5, 260, 0.005), (6, 260, 0.01), (7, 400, 0.01), (8, 300, 0.03))
Question = tuple[str, str, int]


def questions(market: Router, seed: int, count: int) -> Iterator[Question]:
    """Pairs that are connected, in amounts of all sizes."""
    rng = random.Random(seed)
    names = sorted(market.index)
    while count:
        a, b = rng.sample(names, 2)
        if market.connected(a, b):
            yield a, b, max(1, int(market.depth(a) * 10 ** rng.uniform(-5, -0.5)))
            count -= 1


def make(seed: int, pools: int, noise: float) -> Router:
    """A router over a market with mispricing."""
    chosen = make_market(pools, seed, noise=noise).pools
    return Router(chosen, DictMarket(chosen, WRAPPED))


def answer(market: Router, question: Question, limits: Limits, algorithm: routers.Algorithm = "hybrid") -> Route | None:
    """The answer; None where nothing executes."""
    try:
        return market.forward(*question, limits, algorithm)
    except (NoRoute, PlanError):
        return None


@pytest.mark.parametrize(("seed", "pools", "noise"), MARKETS)
def test_an_answer_is_the_better_one_of_two_and_every_bound_holds_for_both(seed: int, pools: int, noise: float) -> None:
    """The market without the edges astray and the whole one are searched; what either pays is within both bounds."""
    market = make(seed, pools, noise)
    for question in questions(market, seed, 25):
        for limits in (Limits(), Limits(pools=1000, paths=1000)):
            found = [answer(router, question, limits) for router in (market, market.whole)]
            if found[0] is None or found[1] is None:
                continue
            paid = [route.execution.amount_out for route in found if route is not None]
            assert paid[0] >= paid[1] * (1.0 - 1e-6) - 1
            assert all(max(paid) <= route.bound() * (1.0 + 1e-9) + 1 for route in found if route is not None)


@pytest.mark.parametrize(("seed", "pools", "noise"), MARKETS)
def test_no_answer_is_below_the_best_single_path_found(seed: int, pools: int, noise: float) -> None:
    """A single path is the floor of every algorithm, and of every number of paths."""
    market = make(seed, pools, noise)
    for question in questions(market, seed + 1, 20):
        single = answer(market, question, Limits(paths=1), "greedy")
        if single is None:
            continue
        for algorithm in ("greedy", "lagrangian", "hybrid"):
            for paths in (1, 3, 50):
                found = answer(market, question, Limits(paths=paths), algorithm)
                assert found is not None
                assert found.execution.amount_out >= single.execution.amount_out
                assert len({leg.trade.pool.id for leg in found.execution.legs}) <= Limits().pools


@pytest.mark.parametrize(("seed", "pools"), [(23, 400), (34, 400), (37, 260)])
def test_the_order_around_all_paths_of_a_split_is_better_than_that_around_the_best_path(seed: int, pools: int) -> None:
    """In the mean of some questions, and in none of them it is worse by more than a thousandth."""
    market = make(seed, pools, 0.03)
    kernels, wide, plans = market.whole._kernels, market.whole._wide, market.whole._plans
    gains = []
    for question in questions(market, seed, 25):
        search = market.whole.search(*question)
        room = kernels.room(Limits(), search.sink)
        path, _ = wide.best(search, path_hops(Limits()), room)
        flow = kernels.flow_around(search, Ways.single(path, search), Limits())
        plan = plans.of_flow(Ask(*question, search, Limits()), flow)
        if plan is not None:
            found = answer(market, question, Limits())
            assert found is not None
            gains.append(found.execution.amount_out / plan.amount_out - 1.0)
    assert len(gains) > 15
    assert min(gains) > -1e-3
    assert sum(gains) > 0.0


@pytest.mark.parametrize(("seed", "pools", "noise"), MARKETS)
def test_more_paths_begin_as_few_do_and_pay_no_less(seed: int, pools: int, noise: float) -> None:
    """What paths are exchanged for where there may be five or more is no less than where there may be four."""
    market = make(seed, pools, noise).whole
    differ = 0
    for question in questions(market, seed + 2, 20):
        search = market.search(*question)
        start, _ = market._wide.best(search, path_hops(Limits()), market._kernels.room(Limits(), search.sink))
        asked = market._wide, search, start
        paid = [market._kernels.exchange_wide(*asked, Limits(paths=paths))[1] for paths in (4, 5, 16, 50)]
        assert min(paid[1:]) >= paid[0] * (1.0 - 1e-9)
        differ += paid[1] > paid[0]
    assert differ


def test_hops_and_pools_stay_within_their_limits() -> None:
    """An answer is a plan of no more pools than asked for, or there is none."""
    market = make(9, 300, 0.02)
    for question in questions(market, 3, 15):
        for limits in (Limits(pools=2), Limits(pools=4, hops=2), Limits(hops=1), Limits(pools=6, paths=3)):
            found = answer(market, question, limits)
            if found is not None:
                assert len(found.execution.legs) <= limits.pools
