"""Kernels that tabulate curves: points of a pool's own curve, and the segments that run through them.

A segment between two knots is `d = k1 w + k2 w^2` in `w = sqrt(p0 / p) - 1`, where `p0` is the slope at its start and
`p` the slope at `d`. It meets the slopes and the outputs of both knots; with `k2 = 0` it is the hyperbola of constant
product. The trade at a given price is then in closed form, and so is the output: `dy = p dd` gives
`y = p0 ((k1 - 2 k2) w / (1 + w) + 2 k2 log(1 + w))`.
"""

from __future__ import annotations

import math

import numpy as np

from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import segment_out
from millrace.routing.net import Floats, FloatTable, Ints

D, GROSS, SLOPE, WORTH, FEE, FEE_SLOPE = range(6)  # columns of points
COLUMNS = 6
KNOT_D, KNOT_Y, KNOT_SLOPE, KNOT_K1, KNOT_K2 = range(5)  # columns of knots

_STEPS = 100
_STEEPEST = 1.0 - 1e-9  # neighbouring slopes must fall by at least this factor
_STRAIGHT = 1e-6  # with less between its slopes (as `w`), outputs are too coarse to tell a segment from a hyperbola
_SERIES = 1e-3
_MOST_BENT = 0.98  # of the bend at which a segment would turn back
_SETTLED = 1e-15
_FLAT = 0.5  # how uneven balances are about where StableSwap begins to bend


@kernel
def stable_points(xp: Floats, i: int, j: int, d: float, ann: float, least: float, points: FloatTable) -> None:
    """Write points of StableSwap's curve, without fee and in scaled units, until the part `least` of coin j is left.

    Solves `ann sum(x) + D = ann D + P` with `P = D^(n+1) / (n^n prod(x))` for coin i by Newton's method. Were the sum
    of both coins constant, the points would lie even in the inverse hyperbolic sine of how uneven they are: close
    where the curve is flat and around its bend. The pool's worth is that of all balances at the marginal prices, in
    coin j.
    """
    n, count = xp.size, points.shape[0]
    both = xp[i] + xp[j]
    first = math.asinh(math.log(xp[i] / xp[j]) / _FLAT)
    last = math.asinh(math.log(both / (least * xp[j]) - 1.0) / _FLAT)
    others, product = 0.0, d
    for k in range(n):
        product = product * d / n
        if k not in (i, j):
            others += xp[k]
            product = product / xp[k]
    x = start = xp[i]
    for row in range(count):
        uneven = _FLAT * math.sinh(first + (last - first) * row / (count - 1))
        y = both / (1.0 + math.exp(uneven)) if row > 0 else xp[j]
        c = product / (y * ann)
        b = others + y + d / ann - d
        for _ in range(_STEPS):
            before = x
            x = (x * x + c) / (2.0 * x + b)
            if abs(x - before) <= _SETTLED * x:
                break
        if row == 0:
            start = x
        ratio = c * ann / x  # P at this point
        points[row, D] = x - start
        points[row, GROSS] = xp[j] - y
        points[row, SLOPE] = (ann + ratio / x) / (ann + ratio / y)
        points[row, WORTH] = (ann * (others + x + y) + n * ratio) / (ann + ratio / y)


@inlined
def _crypto_excess(x: float, y: float, amp: float, gamma: float) -> tuple[float, float]:
    """CryptoSwap's invariant at D = 1, as `x + y - 1 + (K0 - 1) g^2 / (amp gamma^2 K0)`, and its slope in K0."""
    k0 = 4.0 * x * y
    g = gamma + 1.0 - k0
    scale = 1.0 / (amp * gamma * gamma)
    excess = x + y - 1.0 + (1.0 - 1.0 / k0) * g * g * scale
    return excess, (g * g / (k0 * k0) - 2.0 * (1.0 - 1.0 / k0) * g) * scale


@inlined
def _most_sold(y: float, amp: float, gamma: float) -> float:
    """The balance x that goes with `y`, by bisection: at most what constant product gives."""
    low, high = y, 0.25 / y
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if _crypto_excess(middle, y, amp, gamma)[0] < 0.0:
            low = middle
        else:
            high = middle
    return high


@kernel
def crypto_points(
    x: float, y: float, amp: float, gamma: float, fees: tuple[float, float, float], least: float, points: FloatTable
) -> int:
    """Write points of CryptoSwap's curve for two coins, in units of D, from the balances `x`, `y` on; how many.

    There x rises until y is `least`.
    `amp` is A n^n, `fees` are the least and the largest fee rate and the fee's gamma. The points lie even in the
    inverse hyperbolic sine of how uneven the balances are, over the width of the pool's peg: close around it, and
    geometric far from it.
    """
    mid, out, fee_gamma = fees
    count = points.shape[0]
    width = math.sqrt(min(gamma, fee_gamma))
    at = math.asinh(math.log(x / y) / width)
    last = math.asinh(math.log(_most_sold(least, amp, gamma) / least) / width)
    reached = 0
    held = y
    for row in range(count):
        ratio = math.exp(width * math.sinh(at + (last - at) * row / (count - 1)))
        for _ in range(_STEPS):  # the balance y on the ray x = ratio y
            excess, slope = _crypto_excess(ratio * held, held, amp, gamma)
            step = excess / (1.0 + ratio + 8.0 * ratio * held * slope)
            held = max(held - step, 0.5 * held)
            if abs(step) <= _SETTLED * held:
                break
        sold = ratio * held
        if not held < 1.0:
            break
        if row > 0 and (sold <= x or held >= y):
            continue
        _, slope = _crypto_excess(sold, held, amp, gamma)
        price = (1.0 + 4.0 * held * slope) / (1.0 + 4.0 * sold * slope)
        total = sold + held
        even = 4.0 * sold * held / (total * total)
        part = fee_gamma / (fee_gamma + 1.0 - even)
        turn = 4.0 * ((held - sold * price) * total - 2.0 * sold * held * (1.0 - price)) / (total * total * total)
        points[reached, D] = sold - x if row > 0 else 0.0
        points[reached, GROSS] = y - held if row > 0 else 0.0
        points[reached, SLOPE] = price
        points[reached, WORTH] = held + price * sold
        points[reached, FEE] = out + (mid - out) * part
        points[reached, FEE_SLOPE] = (mid - out) * part * part / fee_gamma * turn
        reached += 1
    return reached


@kernel
def gain_in_pieces(points: FloatTable, stays: float, gains: Floats) -> None:
    """What a trade pays more, relative, if it is made in any number of pieces instead of one, at each point.

    A piece pays the fee rate of the state it ends in, so the least one that is still to come. Of the fees the part
    `stays` goes on to be traded against: one unit more of the bought token makes all that is in the pool worth more,
    and what later pieces get of it is the part by which the pool's worth falls meanwhile, as the curve is homogeneous
    (Euler's theorem). To first order in the fee that is the integral below; what the fees of the gain bring in turn
    is a geometric series in the fee.
    """
    largest = 0.0
    for k in range(1, points.shape[0]):
        fee, gross, worth = points[k, FEE], points[k, GROSS], points[k, WORTH]
        largest = max(largest, fee)
        least, paid = fee, 0.0
        for t in range(k - 1, -1, -1):
            before = min(least, points[t, FEE])
            near = least * (1.0 - stays + stays * worth / points[t + 1, WORTH])
            far = before * (1.0 - stays + stays * worth / points[t, WORTH])
            paid += 0.5 * (near + far) * (points[t + 1, GROSS] - points[t, GROSS])
            least = before
        if gross > 0.0:
            gains[k] = max(fee * gross - paid, 0.0) / ((1.0 - fee) * gross * (1.0 - largest))


def fit(d: Floats, y: Floats, slope: Floats) -> FloatTable:
    """Knots through points (ascending in `d`, the first is the origin): segments on their upper concave hull.

    Slopes are brought between those of the chords beside them. Returns rows of `KNOT_…`, none where there are too few.
    """
    hull = upper_hull(d, y, slope)
    knots = np.zeros((hull.size, 5))
    _fill_knots(d, y, slope, hull, knots)
    return knots


def upper_hull(d: Floats, y: Floats, slope: Floats) -> Ints:
    """The numbers of the points on the upper concave hull."""
    hull = np.empty(d.size, np.int32)
    return hull[: _find_hull(d, y, slope, hull)]


@kernel
def _find_hull(d: Floats, y: Floats, slope: Floats, hull: Ints) -> int:
    """Write the numbers of the points on the upper concave hull; returns how many."""
    count = 0
    for k in range(d.size):
        if not (math.isfinite(d[k]) and math.isfinite(y[k]) and slope[k] > 0.0):
            continue
        while count >= 2:
            a, b = hull[count - 2], hull[count - 1]
            if d[k] > d[b] and (y[b] - y[a]) * (d[k] - d[b]) * _STEEPEST > (y[k] - y[b]) * (d[b] - d[a]):
                break
            if d[k] <= d[b]:
                break
            count -= 1
        if count == 0 or (d[k] > d[hull[count - 1]] and y[k] > y[hull[count - 1]]):
            hull[count] = k
            count += 1
    return count


@kernel
def _fill_knots(d: Floats, y: Floats, slope: Floats, hull: Ints, knots: FloatTable) -> None:
    count = knots.shape[0]
    for k in range(count):
        p = slope[hull[k]]
        if k > 0:
            p = min(p, _chord(d, y, hull, k - 1), knots[k - 1, KNOT_SLOPE] * _STEEPEST)
        if k < count - 1:
            p = max(p, _chord(d, y, hull, k))
        knots[k, KNOT_D] = d[hull[k]]
        knots[k, KNOT_SLOPE] = p if k == 0 else min(p, knots[k - 1, KNOT_SLOPE] * _STEEPEST)
    for k in range(count - 1):
        length, rise = _chord_ends(d, y, hull, k)
        first = knots[k, KNOT_SLOPE]
        w = math.sqrt(first / knots[k + 1, KNOT_SLOPE]) - 1.0
        k2 = 0.0
        if w > _STRAIGHT:
            k2 = (rise / first - length / (1.0 + w)) / _bend(w)
            most = _MOST_BENT * length / (w * w)
            k2 = min(max(k2, -most), most)
        k1 = length / w - k2 * w
        knots[k, KNOT_K1], knots[k, KNOT_K2] = k1, k2
        knots[k + 1, KNOT_Y] = knots[k, KNOT_Y] + segment_out(first, k1, k2, length)


@inlined
def _bend(w: float) -> float:
    """`2 log(1 + w) - w (2 + w) / (1 + w)`, for small `w` by its series: its terms cancel."""
    if w < _SERIES:
        return -w * w * w * (1.0 / 3.0 - w * (0.5 - 0.6 * w))
    return 2.0 * math.log1p(w) - w * (2.0 + w) / (1.0 + w)


@inlined
def _chord_ends(d: Floats, y: Floats, hull: Ints, k: int) -> tuple[float, float]:
    return d[hull[k + 1]] - d[hull[k]], y[hull[k + 1]] - y[hull[k]]


@inlined
def _chord(d: Floats, y: Floats, hull: Ints, k: int) -> float:
    length, rise = _chord_ends(d, y, hull, k)
    return rise / length


@kernel
def deviations(knots: FloatTable, d: Floats, y: Floats, off: Floats) -> None:
    """How far the segments are from points of the curve, relative: write it for each point."""
    k = 0
    for point in range(d.size):
        while k < knots.shape[0] - 2 and d[point] > knots[k + 1, KNOT_D]:
            k += 1
        if y[point] > 0.0 and d[point] <= knots[k + 1, KNOT_D]:
            along = d[point] - knots[k, KNOT_D]
            out = knots[k, KNOT_Y] + segment_out(knots[k, KNOT_SLOPE], knots[k, KNOT_K1], knots[k, KNOT_K2], along)
            off[point] = abs(out / y[point] - 1.0)
