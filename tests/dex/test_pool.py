"""What all pools share: the search for the smallest input, shares, tokens and values that do not change."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.constant_product import XExchangePool
from millrace.dex.pool import (
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    PoolError,
    Unsupported,
    precision,
    smallest_input,
)


def pool(**changes: Any) -> XExchangePool:
    fields: dict[str, Any] = {
        "id": "p",
        "address": bytes(32),
        "tokens": ("A-aaaaaa", "B-aaaaaa"),
        "reserves": (1000, 2000),
        "lp_supply": 500,
        "total_fee": 300,
        "special_fee": 50,
    }
    return XExchangePool(**fields | changes)


@given(st.integers(1, 10**40), st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 10**40))
@settings(max_examples=300, deadline=None)
def test_the_search_finds_the_smallest_input(wanted: int, price: int, unit: int, guess: int) -> None:
    """Whatever the guess, the input found covers and the one below does not."""

    def amount_out(amount: int) -> int:
        out = amount * price // unit
        if out == 0:
            raise InvalidAmount("too small")
        return out

    found = smallest_input(amount_out, wanted, guess)
    assert amount_out(found) >= wanted
    assert found == 1 or (found - 1) * price // unit < wanted


def test_the_search_ends_without_an_answer() -> None:
    """An output out of reach ends in an error after a bounded number of steps, and pool errors pass through."""
    asked = []

    def never(amount: int) -> int:
        asked.append(amount)
        return 1

    with pytest.raises(InsufficientLiquidity, match="no input pays 2"):
        smallest_input(never, 2, 10)
    assert len(asked) < 300

    def drained(amount: int) -> int:
        raise InsufficientLiquidity("drained")

    with pytest.raises(InsufficientLiquidity, match="drained"):
        smallest_input(drained, 2, 10)


def test_shares_round_down() -> None:
    """LP stands for a share of each token; more than there is stands for nothing."""
    assert pool().shares(3) == (6, 12)
    assert pool(reserves=(1001, 1999)).shares(1) == (2, 3)
    for lp in (-1, 501):
        with pytest.raises(InsufficientLiquidity):
            pool().shares(lp)
    with pytest.raises(InsufficientLiquidity):
        pool(lp_supply=0).shares(0)


def test_tokens_by_identifier() -> None:
    """A token is found by its identifier, a foreign one is an error that names the pool."""
    assert pool().index("B-aaaaaa") == 1
    with pytest.raises(InvalidToken, match="C-aaaaaa is not a token of pool p"):
        pool().index("C-aaaaaa")


def test_pools_do_not_change() -> None:
    """A swap leaves the pool as it was; fields cannot be set."""
    before = pool()
    after = before.swap(0, 1, 100).pool
    assert before == pool()
    assert after != before
    with pytest.raises(AttributeError):
        before.reserves = (1, 1)  # type: ignore[misc]
    assert before.with_reserves((5, 6), 7) == pool(reserves=(5, 6), lp_supply=7)
    assert msgspec.structs.asdict(before)["reserves"] == (1000, 2000)


def test_deposits_must_name_every_token() -> None:
    """One amount per token, none negative, not all zero."""
    for amounts in ((1,), (1, 2, 3), (-1, 5), (0, 0)):
        with pytest.raises(InvalidAmount):
            pool().mint(amounts)


def test_errors_are_of_one_family() -> None:
    """Whoever catches `PoolError` catches everything a pool refuses."""
    assert issubclass(InvalidAmount, PoolError)
    with pytest.raises(Unsupported):
        pool().mint_single(0, 5)


def test_precision_of_every_number_of_decimals() -> None:
    """0 to 18 decimals are brought to 18."""
    assert [precision(k) for k in (18, 6, 0)] == [1, 10**12, 10**18]
