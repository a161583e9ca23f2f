"""Exact arithmetic of unsigned integers of up to 128 bits in kernels: `(high, low)` words of 64 bits.

Products have twice as many. Quotients are found by dividing in floating point, a little too low, and taking what was
found off the remainder, until nothing is left to find: each round finds about 47 bits of the quotient, and how good an
estimate is only decides how many rounds it takes, as long as it is never too high.
"""

from __future__ import annotations

import numpy as np

from millrace.routing.bits import high_word
from millrace.routing.compiled import inlined, kernel

Wide = tuple[np.uint64, np.uint64]

WORD = 2.0**64
# Estimates of quotients are made of eleven roundings, each at most 2^-53 of the value.
BELOW = 1.0 - 2.0**-48


@kernel
def less(a: Wide, b: Wide) -> bool:
    """Whether `a < b`."""
    return bool(a[0] < b[0] or (a[0] == b[0] and a[1] < b[1]))


@kernel
def plus(a: Wide, b: Wide) -> Wide:
    """`a + b`, which must be less than 2^128."""
    low = a[1] + b[1]
    return a[0] + b[0] + np.uint64(low < a[1]), low


@kernel
def minus(a: Wide, b: Wide) -> Wide:
    """`a - b`, which must not be negative."""
    return a[0] - b[0] - np.uint64(a[1] < b[1]), a[1] - b[1]


@inlined
def product(a: Wide, b: Wide) -> tuple[Wide, Wide]:
    """`a b` as the words above 2^128 and those below."""
    # A product of two words leaves room for one word more; the sum of two such products can carry.
    cross = plus((high_word(a[1], b[0]), a[1] * b[0]), (np.uint64(0), high_word(a[1], b[1])))
    other = (high_word(a[0], b[1]), a[0] * b[1])
    middle = plus(cross, other)
    carry = np.uint64(less(middle, cross))
    top = plus((high_word(a[0], b[0]), a[0] * b[0]), (carry, middle[0]))
    return top, (middle[1], a[1] * b[1])


@kernel
def multiply_divide(a: Wide, b: Wide, divisor: Wide) -> Wide:
    """`floor(a b / divisor)`, which must be less than 2^128; `divisor` must not be 0."""
    top, rest = product(a, b)
    quotient = (np.uint64(0), np.uint64(0))
    inverse = BELOW / (float(divisor[0]) * WORD + float(divisor[1]))
    while top[0] | top[1] or not less(rest, divisor):
        estimate = (((float(top[0]) * WORD + float(top[1])) * WORD + float(rest[0])) * WORD + float(rest[1])) * inverse
        high = np.uint64(estimate / WORD)
        found = (high, np.uint64(estimate - float(high) * WORD))
        if found[0] == 0 and found[1] == 0:
            found = (np.uint64(0), np.uint64(1))  # the divisor does fit once more
        quotient = plus(quotient, found)
        taken, below = product(found, divisor)
        borrow = np.uint64(less(rest, below))
        top = minus(minus(top, taken), (np.uint64(0), borrow))
        rest = minus(rest, below)
    return quotient
