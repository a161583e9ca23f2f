"""Amounts at the edges."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import amount


@pytest.mark.parametrize(
    "text", ["", "0", "00", "-1", "+1", "1.5", "1e5", " 1", "1 ", "1\n", "٣", "²", "1_0", "0x1", "9" * 81, "NaN"]
)
def test_amounts_are_unsigned_integers(text: str) -> None:
    """Fractional, signed, zero, non-ASCII, empty and endless texts are no amount."""
    with pytest.raises(amount.AmountError, match="expected unsigned integer amount"):
        amount.parse(text)


@given(st.integers(1, 10**80 - 1))
def test_decimal_texts_are_amounts(number: int) -> None:
    """Any positive number of up to 80 digits is read from its decimal text."""
    assert amount.parse(str(number)) == number


@pytest.mark.parametrize(
    ("whole", "slippage", "least"),
    [(100, "0.01", 99), (101, "0.01", 99), (10**30 + 1, "0.1", 9 * 10**29), (1, "0", 1), (1, "0.5", 0), (7, "1", 0)],
)
def test_slippage_examples(whole: int, slippage: str, least: int) -> None:
    """The minimum is floor(amount * (1 - slippage)) of the decimal, not of its nearest binary float."""
    assert amount.apply_slippage(whole, Decimal(slippage)) == least


@given(st.integers(0, 10**40), st.integers(0, 10**30), st.integers(30, 40))
def test_slippage_is_exact(whole: int, digits: int, places: int) -> None:
    """The minimum is the floor of the exact product, for slippages of many digits too."""
    slippage = Decimal(f"{digits}e-{places}")  # exact; arithmetic on decimals would round to 28 digits
    exact = whole * (1 - Fraction(digits, 10**places))
    assert amount.apply_slippage(whole, slippage) == exact.numerator // exact.denominator


@pytest.mark.parametrize("slippage", ["-0.01", "1.01", "NaN", "Infinity"])
def test_impossible_slippages(slippage: str) -> None:
    """A slippage outside [0, 1] is refused: the minimum would be negative, or more than promised."""
    with pytest.raises((ValueError, ArithmeticError)):
        amount.apply_slippage(100, Decimal(slippage))


@given(st.integers(0, 10**60), st.integers(0, 30))
def test_short_amounts_are_the_nearest_float(number: int, decimals: int) -> None:
    """The human number is the float nearest to the amount over its decimals."""
    assert amount.short(number, decimals) == float(Fraction(number, 10**decimals))


def test_short_amounts() -> None:
    """Whole tokens are written with their fraction."""
    assert amount.short(1_500_000, 6) == 1.5
    assert amount.short(10**9, 18) == 1e-9
    assert amount.short(0, 2) == 0.0
