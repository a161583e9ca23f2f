"""Integers of 128 bits in kernels agree with Python's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from millrace.routing.wide import less, minus, multiply_divide, plus

WORD = (1 << 64) - 1
MOST = (1 << 128) - 1
# All widths are as likely, and so are the borders of words, where carries are.
numbers = st.integers(0, 128).flatmap(
    lambda bits: st.integers(0, (1 << bits) - 1) | st.sampled_from([(1 << bits) - 1, (1 << bits) % (MOST + 1)])
)
SUM, DIFFERENCE, QUOTIENT = range(3)


def compute(how: int, x: npt.NDArray[np.uint64]) -> bool:
    """Row 3 gets the result for rows 0 to 2; returns whether row 0 is less than row 1."""
    a, b, c = (x[0, 0], x[0, 1]), (x[1, 0], x[1, 1]), (x[2, 0], x[2, 1])
    if how == SUM:
        x[3, 0], x[3, 1] = plus(a, b)
    elif how == DIFFERENCE:
        x[3, 0], x[3, 1] = minus(a, b)
    else:
        x[3, 0], x[3, 1] = multiply_divide(a, b, c)
    return less(a, b)


def computed(how: int, *values: int) -> tuple[int, bool]:
    """The kernel's result, and whether the first value is less than the second."""
    rows = [[value >> 64, value & WORD] for value in (*values, 1, 0, 0)[:4]]
    x = np.array(rows, np.uint64)
    smaller = compute(how, x)
    return int(x[3, 0]) << 64 | int(x[3, 1]), smaller


@settings(deadline=None)
@given(numbers, numbers)
def test_sums_and_differences_carry_between_words(a: int, b: int) -> None:
    """Sums and differences of any widths that fit are exact, and so is the order."""
    if a + b <= MOST:
        assert computed(SUM, a, b) == (a + b, a < b)
    low, high = sorted((a, b))
    assert computed(DIFFERENCE, high, low) == (high - low, False)


@settings(max_examples=500, deadline=None)
@given(numbers, numbers, numbers.filter(bool))
@example(MOST, MOST, MOST)
@example(MOST, MOST - 1, MOST)
@example(0, MOST, 1)
@example(MOST, 1, 1)
@example(1 << 64, 1 << 64, 1 << 1)
def test_quotients_of_products_are_exact_floors(a: int, b: int, divisor: int) -> None:
    """`floor(a b / divisor)` over all widths up to 128 bits; products have up to 256."""
    assume(a * b // divisor <= MOST)
    assert computed(QUOTIENT, a, b, divisor)[0] == a * b // divisor


@settings(max_examples=500, deadline=None)
@given(numbers, numbers.filter(bool), st.integers(-1, 1))
def test_quotients_are_exact_next_to_multiples(quotient: int, divisor: int, off: int) -> None:
    """Where the product is a multiple of the divisor, or one more or less, the floor is that multiple or the one below.

    There an estimate that is a little too high would be wrong.
    """
    product = quotient * divisor + off
    assume(0 <= product <= MOST)
    assert computed(QUOTIENT, product, 1, divisor)[0] == product // divisor
    assert computed(QUOTIENT, quotient, divisor, divisor)[0] == quotient
