"""Column generation: which edges of the graph belong into the working set, and the dual bound.

`ahead[t]` is the best spot rate from the sources to token t (times a normalisation, so that the best route
has the value `top`), `behind[t]` the best spot rate from t to the sink. In a market without arbitrage an
edge a -> b can carry flow only where `ahead[a] * rate * behind[b] >= marginal rate`: exact pruning. What
is left out is priced with the dual prices; the sum of its profits bounds what it could add.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from millrace.routing.jit import kernel
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.newton import minimise
from millrace.routing.potential import source_rate
from millrace.routing.work import EDGES, TOKENS, Work, add_edges, add_hold, add_token, reset

FIRST_PAIRS = 16  # token pairs in the first working set
FIRST_PARALLEL = 6  # pools of one pair in the first working set, best spot rates first
ADDED = 48  # edges added per round, or half of those present if that is more
ROUNDS = 12
MISSED = 1e-7  # stop when what is left out is worth less than this part of the output
TOLERANCE = 1e-8
ROUGH = 1e-4  # tolerance while edges are still being added
NEWTON_STEPS = 60
FIRST_FLOOR = 0.8  # first candidates: pairs on routes within 20 % of the best spot rate
FIRST_MARGINAL = 0.97  # guess of marginal rate / best spot rate


class Search(NamedTuple):
    """One question put to a net. Amounts are scaled; `single` means one source which is not the sink."""

    sources: Ints
    amounts: Floats
    sink: int
    cycle: bool  # the only source is the sink: arbitrage
    no_seller: int  # token that sells nothing (the sink, unless `cycle`), or -1
    no_buyer: int  # token that nobody buys (a single source, unless `cycle`), or -1
    ahead: Floats
    behind: Floats
    top: float


@kernel
def sellers(net: Net, q: Search) -> Ints:
    """Tokens that may sell: the sources, then every core token that is none."""
    result = np.empty(q.sources.size + net.corelist.size, np.int32)
    count = 0
    for i in range(q.sources.size):
        if not net.core[q.sources[i]]:
            result[count] = q.sources[i]
            count += 1
    for i in range(net.corelist.size):
        if net.corelist[i] != q.no_seller:
            result[count] = net.corelist[i]
            count += 1
    return result[:count]


@kernel
def first_set(net: Net, w: Work, q: Search) -> None:
    """Fill the empty working set with the pairs on the best spot routes and guess the prices."""
    total = 0.0
    for i in range(q.amounts.size):
        total += q.amounts[i]
    reset(w, total)
    add_token(w, q.sink, 1.0)
    for i in range(q.sources.size):
        token = q.sources[i]
        rate = max(source_rate(net, token, q.behind), 1e-300)
        local = add_token(w, token, math.sqrt(FIRST_MARGINAL * rate))
        w.t_amount[local] = q.amounts[i] / total
        if q.cycle:
            w.n_buy[token] = 0
            w.t_s[local] = max(w.t_s[local], 1.0)
            add_hold(w)
    count = _scan_pairs(net, w, q, FIRST_FLOOR * q.top)
    chosen = _largest(w, count, FIRST_PAIRS)
    _add_pair_tokens(net, w, q, chosen)
    _expand_pairs(net, w, chosen)


@kernel
def _expand_pairs(net: Net, w: Work, chosen: int) -> None:
    """Add the best edges of the candidate pairs."""
    edges = np.empty(w.e_edge.size, np.int32)
    count = 0
    for i in range(chosen):
        k = w.c_edge[i]
        if w.n_sell[w.c_token[i]] >= 0 and w.n_buy[net.pdst[k]] >= 0:
            for e in range(net.pe0[k], min(net.pe1[k], net.pe0[k] + FIRST_PARALLEL)):
                if count < edges.size:
                    edges[count] = e
                    count += 1
    add_edges(net, w, edges[:count])


@kernel
def _scan_pairs(net: Net, w: Work, q: Search, floor: float) -> int:
    """List the pairs whose best route through them is above `floor` as candidates."""
    count, sink, no_buyer = 0, q.sink, q.no_buyer
    for a in sellers(net, q):
        if not 1 <= w.n_sell[a] <= q.sources.size and q.ahead[a] * q.behind[a] < floor:
            continue
        for k in range(net.pptr[a], net.pptr[a + 1]):
            b = net.pdst[k]
            if (k >= net.pcore[a] and b != sink) or b == no_buyer:
                continue
            score = q.ahead[a] * net.prate[k] * q.behind[b]
            if score > floor and count < w.c_edge.size:
                w.c_edge[count] = k
                w.c_token[count] = a
                w.c_score[count] = score
                count += 1
    return count


@kernel
def _largest(w: Work, count: int, wanted: int) -> int:
    """Keep the `wanted` candidates with the best scores (in their old order); returns how many are left."""
    if count <= wanted:
        return count
    threshold = -np.partition(-w.c_score[:count], wanted - 1)[wanted - 1]
    kept = 0
    for i in range(count):
        if w.c_score[i] >= threshold and kept < wanted:
            w.c_edge[kept] = w.c_edge[i]
            w.c_token[kept] = w.c_token[i]
            w.c_score[kept] = w.c_score[i]
            kept += 1
    return kept


@kernel
def _add_pair_tokens(net: Net, w: Work, q: Search, chosen: int) -> None:
    """Add the tokens of the chosen pairs, those with many pairs first (it keeps the factors sparse)."""
    tokens = np.empty(2 * chosen, np.int32)
    degree = np.zeros(2 * chosen)
    seen = np.full(net.core.size, -1, np.int32)
    count = 0
    for i in range(chosen):
        for t in (w.c_token[i], net.pdst[w.c_edge[i]]):
            if seen[t] < 0:
                seen[t] = count
                tokens[count] = t
                count += 1
            degree[seen[t]] -= 1.0
    order = np.argsort(degree[:count])
    for i in range(count):
        t = tokens[order[i]]
        if w.n_sell[t] < 0:
            low = FIRST_MARGINAL * q.top / q.ahead[t] if q.ahead[t] > 0.0 else q.behind[t]
            add_token(w, t, math.sqrt(math.sqrt(q.behind[t] * low)))


@kernel
def marginal(net: Net, w: Work, q: Search) -> float:
    """The lowest ratio of a source's dual price to its best spot rate, times `top`: the pruning level."""
    lowest = 1e300
    for i in range(q.sources.size):
        rate = source_rate(net, q.sources[i], q.behind)
        if rate > 0.0:
            s = w.t_s[w.n_sell[q.sources[i]]]
            lowest = min(lowest, s * s / rate)
    return lowest * q.top


@kernel
def price_tokens(net: Net, w: Work, q: Search, level: float) -> None:
    """Price every core token: the dual price inside the working set, outside what makes trades useless.

    Outside, a price between what the token fetches and what it costs leaves no profit, if there is one.
    """
    for t in net.corelist:
        local = w.n_sell[t]
        w.n_price[t] = w.t_s[local] * w.t_s[local] if local >= 0 else 0.0
    for t in net.corelist:
        if w.n_sell[t] >= 0 or q.ahead[t] * q.behind[t] <= level:
            continue
        fetch, cost = 0.0, 1e300
        for k in range(net.pptr[t], net.pptr[t + 1]):
            b = net.pdst[k]
            if w.n_buy[b] >= 0:
                s = w.t_s[w.n_buy[b]]
                fetch = max(fetch, net.prate[k] * s * s)
            if w.n_sell[b] >= 0 and b != q.no_seller and net.pback[k] > 0.0:
                s = w.t_s[w.n_sell[b]]
                cost = min(cost, s * s / net.pback[k])
        w.n_price[t] = math.sqrt(fetch * cost) if fetch > cost and cost > 0.0 else fetch


@kernel
def sweep(net: Net, w: Work, q: Search, level: float) -> tuple[int, float]:
    """List edges outside the set that would trade at the dual prices; also returns the sum of profits."""
    count, missed, sink, no_buyer = 0, 0.0, q.sink, q.no_buyer
    root = 1.0 / math.sqrt(w.unit[0])
    for a in sellers(net, q):
        local = w.n_sell[a]
        price = w.t_s[local] * w.t_s[local] if local >= 0 else w.n_price[a]
        if price <= 0.0:
            continue
        if not 1 <= local <= q.sources.size and q.ahead[a] * q.behind[a] <= level:
            continue
        sa = math.sqrt(price)
        for k in range(net.pptr[a], net.pptr[a + 1]):
            b = net.pdst[k]
            if (k >= net.pcore[a] and b != sink) or b == no_buyer:
                continue
            sb = w.t_s[w.n_buy[b]] if w.n_buy[b] >= 0 else math.sqrt(w.n_price[b])
            if net.prate[k] * sb * sb <= price * (1.0 + 1e-12):
                continue
            for e in range(net.pe0[k], net.pe1[k]):
                z = (net.cb[e] * sb - net.ca[e] * sa) * root
                if net.curve[e] < 0 and z <= 0.0:
                    continue
                if net.rate[e] * sb * sb <= price:
                    break
                if not w.m_in[e]:
                    missed += z * z
                    if count < w.c_edge.size:
                        w.c_edge[count] = e
                        w.c_score[count] = z
                        count += 1
    return count, missed


@kernel
def _add_columns(net: Net, w: Work, count: int) -> int:
    """Add the best of the candidates, with their tokens at their present prices; returns how many."""
    wanted = max(ADDED, w.n[EDGES] // 2)
    edges = np.empty(wanted, np.int32)
    fitting = 0
    for i in range(_largest(w, count, wanted)):
        e = w.c_edge[i]
        fits = True
        for t in (net.src[e], net.dst[e]):
            if w.n_sell[t] < 0:
                fits = fits and add_token(w, t, math.sqrt(w.n_price[t])) >= 0
        if fits:
            edges[fitting] = e
            fitting += 1
    return add_edges(net, w, edges[:fitting])


@kernel
def generate(net: Net, w: Work, q: Search) -> tuple[float, float]:
    """Solve the dual over the graph; returns its value on the working set and what was seen to be missed."""
    first_set(net, w, q)
    missed = 0.0
    for attempt in range(ROUNDS + 1):
        minimise(net, w, ROUGH, NEWTON_STEPS)
        level = marginal(net, w, q)
        price_tokens(net, w, q, level)
        count, missed = sweep(net, w, q, level)
        if missed < MISSED * value_of_prices(w) or count == 0 or attempt == ROUNDS:
            break
        if w.n[EDGES] >= w.e_edge.size or _add_columns(net, w, count) == 0:
            break
    return minimise(net, w, TOLERANCE, NEWTON_STEPS), missed


@kernel
def value_of_prices(w: Work) -> float:
    """What the input is worth at the present prices."""
    total = 0.0
    for t in range(w.n[TOKENS]):
        total += w.t_amount[t] * w.t_s[t] * w.t_s[t]
    return total
