"""Tables of pools that are not constant product: knots `(input, output, slope)` of a concave curve.

Between knots the kernels use the one hyperbola that meets both slopes (`edge.py`), so a few dozen knots
describe a pool well enough to search with; what is promised is computed by the pool itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import PoolError
from millrace.dex.stable import StablePool
from millrace.dex.stableswap import UNIT
from millrace.routing.jit import allocating
from millrace.routing.net import Floats, Knots

# What is left of the bought token's reserve at each knot: evenly down to 4 %, then geometrically.
_LEFT = np.concatenate([np.linspace(1.0, 0.04, 97), np.geomspace(0.04, 1e-5, 40)[1:]])
# Inputs at which a pool without closed form is asked, as parts of its reserve of the sold token.
_PARTS = np.concatenate([np.geomspace(1e-4, 1e-2, 9), np.geomspace(0.012, 20.0, 52)])
_STEEPEST = 1.0 - 1e-9  # neighbouring slopes must fall by at least this factor


class NoCurve(Exception):
    """The pool's curve cannot be tabulated; it is left out of the search."""


@allocating
def _stable_table(xp: Floats, i: int, j: int, d: float, ann: float, left: Floats) -> Floats:
    """Rows (x_i added, y_j taken, slope) in scaled units, for each part of coin j's balance left.

    Solves `ann sum(x) + D = ann D + P` with `P = D^(n+1) / (n^n prod(x))` for coin i by Newton's method.
    """
    n = xp.size
    rows = np.empty((left.size, 3))
    others, product = 0.0, d
    for k in range(n):
        product = product * d / n
        if k not in (i, j):
            others += xp[k]
            product = product / xp[k]
    x = xp[i]
    for row in range(left.size):
        y = xp[j] * left[row]
        c = product / (y * ann)
        b = others + y + d / ann - d
        for _ in range(100):
            before = x
            x = (x * x + c) / (2.0 * x + b)
            if abs(x - before) <= 1e-15 * x:
                break
        ratio = c * ann / x  # P at this point
        rows[row, 0] = x
        rows[row, 1] = xp[j] - y
        rows[row, 2] = (ann + ratio / x) / (ann + ratio / y)
    start = rows[0, 0]
    for row in range(left.size):
        rows[row, 0] -= start
    return rows


def stable_knots(pool: StablePool, i: int, j: int) -> Knots:
    """The curve of a stable pool from token `i` to token `j`, in raw units."""
    maths = pool.maths()
    scaled = maths.xp(pool.reserves)
    try:
        invariant = maths.invariant(scaled)
    except PoolError as error:
        raise NoCurve(str(error)) from error
    xp = np.array([float(x) for x in scaled])
    rows = _stable_table(xp, i, j, float(invariant), float(maths.amp * len(xp)), _LEFT)
    into, out = maths.rates[i] / UNIT, maths.rates[j] / UNIT
    fee = maths.fee / maths.fee_base
    knots = _checked(rows[:, 0] / into, rows[:, 1] * (1.0 - fee) / out, rows[:, 2] * (1.0 - fee) * into / out)
    leaving, whole = maths.admin
    return _bounded(knots, pool.reserves[j], fee * (1.0 - leaving / whole))


def sampled_knots(inputs: Sequence[int], outputs: Sequence[int]) -> Knots:
    """Knots through exact samples (ascending, without the origin). Raises `NoCurve` if they are too few.

    Takes the upper concave hull; the slope at a knot is the mean of the chords beside it (of their
    logarithms, by the lengths).
    """
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for x, y in zip(inputs, outputs, strict=True):
        point = (float(x), float(y))
        while len(hull) >= 2 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point) * (1.0 + 1e-9):
            hull.pop()
        if point[0] > hull[-1][0] and point[1] > hull[-1][1]:
            hull.append(point)
    if len(hull) < 4:
        raise NoCurve("too few samples")
    d, y = np.array(hull).T
    lengths = np.diff(d)
    chords = np.log(np.diff(y) / lengths)
    slopes = np.empty(len(d))
    slopes[1:-1] = (lengths[1:] * chords[:-1] + lengths[:-1] * chords[1:]) / (lengths[1:] + lengths[:-1])
    slopes[0] = 2.0 * chords[0] - slopes[1]
    slopes[-1] = 2.0 * chords[-1] - slopes[-2]
    return _checked(d, y, np.exp(slopes))


def crypto_knots(pool: AshCryptoPool, i: int, j: int) -> Knots:
    """The curve of a crypto pool from token `i` to token `j`, sampled with the pool's own integers."""
    inputs, outputs = [], []
    for part in _PARTS:
        amount = int(pool.reserves[i] * part)
        try:
            outputs.append(pool.amount_out(i, j, amount))
        except PoolError:
            if outputs:
                break
            continue
        inputs.append(amount)
    knots = sampled_knots(inputs, outputs)
    fees = np.array([pool.fee_part(i, j, int(d)) for d in knots.d[1:]])
    fees = np.append(fees[:1], fees)
    return _bounded(knots, pool.reserves[j], fees, fees - np.minimum.accumulate(fees))


def _bounded(knots: Knots, reserve: int, kept: float | Floats, saved: float | Floats = 0.0) -> Knots:
    """The knots, with what else a trade could pay counted as an error: past the last knot, and in many pieces.

    Past it there is what is left of the `reserve`. Of the part `kept` of the output, which stays in the pool, later
    pieces get back at most as much as the price has fallen in between: `1 - p(x) / p(t)` of what came out at `t`, over
    the whole trade `1 - p(x) x / y`. `saved` is what they save where the fee grows with the trade.
    """
    fallen = np.zeros(len(knots.d))
    fallen[1:] = 1.0 - knots.slope[1:] * knots.d[1:] / knots.y[1:]
    more = (kept * (1.0 + kept) * fallen + saved) / (1.0 - kept)
    more[-1] += max(reserve / knots.y[-1] - 1.0, 0.0)
    return knots._replace(error=knots.error + np.maximum.accumulate(more))


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else float("inf")


def _checked(d: Floats, y: Floats, slope: Floats) -> Knots:
    """Knots with finite values and falling slopes; outputs made consistent with the hyperbolas."""
    keep = [0]
    for k in range(1, len(d)):
        good = np.isfinite(d[k]) and np.isfinite(slope[k]) and slope[k] > 0.0
        if good and d[k] > d[keep[-1]] and slope[k] < slope[keep[-1]] * _STEEPEST:
            keep.append(k)
    if len(keep) < 3 or not slope[0] > 0.0:
        raise NoCurve("the curve is flat or not concave")
    d, slope = d[keep], slope[keep]
    consistent = np.concatenate([[0.0], np.cumsum(np.diff(d) * np.sqrt(slope[:-1] * slope[1:]))])
    error = np.concatenate([[0.0], np.abs(consistent[1:] / y[keep[1:]] - 1.0)])
    return Knots(d, consistent, slope, 2.0 * np.maximum.accumulate(error))
