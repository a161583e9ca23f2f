"""Kernels of a single edge: output for an input, and the best trade at given prices."""

from __future__ import annotations

import math

from millrace.routing.jit import inlined
from millrace.routing.net import Floats, Net


@inlined
def edge_out(net: Net, e: int, d: float) -> float:
    """Output of edge `e` for the total input `d` (scaled units); a curve gives no more past its last knot."""
    c = net.curve[e]
    if c < 0:
        return float(net.r[e] * d / (net.a[e] + d))
    lo, hi = net.kptr[c], net.kptr[c + 1] - 1
    if d >= net.kd[hi]:
        return float(net.ky[hi])
    while hi - lo > 1:
        mid = (lo + hi) >> 1
        if net.kd[mid] <= d:
            lo = mid
        else:
            hi = mid
    length = net.kd[hi] - net.kd[lo]
    bend = (math.sqrt(net.kp[lo] / net.kp[hi]) - 1.0) / length
    t = d - net.kd[lo]
    return float(net.ky[lo] + net.kp[lo] * t / (1.0 + bend * t))


@inlined
def edge_gain(net: Net, e: int, before: float, d: float) -> float:
    """What `d` more buys from edge `e` after `before`; in closed form, without a difference of large numbers."""
    if net.curve[e] < 0:
        a = net.a[e] + before
        return float(net.r[e] * (net.a[e] / a) * d / (a + d))
    return edge_out(net, e, before + d) - edge_out(net, e, before) if before > 0.0 else edge_out(net, e, d)


@inlined
def best_of_pair(net: Net, used: Floats, k: int, d: float) -> tuple[float, int, int]:
    """The largest output for `d` among the edges of pair `k` after `used` of each, its edge, and edges looked at."""
    best, choice, looked = 0.0, -1, 0
    for e in range(net.pe0[k], net.pe1[k]):
        if d * net.rate[e] <= best:
            break
        looked += 1
        out = edge_gain(net, e, used[e], d)
        if out > best:
            best, choice = out, e
    return best, choice, looked


@inlined
def curve_trade(net: Net, c: int, p: float, result: Floats) -> None:
    """The largest trade on curve `c` whose marginal rate is still `p`.

    Writes into `result`: input, output, and `-y''` at that point (0 where the curve is linear or ends).
    Between two knots the curve is `y = p0 t / (1 + k t)`, with `k` such that both slopes are met.
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
    start = net.kp[lo]
    bend = (math.sqrt(start / net.kp[hi]) - 1.0) / (net.kd[hi] - net.kd[lo])
    u = math.sqrt(start / p)
    t = (u - 1.0) / bend
    result[0] = net.kd[lo] + t
    result[1] = net.ky[lo] + start * t / u
    result[2] = 2.0 * bend * start / (u * u * u)


@inlined
def curve_error(net: Net, c: int, d: float) -> float:
    """Bound of the relative error of curve `c` at the input `d`."""
    for k in range(net.kptr[c], net.kptr[c + 1]):
        if net.kd[k] >= d:
            return float(net.kerr[k])
    return float(net.kerr[net.kptr[c + 1] - 1])
