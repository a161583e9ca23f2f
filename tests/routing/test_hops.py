"""The pools that a path may have are part of how a route is fitted, as all other limits are."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from benchmarks.laws import ask, draw, make, net, usual

TOLERATED = 1e-5  # of an output: where a limit that was asked for binds


@pytest.mark.parametrize("seed", [901, 902])
def test_more_freedom_pays_no_less_where_paths_must_be_short(seed: int) -> None:
    """Asked for short paths, an answer is never below one with fewer of them, shorter ones, or an exchange left out."""
    market, rng, short = make("clean", seed), random.Random(f"short paths/{seed}"), 0
    without = [
        market.asks([pool for pool in market.pools if pool.exchange != exchange])
        for exchange in ("Jex", "OneDex", "XExchange")
    ]
    for question in [draw(market, rng) for _ in range(25)]:
        limits = usual(market.planner, question.token_out)
        free = net(ask(market.planner, question, limits), limits)
        for hops in (2, 3):
            asked = limits._replace(hops=hops)
            best = ask(market.planner, question, asked)
            less = [ask(market.planner, question, asked._replace(**few)) for few in ({"hops": 1}, {"paths": 4})]
            less += [ask(other, question, asked) for other in without if other.router.connected(*question[:2])]
            for found in filter(None, less):
                assert net(best, limits) >= net(found, limits) - max(TOLERATED * found.execution.amount_out, 2)
            short += best is not None and net(best, limits) < free * (1.0 - TOLERATED)
    assert short >= 5  # limits that bind


def test_short_paths_are_joined_where_they_share_pools() -> None:
    """Where the best route has longer paths, the one that is found instead is a flow: no pool is met again later."""
    market, rng, joined = make("clean", 901), random.Random("short paths/901"), 0
    for question in [draw(market, rng) for _ in range(25)]:
        limits = usual(market.planner, question.token_out)
        found, free = (ask(market.planner, question, each) for each in (limits._replace(hops=2), limits))
        if found is None or free is None or net(found, limits) > net(free, limits) * (1.0 - TOLERATED):
            continue
        pools = [pool for pool, _ in groupby(leg.trade.pool.id for leg in found.execution.legs)]  # type: ignore[union-attr]
        joined += len(pools) > 2 and len(set(pools)) == len(pools)
    assert joined >= 5
