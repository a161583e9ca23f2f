"""Plans of every kind pay exactly what they promise."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from millrace.chain.call import TokenPayment
from millrace.dex import aggregator_contract as contract
from millrace.dex.market import DictMarket
from millrace.dex.vault import execute
from millrace.routing.plan import Ends, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Route
from millrace.routing.walk import Walker
from synthetic import WRAPPED, make_market

MARKET = make_market(100, seed=21, curved=0.3)
BOOK = DictMarket(MARKET.pools, WRAPPED)
PLANNER = Planner(MARKET.pools, BOOK)


def check(route: Route, token_in: str, token_out: str) -> None:
    """The vault pays the promise, and keeps only what a deposit could not use."""
    done = route.execution
    program = make_program(done.legs, Ends(token_in, token_out), WRAPPED, done.amount_out, 0)
    payment = TokenPayment(token_in, 0, done.amount_in)
    result = execute(program, [payment], BOOK)
    assert result.amount_out == done.amount_out
    if not token_out.startswith("LP"):
        assert result.kept == {}


@pytest.mark.parametrize("algorithm", ["greedy", "lagrangian", "hybrid"])
@pytest.mark.parametrize("hops", [1, 2, 10])
def test_swaps_over_all_kinds_of_pools(algorithm: str, hops: int) -> None:
    """Random swaps through constant-product, stable and crypto pools are exact within every limit."""
    rng = random.Random(hops)
    answered = 0
    for _ in range(25):
        pool = rng.choice(MARKET.pools)
        token_in = rng.choice(pool.tokens)
        token_out = rng.choice(rng.choice(MARKET.pools).tokens) if hops > 1 else rng.choice(pool.tokens)
        amount = max(1, int(PLANNER.router.depth(token_in) * 10 ** rng.uniform(-8, -0.5)))
        if token_in == token_out:
            continue
        limits = Limits(pools=20, paths=rng.choice((1, 3, 5)), hops=hops)
        try:
            route = PLANNER.forward(token_in, token_out, amount, limits, algorithm)  # type: ignore[arg-type]
        except (NoRoute, PlanError):
            continue
        check(route, token_in, token_out)
        answered += 1
        assert len(route.execution.fills) <= limits.pools
    assert answered > 8


def test_what_is_sold_of_several_balances_is_told_in_parts_of_them() -> None:
    """Legs of a joint sale can follow others in one call, which may leave more or less of a token."""
    rng, split = random.Random(9), 0
    for _ in range(20):
        first, second, token_out = rng.sample(sorted(PLANNER.router.index), 3)
        amounts = {token: max(1, int(PLANNER.router.depth(token) * 1e-2)) for token in (first, second)}
        try:
            legs = PLANNER.joint_sale(amounts, token_out, Limits(16, 4))
        except PlanError:
            continue
        assert contract.FIXED not in {leg.mode for leg in legs}
        split += any(leg.mode == contract.PPM and leg.trade.token_in in amounts for leg in legs)
    assert split > 5


def test_hybrid_is_never_below_the_others() -> None:
    """Hybrid pays at least what greedy, lagrangian and the single path pay."""
    rng = random.Random(8)
    for _ in range(25):
        token_in = rng.choice(rng.choice(MARKET.pools).tokens)
        token_out = rng.choice(rng.choice(MARKET.pools).tokens)
        amount = max(1, int(PLANNER.router.depth(token_in) * 10 ** rng.uniform(-6, -1)))
        if token_in == token_out:
            continue

        def paid(algorithm: str, paths: int = 5) -> int:
            limits = Limits(paths=paths)
            try:
                return PLANNER.forward(token_in, token_out, amount, limits, algorithm).execution.amount_out  # type: ignore[arg-type] # noqa: B023
            except PlanError:
                return 0

        assert paid("hybrid") >= max(paid("greedy"), paid("lagrangian"), paid("greedy", 1))


def test_lp_tokens_are_redeemed_and_minted_exactly() -> None:
    """Redeeming into a token and minting from one pay to the unit, on every kind of pool."""
    kinds = set()
    for pool in MARKET.pools[::2]:
        other = WRAPPED if WRAPPED not in pool.tokens else "USDC-c76f1f"
        for token_in, token_out, amount in (
            (pool.lp_token, other, pool.lp_supply // 500),
            (other, pool.lp_token, PLANNER.router.depth(other) // 10**5),
            (pool.tokens[0], pool.lp_token, pool.reserves[0] // 100),
        ):
            try:
                route = PLANNER.forward(token_in, token_out, amount, Limits(), "hybrid")
            except (NoRoute, PlanError):
                continue
            check(route, token_in, token_out)
            kinds.add((pool.exchange, pool.kind, token_in == pool.lp_token))
    assert len(kinds) >= 10


def test_reverse_quotes_cover_what_was_asked() -> None:
    """The smallest input found pays at least the wanted amount, for swaps and for LP tokens."""
    rng = random.Random(4)
    for _ in range(15):
        pool = rng.choice(MARKET.pools)
        token_out = rng.choice((pool.tokens[0], pool.lp_token))
        whole = pool.reserves[0] if token_out == pool.tokens[0] else pool.lp_supply
        wanted = max(1, int(whole * 10 ** rng.uniform(-6, -2)))
        token_in = WRAPPED if token_out != WRAPPED else "USDC-c76f1f"
        try:
            route = PLANNER.reverse(token_in, token_out, wanted, Limits(), "hybrid")
        except (NoRoute, PlanError):
            continue
        assert route.execution.amount_out >= wanted
        assert route.execution.amount_out <= wanted * 1.01 + 10**6
        check(route, token_in, token_out)


def test_a_reverse_quote_lets_others_go_first_between_its_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some questions walk plans hundreds of times, with other inputs: none of that is one long step."""
    walks, most = [0], 0
    replay = Walker.replay

    def counted(*asked: Any) -> Walker:
        walks[0] += 1
        return replay(*asked)

    def aside() -> None:
        nonlocal most
        most, walks[0] = max(most, walks[0]), 0

    monkeypatch.setattr(Walker, "replay", counted)
    planner, rng = PLANNER.twin(aside), random.Random(5)
    for _ in range(40):
        token_out, token_in = rng.choice(MARKET.pools).tokens[0], rng.choice(MARKET.pools).tokens[-1]
        wanted = max(1, int(PLANNER.router.depth(token_out) * 10 ** rng.uniform(-5, -3)))
        with contextlib.suppress(NoRoute, PlanError):
            planner.reverse(token_in, token_out, wanted, Limits(pools=20, paths=5, hops=4), "hybrid")
    aside()
    assert most == 1


@pytest.mark.parametrize("hops", [1, 2])
def test_a_balance_is_sold_wherever_a_quote_sells_it(hops: int) -> None:
    """Also where nothing but an edge astray leads to the output within the limits."""
    market = make_market(150, seed=3, noise=0.03)
    planner = Planner(market.pools, DictMarket(market.pools, WRAPPED))
    only_astray = 0
    for pool in market.pools:
        for token, sink in (pool.tokens, pool.tokens[::-1]):
            limits = Limits(pools=8, paths=2, hops=hops)
            amount = pool.reserves[pool.index(token)] // 1000
            quoted = planner.forward(token, sink, amount, limits, "greedy").execution
            assert planner.sale(token, amount, sink, limits).amount_out * 2 > quoted.amount_out
            only_astray += planner.router.exact_path(token, sink, amount, limits) is None
    assert only_astray > 0
