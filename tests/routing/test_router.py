"""The router's promises: exact, never dusty, close to the certified optimum."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import FIXED
from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import PoolState
from millrace.dex.vault import execute
from millrace.routing.answers import Question
from millrace.routing.curve import NoCurve
from millrace.routing.cycles import Cycles
from millrace.routing.plan import Ends, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Route, Router
from synthetic import WRAPPED, make_market

MARKET = make_market(120, seed=5)
BOOK = DictMarket(MARKET.pools, WRAPPED)
ROUTER = Router(MARKET.pools, BOOK)
CYCLES = make_market(120, seed=6, noise=0.03)
"""A market in which cycles earn."""
UNLIMITED = Limits(pools=1000, paths=1000, hops=10)


def questions(count: int, seed: int) -> list[tuple[str, str, int]]:
    """Random pairs and sizes, from dust to a fifth of a pool."""
    rng = random.Random(seed)
    result = []
    while len(result) < count:
        pool = rng.choice(MARKET.pools)
        token_in = pool.tokens[0]
        token_out = rng.choice(rng.choice(MARKET.pools).tokens)
        if token_in != token_out:
            result.append((token_in, token_out, max(1, int(pool.reserves[0] * 10 ** rng.uniform(-9, -0.7)))))
    return result


@pytest.mark.parametrize("limits", [Limits(), Limits(pools=8, paths=2), UNLIMITED])
def test_quoted_is_what_the_contract_pays(limits: Limits) -> None:
    """Running the plan's instructions in the vault pays exactly the quoted amount and keeps nothing."""
    refused = 0
    for token_in, token_out, amount in questions(60, seed=1):
        try:
            done = ROUTER.forward(token_in, token_out, amount, limits, "hybrid").execution
        except PlanError:  # so little that the only pair cannot sell what it has to of its fee
            refused += 1
            continue
        if len({fill.trade.pool.id for fill in done.fills}) > 100:
            continue
        program = make_program(done.legs, Ends(token_in, token_out), WRAPPED, done.amount_out, 0)
        result = execute(program, [TokenPayment(token_in, 0, amount)], BOOK)
        assert result.amount_out == done.amount_out
        assert result.kept == {}
    assert refused <= 1


def test_the_gap_certifies_optimality() -> None:
    """Without limits, trades above dust are within 1e-6 of an upper bound on any routing, where no fee stays in the
    bought token."""
    market = make_market(120, seed=5, one_exchange=True)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    gaps = []
    for token_in, token_out, amount in questions(80, seed=2):
        if not router.connected(token_in, token_out):
            continue
        route = router.forward(token_in, token_out, amount, UNLIMITED, "lagrangian")
        assert route.gap is not None
        assert route.gap >= 0.0
        if all(fill.amount_out > 10**8 for fill in route.execution.fills):
            gaps.append(route.gap)
    assert len(gaps) > 20
    assert max(gaps) < 1e-6


def test_the_gap_is_tight_where_tokens_lie_off_the_route() -> None:
    """A loop of pools that a large trade has no use for does not widen the bound."""
    names = [f"RING{k}-{k:06x}" for k in range(14)]
    links = [(0, 1), *((k, k + 1) for k in range(1, 13)), (13, 1)]
    pools = [
        XExchangePool(
            id=f"x:{a}{b}",
            address=bytes([a, b]) * 16,
            tokens=(names[a], names[b]),
            reserves=(10**24, 10**24),
            total_fee=300,
            special_fee=50,
        )
        for a, b in links
    ]
    route = Router(pools, DictMarket(pools, names[0])).forward(names[0], names[1], 10**24, UNLIMITED, "lagrangian")
    assert route.gap is not None
    assert route.gap < 1e-4


def test_a_reverse_quote_pays_at_least_what_was_asked_and_no_unit_less_would() -> None:
    """The answer covers the wanted amount; the same plan with one unit less input does not."""
    for token_in, token_out, amount in questions(30, seed=3):
        wanted = ROUTER.forward(token_in, token_out, amount, Limits(), "hybrid").execution.amount_out
        done = Planner(MARKET.pools, BOOK).reverse(token_in, token_out, wanted, Limits(), "hybrid").execution
        assert done.amount_out >= wanted
        assert done.amount_in <= amount * 1.001 + 2


def test_unconnected_tokens_have_no_route() -> None:
    """Tokens of two separate markets raise NoRoute."""
    left, right = MARKET.pools[0], None
    for pool in MARKET.pools[1:]:
        if not set(pool.tokens) & set(left.tokens):
            right = pool
            break
    assert right is not None
    router = Router([left, right], DictMarket([left, right], WRAPPED))
    with pytest.raises(NoRoute):
        router.forward(left.tokens[0], right.tokens[0], 1000, Limits(), "hybrid")


def test_no_profitable_cycle_is_no_route() -> None:
    """In a market without mispricing, arbitrage finds nothing rather than a losing cycle."""
    with pytest.raises(NoRoute):
        ROUTER.forward(WRAPPED, WRAPPED, 10**18, Limits(), "hybrid")


def test_arbitrage_gains_and_pays_exactly() -> None:
    """In a mispriced market the cycle plan returns more than it takes, to the unit."""
    market = make_market(120, seed=6, noise=0.03)
    book = DictMarket(market.pools, WRAPPED)
    done = Router(market.pools, book).forward(WRAPPED, WRAPPED, 10**20, Limits(), "hybrid").execution
    assert done.amount_out > done.amount_in
    program = make_program(done.legs, Ends(WRAPPED, WRAPPED), WRAPPED, done.amount_in, 0)
    assert execute(program, [TokenPayment(WRAPPED, 0, 10**20)], book).amount_out == done.amount_out


def test_two_pools_at_odds_are_a_cycle_wherever_their_token_is_traded() -> None:
    """A token that trades for one other token only, in two pools at different prices, earns like any other."""
    leaf = "LEAF-000001"
    tokens, addresses = (WRAPPED, leaf), [bytes(8) + b"\x05\x00" + letter * 22 for letter in (b"x", b"j")]
    dear = XExchangePool(
        id="x", address=addresses[0], tokens=tokens, reserves=(10**21, 105 * 10**19), total_fee=300, special_fee=50
    )
    cheap = JexPool(id="j", address=addresses[1], tokens=tokens, reserves=(10**21, 10**21), lp_fee=20, platform_fee=10)
    pools = [dear, cheap]
    for market in (pools, [*pools, *MARKET.pools]):
        router = Router(market, DictMarket(market, WRAPPED))
        done = router.forward(WRAPPED, WRAPPED, 10**19, Limits(), "hybrid").execution
        assert done.amount_out > 102 * 10**17
        assert {fill.trade.pool.id for fill in done.fills} >= {"x", "j"}


def cycles_of(router: Router, amount: int) -> Cycles:
    """A question for cycles of the wrapped native token that asks nothing of the search."""

    def forward(_: int, __: bool) -> Route:
        raise NoRoute

    return Cycles(
        WRAPPED, amount, router.depth(WRAPPED), forward, lambda route: route.execution.amount_out, router.outlets, 0.0
    )


def test_cycles_trade_no_more_than_pays() -> None:
    """Of a plan that sells too much only the part is traded that earns most, and never more than there is."""
    router = Router(CYCLES.pools, DictMarket(CYCLES.pools, WRAPPED)).whole
    done = router.forward(WRAPPED, WRAPPED, 10**22, Limits(), "hybrid").execution
    earned = done.amount_out - done.amount_in
    more = [leg._replace(value=4 * leg.value) if leg.mode == FIXED else leg for leg in done.legs]
    assert cycles_of(router, 10**22).with_less(done._replace(legs=more)).amount_out - 10**22 > 0.999 * earned
    few = cycles_of(router, 10**15).with_less(done._replace(legs=more))
    assert sum(fill.amount_in for fill in few.fills if fill.trade.token_in == WRAPPED) <= 10**15


def test_less_than_cycles_would_sell_is_looked_for_itself() -> None:
    """What they were found to sell decides, not what is left of that; where there is more, nobody asks for just it."""
    router = Router(CYCLES.pools, DictMarket(CYCLES.pools, WRAPPED)).whole
    plan = router.forward(WRAPPED, WRAPPED, 10**22, Limits(), "hybrid")
    sold = sum(fill.amount_in for fill in plan.execution.fills if fill.trade.token_in == WRAPPED)
    for amount, itself in ((sold // 3, True), (3 * sold, False)):
        asked: list[int] = []

        def forward(part: int, _: bool, asked: list[int] = asked) -> Route:
            asked.append(part)
            return plan

        cycles_of(router, amount)._replace(forward=forward, deadline=math.inf).best()
        assert (amount in asked) == itself


@given(amount=st.integers(10**15, 10**19))
@example(amount=7629394531249999873)  # a unit more than an amount for which cycles are looked for: it earns nothing
@example(amount=7629394531249999873 + 10**16)
def test_of_an_amount_that_pays_all_is_traded_that_earns(amount: int) -> None:
    """Floats tell only every 128th or so of these amounts apart; to sell units that are not traded earns no more."""
    router = Router(CYCLES.pools, DictMarket(CYCLES.pools, WRAPPED))
    done = router.forward(WRAPPED, WRAPPED, amount, Limits(), "hybrid").execution
    sold = sum(fill.amount_in for fill in done.fills if fill.trade.token_in == WRAPPED)
    full = cycles_of(router, amount).with_less(done, most=amount)
    assert sold == amount or full.amount_out <= done.amount_out


@pytest.mark.parametrize("limits", [Limits(paths=100, hops=hops, toll=1e10) for hops in (1, 2, 3)])
def test_tight_limits_are_answered_no_worse_than_without_edges_astray(limits: Limits) -> None:
    """Where one edge of a hundred is astray, too: what limits leave of a flow through cycles can be poor."""
    pools = make_market(150, seed=22, noise=0.01).pools
    router = Router(pools, DictMarket(pools, WRAPPED))
    question = "USDC-c76f1f", WRAPPED, 905985487086, limits, "hybrid", math.inf
    without = router._forward(Question(*question)).execution.amount_out  # type: ignore[arg-type]
    assert router.forward(*question).execution.amount_out >= without  # type: ignore[arg-type]


def test_cycles_that_earn_less_than_their_fee_are_told_where_there_are_no_others() -> None:
    """Who pays the fee is not known: the plan then earns before it, and more with more to trade with."""
    router = Router(CYCLES.pools, DictMarket(CYCLES.pools, WRAPPED))
    free = router.forward(WRAPPED, WRAPPED, 10**20, Limits(), "hybrid").execution
    dear = Limits(toll=float(free.amount_out - free.amount_in))
    earned = 0
    for amount in (10**12, 10**15, 10**18, 10**20):
        done = router.forward(WRAPPED, WRAPPED, amount, dear, "hybrid").execution
        assert earned < done.amount_out - amount
        earned = done.amount_out - amount
    assert earned <= free.amount_out - free.amount_in


@pytest.mark.parametrize("kind", [{}, {"curved": 0.2}, {"noise": 0.03}], ids=["fair", "curved", "mispriced"])
def test_a_market_with_pools_moved_is_as_one_built_of_them(kind: dict[str, float]) -> None:
    """Rates, answers and bounds are those of a router made of the pools as they are by then, and quotes are paid."""
    document = make_market(150, seed=8, **kind)  # type: ignore[arg-type]
    rng = random.Random(8)
    pools = {}
    for pool in rng.sample(document.pools, 30):
        i = rng.randrange(2)
        pools[pool.id] = pool.swap(i, 1 - i, pool.reserves[i] // rng.randint(4, 200)).pool
    book = DictMarket(document.pools, WRAPPED)
    after = book.left_by(pools)
    moved = Router(document.pools, book).moved(pools)
    built = Router([pools.get(pool.id, pool) for pool in document.pools], after)
    tokens = sorted(moved.index)
    answered = 0
    for _ in range(60):
        token_in, token_out = rng.sample(tokens, 2)
        assert moved.spot_rate(token_in, token_out) == pytest.approx(built.spot_rate(token_in, token_out), rel=1e-9)
        amount = max(moved.depth(token_in) // rng.randint(50, 10**6), 1)
        try:
            ours, theirs = (each.forward(token_in, token_out, amount, Limits(), "hybrid") for each in (moved, built))
        except (NoRoute, PlanError):
            continue
        answered += 1
        assert ours.execution.amount_out == pytest.approx(theirs.execution.amount_out, rel=1e-9, abs=1)
        assert ours.bound() == pytest.approx(theirs.bound(), rel=1e-9)
        program = make_program(ours.execution.legs, Ends(token_in, token_out), WRAPPED, 0, 0)
        assert execute(program, [TokenPayment(token_in, 0, amount)], after).amount_out == ours.execution.amount_out
    assert answered > 40


def test_a_router_stays_as_it_is_when_pools_move() -> None:
    """What is asked of the market as it was has the same answer before and after."""
    token_in, token_out = MARKET.pools[0].tokens
    asked = token_in, token_out, ROUTER.depth(token_in) // 50, Limits(), "hybrid"
    before = ROUTER.forward(*asked).execution  # type: ignore[arg-type]
    sold = {fill.trade.pool.id: fill.trade for fill in before.fills}
    pools = {name: trade.pool.swap(trade.i, trade.j, trade.pool.reserves[trade.i]).pool for name, trade in sold.items()}
    moved = ROUTER.moved(pools)
    assert moved.forward(*asked).execution.amount_out < before.amount_out  # type: ignore[arg-type]
    assert ROUTER.forward(*asked).execution.amount_out == before.amount_out  # type: ignore[arg-type]


def test_a_pool_that_takes_no_trades_any_more_is_no_edge_of_a_moved_market() -> None:
    """The router says so, instead of giving answers that the pool does not keep."""
    pool = MARKET.pools[0]
    with pytest.raises(NoCurve):
        ROUTER.moved({pool.id: structs.replace(pool, state=PoolState.NO_SWAPS)})


def test_a_pool_that_is_all_but_emptied_is_dust_in_the_moved_market_too() -> None:
    """Answers and bounds are exactly those of a router made of the pools as they are by then."""
    document = make_market(100, seed=5, noise=0.003)
    pools = {}
    for pool in document.pools[::25]:
        pools[pool.id] = pool.swap(0, 1, pool.reserves[0] * 10**9).pool
    book = DictMarket(document.pools, WRAPPED)
    moved = Router(document.pools, book).moved(pools)
    built = Router([pools.get(pool.id, pool) for pool in document.pools], book.left_by(pools))
    rng = random.Random(5)
    for _ in range(20):
        token_in, token_out = rng.sample(sorted(moved.index), 2)
        asked = token_in, token_out, max(moved.depth(token_in) // 1000, 1), Limits(), "hybrid"
        ours, theirs = (each.forward(*asked) for each in (moved, built))  # type: ignore[arg-type]
        assert (ours.execution.amount_out, ours.gap) == (theirs.execution.amount_out, theirs.gap)


def test_a_pool_whose_units_are_traded_is_not_moved() -> None:
    """Its deposits and withdrawals are edges, too: who moves it is told to build a new market."""
    document = make_market(60, seed=5, traded_lp=6)
    book = DictMarket(document.pools, WRAPPED)
    router = Router(document.pools, book, liquidity=True)
    assert router.has_liquidity
    traded = {token for pool in document.pools for token in pool.tokens}
    issuer = next(pool for pool in document.pools if pool.lp_token in traded)
    with pytest.raises(NoCurve, match="LP units"):
        router.moved({issuer.id: issuer.swap(0, 1, issuer.reserves[0] // 10).pool})
