"""What the graph of spot rates tells without a search."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from millrace.dex.market import DictMarket
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
