"""Scratch memory of one solver: the working set of edges and tokens, and everything Newton needs.

Local token 0 is the sink; the sources follow from 1. Flows and amounts are in units of the total input.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from millrace.routing.compiled import inlined
from millrace.routing.linear import Matrix, make_matrix
from millrace.routing.net import Bools, Floats, Ints, Longs, Net
from millrace.routing.scratch import make, sized

MAX_EDGES = 1024
MAX_HOPS = 16  # pools of one path, whatever is asked for
LEVELS = MAX_HOPS + 1  # numbers of pools from none on
MAX_TOKENS = 320
NEARLY = 0.9995  # how near an edge is to trade to be worth a place in the working set, in square roots of rates
# An edge between the two faces of one token (arbitrage): keeping the input instead of trading it.
HOLD = -1
HOLD_DEPTH = 1e10

EDGES, TOKENS, CURVES, PAIRS, ITERATIONS, LONG = range(6)  # slots of Work.n


class Work(NamedTuple):
    """Arrays by local edge (`e…`), by local token (`t…`) and by token of the net (`n…`)."""

    n: Longs = sized(6)
    unit: Floats = sized(1)  # [0]: scaled amount of one unit of flow
    e_edge: Ints = sized(MAX_EDGES)  # edge of the net, or HOLD
    e_a: Ints = sized(MAX_EDGES)  # local token in
    e_b: Ints = sized(MAX_EDGES)  # local token out
    e_ca: Floats = sized(MAX_EDGES)
    e_cb: Floats = sized(MAX_EDGES)
    e_curve: Ints = sized(MAX_EDGES)
    e_alive: Bools = sized(MAX_EDGES)
    e_z: Floats = sized(MAX_EDGES)  # constant product: cb s_b - ca s_a; 0 for curves and for edges that are not alive
    e_dz: Floats = sized(MAX_EDGES)  # the same along the step
    e_bend: Floats = sized(MAX_EDGES)  # curve: -y'' at the best trade
    e_d: Floats = sized(MAX_EDGES)  # flow in
    e_y: Floats = sized(MAX_EDGES)  # flow out
    e_w: Floats = sized(MAX_EDGES)  # value carried, at the dual prices
    e_use: Bools = sized(MAX_EDGES)
    e_order: Ints = sized(MAX_EDGES)
    e_loss: Floats = sized(MAX_EDGES)
    e_best: Bools = sized(MAX_EDGES)
    t_token: Ints = sized(MAX_TOKENS)
    t_s: Floats = sized(MAX_TOKENS)  # sqrt(price)
    t_amount: Floats = sized(MAX_TOKENS)  # injected
    t_grad: Floats = sized(MAX_TOKENS)
    t_step: Floats = sized(MAX_TOKENS)
    t_old: Floats = sized(MAX_TOKENS)
    t_best: Floats = sized(MAX_TOKENS)
    t_list: Ints = sized(MAX_TOKENS)
    t_in: Ints = sized(MAX_TOKENS)
    t_out: Ints = sized(MAX_TOKENS)
    t_mark: Ints = sized(MAX_TOKENS)
    t_queue: Ints = sized(MAX_TOKENS)
    hess: Matrix = sized()
    n_sell: Ints = sized("tokens")  # local index of a token as seller, -1 outside the working set
    n_buy: Ints = sized("tokens")  # local index of a token as buyer
    n_price: Floats = sized("tokens")  # price of a token as seller, 0 for one that may not sell
    n_paid: Floats = sized("tokens")  # price of a token as buyer, 0 for one that may not buy
    n_over: Floats = sized("tokens")  # 1 / n_price of a token in the working set that may sell, 0 for one that may not
    n_fetch: Floats = sized("tokens")  # what a token outside the set fetches there
    n_yield: Floats = sized("tokens")  # how much of it is bought there for one unit of value
    n_mark: Ints = sized("tokens")  # scratch, zero between uses
    l_pair: Ints = sized("listed")  # listed pairs
    l_from: Ints = sized("listed")  # the tokens they sell
    t_outside: Ints = sized("tokens")  # tokens outside the working set that have a price of their own
    m_in: Bools = sized("edges")  # edge of the net is in the working set
    c_edge: Ints = sized("candidates")  # candidates
    c_token: Ints = sized("candidates")
    c_score: Floats = sized("candidates")
    c_level: Floats = sized("candidates")  # scratch
    point: Floats = sized(3)


def make_work(tokens: int, edges: int) -> Work:
    """Scratch for nets of up to `tokens` tokens and `edges` edges (about 1 MB)."""
    matrix = {"hess": make_matrix(MAX_TOKENS)}
    return make(Work, matrix, tokens=tokens, edges=edges, listed=2 * edges + 1, candidates=max(8192, 2 * edges))


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
def add_edge(net: Net, w: Work, e: int) -> bool:
    """Put an edge, whose tokens are in the working set, into it; False when the set is full."""
    local = w.n[EDGES]
    if local >= w.e_edge.size:
        return False
    w.n[EDGES] = local + 1
    root = 1.0 / math.sqrt(w.unit[0])
    w.e_edge[local] = e
    w.e_a[local] = w.n_sell[net.src[e]]
    w.e_b[local] = w.n_buy[net.dst[e]]
    w.e_ca[local] = net.ca[e] * root
    w.e_cb[local] = net.cb[e] * root
    w.e_curve[local] = net.curve[e]
    w.e_alive[local] = True
    w.m_in[e] = True
    w.n[CURVES] += net.curve[e] >= 0
    return True


@inlined
def add_hold(w: Work) -> None:
    """The edge of an arbitrage quote that keeps the input: rate 1, practically without depth limit."""
    local = w.n[EDGES]
    w.n[EDGES] = local + 1
    w.e_edge[local] = HOLD
    w.e_a[local] = 1
    w.e_b[local] = 0
    w.e_ca[local] = math.sqrt(HOLD_DEPTH)
    w.e_cb[local] = math.sqrt(HOLD_DEPTH)
    w.e_curve[local] = -1
    w.e_alive[local] = True


@inlined
def compact(w: Work, sources: int, nearly: float) -> None:
    """Forget the edges that neither carry flow nor nearly would, and the tokens that only those trade.

    An edge nearly does if the square root of its rate falls short of the prices by no more than the factor `nearly`.
    """
    for t in range(w.n[TOKENS]):
        w.t_mark[t] = 1 if t <= sources else 0
    edges = 0
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        near = w.e_curve[e] >= 0 or w.e_cb[e] * w.t_s[b] > nearly * w.e_ca[e] * w.t_s[a]
        if w.e_edge[e] == HOLD or (w.e_alive[e] and near):
            w.t_mark[a] = 1
            w.t_mark[b] = 1
            _move_edge(w, e, edges)
            edges += 1
        else:
            w.m_in[w.e_edge[e]] = False
    tokens = 0
    for t in range(w.n[TOKENS]):
        token = w.t_token[t]
        if w.t_mark[t] == 0:
            w.n_sell[token] = -1
            w.n_buy[token] = -1
            continue
        w.t_list[t] = tokens
        if w.n_sell[token] == t:
            w.n_sell[token] = tokens
        if w.n_buy[token] == t:
            w.n_buy[token] = tokens
        w.t_token[tokens], w.t_s[tokens], w.t_amount[tokens] = token, w.t_s[t], w.t_amount[t]
        tokens += 1
    for e in range(edges):
        w.e_a[e] = w.t_list[w.e_a[e]]
        w.e_b[e] = w.t_list[w.e_b[e]]
    w.n[EDGES], w.n[TOKENS] = edges, tokens


@inlined
def _move_edge(w: Work, old: int, new: int) -> None:
    """Give an edge of the working set, as solved, another place."""
    w.e_edge[new], w.e_curve[new] = w.e_edge[old], w.e_curve[old]
    w.e_a[new], w.e_b[new] = w.e_a[old], w.e_b[old]
    w.e_ca[new], w.e_cb[new] = w.e_ca[old], w.e_cb[old]
    w.e_alive[new], w.e_use[new] = w.e_alive[old], w.e_use[old]
    w.e_z[new], w.e_bend[new], w.e_d[new] = w.e_z[old], w.e_bend[old], w.e_d[old]
    w.e_y[new], w.e_w[new] = w.e_y[old], w.e_w[old]
