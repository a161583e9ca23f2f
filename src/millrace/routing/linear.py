"""Symmetric linear systems of the Newton steps: LDL^T on a dense matrix, skipping its zeros."""

from __future__ import annotations

from millrace.routing.jit import inlined, kernel
from millrace.routing.net import Floats, Ints


@kernel
def factor_solve(h: Floats, size: int, floor: float, columns: Ints, x: Floats) -> None:
    """Factor `h` (lower triangle, overwritten) and solve `h x = rhs` in place.

    Eliminates from the last index to the first, so tokens with many neighbours should have low
    indices. A pivot below `floor` is replaced by 1: the step then is a descent step, not a Newton step.
    """
    for k in range(size - 1, -1, -1):
        if h[k, k] < floor:
            h[k, k] = 1.0
        inverse = 1.0 / h[k, k]
        count = 0
        for i in range(k):
            if h[k, i] != 0.0:
                columns[count] = i
                count += 1
        xk = x[k] * inverse
        for p in range(count):
            i = columns[p]
            value = h[k, i]
            x[i] -= value * xk
            factor = value * inverse
            for q in range(p + 1):
                j = columns[q]
                h[i, j] -= factor * h[k, j]
    _back_substitute(h, size, x)


@inlined
def inverse_norm(h: Floats, size: int, x: Floats) -> float:
    """`x' h^-1 x` with the factors that `factor_solve` left in `h`; `x` is overwritten.

    With `h = L D L'` that is the sum of `y_k^2 / D_k` for `L y = x`: one substitution, which skips zeros.
    """
    total = 0.0
    for k in range(size - 1, -1, -1):
        if x[k] != 0.0:
            xk = x[k] / h[k, k]
            total += x[k] * xk
            for i in range(k):
                if h[k, i] != 0.0:
                    x[i] -= h[k, i] * xk
    return total


@kernel
def _back_substitute(h: Floats, size: int, x: Floats) -> None:
    for k in range(size):
        value = x[k]
        for i in range(k):
            if h[k, i] != 0.0:
                value -= h[k, i] * x[i]
        x[k] = value / h[k, k]
