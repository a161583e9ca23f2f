"""Amounts at the edges: decimal strings in smallest units become integers, and nothing else does."""

from __future__ import annotations

from decimal import Decimal

MAX_DIGITS = 80  # 2^256 has 78
TOTAL_BPS = 10_000
"""Basis points in a whole."""


class AmountError(ValueError):
    """A text is not an unsigned, non-zero integer amount."""


def parse(text: str) -> int:
    """The integer in a decimal string. Raises `AmountError` for anything but 1 to 80 ASCII digits above zero."""
    if not 0 < len(text) <= MAX_DIGITS or not text.isascii() or not text.isdigit():
        raise AmountError("expected unsigned integer amount")
    amount = int(text)
    if amount == 0:
        raise AmountError("expected unsigned integer amount")
    return amount


_POWERS: list[int] = [10**decimals for decimals in range(256)]


def short(amount: int, decimals: int) -> float:
    """The amount in whole tokens, for people's eyes only: the nearest float."""
    return amount / _POWERS[decimals]


def apply_slippage(amount: int, slippage: Decimal) -> int:
    """`floor(amount * (1 - slippage))` in exact arithmetic; the slippage is a fraction in [0, 1].

    Raises `ValueError` for another one. The caller bounds its digits: exact arithmetic pays for every one.
    """
    if not 0 <= slippage <= 1:
        raise ValueError(f"a slippage of {slippage} is no fraction from 0 to 1")
    numerator, denominator = slippage.as_integer_ratio()
    return amount * (denominator - numerator) // denominator
