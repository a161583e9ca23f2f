"""The sparse systems of the Newton steps against dense linear algebra."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing.linear import Matrix, add_entry, clear, factor_solve, inverse_norm, make_matrix
from millrace.routing.net import Floats, Ints

ROWS = 150
SPARSE = make_matrix(ROWS)  # one for all examples, as a solver has: nothing of an earlier one may shine through


def fill(m: Matrix, size: int, rows: Ints, columns: Ints, weights: Floats) -> None:
    """A weighted Laplacian plus the identity."""
    clear(m, size)
    for k in range(size):
        m.h[k, k] = 1.0
    for k in range(rows.size):
        m.h[rows[k], rows[k]] += weights[k]
        m.h[columns[k], columns[k]] += weights[k]
        add_entry(m, rows[k], columns[k], -weights[k])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, ROWS), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_sparse_solutions_are_those_of_dense_algebra(size: int, edges: int, seed: int) -> None:
    """Solutions and norms agree with numpy's, whatever the pattern and whatever was solved before."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, size, edges).astype(np.int32)
    columns = ((rows + rng.integers(1, size, edges)) % size).astype(np.int32)
    weights = 10 ** rng.uniform(-3, 3, edges)
    dense = np.eye(size)
    for row, column, weight in zip(rows, columns, weights, strict=True):
        dense[row, row] += weight
        dense[column, column] += weight
        dense[row, column] -= weight
        dense[column, row] -= weight
    wanted = rng.normal(size=size)
    x = wanted.copy()
    fill(SPARSE, size, rows, columns, weights)
    factor_solve(SPARSE, size, 1e-14, x)
    assert np.allclose(dense @ x, wanted, rtol=1e-9, atol=1e-9)
    last = int(rng.integers(0, size))
    sparse = np.where(np.arange(size) <= last, rng.normal(size=size) * (rng.random(size) < 0.2), 0.0)
    assert np.isclose(inverse_norm(SPARSE, last, sparse.copy()), sparse @ np.linalg.solve(dense, sparse), rtol=1e-8)
