"""What could be added to a pruned route or exchanged in it, and what that is worth.

Near its minimum the dual is a quadratic: with `z_e` the square root of the profit of edge `e`, `c_e` its gradient and
`M` the inverse of the Hessian at the route's own prices, an edge more gains `z² / (1 + c' M c)`, one less loses
`z² / (1 - c' M c)`, and both at once gain `z' W^-1 z` with `W = C' M C + diag(-1, 1)` (Woodbury: the inverse of a
matrix changed by terms of rank one). For constant product that is exact as long as no other edge starts or stops to
trade; what is tried is solved again in any case.

A move adds one edge between two tokens of the route, or two over a token that is not on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from millrace.routing.edge import curve_trade
from millrace.routing.jit import inlined, kernel
from millrace.routing.linear import inverse_norm, inverse_times
from millrace.routing.net import Bools, Floats, Ints, Net
from millrace.routing.newton import factor_hessian
from millrace.routing.work import EDGES, HOLD, MAX_EDGES, MAX_TOKENS, TOKENS, Work

MOVES = 16  # listed: those with the largest profits
OFF, ON, NEAR = range(3)  # tokens: not on the route, on it, between tokens of it at a profit
BRIDGE = -1e-9  # an edge that nothing can replace loses without end


class Moves(NamedTuple):
    """The moves listed, by their number, and what has been tried. Scratch of refining a route."""

    first: Ints  # local edge that comes in
    second: Ints  # the one behind it, over a token that is not on the route, or -1
    start: Ints  # local token sold
    end: Ints  # local token bought
    z: Floats  # square root of the profit
    ca: Floats  # -dz/ds of the token sold
    cb: Floats  # dz/ds of the token bought
    s: Floats  # sqrt(price) of the token between
    reach: Floats  # (move, local token): the inverse Hessian times the gradient of z
    norm: Floats  # that, times the gradient
    refused: Bools  # by local edge: exchanging it has not helped
    summit: Bools  # by local edge: live in the best route
    summit_s: Floats  # by local token


def make_moves() -> Moves:
    """Scratch for any working set (50 kB)."""

    def f(size: int = MOVES) -> Floats:
        return np.zeros(size)

    def i() -> Ints:
        return np.zeros(MOVES, np.int32)

    def b() -> Bools:
        return np.zeros(MAX_EDGES, np.bool_)

    reach = np.zeros((MOVES, MAX_TOKENS))
    return Moves(i(), i(), i(), i(), f(), f(), f(), f(), reach, f(), b(), b(), f(MAX_TOKENS))


@inlined
def _slopes(net: Net, w: Work, e: int, sa: float, sb: float) -> tuple[float, float, float]:
    """Square root `z` of an edge's best profit at the square roots of prices, and `-dz/dsa`, `dz/dsb`; 0 without."""
    if w.e_curve[e] < 0:
        return max(w.e_cb[e] * sb - w.e_ca[e] * sa, 0.0), w.e_ca[e], w.e_cb[e]
    curve_trade(net, w.e_curve[e], sa * sa / (sb * sb), w.point)
    sold, bought = w.point[0] / w.unit[0], w.point[1] / w.unit[0]
    profit = sb * sb * bought - sa * sa * sold
    if profit <= 0.0:
        return 0.0, 0.0, 0.0
    z = math.sqrt(profit)
    return z, sold * sa / z, bought * sb / z


@kernel
def list_moves(net: Net, w: Work, m: Moves, sources: int) -> int:
    """List the moves with the largest profits at the route's prices, largest first; returns how many.

    `e_use` is the route. Prices of tokens that are not on it mean nothing: they get the ones that fit both sides.
    """
    for t in range(w.n[TOKENS]):
        w.t_mark[t] = ON if t <= sources else OFF
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            w.t_mark[w.e_a[e]] = ON
            w.t_mark[w.e_b[e]] = ON
    count = 0
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if not w.e_use[e] and w.t_mark[a] == ON and w.t_mark[b] == ON and w.e_edge[e] != HOLD:
            z, ca, cb = _slopes(net, w, e, w.t_s[a], w.t_s[b])
            count = _offer(m, count, e, -1, a, b, z, ca, cb, 0.0)
    if not _price_near(net, w):
        return count
    _choose_ways(net, w)
    for t in range(w.n[TOKENS]):
        if w.t_mark[t] == NEAR and w.t_in[t] >= 0 and w.t_out[t] >= 0:
            count = _offer_both(net, w, m, count, t)
    return count


@inlined
def _price_near(net: Net, w: Work) -> bool:
    """Find the tokens that fetch more at the route's tokens than they cost there, and price them in between."""
    fetch, cost, found = w.c_score, w.c_level, False
    for t in range(w.n[TOKENS]):
        fetch[t], cost[t] = 0.0, 1e300
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.e_edge[e] == HOLD or w.t_mark[a] == w.t_mark[b]:
            continue
        rate = net.rate[w.e_edge[e]]
        if w.t_mark[a] == OFF:
            fetch[a] = max(fetch[a], rate * w.t_s[b] * w.t_s[b])
        else:
            cost[b] = min(cost[b], w.t_s[a] * w.t_s[a] / rate)
    for t in range(w.n[TOKENS]):
        if w.t_mark[t] == OFF and fetch[t] > cost[t]:
            w.t_mark[t] = NEAR
            w.t_s[t] = math.sqrt(math.sqrt(fetch[t] * cost[t]))
            found = True
    return found


@inlined
def _choose_ways(net: Net, w: Work) -> None:
    """Find for each near token the edges that earn most from the route to it (`t_in`) and back (`t_out`)."""
    best_in, best_out = w.c_score, w.c_level
    for t in range(w.n[TOKENS]):
        best_in[t], best_out[t] = 0.0, 0.0
        w.t_in[t], w.t_out[t] = -1, -1
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.t_mark[a] == ON and w.t_mark[b] == NEAR:
            z, _, _ = _slopes(net, w, e, w.t_s[a], w.t_s[b])
            if z > best_in[b]:
                best_in[b], w.t_in[b] = z, e
        elif w.t_mark[a] == NEAR and w.t_mark[b] == ON:
            z, _, _ = _slopes(net, w, e, w.t_s[a], w.t_s[b])
            if z > best_out[a]:
                best_out[a], w.t_out[a] = z, e


@inlined
def _offer_both(net: Net, w: Work, m: Moves, count: int, t: int) -> int:
    """Offer the way in and out of a near token as one move; two constant products in a row are one."""
    e, f, s = w.t_in[t], w.t_out[t], w.t_s[t]
    a, b = w.e_a[e], w.e_b[f]
    if a == b:
        return count
    sa, sb = w.t_s[a], w.t_s[b]
    if w.e_curve[e] < 0 and w.e_curve[f] < 0:  # what the first pays is what the second takes
        s = w.e_ca[e] * w.e_cb[e] * sa + w.e_ca[f] * w.e_cb[f] * sb
        s /= w.e_cb[e] * w.e_cb[e] + w.e_ca[f] * w.e_ca[f]
    z1, ca, _ = _slopes(net, w, e, sa, s)
    z2, _, cb = _slopes(net, w, f, s, sb)
    if z1 <= 0.0 or z2 <= 0.0:
        return count
    z = math.sqrt(z1 * z1 + z2 * z2)
    return _offer(m, count, e, f, a, b, z, ca * z1 / z, cb * z2 / z, s)


@inlined
def _offer(
    m: Moves, count: int, first: int, second: int, a: int, b: int, z: float, ca: float, cb: float, s: float
) -> int:
    """Put a move from token `a` to `b` into the list if it is one of the best; returns the list's length."""
    if z <= 0.0 or (count == MOVES and z <= m.z[count - 1]):
        return count
    place = min(count, MOVES - 1)
    while place > 0 and m.z[place - 1] < z:
        old = place - 1
        m.first[place], m.second[place], m.start[place], m.end[place] = (
            m.first[old],
            m.second[old],
            m.start[old],
            m.end[old],
        )
        m.z[place], m.ca[place], m.cb[place], m.s[place] = m.z[old], m.ca[old], m.cb[old], m.s[old]
        place = old
    m.first[place], m.second[place], m.start[place], m.end[place] = first, second, a, b
    m.z[place], m.ca[place], m.cb[place], m.s[place] = z, ca, cb, s
    return min(count + 1, MOVES)


@kernel
def weigh_moves(w: Work, m: Moves, count: int) -> None:
    """Factor the Hessian at the route's prices, and write `M c` and `c' M c` of every listed move."""
    size = w.n[TOKENS]
    factor_hessian(w)
    for i in range(count):
        for t in range(size):
            w.t_step[t] = 0.0
        a, b = m.start[i], m.end[i]
        w.t_step[a] = -m.ca[i]
        w.t_step[b] = m.cb[i]
        w.t_step[0] = 0.0  # the sink's price is given
        inverse_times(w.hess, size, w.t_step)
        for t in range(size):
            m.reach[i, t] = w.t_step[t]
        m.norm[i] = m.cb[i] * w.t_step[b] - m.ca[i] * w.t_step[a]


@kernel
def best_addition(m: Moves, count: int, room: int) -> int:
    """The move that gains most of those with at most `room` pools; -1 if there is none."""
    best, choice = 0.0, -1
    for i in range(count):
        gain = m.z[i] * m.z[i] / (1.0 + m.norm[i])
        if gain > best and (m.second[i] < 0 or room >= 2):
            best, choice = gain, i
    return choice


@kernel
def best_exchange(
    net: Net, w: Work, m: Moves, sources: int, count: int, room: int, spare: int
) -> tuple[float, int, int, int]:
    """The exchange that gains most: its gain, the edge that goes, the move that comes, and another one or -1.

    `room` and `spare` are the numbers of pools and paths free besides. An edge in a row with another one leaves room
    for two.
    """
    best, out, choice, also = 0.0, -1, -1, -1
    for t in range(w.n[TOKENS]):
        w.t_in[t], w.t_out[t], w.t_step[t] = 0, 0, 0.0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            w.t_in[w.e_b[e]] += 1
            w.t_out[w.e_a[e]] += 1
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if not w.e_use[e] or m.refused[e] or w.e_edge[e] == HOLD:
            continue
        z, ca, cb = _slopes(net, w, e, w.t_s[a], w.t_s[b])
        if z <= 0.0:
            continue
        w.t_step[a] = -ca
        w.t_step[b] = cb
        w.t_step[0] = 0.0
        p = min(inverse_norm(w.hess, max(a, b), w.t_step) - 1.0, BRIDGE)
        row = (a > sources and w.t_in[a] == 1 and w.t_out[a] == 1) or (
            b > sources and w.t_in[b] == 1 and w.t_out[b] == 1
        )
        freed = room + (2 if row else 1)
        gain, i = _best_instead(m, count, freed, a, b, z, ca, cb, p)
        j = -1
        if i >= 0 and freed >= 2 and spare > 0 and m.second[i] < 0:
            more, j = _best_besides(m, count, i, a, b, z, ca, cb, p)
            gain += more
        if gain > best:
            best, out, choice, also = gain, e, i, j
    return best, out, choice, also


@inlined
def _best_instead(
    m: Moves, count: int, room: int, a: int, b: int, z: float, ca: float, cb: float, p: float
) -> tuple[float, int]:
    """The best move of at most `room` pools instead of the edge a -> b with these slopes: its gain, and the move."""
    best, choice = -1e300, -1
    for i in range(count):
        if m.second[i] >= 0 and room < 2:
            continue
        q, r = cb * m.reach[i, b] - ca * m.reach[i, a], 1.0 + m.norm[i]
        gain = (r * z * z - 2.0 * q * z * m.z[i] + p * m.z[i] * m.z[i]) / (p * r - q * q)
        if gain > best:
            best, choice = gain, i
    return best, choice


@inlined
def _best_besides(
    m: Moves, count: int, i: int, a: int, b: int, z: float, ca: float, cb: float, p: float
) -> tuple[float, int]:
    """The best single edge besides move `i` instead of the edge a -> b: what it gains more, and the move."""
    best, choice = 0.0, -1
    q, r = cb * m.reach[i, b] - ca * m.reach[i, a], 1.0 + m.norm[i]
    determinant = p * r - q * q
    for j in range(count):
        if j == i or m.second[j] >= 0:
            continue
        u = cb * m.reach[j, b] - ca * m.reach[j, a]  # how far the third depends on the other two
        v = m.cb[i] * m.reach[j, m.end[i]] - m.ca[i] * m.reach[j, m.start[i]]
        x, y = (r * u - q * v) / determinant, (p * v - q * u) / determinant
        left = m.z[j] - x * z - y * m.z[i]
        gain = left * left / max(1.0 + m.norm[j] - x * u - y * v, 1e-9)
        if left > 0.0 and gain > best:
            best, choice = gain, j
    return best, choice


@inlined
def make_move(w: Work, m: Moves, i: int) -> None:
    """Let the edges of a listed move trade."""
    w.e_alive[m.first[i]] = True
    if m.second[i] >= 0:
        w.e_alive[m.second[i]] = True
        w.t_s[w.e_b[m.first[i]]] = m.s[i]
