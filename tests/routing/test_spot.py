"""What the graph of spot rates tells without a search."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.rate import HatomRedeem, HatomSupply
from millrace.routing.router import Router
from millrace.routing.venue import Trade
from synthetic import WRAPPED, make_market


def pools_between(trades: Sequence[Trade], token_in: str, token_out: str) -> int:
    """The fewest trades that lead from one token to another, breadth first."""
    reached, hops = {token_in}, 0
    while token_out not in reached:
        reached |= {trade.token_out for trade in trades if trade.token_in in reached}
        hops += 1
    return hops


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_short_path_has_the_fewest_pools(noise: float) -> None:
    """Its trades follow one another from the one token to the other, as many as the tokens are apart."""
    market = make_market(80, seed=9, noise=noise, curved=0.2)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    tokens = list(router.index)
    trades = [router._trades[k] for k in router._graph.original[: -router._graph.net.astray.size or None]]
    dice = random.Random(noise)
    for _ in range(200):
        token_in, token_out = dice.sample(tokens, 2)
        path = router.short_path(token_in, token_out)
        assert len(path) == pools_between(trades, token_in, token_out)
        assert [trade.token_in for trade in path] == [token_in, *(trade.token_out for trade in path[:-1])]
        assert path[-1].token_out == token_out
        for trade in path:
            same = [t for t in trades if (t.token_in, t.token_out) == (trade.token_in, trade.token_out)]
            assert trade.spot == pytest.approx(max(other.spot for other in same), rel=1e-4)


def test_there_is_no_path_between_what_is_not_connected() -> None:
    """A token itself, and one that no pool holds."""
    market = make_market(20, seed=9)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    assert router.short_path(WRAPPED, WRAPPED) == []
    assert router.short_path(WRAPPED, "NOPE-123456") == []


def test_pools_without_a_fee_are_no_cycle_that_gains() -> None:
    """What there and back comes to is off by rounding, and above 1 in some of them: the search stays as it is."""
    market, dice = make_market(60, seed=9), random.Random(9)
    tokens = sorted({token for pool in market.pools for token in pool.tokens})
    plain = Router(market.pools, DictMarket(market.pools, WRAPPED))
    pools = [*market.pools]
    for k in range(40):
        a, b = dice.sample(tokens[:20], 2)
        there = plain.depth(a) // dice.randrange(7, 70)
        back = round(there * plain.rate(a, b) / (plain.rate(a, b) * plain.rate(b, a)) ** 0.5)
        name, address = f"free:{k}", b"free".ljust(28) + k.to_bytes(4, "big")
        pools.append(JexPool(id=name, address=address, tokens=(a, b), reserves=(there, back), lp_fee=0, platform_fee=0))
    rate = (10**18 + 123_456_789, 10**18)
    for kind, ends, each in ((HatomSupply, (0, 1), rate), (HatomRedeem, (1, 0), rate[::-1])):
        pair = tuple(tokens[k] for k in ends)
        pools.append(kind(id=f"h{ends}", address=b"h" * 32, tokens=pair, reserves=(10**30, 10**30), rate=each))
    router = Router(pools, DictMarket(pools, WRAPPED))
    there_and_back = router._graph.net.prate * router._graph.net.pback
    assert there_and_back.max() > 1.0
    asked = [dice.sample(tokens, 2) for _ in range(40)]
    assert all(router.search(*ends, 10**12).closed for ends in asked if router.connected(*ends))


def test_a_trade_of_a_moved_market_has_its_spot_rate_of_before() -> None:
    """By its pool's id and direction; where there is no such trade, that of the market it is of."""
    market = make_market(40, seed=3)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    first, *others = market.pools
    moved = structs.replace(first, reserves=(first.reserves[0] * 2, *first.reserves[1:]))
    after = Router([moved, *others], DictMarket([moved, *others], WRAPPED))
    without = Router(others, DictMarket(others, WRAPPED))
    before = {(trade.token_in, trade.token_out): trade.spot for trade in router._trades if trade.pool.id == first.id}
    trades = [trade for trade in after._trades if trade.pool.id == first.id]
    assert len(trades) == len(before) > 0
    for trade in trades:
        assert router.spot_of(trade) == before[trade.token_in, trade.token_out] != trade.spot
        assert without.spot_of(trade) == trade.spot > 0.0
