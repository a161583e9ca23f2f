"""Edges astray are those without which no cycle gains, and the search of all others minds them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.rate import HatomSupply
from millrace.routing.astray import astray
from millrace.routing.net import Net
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, Router
from synthetic import WRAPPED, make_market


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
