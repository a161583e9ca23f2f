"""The laws of `./run bench laws` in their short form: a few fresh questions in a small market of each kind."""

from __future__ import annotations

import random

import pytest
from benchmarks.laws import KINDS, LAWS, Question, ask, breaches, draw, make, net, usual

# `narrower` and `algorithms` are not kept to their tolerances where cycles gain or paths bind; the benchmark says by
# how much.
HELD = ("one-more-pool", "single-path", "arbitrage", "reverse", "bound", "equal")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
def test_the_laws_hold(kind: str) -> None:
    """One more pool costs nobody, no single path pays more, a millionth less does not pay, bounds are true.

    Cycles earn no less with more, and equal questions get equal answers.
    """
    market = make(kind, seed=11)
    for law in HELD:
        assert law in LAWS
        found = [breach for row in breaches(law, market, 3) for breach in row]
        # A question of few units may lose some where cycles gain.
        assert [breach for breach in found if breach.bp > 0.1] == []


@pytest.mark.parametrize(
    ("kind", "seed", "token"), [("mispriced 0.1 %", 901, "TK3X-1dbdec"), ("dusty", 902, "TK5X-2b2606")]
)
def test_cycles_earn_no_less_with_more_before_and_after_their_fee(kind: str, seed: int, token: str) -> None:
    """Amounts of any size, also where nothing earns its fee: profit is the output less the input."""
    market = make(kind, seed)
    limits, deepest = usual(market.planner, token), market.planner.router.depth(token)
    before, after = 0.0, 0.0
    for step in range(14):
        amount = int(deepest * 10.0 ** (0.75 * step - 8))
        found = ask(market.planner, Question(token, token, amount), limits)
        earned = 0 if found is None else found.execution.amount_out - amount
        assert earned >= before * (1.0 - 1e-4) - 2
        assert net(found, limits) - amount >= after * (1.0 - 1e-4) - 2 or not after
        before, after = max(before, earned), max(after, net(found, limits) - amount)
    assert before > 0


@pytest.mark.parametrize(("seed", "token"), [(503, "TK4X-eeaab6"), (501, "WEGLD-bd4d79")])
def test_ten_times_the_deepest_reserve_earns_what_the_reserve_does(seed: int, token: str) -> None:
    """Cycles that sell next to nothing of it are found and divided for both alike, to a hundred thousandth."""
    market = make("mispriced 0.1 %", seed)
    limits, deepest = usual(market.planner, token), market.planner.router.depth(token)
    less, more = (
        net(ask(market.planner, Question(token, token, amount), limits), limits) - amount
        for amount in (deepest, 10 * deepest)
    )
    assert 0 < less <= more * (1 + 1e-5)


@pytest.mark.parametrize(
    "question",
    [
        Question("TK99X-4f1474", "USDT-f8c08c", 841_964_508_260_820_451_328),
        Question("TK64X-3090ce", "TK6X-13d526", 2_548_703_560_214_016_163_840),
    ],
)
def test_a_reverse_quote_does_not_ask_for_a_multiple_where_dust_pays_for_less(question: Question) -> None:
    """What a forward quote pays because it sells into a pool that holds next to nothing is had for its input."""
    market = make("dusty", seed=8)
    limits = usual(market.planner, question.token_out)
    forward = ask(market.planner, question, limits)
    assert forward is not None
    wanted = forward.execution.amount_out
    asked = market.planner.reverse(question.token_in, question.token_out, wanted, limits, "hybrid").execution
    assert asked.amount_in <= question.amount
    assert asked.amount_out >= wanted


def test_five_paths_pay_no_less_than_four_where_prices_are_off() -> None:
    """Who may use more paths is paid no less, also where the exchange of five ends below that of four."""
    market, rng = make("mispriced 3 %", seed=4431), random.Random(4431)
    ends_early = Question("WEGLD-bd4d79", "USDC-c76f1f", 92_228_697_909_609_332_736)
    for question in (ends_early, *(draw(market, rng) for _ in range(20))):
        limits = usual(market.planner, question.token_out)
        four, five, any_number = (
            net(ask(market.planner, question, each), limits)
            for each in (limits._replace(paths=4), limits._replace(paths=5), limits)
        )
        assert five >= four * (1.0 - 1e-5) - 2
        assert question is not ends_early or any_number >= five * (1.0 - 1e-6)
