"""Scratch memory of one solver: the working set of edges and tokens, and everything Newton needs.

Local token 0 is the sink; the sources follow from 1. Flows and amounts are in units of the total input.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millrace.routing.jit import inlined
from millrace.routing.net import Bools, Floats, Ints, Net

MAX_EDGES = 768
MAX_TOKENS = 192
# An edge between the two faces of one token (arbitrage): keeping the input instead of trading it.
HOLD = -1
HOLD_DEPTH = 1e10

EDGES, TOKENS, CURVES, SELLERS, ITERATIONS = range(5)  # slots of Work.n


class Work(NamedTuple):
    """Arrays by local edge (`e…`), by local token (`t…`) and by token of the net (`n…`)."""

    n: npt.NDArray[np.int64]
    unit: Floats  # [0]: scaled amount of one unit of flow
    e_edge: Ints  # edge of the net, or HOLD
    e_a: Ints  # local token in
    e_b: Ints  # local token out
    e_ca: Floats
    e_cb: Floats
    e_curve: Ints
    e_alive: Bools
    e_z: Floats  # constant product: cb s_b - ca s_a
    e_dz: Floats
    e_d: Floats  # flow in
    e_y: Floats  # flow out
    e_w: Floats  # value carried, at the dual prices
    e_use: Bools
    e_order: Ints
    e_loss: Floats
    e_best: Bools
    t_token: Ints
    t_s: Floats  # sqrt(price)
    t_amount: Floats  # injected
    t_grad: Floats
    t_step: Floats
    t_old: Floats
    t_best: Floats
    t_list: Ints
    t_in: Ints
    t_out: Ints
    t_mark: Ints
    t_queue: Ints
    hess: Floats
    n_sell: Ints  # local index of a token as seller, -1 outside the working set
    n_buy: Ints  # local index of a token as buyer
    n_price: Floats  # price of a token as seller, 0 for one that may not sell
    n_paid: Floats  # price of a token as buyer, 0 for one that may not buy
    n_sellers: Ints  # tokens that may sell
    t_outside: Ints  # scratch: tokens outside the working set
    p_outside: Floats
    m_in: Bools  # edge of the net is in the working set
    c_edge: Ints  # candidates
    c_token: Ints
    c_score: Floats
    point: Floats


def make_work(tokens: int, edges: int) -> Work:
    """Scratch for nets of up to `tokens` tokens and `edges` edges (about 1 MB)."""
    me, mt, cand = MAX_EDGES, MAX_TOKENS, 8192

    def f(size: int) -> Floats:
        return np.zeros(size)

    def i(size: int) -> Ints:
        return np.zeros(size, np.int32)

    def b(size: int) -> Bools:
        return np.zeros(size, np.bool_)

    return Work(
        np.zeros(8, np.int64), f(1),
        i(me), i(me), i(me), f(me), f(me), i(me), b(me), f(me), f(me), f(me), f(me), f(me), b(me), i(me), f(me), b(me),
        i(mt), f(mt), f(mt), f(mt), f(mt), f(mt), f(mt), i(mt), i(mt), i(mt), i(mt), i(mt), np.zeros((mt, mt)),
        i(tokens), i(tokens), f(tokens), f(tokens), i(tokens), i(tokens), f(tokens), b(edges),
        i(cand), i(cand), f(cand), f(3),
    )  # fmt: skip


@inlined
def reset(w: Work, unit: float) -> None:
    """Empty the working set; one unit of flow is `unit` scaled units."""
    for slot in range(w.n.size):
        w.n[slot] = 0
    w.unit[0] = unit
    w.n_sell[:] = -1
    w.n_buy[:] = -1
    w.n_price[:] = 0.0
    w.n_paid[:] = 0.0
    w.m_in[:] = False


@inlined
def add_token(w: Work, token: int, s: float) -> int:
    """Put `token` at sqrt(price) `s` into the working set; its local index, or -1 when the set is full."""
    local = int(w.n[TOKENS])
    if local >= w.t_token.size:
        return -1
    w.n[TOKENS] = local + 1
    w.t_token[local] = token
    w.t_s[local] = s
    w.t_amount[local] = 0.0
    w.n_sell[token] = local
    w.n_buy[token] = local
    return local


@inlined
def add_edges(net: Net, w: Work, edges: Ints) -> int:
    """Put edges, whose tokens are in the working set, into it; returns how many fitted."""
    root = 1.0 / np.sqrt(w.unit[0])
    first = int(w.n[EDGES])
    count = min(edges.size, w.e_edge.size - first)
    curves = 0
    for i in range(count):
        e = edges[i]
        local = first + i
        w.e_edge[local] = e
        w.e_a[local] = w.n_sell[net.src[e]]
        w.e_b[local] = w.n_buy[net.dst[e]]
        w.e_ca[local] = net.ca[e] * root
        w.e_cb[local] = net.cb[e] * root
        w.e_curve[local] = net.curve[e]
        w.e_alive[local] = True
        w.m_in[e] = True
        if net.curve[e] >= 0:
            curves += 1
    w.n[EDGES] = first + count
    w.n[CURVES] += curves
    return count


@inlined
def add_hold(w: Work) -> None:
    """The edge of an arbitrage quote that keeps the input: rate 1, practically without depth limit."""
    local = w.n[EDGES]
    w.n[EDGES] = local + 1
    w.e_edge[local] = HOLD
    w.e_a[local] = 1
    w.e_b[local] = 0
    w.e_ca[local] = np.sqrt(HOLD_DEPTH)
    w.e_cb[local] = np.sqrt(HOLD_DEPTH)
    w.e_curve[local] = -1
    w.e_alive[local] = True
