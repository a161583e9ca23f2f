"""A first guess of the marginal rate: how far a trade moves the prices at its two ends.

Tokens on the way are taken to be worth what they fetch, or cost, at spot rates. Then what a source's pools take at
a price is a sum of ramps in `1 / s`, what the sink's pools give one in `s`, and Newton's method on such a convex
sum, begun beyond its end, comes down on it without overshooting.
"""

from __future__ import annotations

import math

from millrace.routing.compiled import kernel
from millrace.routing.net import Floats, Net

STEPS = 12
PRECISE = 1e-3  # relative: it is only a guess
LEAST = 0.05  # no guess is below this part of the best spot rate


@kernel
def _meet(level: Floats, slope: Floats, count: int, wanted: float) -> float:
    """The `x` with `sum((slope x - level)_+) = wanted`, from above."""
    x = 1e300
    for i in range(count):
        x = min(x, (wanted + level[i]) / slope[i])
    for _ in range(STEPS):
        total, steepness, left = 0.0, 0.0, 0
        for i in range(count):
            ramp = slope[i] * x - level[i]
            if ramp > 0.0:  # if not, it is none for any smaller x
                total += ramp
                steepness += slope[i]
                slope[left], level[left] = slope[i], level[i]
                left += 1
        count = left
        if total <= wanted * (1.0 + PRECISE) or steepness <= 0.0:
            break
        x -= (total - wanted) / steepness
    return x


@kernel
def source_impact(
    net: Net, source: int, amount: float, behind: Floats, rate: float, level: Floats, slope: Floats
) -> float:
    """Marginal rate / `rate` (the best spot rate) when `amount` is sold, if nothing but the source's price moves."""
    count = 0
    for k in range(net.pptr[source], net.pptr[source + 1]):
        worth = behind[net.pdst[k]]
        if net.prate[k] * worth <= LEAST * rate:
            continue
        for e in range(net.pe0[k], net.pe1[k]):
            if net.rate[e] * worth <= LEAST * rate or count == level.size:
                break
            level[count] = net.a[e]
            slope[count] = net.ca[e] * net.cb[e] * math.sqrt(worth)
            count += 1
    if count == 0:
        return 1.0
    x = _meet(level, slope, count, amount)
    return min(max(1.0 / (x * x * rate), LEAST), 1.0)


@kernel
def sink_impact(net: Net, sink: int, wanted: float, ahead: Floats, top: float, level: Floats, slope: Floats) -> float:
    """The same at the other end, where `wanted` is bought: the part of the sink's price that remains."""
    count, held = 0, 0.0
    for k in range(net.pptr[sink], net.pptr[sink + 1]):
        cost = ahead[net.pdst[k]]
        opposite = net.popp[k]
        if cost * net.pback[k] <= LEAST * top:
            continue
        for e in range(net.pe0[opposite], net.pe1[opposite]):
            if net.rate[e] * cost <= LEAST * top or count == level.size:
                break
            # gives (r - sqrt(a r v) n)_+ at the price n^2 of the sold token's worth v, so as a ramp in 1 - n:
            slope[count] = net.ca[e] * net.cb[e] * math.sqrt(top / cost)
            level[count] = slope[count] - net.r[e]
            held += net.r[e]
            count += 1
    if count == 0 or held <= wanted:
        return LEAST
    n = min(max(1.0 - _meet(level, slope, count, wanted), math.sqrt(LEAST)), 1.0)
    return n * n
