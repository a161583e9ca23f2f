"""Reverse quotes ask for the smallest input."""

from __future__ import annotations

import random

import pytest

from millrace.chain.call import TokenPayment
from millrace.dex.market import DictMarket
from millrace.dex.vault import VaultError, execute
from millrace.routing.plan import Ends, Execution, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute
from millrace.routing.synthetic import WRAPPED, make_market

MARKET = make_market(80, seed=13, curved=0.1, traded_lp=4)
BOOK = DictMarket(MARKET.pools, WRAPPED)
PLANNER = Planner(MARKET.pools, BOOK)


def paid_for(done: Execution, ends: Ends, amount: int) -> int:
    """What the contract pays for the plan's very instructions and this payment; 0 where it reverts."""
    program = make_program(done.legs, ends, WRAPPED, 0, 0)
    try:
        return execute(program, [TokenPayment(ends.token_in, 0, amount)], BOOK).amount_out
    except VaultError:
        return 0


@pytest.mark.parametrize("algorithm", ["greedy", "lagrangian", "hybrid"])
@pytest.mark.parametrize("paths", [1, 5])
def test_a_reverse_quote_asks_for_the_smallest_input(algorithm: str, paths: int) -> None:
    """It pays what is wanted, its instructions pay less for one unit less, the forward quote of its input pays
    enough too, and no single path needs less."""
    rng = random.Random(f"{algorithm}/{paths}")
    limits = Limits(pools=30, paths=paths)
    answered = tight = 0
    for _ in range(20):
        token_in, token_out = (rng.choice(rng.choice(MARKET.pools[:80]).tokens) for _ in range(2))
        wanted = max(1, int(PLANNER.router.depth(token_out) * 10 ** rng.uniform(-12, -1.5)))
        if token_in == token_out:
            continue
        try:
            done = PLANNER.reverse(token_in, token_out, wanted, limits, algorithm).execution  # type: ignore[arg-type]
        except PlanError:
            continue
        answered += 1
        ends = Ends(token_in, token_out)
        assert paid_for(done, ends, done.amount_in) == done.amount_out >= wanted
        again = PLANNER.forward(token_in, token_out, done.amount_in, limits, algorithm)  # type: ignore[arg-type]
        assert again.execution.amount_out >= wanted
        single = PLANNER.router.cheapest_path(token_in, token_out, wanted, 2 * done.amount_in, limits)
        assert single is None or single.execution().amount_in >= done.amount_in
        tight += paid_for(done, ends, done.amount_in - 1) < wanted
    assert answered > 10
    assert tight >= answered - 1  # paths through shared pools may hold on to a unit that none of them can give up


def test_reverse_quotes_with_lp_tokens_pay_what_is_wanted_and_hardly_more() -> None:
    """From, to and between LP tokens: the output covers what was asked, and one unit less of input would not."""
    rng = random.Random(3)
    limits = Limits(liquidity=True)
    answered = 0
    for _ in range(12):
        pool, other = rng.sample(MARKET.pools, 2)
        token_in, token_out = rng.choice(
            [(pool.lp_token, other.tokens[0]), (other.tokens[0], pool.lp_token), (pool.lp_token, other.lp_token)]
        )
        whole = other.lp_supply if token_out == other.lp_token else pool.lp_supply
        wanted = whole // 10**4 if token_out.startswith("LP") else other.reserves[0] // 10**4
        try:
            done = PLANNER.reverse(token_in, token_out, max(1, wanted), limits, "lagrangian").execution
        except (NoRoute, PlanError):
            continue
        answered += 1
        ends = Ends(token_in, token_out)
        assert paid_for(done, ends, done.amount_in) == done.amount_out >= wanted
        assert done.amount_out <= wanted * 1.000001 + 10**6
    assert answered >= 5
