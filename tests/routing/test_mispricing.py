"""Answers in large markets with mispricing, against those of the search that small ones have."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

import pytest

from millrace.dex.market import DictMarket
from millrace.routing import router as routers
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, NoRoute, Route, Router
from millrace.routing.synthetic import WRAPPED, make_market

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
def test_answers_are_better_in_the_mean_and_every_bound_holds_for_all(
    seed: int, pools: int, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both searches answer the same questions; what either pays is within the bound of the other."""
    large = make(seed, pools, noise)
    monkeypatch.setattr(routers, "LARGE", 10**9)
    small = make(seed, pools, noise)
    gains = []
    for question in questions(large, seed, 25):
        for limits in (Limits(), Limits(pools=1000, paths=1000)):
            one, other = answer(large, question, limits), answer(small, question, limits)
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.execution.amount_out <= other.bound() * (1.0 + 1e-9) + 1
                assert other.execution.amount_out <= one.bound() * (1.0 + 1e-9) + 1
                gains.append(one.execution.amount_out / other.execution.amount_out - 1.0)
    assert len(gains) > 25
    assert statistics.fmean(gains) >= 0.0


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


def test_hops_and_pools_stay_within_their_limits() -> None:
    """An answer is a plan of no more pools than asked for, or there is none."""
    market = make(9, 300, 0.02)
    for question in questions(market, 3, 15):
        for limits in (Limits(pools=2), Limits(pools=4, hops=2), Limits(hops=1), Limits(pools=6, paths=3)):
            found = answer(market, question, limits)
            if found is not None:
                assert len(found.execution.legs) <= limits.pools
