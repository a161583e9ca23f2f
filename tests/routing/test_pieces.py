"""Large trades in pieces: they pay more, hold the limits, and are one path to whoever reads the plan."""

import random
from collections import Counter
from typing import Any

import pytest

from millrace.aggregator.settings import AggregatorSettings
from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.paths import split_paths
from millrace.routing.plan import PlanError, net_of
from millrace.routing.router import Limits, NoRoute, Route, Router
from synthetic import WRAPPED, make_market

TABLE = AggregatorSettings().table()
MARKET = make_market(120, 8, curved=0.2)
BOOK = DictMarket(MARKET.pools, WRAPPED)
ROUTER = Router(MARKET.pools, BOOK, table=TABLE)
OPEN = Limits(100, 100, budget=TABLE.room(AggregatorSettings().most(), TABLE.ends(egld_in=False, egld_out=False)))
JEX = next(pool for pool in MARKET.pools if isinstance(pool, JexPool))


def alone(pool: Pool, amount: int, limits: Limits = OPEN, algorithm: Any = "hybrid") -> Route:
    """The answer of a market of nothing but this pool."""
    return Router([pool], DictMarket([pool], WRAPPED), table=TABLE).forward(*pool.tokens, amount, limits, algorithm)


def uses(route: Route) -> Counter[str]:
    """How often each pool is met."""
    return Counter(leg.trade.pool.id for leg in route.execution.legs)  # type: ignore[union-attr]


def by_pool(pool: Pool, route: Route) -> int:
    """What the pool itself pays for the plan's sales, one after the other."""
    paid = 0
    for fill in route.execution.fills:
        swap = pool.swap(0, 1, fill.amount_in)
        paid, pool = paid + swap.amount_out, swap.pool
    return paid


@pytest.mark.parametrize("part", [3, 10, 100])
def test_a_pool_that_keeps_its_fee_on_the_output_is_sold_to_in_pieces(part: int) -> None:
    """They pay more than one trade, to the unit what the pool pays for them, and no more than the bound."""
    amount = JEX.reserves[0] // part
    route = alone(JEX, amount)
    assert 1 < uses(route)[JEX.id] <= 8
    assert sum(fill.amount_in for fill in route.execution.fills) == amount
    assert route.execution.amount_out == by_pool(JEX, route) > JEX.amount_out(0, 1, amount)
    assert route.execution.amount_out <= route.bound()


def test_smaller_trades_have_fewer_pieces_and_the_smallest_one() -> None:
    """What pieces bring is a part of the trade's own price impact; each must be worth a longer transaction."""
    counts = [uses(alone(JEX, JEX.reserves[0] // part))[JEX.id] for part in (3, 100, 300, 10**5)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1


def test_a_piece_that_does_not_earn_its_fee_is_not_made() -> None:
    """At a fee of all that pieces bring there is one trade; below, every piece leaves more than one piece less."""
    amount = JEX.reserves[0] // 5
    free = alone(JEX, amount)
    gained = free.execution.amount_out - JEX.amount_out(0, 1, amount)
    fee = TABLE.fee(TABLE.cost("jex_swap"))
    assert uses(alone(JEX, amount, OPEN._replace(toll=2.0 * gained / fee)))[JEX.id] == 1
    dear = OPEN._replace(toll=gained / fee / 20)
    some = alone(JEX, amount, dear)
    assert 1 < uses(some)[JEX.id] < uses(free)[JEX.id]
    assert net_of(some.execution, TABLE, dear.toll) > net_of(free.execution, TABLE, dear.toll)


def test_fees_on_the_input_and_the_other_algorithms_make_one_trade() -> None:
    """What a fee on the input leaves in the pool makes the next trade dearer."""
    pool = next(pool for pool in MARKET.pools if isinstance(pool, XExchangePool))
    assert uses(alone(pool, pool.reserves[0] // 3))[pool.id] == 1
    for algorithm in ("greedy", "lagrangian"):
        assert alone(JEX, JEX.reserves[0] // 3, algorithm=algorithm).execution.amount_out == JEX.amount_out(
            0, 1, JEX.reserves[0] // 3
        )


@pytest.mark.parametrize("pools", [1, 2, 3])
def test_pieces_keep_within_the_limits(pools: int) -> None:
    """A piece counts as a pool, and never as a path."""
    route = alone(JEX, JEX.reserves[0] // 3, OPEN._replace(pools=pools, paths=1))
    assert len(route.execution.legs) == pools
    fills = route.execution.fills
    assert len(split_paths(fills, *JEX.tokens)) == 1


def test_no_answer_is_below_greedy_and_paths_stay_within_their_number() -> None:
    """Where paths share a pool, greedy trades there once for each: a flow does so in pieces, and pays no less."""
    rng, asked, pieced = random.Random(11), 0, 0
    while asked < 150:
        pool, other = rng.choices(MARKET.pools, k=2)
        token_in, token_out = rng.choice(pool.tokens), rng.choice(other.tokens)
        if token_in == token_out:
            continue
        amount = max(int(ROUTER.depth(token_in) * 10 ** rng.uniform(-3, -0.5)), 1)
        limits = OPEN._replace(paths=rng.choice((3, 5, 100)))
        try:
            found, greedy = (ROUTER.forward(token_in, token_out, amount, limits, a) for a in ("hybrid", "greedy"))
        except (NoRoute, PlanError):
            continue
        asked += 1
        pieced += max(uses(found).values()) > 1
        assert found.execution.amount_out >= greedy.execution.amount_out * (1 - 3e-6) - 2
        assert len(split_paths(found.execution.fills, token_in, token_out)) <= limits.paths
    assert pieced > 20


def test_no_more_room_is_made_for_pieces_than_they_are_worth() -> None:
    """Where pieces lack room, whoever asks for fewer paths, which leave them some, is paid no more for it."""
    pools = make_market(400, 506).pools
    router = Router(pools, DictMarket(pools, WRAPPED), table=TABLE)
    question = "USDC-c76f1f", "TK95X-93b84e", 1_603_086_497_726
    toll = 10**9 * router.rate(WRAPPED, question[1])

    def left(paths: int) -> int:
        route = router.forward(*question, OPEN._replace(paths=paths, toll=toll), "hybrid")
        return net_of(route.execution, TABLE, toll)

    assert max(map(left, (18, 19, 20, 21))) <= left(100) * (1 + 1e-5)
