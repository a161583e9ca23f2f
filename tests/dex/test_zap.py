"""How the contract balances a deposit: its model of a swap, and that its choice leaves little unused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.zap import MAX_STEPS, FeeModel, balancing_swap, search, simulate

XEXCHANGE = FeeModel(True, 300, 50, 100_000)
ONEDEX = FeeModel(True, 100, 50, 10_000)
JEX = FeeModel(False, 40, 20, 10_000)
FEES = st.sampled_from((XEXCHANGE, ONEDEX, JEX, FeeModel(True, 0, 0, 10_000)))


def unused(first: int, second: int, reserves: tuple[int, int]) -> int:
    """What a deposit gives back, as the exchanges compute it."""
    matching = first * reserves[1] // reserves[0]
    if matching <= second:
        return second - matching
    return first - second * reserves[0] // reserves[1]


def left_after(first: int, second: int, reserves: tuple[int, int], fee: FeeModel, sold: int, amount: int) -> int:
    if amount == 0:
        return unused(first, second, reserves)
    held, pool = [first, second], list(reserves)
    trade = simulate(amount, reserves[sold], reserves[1 - sold], fee)
    held[sold] -= amount
    held[1 - sold] += trade.received
    pool[sold], pool[1 - sold] = trade.reserve_in, trade.reserve_out
    return unused(held[0], held[1], (pool[0], pool[1]))


def test_the_model_of_a_swap() -> None:
    """Fee on the input: the split part leaves the pool. On the output: the split part stays in it."""
    assert simulate(1000, 10**6, 10**6, XEXCHANGE) == (996, 10**6 + 1000, 10**6 - 996)
    assert simulate(10**5, 10**6, 10**6, XEXCHANGE) == (90661, 10**6 + 10**5 - 50, 10**6 - 90661)
    gross = 10**5 * 10**6 // (10**6 + 10**5)
    assert simulate(10**5, 10**6, 10**6, JEX) == (
        gross * 9960 // 10_000,
        10**6 + 10**5,
        10**6 - gross * 9980 // 10_000,
    )


AMOUNT = st.integers(1, 10**24)
RESERVE = st.integers(10**6, 10**26)


@given(AMOUNT, AMOUNT, RESERVE, RESERVE, FEES)
@settings(max_examples=300, deadline=None)
def test_the_excess_token_is_sold(first: int, second: int, r1: int, r2: int, fee: FeeModel) -> None:
    """The token of which there is more than the ratio is sold, never all of it, and only that one."""
    sold, amount = balancing_swap(first, second, (r1, r2), fee)
    held = (first, second)[sold]
    assert 0 <= amount < held
    if amount:
        assert (first * r2 > second * r1) == (sold == 0)


@given(st.integers(10**12, 10**24), st.integers(0, 100), st.integers(10**15, 10**26), st.integers(50, 200), FEES)
@settings(max_examples=200, deadline=None)
def test_almost_everything_is_used(first: int, part: int, r1: int, tilt: int, fee: FeeModel) -> None:
    """After the swap a deposit into a deep pool gives back no more than dust of either token."""
    r2 = r1 * tilt // 100
    second = max(first * tilt // 100 * part // 100, 1)
    sold, amount = balancing_swap(first, second, (r1, r2), fee)
    left = left_after(first, second, (r1, r2), fee, sold, amount)
    assert left <= max(first // 10**9, 10)


def test_small_cases_against_every_amount() -> None:
    """On small numbers the choice is nearly always the best of all amounts, and never far from it."""
    reserves = (10_000, 10_000)
    worse = []
    for first in range(1, 300, 13):
        for second in range(1, 300, 17):
            sold, amount = balancing_swap(first, second, reserves, XEXCHANGE)
            left = [left_after(first, second, reserves, XEXCHANGE, sold, x) for x in range((first, second)[sold])]
            worse.append(left[amount] - min(left))
    assert max(worse) <= 5
    assert worse.count(0) > 0.95 * len(worse)


@pytest.mark.parametrize(
    ("first", "second", "reserves"),
    [(0, 5, (10, 10)), (5, 0, (10, 10)), (5, 5, (0, 10)), (5, 5, (10, 0)), (100, 200, (1000, 2000))],
)
def test_nothing_to_balance(first: int, second: int, reserves: tuple[int, int]) -> None:
    """With a side missing, or in the exact ratio, nothing is sold."""
    assert balancing_swap(first, second, reserves, XEXCHANGE) == (0, 0)


def test_huge_amounts_end() -> None:
    """The search stops after its bounded number of steps."""
    sold, amount = balancing_swap(10**78, 1, (10**30, 10**30), XEXCHANGE)
    assert sold == 0
    assert 0 < amount < 10**78
    assert MAX_STEPS == 128


@given(AMOUNT, AMOUNT, RESERVE, RESERVE, FEES)
@settings(max_examples=100, deadline=None)
def test_the_search_says_how_long_it_took(first: int, second: int, r1: int, r2: int, fee: FeeModel) -> None:
    """It halves what may be sold: at most a loop for each bit of it, and at least one where something is sold."""
    found = search(first, second, (r1, r2), fee)
    assert (found.sold, found.amount) == balancing_swap(first, second, (r1, r2), fee)
    assert 0 <= found.loops <= min(MAX_STEPS, (first, second)[found.sold].bit_length())
    if found.amount:
        assert found.loops > 0
