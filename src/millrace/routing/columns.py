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

from millrace.routing.jit import inlined, kernel
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.newton import minimise
from millrace.routing.potential import source_rate
from millrace.routing.work import EDGES, SELLERS, TOKENS, Work, add_edges, add_hold, add_token, reset

FIRST_PAIRS = 16  # token pairs in the first working set
FIRST_PARALLEL = 6  # pools of one pair in the first working set, best spot rates first
ADDED = 48  # edges added per round, or half of those present if that is more
ROUNDS = 12
MISSED = 1e-7  # stop when what is left out is worth less than this part of the output
TOLERANCE = 1e-8
ROUGH = 1e-4  # tolerance while edges are still being added
NEWTON_STEPS = 60
ROUGH_STEPS = 3  # while the set is small: its prices are wrong anyway until the edges that are missing come in
SMALL_SET = 256  # edges
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


@inlined
def _list_sellers(net: Net, w: Work, q: Search) -> None:
    """List the tokens that may sell: the sources, then every core token that is none."""
    count = 0
    for i in range(q.sources.size):
        if not net.core[q.sources[i]]:
            w.n_sellers[count] = q.sources[i]
            count += 1
    for t in net.corelist:
        if t != q.no_seller:
            w.n_sellers[count] = t
            count += 1
    w.n[SELLERS] = count


@inlined
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
    _list_sellers(net, w, q)
    count = _scan_pairs(net, w, q, FIRST_FLOOR * q.top)
    chosen = _largest(w, count, FIRST_PAIRS)
    _add_pair_tokens(net, w, q, chosen)
    _expand_pairs(net, w, chosen)


@inlined
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


@inlined
def _scan_pairs(net: Net, w: Work, q: Search, floor: float) -> int:
    """List the pairs whose best route through them is above `floor` as candidates."""
    count, sink, no_buyer = 0, q.sink, q.no_buyer
    for i in range(w.n[SELLERS]):
        a = w.n_sellers[i]
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


@inlined
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


@inlined
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


@inlined
def marginal(net: Net, w: Work, q: Search) -> float:
    """The lowest ratio of a source's dual price to its best spot rate, times `top`: the pruning level."""
    lowest = 1e300
    for i in range(q.sources.size):
        rate = source_rate(net, q.sources[i], q.behind)
        if rate > 0.0:
            s = w.t_s[w.n_sell[q.sources[i]]]
            lowest = min(lowest, s * s / rate)
    return lowest * q.top


@inlined
def price_tokens(net: Net, w: Work, q: Search, level: float) -> None:
    """Price every core token, as a seller and as a buyer; 0 for what may not sell, or buy.

    Inside the working set that is the dual price, outside what makes trades useless: a price between what the
    token fetches and what it costs leaves no profit, if there is one.
    """
    for t in net.corelist:
        w.n_price[t] = 0.0
        w.n_paid[t] = 0.0
    for local in range(w.n[TOKENS] - 1, -1, -1):  # the sink last: in a cycle its token is the source's as well
        t = w.t_token[local]
        price = w.t_s[local] * w.t_s[local]
        if w.n_sell[t] == local:
            w.n_price[t] = price
        w.n_paid[t] = price
    if q.no_seller >= 0:
        w.n_price[q.no_seller] = 0.0
    count = 0
    for t in net.corelist:
        if w.n_sell[t] >= 0 or q.ahead[t] * q.behind[t] <= level:
            continue
        fetch, cost = 0.0, 1e300
        for k in range(net.pptr[t], net.pptr[t + 1]):
            b = net.pdst[k]
            fetch = max(fetch, net.prate[k] * w.n_paid[b])
            if w.n_price[b] > 0.0 and w.n_price[b] < cost * net.pback[k]:
                cost = w.n_price[b] / net.pback[k]
        w.t_outside[count] = t
        w.p_outside[count] = math.sqrt(fetch * cost) if fetch > cost and cost > 0.0 else fetch
        count += 1
    for i in range(count):
        w.n_price[w.t_outside[i]] = w.p_outside[i]
        w.n_paid[w.t_outside[i]] = w.p_outside[i]
    if q.no_buyer >= 0:  # but others were priced as if they could be sold to it: no profit is left in that
        w.n_paid[q.no_buyer] = 0.0


@inlined
def sweep(net: Net, w: Work, q: Search, level: float) -> tuple[int, float]:
    """List edges outside the set that would trade at the dual prices; also returns the sum of profits."""
    count, missed = 0, 0.0
    root = 1.0 / math.sqrt(w.unit[0])
    for i in range(w.n[SELLERS]):
        a = w.n_sellers[i]
        price = w.n_price[a]
        if price <= 0.0:
            continue
        if not 1 <= w.n_sell[a] <= q.sources.size and q.ahead[a] * q.behind[a] <= level:
            continue
        least, sa = price * (1.0 + 1e-12), math.sqrt(price)
        for k in range(net.pptr[a], net.pptr[a + 1]):
            bought = w.n_paid[net.pdst[k]]
            if net.prate[k] * bought <= least:
                continue
            sb = math.sqrt(bought)
            for e in range(net.pe0[k], net.pe1[k]):
                if net.rate[e] * bought <= price:
                    break
                z = (net.cb[e] * sb - net.ca[e] * sa) * root
                if (net.curve[e] < 0 and z <= 0.0) or w.m_in[e]:
                    continue
                missed += z * z
                if count < w.c_edge.size:
                    w.c_edge[count] = e
                    w.c_score[count] = z
                    count += 1
    return count, missed


@inlined
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
    settled = False  # whether the last prices were those of the set, and not on the way there
    for attempt in range(ROUNDS + 1):
        settled = settled or w.n[EDGES] >= SMALL_SET or attempt == ROUNDS
        minimise(net, w, ROUGH, NEWTON_STEPS if settled else ROUGH_STEPS)
        level = marginal(net, w, q)
        price_tokens(net, w, q, level)
        count, missed = sweep(net, w, q, level)
        if missed < MISSED * value_of_prices(w) or count == 0:
            if settled:
                break
            settled = True
        elif attempt == ROUNDS or w.n[EDGES] >= w.e_edge.size or _add_columns(net, w, count) == 0:
            break
    return minimise(net, w, TOLERANCE, NEWTON_STEPS), missed


@kernel
def value_of_prices(w: Work) -> float:
    """What the input is worth at the present prices."""
    total = 0.0
    for t in range(w.n[TOKENS]):
        total += w.t_amount[t] * w.t_s[t] * w.t_s[t]
    return total
