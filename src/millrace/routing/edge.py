"""Kernels of a single edge: output for an input, and the best trade at given prices."""

from __future__ import annotations

import math

from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, Net


@inlined
def segment_out(slope: float, k1: float, k2: float, d: float) -> float:
    """Output of `d` on a segment of a curve that begins with `slope` (see `segments.py`)."""
    w = 2.0 * d / (k1 + math.sqrt(max(k1 * k1 + 4.0 * k2 * d, 0.0)))
    return float(slope * ((k1 - 2.0 * k2) * w / (1.0 + w) + 2.0 * k2 * math.log1p(w)))


@inlined
def _knot_before(net: Net, c: int, d: float) -> tuple[int, bool]:
    """The last knot of curve `c` that is not past the input `d`, and whether the curve ends there."""
    lo, hi = net.kptr[c], net.kptr[c + 1] - 1
    if d >= net.kd[hi]:
        return hi, True
    while hi - lo > 1:
        mid = (lo + hi) >> 1
        if net.kd[mid] <= d:
            lo = mid
        else:
            hi = mid
    return lo, False


@kernel
def edge_out(net: Net, e: int, d: float) -> float:
    """Output of edge `e` for the total input `d` (scaled units); a curve gives no more past its last knot."""
    if net.curve[e] < 0:
        return float(net.r[e] * d / (net.a[e] + d))
    k, ends = _knot_before(net, net.curve[e], d)
    if ends:
        return float(net.ky[k])
    return float(net.ky[k] + segment_out(net.kp[k], net.k1[k], net.k2[k], d - net.kd[k]))


@kernel
def edge_slope(net: Net, e: int, d: float) -> tuple[float, float]:
    """Marginal rate of edge `e` after the total input `d`, and the part of it that goes with the next unit of input."""
    if net.curve[e] < 0:
        a = net.a[e] + d
        return float(net.r[e] * net.a[e] / (a * a)), float(2.0 / a)
    k, ends = _knot_before(net, net.curve[e], d)
    if ends:
        return 0.0, float(2.0 / d)
    k1, k2, more = net.k1[k], net.k2[k], d - net.kd[k]
    w = 2.0 * more / (k1 + math.sqrt(max(k1 * k1 + 4.0 * k2 * more, 0.0)))
    return float(net.kp[k] / ((1.0 + w) * (1.0 + w))), float(2.0 / ((1.0 + w) * (k1 + 2.0 * k2 * w)))


@kernel
def edge_gain(net: Net, e: int, before: float, d: float) -> float:
    """What `d` more buys from edge `e` after `before`; in closed form, without a difference of large numbers."""
    if net.curve[e] < 0:
        a = net.a[e] + before
        return float(net.r[e] * (net.a[e] / a) * d / (a + d))
    return edge_out(net, e, before + d) - edge_out(net, e, before) if before > 0.0 else edge_out(net, e, d)


@inlined
def curve_trade(net: Net, c: int, p: float, result: Floats) -> None:
    """The largest trade on curve `c` whose marginal rate is still `p`.

    Writes into `result`: input, output, and `-y''` at that point (0 where the curve ends).
    """
    lo, hi = net.kptr[c], net.kptr[c + 1] - 1
    result[2] = 0.0
    if p >= net.kp[lo]:
        result[0] = 0.0
        result[1] = 0.0
        return
    if p <= net.kp[hi]:
        result[0] = net.kd[hi]
        result[1] = net.ky[hi]
        return
    while hi - lo > 1:
        mid = (lo + hi) >> 1
        if net.kp[mid] > p:
            lo = mid
        else:
            hi = mid
    start, k1, k2 = net.kp[lo], net.k1[lo], net.k2[lo]
    w = math.sqrt(start / p) - 1.0
    u = 1.0 + w
    result[0] = net.kd[lo] + w * (k1 + k2 * w)
    result[1] = net.ky[lo] + start * ((k1 - 2.0 * k2) * w / u + 2.0 * k2 * math.log1p(w))
    result[2] = 2.0 * start / (u * u * u * (k1 + 2.0 * k2 * w))


@inlined
def best_profit(net: Net, e: int, sa: float, sb: float, point: Floats) -> float:
    """The most that one trade on an edge earns at the square roots of prices; of a curve the trade is in `point`."""
    if net.curve[e] < 0:
        z = max(net.cb[e] * sb - net.ca[e] * sa, 0.0)
        return float(z * z)
    curve_trade(net, net.curve[e], sa * sa / (sb * sb), point)
    return float(sb * sb * point[1] - sa * sa * point[0])


@inlined
def knot_at(net: Net, c: int, d: float) -> int:
    """The first knot of curve `c` that is not before the input `d`; the last one past the end."""
    k, ends = _knot_before(net, c, d)
    return int(k if ends or net.kd[k] >= d else k + 1)
