"""Symmetric linear systems of the Newton steps: sparse LDL^T in dense storage.

A bit set per row says which entries below the diagonal are in use; all others are zero, and nobody looks at them.
Tokens with many neighbours should have low indices: elimination runs from the last index to the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.bits import first_bit
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, FloatTable, Ints, WordTable
from millrace.routing.scratch import make, sized

ONE = np.uint64(1)
LOW_BITS = np.uint64(63)


class Matrix(NamedTuple):
    """Lower triangle `h`, then its factors; `used[k]` is the bit set of row k without the diagonal.

    Factoring lists the columns of row k in `columns[begin[k] : end[k]]`.
    """

    h: FloatTable = sized("rows", "rows")
    used: WordTable = sized("rows", "words")
    begin: Ints = sized("rows")
    end: Ints = sized("rows")
    columns: Ints = sized("entries")


def make_matrix(size: int) -> Matrix:
    """A zero matrix of up to `size` rows."""
    return make(Matrix, rows=size, words=(size + 63) // 64, entries=size * size // 2 + 1)


@kernel
def clear(m: Matrix, size: int) -> None:
    """Set the first `size` rows to zero."""
    for k in range(size):
        m.h[k, k] = 0.0
        for word in range((k + 63) >> 6):
            bits = m.used[k, word]
            m.used[k, word] = 0
            while bits:
                m.h[k, (word << 6) + first_bit(bits)] = 0.0
                bits &= bits - ONE


@kernel
def add_entry(m: Matrix, i: int, j: int, value: float) -> None:
    """Add to the entry of two different indices."""
    row, column = max(i, j), min(i, j)
    m.h[row, column] += value
    m.used[row, column >> 6] |= ONE << (np.uint64(column) & LOW_BITS)


@kernel
def factor_solve(m: Matrix, size: int, floor: float, x: Floats) -> None:
    """Factor `m` (overwritten) and solve `m x = rhs` in place.

    A pivot below `floor` is replaced by 1: the step then is a descent step, not a Newton step.
    """
    h, columns = m.h, m.columns
    listed = 0
    for k in range(size - 1, -1, -1):
        if h[k, k] < floor:
            h[k, k] = 1.0
        begin = listed
        for word in range((k + 63) >> 6):
            bits = m.used[k, word]
            while bits:
                columns[listed] = (word << 6) + first_bit(bits)
                listed += 1
                bits &= bits - ONE
        m.begin[k], m.end[k] = begin, listed
        inverse = 1.0 / h[k, k]
        xk = x[k] * inverse
        for p in range(begin, listed):
            i = columns[p]
            value = h[k, i]
            x[i] -= value * xk
            factor = value * inverse
            for q in range(begin, p + 1):
                j = columns[q]
                h[i, j] -= factor * h[k, j]
            for word in range(i >> 6):
                m.used[i, word] |= m.used[k, word]
            below = (ONE << (np.uint64(i) & LOW_BITS)) - ONE
            m.used[i, i >> 6] |= m.used[k, i >> 6] & below
    for k in range(size):
        value = x[k]
        for p in range(m.begin[k], m.end[k]):
            value -= h[k, columns[p]] * x[columns[p]]
        x[k] = value / h[k, k]


@kernel
def inverse_norm(m: Matrix, last: int, x: Floats) -> float:
    """`x' m^-1 x` with the factors that `factor_solve` left in `m`; `x`, zero above `last`, becomes zero.

    With `m = L D L'` that is the sum of `y_k^2 / D_k` for `L y = x`: one substitution, which skips zeros.
    """
    total = 0.0
    for k in range(last, -1, -1):
        if x[k] != 0.0:
            xk = x[k] / m.h[k, k]
            total += x[k] * xk
            x[k] = 0.0
            for p in range(m.begin[k], m.end[k]):
                x[m.columns[p]] -= m.h[k, m.columns[p]] * xk
    return total


@inlined
def inverse_times(m: Matrix, size: int, x: Floats) -> None:
    """Replace `x` by `m^-1 x`, with the factors that `factor_solve` left in `m`."""
    for k in range(size - 1, -1, -1):
        if x[k] != 0.0:
            xk = x[k] / m.h[k, k]
            for p in range(m.begin[k], m.end[k]):
                x[m.columns[p]] -= m.h[k, m.columns[p]] * xk
    for k in range(size):
        value = x[k]
        for p in range(m.begin[k], m.end[k]):
            value -= m.h[k, m.columns[p]] * x[m.columns[p]]
        x[k] = value / m.h[k, k]
