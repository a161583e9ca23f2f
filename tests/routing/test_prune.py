"""Flows without circles."""

from __future__ import annotations

import math

import pytest

from millrace.aggregator.settings import AggregatorSettings
from millrace.dex.market import DictMarket
from millrace.routing.plan import net_of
from millrace.routing.prune import _cancel_one
from millrace.routing.router import Algorithm, Limits, Router
from millrace.routing.work import EDGES, TOKENS, make_work
from synthetic import WRAPPED, make_market


@pytest.mark.parametrize("there", [1.0, 1e301, math.inf, math.nan])
@pytest.mark.parametrize("back", [2.0, 1e301, math.inf, math.nan])
def test_every_circle_that_is_cancelled_loses_an_edge(there: float, back: float) -> None:
    """Whatever flows in it, beyond all numbers included: else whoever takes circles out would never be done."""
    work = make_work(2, 2)
    work.n[EDGES], work.n[TOKENS] = 2, 2
    work.t_in[:2] = 1
    work.e_a[:2], work.e_b[:2], work.e_w[:2], work.e_use[:2] = (0, 1), (1, 0), (there, back), True
    assert _cancel_one(work)
    assert not work.e_use[:2].all()


@pytest.mark.parametrize(
    ("market", "question", "hops", "other"),
    [
        ((200, 504, 0.5), (WRAPPED, "USDC-c76f1f", 90_696_639_303_449_663_504_384), 10, ("hybrid", 16)),
        ((120, 506, 0.3), ("TK4X-eeaab6", "TK3X-1dbdec", 2_337_460_959_342_488_511_840_256), 3, ("greedy", 100)),
    ],
)
def test_a_curve_that_is_nearly_a_line_is_worth_what_its_row_earns(
    market: tuple[int, int, float], question: tuple[str, str, int], hops: int, other: tuple[Algorithm, int]
) -> None:
    """By itself such a pool earns nothing; it is not dropped for that, and no other search keeps what it leads to."""
    table = AggregatorSettings().table()
    pools = make_market(*market[:2], curved=market[2]).pools
    router = Router(pools, DictMarket(pools, WRAPPED), table=table)
    budget = table.room(AggregatorSettings().most(), table.ends(egld_in=False, egld_out=False))
    limits = Limits(100, 100, hops=hops, budget=budget, toll=10**9 * router.rate(WRAPPED, question[1]))

    def left(algorithm: Algorithm, paths: int) -> int:
        route = router.forward(*question, limits._replace(paths=paths), algorithm)
        return net_of(route.execution, table, limits.toll)

    assert left("hybrid", 100) >= left(*other)
