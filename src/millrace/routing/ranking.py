"""The largest of many numbers, without sorting them all."""

from __future__ import annotations

from millrace.routing.bits import order_of
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats


@kernel
def nth_largest(values: Floats, count: int, n: int) -> float:
    """The `n`-th largest (from 1) of the first `count` values, which it puts into another order (Hoare's selection)."""
    low, high, place = 0, count - 1, n - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return float(values[place])


@inlined
def bucket_of(value: float, most: float, buckets: int) -> int:
    """The bucket of a value of at most `most`: 0 for the largest ones, the last one for all that are much smaller.

    The upper bits of a positive float64 grow with it; 128 buckets share each power of two.
    """
    above = (order_of(most) >> 45) - (order_of(value) >> 45)
    return min(max(above, 0), buckets - 1)
