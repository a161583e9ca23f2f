"""Reverse quotes ask for the smallest input."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from millrace.chain.call import TokenPayment
from millrace.dex.market import DictMarket
from millrace.dex.vault import VaultError, execute
from millrace.routing.plan import Ends, Execution, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.reverse import SLOW_ANSWERS
from millrace.routing.router import Limits, NoRoute, Route
from synthetic import WRAPPED, make_market

MARKET = make_market(80, seed=13, curved=0.1, traded_lp=4)
BOOK = DictMarket(MARKET.pools, WRAPPED)
PLANNER = Planner(MARKET.pools, BOOK)


def forward_pays(token_in: str, token_out: str, amount: int, limits: Limits, algorithm: str) -> int:
    """What the forward search finds for an input; 0 for nothing."""
    try:
        return PLANNER.forward(token_in, token_out, amount, limits, algorithm).execution.amount_out  # type: ignore[arg-type]
    except PlanError:
        return 0


def paid_for(done: Execution, ends: Ends, amount: int, book: DictMarket = BOOK) -> int:
    """What the contract pays for the plan's very instructions and this payment; 0 where it reverts."""
    program = make_program(done.legs, ends, WRAPPED, 0, 0)
    try:
        return execute(program, [TokenPayment(ends.token_in, 0, amount)], book).amount_out
    except VaultError:
        return 0


@pytest.mark.parametrize("algorithm", ["greedy", "lagrangian", "hybrid"])
@pytest.mark.parametrize("paths", [1, 5])
def test_a_reverse_quote_asks_for_the_smallest_input(algorithm: str, paths: int) -> None:
    """It pays what is wanted, a forward quote of one unit less and its instructions with a millionth less do not, the
    forward quote of its input does (or almost, where paths share pools), and no single path needs less."""
    rng = random.Random(f"{algorithm}/{paths}")
    limits = Limits(pools=30, paths=paths)
    answered = agreed = 0
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
        assert again.execution.amount_out >= wanted * (1 - 1e-6)
        agreed += again.execution.amount_out >= wanted
        single = PLANNER.router.cheapest_path(token_in, token_out, wanted, 2 * done.amount_in, limits)
        assert single is None or single.execution().amount_in >= done.amount_in
        if done.amount_in > 1:
            assert paid_for(done, ends, done.amount_in - max(done.amount_in // 10**6, 1)) < wanted
            assert forward_pays(token_in, token_out, done.amount_in - 1, limits, algorithm) < wanted
    assert answered > 10
    assert agreed >= answered - 2


def test_nobody_is_asked_what_nothing_pays() -> None:
    """Where one unit pays more than is wanted, no forward question is for less than a unit."""
    planner = copy.copy(PLANNER)
    asked: list[int] = []

    def forward(token_in: str, token_out: str, amount: int, *more: Any, **named: Any) -> Route:
        asked.append(amount)
        return PLANNER.forward(token_in, token_out, amount, *more, **named)

    planner.forward = forward  # type: ignore[method-assign]
    done = planner.reverse("USDC-c76f1f", WRAPPED, 1, Limits(pools=30), "hybrid").execution
    assert done.amount_in == 1
    assert min(asked) == 1


def test_a_forward_question_for_nothing_has_no_plan() -> None:
    """It is refused before anything is looked for."""
    with pytest.raises(PlanError):
        PLANNER.router.forward("USDC-c76f1f", WRAPPED, 0, Limits(), "hybrid")
    with pytest.raises(PlanError):
        PLANNER.router.find_flow({"USDC-c76f1f": 0}, WRAPPED, Limits())


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


def test_reverse_quotes_with_lp_tokens_ask_for_a_number_of_answers_not_for_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long they take, the forward answers of one question are few: equal questions get equal answers."""
    market = make_market(40, seed=5, noise=0.02, curved=0.3, traded_lp=4)
    planner = Planner(market.pools, DictMarket(market.pools, WRAPPED))
    asked: list[int] = []
    forward = Planner.forward

    def counted(self: Planner, token_in: str, token_out: str, amount: int, *args: Any, **named: Any) -> Route:
        asked.append(amount)
        return forward(self, token_in, token_out, amount, *args, **named)

    monkeypatch.setattr(Planner, "forward", counted)
    dice = random.Random("few answers")
    answered = 0
    for _ in range(12):
        before, after = dice.sample(market.pools, 2)
        asked.clear()
        try:
            route = planner.reverse(before.lp_token, after.lp_token, after.lp_supply // 10_000, Limits(), "hybrid")
        except (NoRoute, PlanError):
            continue
        answered += 1
        assert route.execution.amount_out >= after.lp_supply // 10_000
        assert len(asked) <= SLOW_ANSWERS + 2
    assert answered >= 3


@pytest.mark.parametrize("seed", [41, 42])
def test_the_forward_quote_of_a_reverse_quote_pays_what_was_wanted_where_fees_count(seed: int) -> None:
    """Small trades, of which the fee of a pool is a large part: no path is told that is not worth its fee."""
    market, rng = make_market(120, seed=seed), random.Random(seed)
    planner = Planner(market.pools, DictMarket(market.pools, WRAPPED))
    dollar = 10**18 / 40.0  # units of the wrapped native token, which is worth 40 in these markets
    tokens = sorted({token for pool in market.pools for token in pool.tokens})
    answered = 0
    for _ in range(60):
        token_in, token_out = rng.sample(tokens, 2)
        worth = dollar * 10 ** rng.uniform(-0.3, 1.3)
        amount = int(worth * planner.router.rate(WRAPPED, token_in))
        limits = Limits(100, 100, toll=10**9 * planner.router.rate(WRAPPED, token_out))
        try:
            wanted = planner.forward(token_in, token_out, amount, limits, "hybrid").execution.amount_out
            done = planner.reverse(token_in, token_out, wanted, limits, "hybrid")
        except PlanError:
            continue
        again = planner.forward(token_in, token_out, done.execution.amount_in, limits, "hybrid").execution
        assert done.execution.amount_out >= wanted
        assert again.amount_out >= wanted * (1 - 1e-6) - 1
        assert done.execution.amount_in <= amount
        assert done.gap is not None
        answered += 1
    assert answered > 40


@pytest.mark.parametrize(
    ("token_in", "token_out", "amount"),
    [
        ("TK38X-784e8e", "LP16X-1ca474", 7_078_748_414_741_131_582_634_983_424),
        ("TK24X-8f8e2a", "LP16X-1ca474", 6_049_018_882_775_737_572_792_467_456),
        ("TK17X-735c3f", "TK7X-8ecf8e", 45_826_888_201_080_956_109_505_691_648),
        ("TK11X-c9b44a", "TK24X-8f8e2a", 198_787_081_083_465_620_376_256_512),
    ],
)
def test_what_empties_pools_has_a_reverse_quote_with_lp_tokens(token_in: str, token_out: str, amount: int) -> None:
    """What a forward answer pays for much more than pools hold can be asked for, and costs no more than that."""
    market = make_market(150, 31, curved=0.3, traded_lp=5)
    planner = Planner(market.pools, DictMarket(market.pools, WRAPPED))
    limits = Limits(30, 30, liquidity=True)
    wanted = planner.forward(token_in, token_out, amount, limits, "hybrid").execution.amount_out
    done = planner.reverse(token_in, token_out, wanted, limits, "hybrid").execution
    assert done.amount_out >= wanted
    assert done.amount_in <= amount * 1.001
