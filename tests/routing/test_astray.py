"""Edges astray are those without which no cycle gains, and the search of all others minds them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.rate import HatomSupply
from millrace.routing.astray import astray
from millrace.routing.net import Net
from millrace.routing.plan import PlanError
from millrace.routing.planner import Planner
from millrace.routing.router import GAIN_ASTRAY, Algorithm, Limits, Router
from synthetic import WRAPPED, make_market

DEEP = 10**24


def gains(net: Net, cut: np.ndarray) -> bool:
    """Whether labels still grow after as many rounds as there are tokens: then some cycle of the other edges gains."""
    source, target, rate = net.src[~cut], net.dst[~cut], net.rate[~cut]
    best = np.ones(net.core.size)
    for _ in range(net.core.size + 1):
        before = best.copy()
        np.maximum.at(best, target, before[source] * rate)
        if not np.any(best > before * (1.0 + 1e-9)):
            return False
    return True


@pytest.mark.parametrize("noise", [0.001, 0.005, 0.01, 0.03, 0.3])
@pytest.mark.parametrize("curved", [0.0, 0.3])
def test_without_them_no_cycle_gains(noise: float, curved: float) -> None:
    """Whatever the mispricing; where there is none, no edge is astray."""
    market = make_market(120, seed=3, noise=noise, curved=curved)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    net = router.whole._graph.net
    cut = astray(net, np.zeros(net.src.size, np.bool_))
    assert not gains(net, cut)
    assert cut.any() == gains(net, np.zeros(net.src.size, np.bool_))
    assert np.count_nonzero(cut) == router._graph.net.astray.size
    assert np.count_nonzero(cut) < net.src.size / 2


def test_a_pool_that_is_off_is_the_one_left_out() -> None:
    """Beside deep pools it is the shallow one, in the direction in which it pays too much."""
    market = make_market(200, seed=4)
    book = DictMarket(market.pools, WRAPPED)
    assert Router(market.pools, book)._graph.net.astray.size == 0
    pool = market.pools[7]
    shallow = msgspec.structs.replace(
        pool, id="off", address=b"o" * 32, reserves=(pool.reserves[0] // 1000, pool.reserves[1] // 940)
    )
    pools = [*market.pools, shallow]
    router = Router(pools, DictMarket(pools, WRAPPED))
    left = [router._trades[k].pool.id for k in router._graph.original[router._graph.net.astray]]
    assert left == ["off"]


def test_several_tokens_are_not_sold_at_once_where_only_an_edge_astray_leads_on() -> None:
    """That is said before anything is divided by the rate of a path that the graph does not have."""
    deep, shallow = 10**24, 10**18
    mint = HatomSupply(id="r", address=b"r" * 32, tokens=("A-00000a", "B-00000b"), reserves=(deep, deep), rate=(1, 1))
    pools = [
        mint,
        JexPool(
            id="off", address=b"o" * 32, tokens=mint.tokens, reserves=(2 * shallow, shallow), lp_fee=20, platform_fee=10
        ),
        JexPool(
            id="j",
            address=b"j" * 32,
            tokens=("C-00000c", "A-00000a"),
            reserves=(deep, deep),
            lp_fee=20,
            platform_fee=10,
        ),
    ]
    router = Router(pools, DictMarket(pools, WRAPPED))
    assert router.connected("B-00000b", "A-00000a")
    assert router.best_rate(router.index["B-00000b"], router.index["A-00000a"]) == 0.0
    with np.errstate(all="raise"), pytest.raises(PlanError, match="no path to A"):
        router.find_flow({"B-00000b": 10**15, "C-00000c": 10**15}, "A-00000a", Limits())


def pool(name: str, a: str, b: str, reserves: tuple[int, int], fee: int = 20) -> JexPool:
    """A pool of two tokens."""
    return JexPool(
        id=name, address=name.encode().rjust(32, b"-"), tokens=(a, b), reserves=reserves, lp_fee=fee, platform_fee=0
    )


def test_dust_is_asked_where_the_best_route_is_too_long() -> None:
    """What it pays is held against an answer within the limits, not against a flow that they forbid."""
    a, b, *way = "A-00000a", "B-00000b", "M-000001", "M-000002", "M-000003", "T-000004"
    chain = [a, *way[:3], b]
    pools = [
        *(pool(f"chain{k}", chain[k], chain[k + 1], (DEEP, DEEP)) for k in range(4)),
        pool("thin in", a, way[3], (DEEP, DEEP)),
        pool("thin out", way[3], b, (DEEP, DEEP // 2)),
        pool("dust", a, b, (9 * 10**15, 8 * 10**15)),
    ]
    router = Router(pools, DictMarket(pools, WRAPPED))
    assert router.whole is not router
    asked = a, b, 10**12
    long, short = (router.forward(*asked, Limits(hops=hops), "hybrid").execution for hops in (4, 2))
    assert long.amount_out > 98 * 10**10
    assert 88 * 10**10 < short.amount_out < 89 * 10**10


def test_dust_is_asked_where_whole_units_are_too_coarse_for_the_best_route() -> None:
    """What it pays is held against what the answer pays, not against what curves say of it."""
    a, b, coarse = "A-00000a", "B-00000b", "C-00000c"
    pools = [
        pool("in", a, coarse, (DEEP, DEEP // 10**4)),  # a unit is worth 10 000
        pool("out", coarse, b, (DEEP // 10**4, DEEP)),
        pool("dust", a, b, (10**16, 95 * 10**14)),
    ]
    router = Router(pools, DictMarket(pools, WRAPPED))
    assert router.whole is not router
    amount = 79_900
    paid = router.forward(a, b, amount, Limits(), "hybrid").execution.amount_out
    assert paid > 94 * amount // 100


def beside_a_deeper_one(off: float, more: list[Pool]) -> tuple[Planner, Planner]:
    """A market without and with a deeper pool that pays less of B for A by this part, and so too much of A for B."""
    alone = [pool("well priced", "A-00000a", "B-00000b", (DEEP, DEEP)), *more]
    worse = pool("deeper", "A-00000a", "B-00000b", (4 * DEEP, int(4 * DEEP * (1.0 - off))))
    market = [*alone, worse]
    one, two = Planner(alone, DictMarket(alone, WRAPPED)), Planner(market, DictMarket(market, WRAPPED))
    left = [two.router._trades[k].pool.id for k in two.router._graph.original[two.router._graph.net.astray]]
    assert left == ["well priced"]
    return one, two


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian", "greedy"])
@pytest.mark.parametrize(
    ("asked", "held"), [(("A-00000a", "LP-00000d"), "B-00000b"), (("LP-00000d", "B-00000b"), "A-00000a")]
)
def test_lp_units_are_turned_over_edges_astray_too(asked: tuple[str, str], held: str, algorithm: Algorithm) -> None:
    """One more pool does not lower what a deposit mints or a withdrawal pays, although it puts the best one astray."""
    issuer = XExchangePool(
        id="issuer", address=b"i" * 32, tokens=(held, "C-00000c"), reserves=(DEEP, DEEP), lp_token="LP-00000d",
        lp_supply=DEEP, total_fee=300, special_fee=50,
    )  # fmt: skip
    one, two = beside_a_deeper_one(0.05, [issuer])
    paid, beside = (planner.forward(*asked, 10**20, Limits(), algorithm).execution.amount_out for planner in (one, two))
    assert beside >= paid * (1.0 - 1e-5)


@pytest.mark.parametrize("amount", [10**15, 10**20])
def test_a_balance_is_sold_over_edges_astray_where_they_pay_more(amount: int) -> None:
    """One more pool does not lower what an input of several is sold for, however little that is off."""
    one, two = beside_a_deeper_one(0.008, [])
    paid, beside = (planner.sale("A-00000a", amount, "B-00000b", Limits()).amount_out for planner in (one, two))
    assert beside >= paid * (1.0 - 1e-5)


@pytest.mark.parametrize("algorithm", ["hybrid", "lagrangian"])
def test_what_edges_astray_promise_is_added_up(algorithm: Algorithm) -> None:
    """Thirty of which none alone is worth another search are worth one together."""
    a, b = "A-00000a", "B-00000b"
    deep = pool("deep", a, b, (DEEP, DEEP), 0)
    least = 9 * 10**16
    dust = [pool(f"dust {k}", a, b, (least, 2 * least), 0) for k in range(30)]
    amount = int(least * 0.17 / 0.9e-6)
    paid = []
    for more in ([], dust[:1], dust):
        router = Router([deep, *more], DictMarket([deep, *more], WRAPPED))
        assert len(router._graph.net.astray) == 2 * len(more)
        paid.append(router.forward(a, b, amount, Limits(40, 40), algorithm).execution.amount_out)
    alone, one, all_of_them = (each / paid[0] - 1.0 for each in paid)
    assert alone <= one < GAIN_ASTRAY
    assert all_of_them > 20 * GAIN_ASTRAY


def test_a_small_pool_more_among_few_that_are_off_costs_nobody() -> None:
    """Where six edges of six hundred are astray, a seventh does not send every question another way."""
    pools = make_market(300, 501, noise=0.004).pools
    names = ["TK12X-06606a", "TK107X-d9539b"]
    before = Router(pools, DictMarket(pools, WRAPPED))
    assert before._graph.net.astray.size == 6
    worth = [int(10**18 / 40 * before.rate(WRAPPED, token)) for token in names]
    deep = next(pool for pool in pools if isinstance(pool, XExchangePool))
    stray = msgspec.structs.replace(
        deep, id="more", address=b"m" * 32, tokens=tuple(names), reserves=(worth[0], worth[1] * 105 // 100)
    )
    after = Router([*pools, stray], DictMarket([*pools, stray], WRAPPED))
    for token, amount in (("USDC-c76f1f", 510_529_037_533), ("TK3X-1dbdec", 77_893_123_787_321_344_000)):
        less, more = (
            router.forward(token, "TK11X-c9b44a", amount, Limits(100, 30), "hybrid").execution.amount_out
            for router in (before, after)
        )
        assert more >= less * (1 - 1e-5)
