"""The largest of many numbers, without sorting them all."""

from __future__ import annotations

from millrace.routing.compiled import kernel
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
