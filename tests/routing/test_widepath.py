"""The best single path where prices are off: many partial paths are kept to each token."""

from __future__ import annotations

import random

import numpy as np
import pytest

from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Router
from millrace.routing.shares import Room
from synthetic import WRAPPED

TOKENS = [WRAPPED, *(f"TOK{k}-00000{k}" for k in range(1, 7))]


def mispriced_market(seed: int, noise: float, *, parallel: bool) -> list[Pool]:
    """A pool on nearly every pair of seven tokens, prices off by up to `noise`; some pairs have a second one."""
    rng = random.Random(seed)
    pools: list[Pool] = []
    for a in range(len(TOKENS)):
        for b in range(a):
            for copy in range(1 + (parallel and rng.random() < 0.3)):
                depth = 10 ** rng.uniform(21, 24)
                common = {
                    "address": bytes([a, b, copy, 7]) * 8,
                    "tokens": (TOKENS[a], TOKENS[b]),
                    "reserves": (int(depth), int(depth * rng.uniform(1 - noise, 1 + noise))),
                }
                if copy:
                    pools.append(JexPool(id=f"j:{a}{b}", **common, lp_fee=20, platform_fee=10))  # type: ignore[arg-type]
                elif rng.random() < 0.9:
                    pools.append(XExchangePool(id=f"x:{a}{b}", **common, total_fee=300, special_fee=50))  # type: ignore[arg-type]
    return pools


def best_single(pools: list[Pool], token_in: str, token_out: str, amount: int, hops: int) -> int:
    """What the best path without a token twice pays, by trying all."""
    best = 0

    def extend(token: str, have: int, seen: frozenset[str], left: int) -> None:
        nonlocal best
        if token == token_out and len(seen) > 1:
            best = max(best, have)
            return
        if not left:
            return
        most: dict[str, int] = {}  # of parallel pools only the best can be on the best path
        for pool in pools:
            if token in pool.tokens:
                i = pool.tokens.index(token)
                other = pool.tokens[1 - i]
                if other not in seen or other == token_out:
                    most[other] = max(most.get(other, 0), pool.amount_out(i, 1 - i, have))
        for other, paid in most.items():
            extend(other, paid, seen | {other}, left - 1)

    extend(token_in, amount, frozenset({token_in}), hops)
    return best


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("algorithm", ["greedy", "lagrangian", "hybrid"])
def test_no_answer_is_below_the_best_of_all_single_paths(algorithm: str, parallel: bool) -> None:
    """In dense mispriced markets, with and without parallel pools, for every limit on hops and splits."""
    rng = random.Random(f"{algorithm}/{parallel}")
    for seed in range(25):
        pools = mispriced_market(seed, rng.choice((0.02, 0.05, 0.1)), parallel=parallel)
        planner = Planner(pools, DictMarket(pools, WRAPPED))
        token_in, token_out = rng.sample(TOKENS, 2)
        amount, hops = int(10 ** rng.uniform(16, 23.5)), rng.choice((3, 4, 6))
        limits = Limits(pools=100, paths=rng.choice((1, 3)), hops=hops)
        done = planner.forward(token_in, token_out, amount, limits, algorithm).execution  # type: ignore[arg-type]
        assert done.amount_out >= best_single(pools, token_in, token_out, amount, hops)


def test_a_cycle_is_no_worse_than_the_best_single_cycle() -> None:
    """Arbitrage along one cycle is a floor too, where one can be found that earns with the whole amount."""
    found = 0
    for seed in range(20):
        pools = mispriced_market(seed, 0.03, parallel=True)
        floor = best_single(pools, WRAPPED, WRAPPED, 10**19, 4)
        try:
            limits = Limits(pools=100, paths=1, hops=4)
            done = Planner(pools, DictMarket(pools, WRAPPED)).forward(WRAPPED, WRAPPED, 10**19, limits, "greedy")
        except NoRoute:
            assert floor <= 10**19
            continue
        found += floor > 10**19
        assert done.execution.amount_out >= floor
    assert found > 5


@pytest.mark.parametrize("seed", range(3))
def test_in_a_strict_room_the_best_path_is_the_best_of_those_that_fit(seed: int) -> None:
    """Where every pool takes two fifths of a transaction, it is that of at most two pools, however many are allowed."""
    pools = mispriced_market(seed, 0.05, parallel=True)
    market = Router(pools, DictMarket(pools, WRAPPED)).whole
    wide, search = market._wide, market.search(TOKENS[1], TOKENS[2], 10**20)
    room = Room(np.full(wide.net.src.size, 0.4), True)
    expected = wide.best(search, 2, room._replace(strict=False))
    assert expected[0]
    assert all(wide.best(search, hops, room) == expected for hops in (2, 3, 6))
    assert len(wide.best(search, 6, room._replace(strict=False))[0]) > 2
