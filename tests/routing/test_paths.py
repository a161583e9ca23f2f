"""The path breakdown adds up to the quote, to the unit."""

from __future__ import annotations

import random

from millrace.dex.market import DictMarket
from millrace.routing.paths import MILLION, split_paths
from millrace.routing.plan import PlanError
from millrace.routing.planner import Planner
from millrace.routing.router import Limits
from millrace.routing.synthetic import WRAPPED, make_market

MARKET = make_market(80, seed=31)
PLANNER = Planner(MARKET.pools, DictMarket(MARKET.pools, WRAPPED))


def test_paths_add_up() -> None:
    """Inputs, outputs and shares of the paths sum to the plan's; hops of a path fit together."""
    rng = random.Random(5)
    several = 0
    for _ in range(60):
        token_in = rng.choice(rng.choice(MARKET.pools).tokens)
        token_out = rng.choice(rng.choice(MARKET.pools).tokens)
        amount = max(1, int(PLANNER.router.depth(token_in) * 10 ** rng.uniform(-7, -1)))
        if token_in == token_out:
            continue
        try:
            done = PLANNER.forward(token_in, token_out, amount, Limits(), "hybrid").execution
        except PlanError:
            continue
        shares = split_paths(done.fills, token_in, token_out)
        several += len(shares) > 1
        assert sum(share.amount_in for share in shares) == amount
        assert sum(share.amount_out for share in shares) == done.amount_out
        assert sum(share.ppm for share in shares) == MILLION
        for share in shares:
            tokens = [hop.fill.trade.token_in for hop in share.hops]
            assert tokens[0] == token_in
            assert tokens[1:] == [hop.fill.trade.token_out for hop in share.hops[:-1]]
            assert share.hops[-1].fill.trade.token_out == token_out
    assert several > 5
