"""The path breakdown adds up to the quote, to the unit."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.market import DictMarket
from millrace.routing.paths import MILLION, split_paths, split_sources
from millrace.routing.plan import Fill, LpMove, PlanError
from millrace.routing.planner import Planner
from millrace.routing.router import Limits
from synthetic import WRAPPED, make_market

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


@given(st.data())
def test_any_flow_is_taken_apart_to_the_unit(data: st.DataObject) -> None:
    """Hops sell what the hop before bought; pools, inputs and outputs add up; paths are as few as a flow has."""
    tokens = data.draw(st.integers(2, 5))
    balances = [data.draw(st.integers(1, 10**6))] + [0] * (tokens - 1)
    whole = balances[0]
    fills: list[Fill] = []
    for token in range(tokens - 1):
        sales = data.draw(st.integers(1, 3))
        for sale in range(sales):
            amount = balances[token] if sale == sales - 1 else data.draw(st.integers(0, balances[token]))
            if amount == 0:
                continue
            target = data.draw(st.integers(token + 1, tokens - 1))
            paid = data.draw(st.integers(1, 10**6))
            balances[token] -= amount
            balances[target] += paid
            fills.append(Fill(LpMove(MARKET.pools[0], str(token), str(target)), amount, paid))
    shares = split_paths(fills, "0", str(tokens - 1))
    assert sum(share.amount_in for share in shares) == whole
    assert sum(share.amount_out for share in shares) == balances[-1]
    assert sum(share.ppm for share in shares) == MILLION
    assert len(shares) <= len(fills) - len({fill.trade.token_in for fill in fills}) + 1
    for share in shares:
        assert [hop.amount_in for hop in share.hops[1:]] == [hop.amount_out for hop in share.hops[:-1]]
    for trade in {fill.trade for fill in fills}:  # dust may be added at the ends, never in between
        same = [fill for fill in fills if fill.trade == trade]
        sold = sum(hop.amount_in for share in shares for hop in share.hops[1:] if hop.fill.trade == trade)
        bought = sum(hop.amount_out for share in shares for hop in share.hops[:-1] if hop.fill.trade == trade)
        assert sold <= sum(fill.amount_in for fill in same)
        assert bought <= sum(fill.amount_out for fill in same)


def test_a_trade_in_pieces_is_on_one_path() -> None:
    """Whoever reads the paths sees a pool once on each, however often the plan trades there."""
    pieces = [("A", "X", 300, 30), ("A", "X", 700, 65), ("X", "Y", 40, 400), ("X", "Y", 55, 540)]
    fills = [Fill(LpMove(MARKET.pools[0], sells, buys), sold, bought) for sells, buys, sold, bought in pieces]
    (path,) = split_paths(fills, "A", "Y")
    assert [(hop.amount_in, hop.amount_out) for hop in path.hops] == [(1000, 95), (95, 940)]


def test_what_several_brought_together_goes_on_together() -> None:
    """A trade that sells what the one before it paid takes none of an older path's, so that there are no more paths."""
    ways = [
        ("A", "M", 50, 7),
        ("A", "N", 60, 60),
        ("N", "X", 20, 8),
        ("N", "Y", 40, 9),
        ("X", "B", 8, 8),
        ("Y", "B", 9, 9),
    ]
    ways += [("B", "M", 17, 5), ("M", "Z", 5, 50), ("M", "Z", 7, 70)]
    fills = [
        Fill(LpMove(MARKET.pools[k], sells, buys), sold, bought) for k, (sells, buys, sold, bought) in enumerate(ways)
    ]
    assert len(split_paths(fills, "A", "Z")) == 3


def test_a_plan_has_no_more_paths_than_were_asked_for() -> None:
    """Also where pruning leaves a trace of flow behind that leads nowhere: counted, it would hide three paths."""
    pools = make_market(300, 9, curved=0.4).pools
    route = Planner(pools, DictMarket(pools, WRAPPED)).router.forward(
        "TK3X-1dbdec", "TK34X-80066b", 103062964418334640, Limits(20, 5, 2), "hybrid"
    )
    assert len(split_paths(route.execution.fills, "TK3X-1dbdec", "TK34X-80066b")) <= 5


def test_an_input_that_rounding_leaves_nothing_of_has_a_path() -> None:
    """What several inputs pay is divided between them; the one whose part is no unit still leads to the output."""
    ways = [("A", "X", 1, 1), ("B", "X", 100, 1000), ("X", "Y", 1001, 100), ("Y", "Z", 100, 50)]
    fills = [Fill(LpMove(MARKET.pools[0], sells, buys), sold, bought) for sells, buys, sold, bought in ways]
    parts = split_sources(fills, [("A", 1), ("B", 100)])
    assert [[(fill.amount_in, fill.amount_out) for fill in part] for part in parts] == [
        [(1, 1), (1, 0), (0, 0)],
        [(100, 1000), (1000, 100), (100, 50)],
    ]
    for part, (token, paid) in zip(parts, (("A", 0), ("B", 50)), strict=True):
        (path,) = split_paths(part, token, "Z")
        assert (path.amount_out, path.ppm, len(path.hops)) == (paid, MILLION, 3)
