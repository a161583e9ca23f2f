"""Tables of pools that are not constant product: knots of a concave curve, and segments between them (`segments.py`).

A few dozen knots describe a pool to some 10^-7; what is promised is computed by the pool itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.dex.crypto import AshCryptoPool
from millrace.dex.cryptoswap import A_MULTIPLIER
from millrace.dex.pool import PoolError
from millrace.dex.rate import BOUGHT, RatePool
from millrace.dex.stable import StablePool
from millrace.dex.stableswap import UNIT
from millrace.routing.net import Floats, Knots
from millrace.routing.segments import (
    COLUMNS,
    FEE,
    FEE_SLOPE,
    GROSS,
    KNOT_D,
    KNOT_SLOPE,
    KNOT_Y,
    SLOPE,
    D,
    crypto_points,
    deviations,
    fit,
    gain_in_pieces,
    stable_points,
    upper_hull,
)

_POINTS = 193  # every second one is a knot, those between show how far the segments are from the curve
_STABLE_LEAST = 1e-5  # of the bought token's reserve
_CRYPTO_LEAST = 0.01  # of D: the contract refuses trades that leave less
_SURE = 2.0  # times what was seen between knots is what an error is taken to be at most


_STRAIGHT = 1e9  # times what a pool at a rate can pay; by a part in so many its curve is off there
_SPARED = 1.0 - 1e-5  # of what it can pay: plans are off by parts per million, and one unit too many is refused
_BARELY = 1e-12


class NoCurve(Exception):
    """The pool's curve cannot be tabulated; it is left out of the search."""


def stable_knots(pool: StablePool, i: int, j: int) -> Knots:
    """The curve of a stable pool from token `i` to token `j`, in raw units."""
    maths = pool.maths()
    scaled = maths.xp(pool.reserves)
    try:
        invariant = maths.invariant(scaled)
    except PoolError as error:
        raise NoCurve(str(error)) from error
    xp = np.array([float(x) for x in scaled])
    points = np.zeros((_POINTS, COLUMNS))
    stable_points(xp, i, j, float(invariant), float(maths.amp * len(xp)), _STABLE_LEAST, points)
    fee = maths.fee / maths.fee_base
    points[:, FEE] = fee
    leaving, whole = maths.admin
    knots = _through(points, maths.rates[i] / UNIT, maths.rates[j] / UNIT, 1.0 - leaving / whole)
    knots.error[-1] += max((1.0 - fee) * pool.reserves[j] / knots.y[-1] - 1.0, 0.0)  # what the last knot leaves
    return knots


def crypto_knots(pool: AshCryptoPool, i: int, j: int) -> Knots:
    """The curve of a crypto pool from token `i` to token `j`, in raw units."""
    try:
        invariant = pool.current_d()
    except PoolError as error:
        raise NoCurve(str(error)) from error
    scaled = pool.scaled(pool.reserves)
    if min(invariant, *scaled) <= 0:
        raise NoCurve("the pool is empty")
    x, y = scaled[i] / invariant, scaled[j] / invariant
    rates = [invariant * reserve / balance for reserve, balance in zip(pool.reserves, scaled, strict=True)]
    base = pool.fee_base
    fees = pool.mid_fee / base, pool.out_fee / base, pool.fee_gamma / UNIT
    amp, gamma = pool.ann / A_MULTIPLIER, pool.gamma / UNIT
    points = np.zeros((_POINTS, COLUMNS))
    count = crypto_points(x, y, amp, gamma, fees, _CRYPTO_LEAST, points)
    return _through(points[:count], 1.0 / rates[i], 1.0 / rates[j], 1.0)


def rate_knots(pool: RatePool) -> Knots:
    """The line of a pool at a rate up to what it can pay, as the beginning of a hyperbola that is next to straight."""
    most = float(pool.reserves[BOUGHT] - 1) * _SPARED
    if most <= 0.0:
        raise NoCurve(f"pool {pool.id} has nothing to pay out")
    rate = pool.rate[0] / pool.rate[1]
    depth = most / rate
    bent = 1.0 + 1.0 / _STRAIGHT
    ends = np.array([0.0, depth]), np.array([0.0, most / bent]), np.array([rate, rate / (bent * bent)])
    segment = np.full(2, depth * _STRAIGHT), np.zeros(2)
    # Both the bend, and what it can pay past the end.
    return Knots(*ends, *segment, np.array([0.0, bent / _SPARED - 1.0 + _BARELY]), np.zeros(2))


def _through(points: Floats, into: float, out: float, stays: float) -> Knots:
    """The knots through every second point, with fees; `into` and `out` are scaled units per raw unit."""
    kept = 1.0 - points[:, FEE]
    d, y = points[:, D] / into, points[:, GROSS] * kept / out
    slope = (points[:, SLOPE] * kept - points[:, GROSS] * points[:, FEE_SLOPE]) * into / out
    table = fit(d[::2].copy(), y[::2].copy(), slope[::2].copy())
    if len(table) < 3:
        raise NoCurve("the curve is flat or not concave")
    off, gains = np.zeros((2, d.size))
    deviations(table, d, y, off)
    gain_in_pieces(points, stays, gains)
    error, pieces = _SURE * _before_knots(table, d, off), _before_knots(table, d, gains)
    pieces[-1] = max(pieces[-1], 1.0 / kept[-1] - 1.0)  # past the end: no more than what the fee kept back
    return _knots(table, error, pieces)


def _before_knots(table: Floats, d: Floats, values: Floats) -> Floats:
    """The largest of the `values` of the points from the knot before to each knot, both included."""
    at = np.searchsorted(d, table[:, KNOT_D])
    return np.concatenate(([0.0], np.maximum(np.maximum.reduceat(values, at)[:-1], values[at[1:]])))


def _knots(table: Floats, error: Floats, pieces: Floats) -> Knots:
    d, y, slope, k1, k2 = np.ascontiguousarray(table.T)
    return Knots(d, y, slope, k1, k2, error, pieces)


def sampled_knots(inputs: Sequence[int], outputs: Sequence[int]) -> Knots:
    """Knots through exact samples (ascending, without the origin). Raises `NoCurve` if they are too few.

    Takes the upper concave hull; the slope at a knot is the mean of the chords beside it (of their
    logarithms, by the lengths).
    """
    d, out = np.array([0.0, *map(float, inputs)]), np.array([0.0, *map(float, outputs)])
    hull = upper_hull(d, out, np.ones(d.size))
    if len(hull) < 4:
        raise NoCurve("too few samples")
    d, out = d[hull], out[hull]
    lengths = np.diff(d)
    chords = np.log(np.diff(out) / lengths)
    slopes = np.empty(len(d))
    slopes[1:-1] = (lengths[1:] * chords[:-1] + lengths[:-1] * chords[1:]) / (lengths[1:] + lengths[:-1])
    slopes[0] = 2.0 * chords[0] - slopes[1]
    slopes[-1] = 2.0 * chords[-1] - slopes[-2]
    table = fit(d, out, np.exp(slopes))
    if len(table) < 3:
        raise NoCurve("the samples are flat or not concave")
    plain = np.cumsum(np.diff(table[:, KNOT_D]) * np.sqrt(table[:-1, KNOT_SLOPE] * table[1:, KNOT_SLOPE]))
    error = np.zeros(len(table))  # nothing lies between the samples: what another curve through the slopes would give
    error[1:] = _SURE * np.maximum.accumulate(np.abs(plain / table[1:, KNOT_Y] - 1.0))
    return _knots(table, error, np.zeros(len(table)))
