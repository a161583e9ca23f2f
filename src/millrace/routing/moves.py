"""What could be added to a pruned route or exchanged in it, and what that is worth.

Near its minimum the dual is a quadratic: with `z_e` the square root of the profit of edge `e`, `c_e` its gradient and
`M` the inverse of the Hessian at the route's own prices, an edge more gains `z² / (1 + c' M c)`, one less loses
`z² / (1 - c' M c)`, and both at once gain `z' W^-1 z` with `W = C' M C + diag(-1, 1)` (Woodbury: the inverse of a
matrix changed by terms of rank one). For constant product that is exact as long as no other edge starts or stops to
trade; what is tried is solved again in any case.

A move adds one edge between two tokens of the route, or two or three in a row over tokens that are not on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import curve_trade
from millrace.routing.linear import inverse_norm, inverse_times
from millrace.routing.net import Bools, Floats, FloatTable, Ints, IntTable, Net
from millrace.routing.newton import factor_hessian
from millrace.routing.rows import count_trades, in_a_row, passes, price_between
from millrace.routing.scratch import sized
from millrace.routing.shares import Room, fee_of, share_of
from millrace.routing.work import EDGES, HOLD, MAX_EDGES, MAX_HOPS, MAX_TOKENS, TOKENS, Work

MOVES = 16  # listed: those with the largest profits
LONGEST = 3  # edges of a move
OFF, ON, NEAR = range(3)  # tokens: not on the route, on it, between tokens of it at a profit
BRIDGE = -1e-9  # an edge that nothing can replace loses without end


class Moves(NamedTuple):
    """The moves listed, by their number, and what has been tried. Scratch of refining a route (50 kB)."""

    edge: IntTable = sized(MOVES, LONGEST)  # (move, place): local edges that come in, one behind the other
    size: Ints = sized(MOVES)  # how many
    share: Floats = sized(MOVES)  # of the transaction
    fee: Floats = sized(MOVES)
    start: Ints = sized(MOVES)  # local token sold
    end: Ints = sized(MOVES)  # local token bought
    z: Floats = sized(MOVES)  # square root of the profit
    ca: Floats = sized(MOVES)  # -dz/ds of the token sold
    cb: Floats = sized(MOVES)  # dz/ds of the token bought
    s: FloatTable = sized(MOVES, LONGEST)  # (move, place): sqrt(price) of the token behind it, off the route
    reach: FloatTable = sized(MOVES, MAX_TOKENS)  # (move, local token): the inverse Hessian times the gradient of z
    norm: Floats = sized(MOVES)  # that, times the gradient
    between: FloatTable = sized(MOVES, MOVES)  # (move, move): that of one, times the gradient of the other
    meets: Floats = sized(MOVES)  # the same with the edge that may go
    refused: Bools = sized(MAX_EDGES)  # by local edge: exchanging it has not helped
    summit: Bools = sized(MAX_EDGES)  # by local edge: live in the best route
    summit_s: Floats = sized(MAX_TOKENS)  # by local token
    hops: Ints = sized(1, fill=MAX_HOPS)  # [0]: most pools on a way
    ahead: Ints = sized(MAX_TOKENS)  # by local token of the route: most pools on the ways to it
    behind: Ints = sized(MAX_TOKENS)  # the same on from it
    noted: Bools = sized(1)  # [0]: whether they are known; if not, they are 0
    row: Ints = sized(MAX_EDGES)  # by local edge of the route: the first edge of its row
    place: Ints = sized(MAX_EDGES)  # by local edge of the route: its place in the row, from 0
    length: Ints = sized(MAX_EDGES)  # by first edge: edges of the row
    before: Floats = sized(MAX_EDGES)  # by local edge of the route: share of those before it in the row
    whole: Floats = sized(MAX_EDGES)  # by first edge: share of the row
    owed_before: Floats = sized(MAX_EDGES)  # by local edge of the route: fee of those before it in the row
    owed: Floats = sized(MAX_EDGES)  # by first edge: fee of the row


@inlined
def _slopes(net: Net, w: Work, e: int, sa: float, sb: float) -> tuple[float, float, float]:
    """Square root `z` of an edge's best profit at the square roots of prices, and `-dz/dsa`, `dz/dsb`; 0 without.

    `z` is their sum `cb sb - ca sa` (Euler: it is homogeneous), so any edge is like a constant product near its trade.
    """
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

    `e_use` is the route. Prices of tokens that are not on it mean nothing: they get ones that fit both sides.
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
            count, place = _place(m, count, z, 1, a, b)
            if place >= 0:
                _write(m, place, 1, a, b, z, ca, cb)
                m.edge[place, 0] = e
    if not _price_near(net, w):
        return count
    _choose_ways(net, w)
    for t in range(w.n[TOKENS]):
        if w.t_mark[t] == NEAR and w.t_in[t] >= 0 and w.t_out[t] >= 0:
            count = _offer_two(net, w, m, count, w.t_in[t], w.t_out[t])
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.t_mark[a] == NEAR and w.t_mark[b] == NEAR and w.t_in[a] >= 0 and w.t_out[b] >= 0:
            count = _offer_three(net, w, m, count, w.t_in[a], e, w.t_out[b])
    return count


@inlined
def _price_near(net: Net, w: Work) -> bool:
    """Find the tokens that fetch more at the route's tokens than they cost there, and price them in between.

    Those that do so over one other token that is not on the route count, too.
    """
    fetch, cost, found = w.c_score, w.c_level, False
    for t in range(w.n[TOKENS]):
        fetch[t], cost[t], w.t_old[t], w.t_grad[t] = 0.0, 1e300, 0.0, 1e300
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.e_edge[e] == HOLD or w.t_mark[a] == w.t_mark[b]:
            continue
        rate = net.rate[w.e_edge[e]]
        if w.t_mark[a] == OFF:
            fetch[a] = max(fetch[a], rate * w.t_s[b] * w.t_s[b])
        else:
            cost[b] = min(cost[b], w.t_s[a] * w.t_s[a] / rate)
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.t_mark[a] == OFF and w.t_mark[b] == OFF:
            rate = net.rate[w.e_edge[e]]
            w.t_old[a] = max(w.t_old[a], rate * fetch[b])
            w.t_grad[b] = min(w.t_grad[b], cost[a] / rate)
    for t in range(w.n[TOKENS]):
        most, least = fetch[t], cost[t]
        if most <= least:
            most, least = max(most, w.t_old[t]), min(least, w.t_grad[t])
        if w.t_mark[t] == OFF and most > least:
            w.t_mark[t] = NEAR
            w.t_s[t] = math.sqrt(math.sqrt(most * least))
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
def _offer_two(net: Net, w: Work, m: Moves, count: int, e: int, f: int) -> int:
    """Offer the way in and out of a near token as one move."""
    a, t, b = w.e_a[e], w.e_b[e], w.e_b[f]
    z1, ca1, cb1 = _slopes(net, w, e, w.t_s[a], w.t_s[t])
    z2, ca2, cb2 = _slopes(net, w, f, w.t_s[t], w.t_s[b])
    if a == b or z1 <= 0.0 or z2 <= 0.0:
        return count
    ca, cb = in_a_row((ca1, cb1), (ca2, cb2))
    z = cb * w.t_s[b] - ca * w.t_s[a]
    count, place = _place(m, count, z, 2, a, b)
    if place >= 0:
        _write(m, place, 2, a, b, z, ca, cb)
        m.edge[place, 0], m.edge[place, 1] = e, f
        m.s[place, 0] = price_between((ca1, cb1), (ca2, cb2), w.t_s[a], w.t_s[b])
    return count


@inlined
def _offer_three(net: Net, w: Work, m: Moves, count: int, e: int, f: int, g: int) -> int:
    """Offer an edge between two near tokens, with the way into the first and out of the second one, as one move."""
    a, t, u, b = w.e_a[e], w.e_b[e], w.e_a[g], w.e_b[g]
    _, ca1, cb1 = _slopes(net, w, e, w.t_s[a], w.t_s[t])
    _, ca2, cb2 = _slopes(net, w, f, w.t_s[t], w.t_s[u])
    _, ca3, cb3 = _slopes(net, w, g, w.t_s[u], w.t_s[b])
    if a == b or cb1 <= 0.0 or cb2 <= 0.0 or cb3 <= 0.0:
        return count
    two = in_a_row((ca1, cb1), (ca2, cb2))
    ca, cb = in_a_row(two, (ca3, cb3))
    z = cb * w.t_s[b] - ca * w.t_s[a]
    count, place = _place(m, count, z, 3, a, b)
    if place >= 0:
        _write(m, place, 3, a, b, z, ca, cb)
        m.edge[place, 0], m.edge[place, 1], m.edge[place, 2] = e, f, g
        m.s[place, 1] = price_between(two, (ca3, cb3), w.t_s[a], w.t_s[b])
        m.s[place, 0] = price_between((ca1, cb1), (ca2, cb2), w.t_s[a], m.s[place, 1])
    return count


@inlined
def _place(m: Moves, count: int, z: float, size: int, a: int, b: int) -> tuple[int, int]:
    """Make room in the list for a move with that profit: the list's length, and its place or -1.

    There is none for moves that would make a way too long.
    """
    if z <= 0.0 or (count == MOVES and z <= m.z[count - 1]) or m.ahead[a] + size + m.behind[b] > m.hops[0]:
        return count, -1
    place = min(count, MOVES - 1)
    while place > 0 and m.z[place - 1] < z:
        old = place - 1
        for h in range(LONGEST):
            m.edge[place, h], m.s[place, h] = m.edge[old, h], m.s[old, h]
        _write(m, place, m.size[old], m.start[old], m.end[old], m.z[old], m.ca[old], m.cb[old])
        place = old
    return min(count + 1, MOVES), place


@inlined
def _write(m: Moves, i: int, size: int, a: int, b: int, z: float, ca: float, cb: float) -> None:
    m.size[i], m.start[i], m.end[i], m.z[i], m.ca[i], m.cb[i] = size, a, b, z, ca, cb


@kernel
def weigh_moves(w: Work, m: Moves, room: Room, count: int) -> None:
    """Factor the Hessian at the route's prices, and write `M c`, all `c' M c`, share and fee of every listed move."""
    size = w.n[TOKENS]
    factor_hessian(w)
    for i in range(count):
        m.share[i], m.fee[i] = 0.0, 0.0
        for h in range(m.size[i]):
            m.share[i] += share_of(w, room, m.edge[i, h])
            m.fee[i] += fee_of(w, room, m.edge[i, h])
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
    for i in range(count):
        for j in range(count):
            m.between[i, j] = m.cb[i] * m.reach[j, m.end[i]] - m.ca[i] * m.reach[j, m.start[i]]


@kernel
def best_addition(m: Moves, count: int, left: float) -> int:
    """The move that gains most beyond its fee of those that take at most the share `left`; -1 if there is none."""
    best, choice = 0.0, -1
    for i in range(count):
        gain = m.z[i] * m.z[i] / (1.0 + m.norm[i]) - m.fee[i]
        if gain > best and m.share[i] <= left:
            best, choice = gain, i
    return choice


@inlined
def _find_rows(w: Work, m: Moves, room: Room, sources: int) -> None:
    """Find the edges that trade one behind the other and nothing else: who takes one takes all.

    Of a token between them `t_list` is the first edge of the row, of others it is -1.
    """
    count_trades(w)
    for t in range(w.n[TOKENS]):
        w.t_list[t] = -1
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            m.row[e], m.place[e], m.length[e] = e, 0, 1
            m.before[e], m.whole[e] = 0.0, share_of(w, room, e)
            m.owed_before[e], m.owed[e] = 0.0, fee_of(w, room, e)
    for e in range(w.n[EDGES]):
        if not w.e_use[e] or passes(w, w.e_a[e], sources):
            continue
        last = e
        while passes(w, w.e_b[last], sources):
            w.t_list[w.e_b[last]] = e
            last = w.t_queue[w.e_b[last]]
            m.row[last], m.place[last], m.before[last] = e, m.length[e], m.whole[e]
            m.owed_before[last] = m.owed[e]
            m.length[e] += 1
            m.whole[e] += share_of(w, room, last)
            m.owed[e] += fee_of(w, room, last)


@inlined
def _freed(w: Work, m: Moves, e: int, i: int) -> tuple[float, float]:
    """The share and the fee that go with an edge if move `i` comes: its row's, from and to where the move meets it."""
    row = m.row[e]
    first, last, owed_first, owed_last = 0.0, m.whole[row], 0.0, m.owed[row]
    if w.t_list[m.start[i]] == row:
        begins = w.t_queue[m.start[i]]
        if m.place[begins] <= m.place[e]:
            first, owed_first = m.before[begins], m.owed_before[begins]
    if w.t_list[m.end[i]] == row:
        ends = w.t_queue[m.end[i]]
        if m.place[ends] > m.place[e]:
            last, owed_last = m.before[ends], m.owed_before[ends]
    return last - first, owed_last - owed_first


@kernel
def best_exchange(
    net: Net, w: Work, m: Moves, sources: int, room: Room, count: int, free: float, spare: int
) -> tuple[float, int, int, int]:
    """The exchange that gains most: its gain, the edge that goes (-1: none), the moves that come for it, or -1.

    `free` is the share of the transaction and `spare` the number of paths free besides. With an edge goes its row.
    Where fees count, gains are those beyond the fee, and an edge may go for nothing but its fee.
    """
    best, out, choice, also = 0.0, -1, -1, -1
    _find_rows(w, m, room, sources)
    w.t_step[:] = 0.0
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
        p, row = min(inverse_norm(w.hess, max(a, b), w.t_step) - 1.0, BRIDGE), m.row[e]
        if e == row and m.owed[row] + z * z / p > best:
            best, out, choice, also = m.owed[row] + z * z / p, e, -1, -1
        for i in range(count):
            m.meets[i] = cb * m.reach[i, b] - ca * m.reach[i, a]
        for i in range(count):
            if e != row and w.t_list[m.start[i]] != row and w.t_list[m.end[i]] != row:
                continue  # the same as with the first edge of the row
            freed, saved = _freed(w, m, e, i)
            left = free + freed - m.share[i]
            if left < 0.0:
                continue
            q, r = m.meets[i], 1.0 + m.norm[i]
            gain, j = (r * z * z - 2.0 * q * z * m.z[i] + p * m.z[i] * m.z[i]) / (p * r - q * q), -1
            gain += saved - m.fee[i]
            if spare > 0:
                more, j = _best_besides(m, count, left, i, z, p)
                gain += more
            if gain > best:
                best, out, choice, also = gain, e, i, j
    return best, out, choice, also


@inlined
def _best_besides(m: Moves, count: int, left: float, i: int, z: float, p: float) -> tuple[float, int]:
    """The best move of at most `left` besides move `i` instead of an edge: what it adds, and the move.

    `meets` is that of the edge; `z` and `p` are its, as in `best_exchange`.
    """
    best, choice = 0.0, -1
    q, r = m.meets[i], 1.0 + m.norm[i]
    determinant = p * r - q * q
    x, y = (r * z - q * m.z[i]) / determinant, (p * m.z[i] - q * z) / determinant
    p, q, r = p / determinant, q / determinant, r / determinant
    for j in range(count):
        if j == i or m.share[j] > left:
            continue
        u, v = m.meets[j], m.between[i, j]  # how far the third depends on the other two
        rest = m.z[j] - x * u - y * v
        bends = max(1.0 + m.norm[j] - (r * u - 2.0 * q * v) * u - p * v * v, 1e-9)
        if rest > 0.0 and rest * rest > (best + m.fee[j]) * bends:
            best, choice = rest * rest / bends - m.fee[j], j
    return best, choice


@inlined
def make_move(w: Work, m: Moves, i: int) -> None:
    """Let the edges of a listed move trade."""
    for h in range(m.size[i]):
        e = m.edge[i, h]
        w.e_alive[e] = True
        if h + 1 < m.size[i]:
            w.t_s[w.e_b[e]] = m.s[i, h]
