"""Random choices that come out the same on every machine: whole numbers and decimals, no binary floats."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Final, TypeVar

T = TypeVar("T")

CONTEXT: Final = Context(prec=28, Emin=-999_999, Emax=999_999)
"""Precision of everything computed here; decimal results are rounded the same everywhere."""

_BITS: Final = 64


class Dice:
    """A source of choices named by a text; the same name gives the same choices."""

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        bits = bound.bit_length() + _BITS
        return self._random.getrandbits(bits) * bound >> bits

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, per_mille: int) -> bool:
        """True in so many of a thousand cases."""
        return self.below(1000) < per_mille

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def weighted(self, cumulative: Sequence[int]) -> int:
        """An index drawn by weights given as running sums."""
        return bisect_right(cumulative, self.below(cumulative[-1]))

    def uniform(self) -> Decimal:
        """A decimal from 0 to 1, 1 not included."""
        return CONTEXT.divide(Decimal(self._random.getrandbits(_BITS)), Decimal(1 << _BITS))

    def normal(self) -> Decimal:
        """Nearly a standard normal value: twelve uniform ones added, less six."""
        total = sum(self._random.getrandbits(_BITS) for _ in range(12))
        return CONTEXT.divide(Decimal(total - (6 << _BITS)), Decimal(1 << _BITS))

    def spread(self, middle: int, sigma: str) -> int:
        """A whole number scattered log-normally around `middle`; at least 1."""
        factor = CONTEXT.exp(CONTEXT.multiply(self.normal(), Decimal(sigma)))
        return max(int(CONTEXT.multiply(Decimal(middle), factor)), 1)

    def hexadecimal(self, digits: int) -> str:
        """So many hexadecimal digits."""
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"
